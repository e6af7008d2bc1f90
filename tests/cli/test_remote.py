"""`lapwing plan` and `lapwing ask` with the address of a server print what they print for a policy file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.server.people.person import Role
from support.door_process import new_token, running
from support.served import COUNT, write_data
from support.shell import Shell


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a data set, and a token."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(folder / "state"))
        write_data(folder)
        token = new_token(folder, "ann", Role.ANALYST)
        with running(folder) as door:
            yield f"{door.address}/visits", token


@pytest.fixture
def url(served: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LAPWING_TOKEN", served[1])
    return served[0]


def test_a_plan_of_a_server_is_shown_as_one_of_a_file(shell: Shell, url: str, tmp_path: Path) -> None:
    policy = write_data(tmp_path)
    here = shell.good("plan", policy, COUNT, "--epsilon", "0.5")
    there = shell.good("plan", url, COUNT, "--epsilon", "0.5")
    assert set(there.out.splitlines()) <= set(here.out.splitlines())
    for words in ("Would cost ε 0.5", "± 12", "Laplace noise, scale 4"):
        assert words in there.out
    said = shell.good("plan", url, COUNT, "--epsilon", "0.5", "--json").json
    assert said["cost"] == shell.good("plan", policy, COUNT, "--epsilon", "0.5", "--json").json["cost"]


def test_an_answer_of_a_server_has_all_output_forms(shell: Shell, url: str, tmp_path: Path) -> None:
    asked = ("ask", url, COUNT, "--epsilon", "0.5")
    shown = shell.good(*asked).out
    for words in ("ward", " to ", "charged ε 0.5", "Budget left: ε", "Receipt: "):
        assert words in shown
    again = shell.good(*asked, "--json").json
    assert again["replayed"]
    assert again["price"] == {"epsilon": 0.5, "delta": 0.0}
    rows = list(csv.reader(shell(*asked, "--csv").out.splitlines()))
    assert rows[0] == ["ward", "n", "n_low", "n_high"]
    assert [int(row[1]) for row in rows[1:]] == again["columns"][1]["values"]
    assert "made of generated rows" in shell.good(*asked, "--dry-run").out
    picture = tmp_path / "answer.svg"
    shell.good(*asked, "--plot", picture)
    assert picture.read_text().lstrip().startswith("<?xml")


def test_json_has_the_names_that_a_file_gives(shell: Shell, url: str, tmp_path: Path) -> None:
    policy = write_data(tmp_path)
    asked = (COUNT, "--epsilon", "0.25", "--json")
    here, there = shell("ask", policy, *asked).json, shell("ask", url, *asked).json
    assert there.keys() == here.keys()
    assert there["receipt"].keys() == here["receipt"].keys()


@pytest.mark.parametrize("option", [("--as", "bob"), ("--threads", "2"), ("--two-stage",)])
def test_options_that_a_server_decides_are_refused(shell: Shell, url: str, option: tuple[str, ...]) -> None:
    done = shell("ask", url, COUNT, "--epsilon", "0.5", *option)
    assert (done.code, done.out) == (2, "")
    assert option[0][2:] in done.error


def test_errors_have_the_exit_codes_of_a_file(
    shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("ask", url, COUNT, "--epsilon", "50").code == 3
    assert shell("ask", url, "SELECT * FROM visits", "--epsilon", "1").code == 2
    assert shell("ask", "http://privacy.example.org/visits", COUNT, "--epsilon", "1").code == 2
    monkeypatch.delenv("LAPWING_TOKEN")
    done = shell("ask", url, COUNT, "--epsilon", "1")
    assert done.code == 2
    assert "LAPWING_TOKEN" in done.error
