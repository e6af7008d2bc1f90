"""Errors under `--json`: one object on standard output, the line on stderr, and the same exit codes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import typer

from lapwing.cli import main
from lapwing.cli.main import wants_json
from lapwing.errors import (
    Aborted,
    BadFile,
    BadParameter,
    Held,
    LapwingError,
    OverBudget,
    Tampered,
    fields_of,
)  # fmt: skip
from support.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    shell.good("example", tmp_path)
    return tmp_path / "visits.toml"


def test_the_same_error_is_a_line_without_json_and_an_object_with_it(shell: Shell, policy: Path) -> None:
    asked = ["ask", policy, COUNT, "--epsilon", "99"]
    shell(*asked)  # it makes the ledger
    plain, told = shell(*asked), shell(*asked, "--json")
    assert (plain.code, plain.out) == (3, "")
    assert (told.code, told.error) == (3, plain.error)
    error = told.json["error"]
    assert set(told.json) == {"error"}
    assert list(error)[:3] == ["code", "message", "exit_code"]
    assert (error["code"], error["exit_code"], error["left"]) == ("over-budget", 3, "ε 3 of 3")
    assert error["message"] in plain.error
    assert error["what_now"]


def test_refused_sql_names_its_place(shell: Shell, policy: Path) -> None:
    error = shell("plan", policy, "SELECT * FROM visits", "--epsilon", "1", "--json").json["error"]
    assert (error["code"], error["exit_code"], error["place"]) == ("refused", 2, [1, 8])
    assert error["construct"] == "rows are never shown"


def test_a_file_with_mistakes_lists_them(shell: Shell, policy: Path) -> None:
    policy.write_text(policy.read_text().replace("epsilon = 3.0", "epsilon = -3.0"))
    error = shell("schema", policy, "--json").json["error"]
    assert (error["code"], error["exit_code"]) == ("bad-file", 2)
    assert len(error["mistakes"]) == 1
    assert "budget.epsilon" in error["mistakes"][0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "--json"],
        ["ask", "visits.toml", "--json", "--bogus"],
        ["unheard-of", "--json"],
        ["prepare", "visits.toml", "--json"],  # it has no such option
        ["explain", "--json", "--epsilon", "1"],
        ["ledger", "log", "x", "--last", "none", "--json"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_an_object_too(arguments: list[str], shell: Shell) -> None:
    done = shell(*arguments)
    assert done.code == 2
    assert done.error.startswith("lapwing: ")
    error = done.json["error"]
    assert (error["code"], error["exit_code"]) == ("usage", 2)
    assert error["message"]


def test_help_is_no_error(shell: Shell) -> None:
    assert shell("ask", "--json", "--help").out.lstrip().startswith("Usage")


@pytest.mark.parametrize(
    ("arguments", "wants"),
    [
        (["ask", "--json"], True), (["--json"], True), (["ask", "--", "--json"], False),
        (["ask", "--jsonx"], False), ([], False), (["ask", "--json", "--", "x"], True),
    ],
)  # fmt: skip
def test_only_the_option_asks_for_json(arguments: list[str], wants: bool) -> None:
    assert wants_json(arguments) is wants


class OddError(LapwingError):
    """An error whose fields are of other kinds."""

    code = "odd"


def test_fields_are_plain_and_others_are_left_out() -> None:
    assert fields_of(OverBudget("a", "b", "c", where="d")) == {
        "asked": "a", "left": "b", "what_now": "c", "where": "d",
    }  # fmt: skip
    assert fields_of(BadParameter("epsilon", "is odd")) == {"name": "epsilon", "why": "is odd"}
    assert fields_of(BadFile(["a", "b"]))["mistakes"] == ["a", "b"]
    assert fields_of(Tampered(["x"])) == {"found": ["x"]}
    assert fields_of(Held(5)) == {"position": 5}
    assert fields_of(Aborted("why", ["m"]))["missing"] == ["m"]
    odd = OddError("text")
    odd.__dict__ |= {"share": Fraction(1, 2), "none": None, "far": float("inf"), "what": object(),
                     "some": (1, object()), "_own": 1}  # fmt: skip
    odd.add_note("a note")
    assert fields_of(odd) == {"share": 0.5, "none": None}
    assert json.dumps(fields_of(odd), allow_nan=False)


def test_a_command_that_a_person_stops_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(main, "app", stop)
    with pytest.raises(SystemExit) as caught:
        main.run(["demo", "--json"])
    assert caught.value.code == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "stopped"
