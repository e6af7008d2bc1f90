"""`lapwing attack`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


def test_a_violation_exits_with_1(shell: Shell) -> None:
    with observing(lambda mechanism, inputs, draw: inputs["values"], during_charges=True):
        done = shell("attack", "differencing", "--runs", "100")
    assert done.code == 1
    assert "VIOLATION" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["linkge"], 'Did you mean "linkage"'),
        (["linkage", "--epsilon", "0"], "must lie between 0.05 and 8"),
        (["linkage", "--epsilon", "much"], "epsilon"),
        (["linkage", "--runs", "0"], "at least 1"),
        (["linkage", "--runs", "ten"], "whole number"),
        (["linkage", "--plot", "x.gif"], "must end in .svg"),
    ],
)
def test_bad_input_is_told_in_one_line(shell: Shell, arguments: list[str], told: str) -> None:
    done = shell("attack", *arguments)
    assert done.code == 2
    assert told in done.error
    assert len(done.error.splitlines()) == 1
