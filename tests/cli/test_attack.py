"""`lapwing attack`."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from lapwing.audit.attacks import ATTACKS
from lapwing.core.observed import observing
from support.shell import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_table_a_picture_and_json(shell: Shell, tmp_path: Path) -> None:
    done = shell("attack", "differencing", "--runs", "50", "--plot", str(tmp_path / "d.svg"))
    assert done.code == 0, done.error
    assert "50 of 50" in done.out
    assert "No attack succeeded more often than the promise allows" in done.out
    assert (tmp_path / "d.svg").stat().st_size > 1000
    done = shell("attack", "differencing", "--runs", "10", "--epsilon", "0.5", "--json")
    [found] = json.loads(done.out)
    assert found["epsilon"] == 0.5
    assert found["protected"]["trials"] == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon"),
    [*product(ATTACKS, ["0.05", "8"]), *product(["linkage", "refill", "longitudinal"], ["1/3"])],
)
def test_every_attack_runs_at_the_ends_of_epsilon_and_at_a_third(
    shell: Shell, name: str, epsilon: str
) -> None:
    done = shell("attack", name, "--runs", "1", "--epsilon", epsilon, "--json")
    assert done.code == 0, done.error
    assert all(found["attack"] == name and not found["could_show_violation"] for found in done.json)


def test_too_few_runs_are_reported(shell: Shell) -> None:
    done = shell("attack", "differencing", "--runs", "20")
    assert "1 of 1 result could not have shown a violation" in done.out
    assert "Use at least 52 runs (--runs 52)" in done.out


def test_a_violation_exits_with_1(shell: Shell) -> None:
    with observing(lambda mechanism, inputs, draw: inputs["values"], during_charges=True):
        done = shell("attack", "differencing", "--runs", "100")
    assert done.code == 1
    assert "VIOLATION" in done.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["linkge"], 'Did you mean "linkage"'),
        (["linkage", "--epsilon", "0"], "must lie between 0.05 and 8"),
        (["all", "--epsilon", "0.0499999"], "must lie between 0.05 and 8"),
        (["all", "--epsilon", "8.0000000001"], "must lie between 0.05 and 8"),
        (["linkage", "--epsilon", "much"], "epsilon"),
        (["linkage", "--runs", "0"], "at least 1"),
        (["linkage", "--runs", "ten"], "whole number"),
        (["linkage", "--plot", "x.gif"], "must end in .svg"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str
) -> None:
    monkeypatch.setattr("lapwing.cli.attack._run", None)  # nothing may run
    done = shell("attack", *arguments)
    assert done.code == 2
    assert error in done.error
    assert len(done.error.splitlines()) == 1
