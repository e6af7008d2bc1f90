"""Progress of a run: who is here, who has posted, who is lost; a table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys

import pytest

from lapwing.cli.show_party import MemberBoard, watching_run
from lapwing.parties.messages import Progress

NAMES = ("east", "north", "south")


def events() -> list[Progress]:
    return [
        Progress("away"),
        Progress("arrived", ("north",)),
        Progress("arrived", NAMES),
        Progress("begun", NAMES),
        Progress("round", NAMES, 0, 2, "deal", 0, 3),
        Progress("posted", ("east",), 0, 2, "deal", 0, 3),
        Progress("closed", ("east", "north"), 0, 2, "deal", 0, 3),
        Progress("lost", ("south",), 0, 2, "deal", 0, 3),
        Progress("opened", ("east", "north"), 0, 2, "open", 2, 3),
    ]


def test_a_board_knows_who_is_waited_for() -> None:
    board = MemberBoard(NAMES)
    *before, posted, _, lost, opened = events()
    for event in before:
        board.add(event)
    assert set(board.state.values()) == {"waiting"}
    assert board.said == "stage 1 of 2, round 1 of 3: deal"
    board.add(posted)
    assert board.state == {"east": "posted", "north": "waiting", "south": "waiting"}
    board.add(lost)
    board.add(Progress("round", ("east", "north"), 0, 2, "agree", 1, 3))
    assert board.state == {"east": "waiting", "north": "waiting", "south": "lost"}
    assert board.add(opened) == "stage 1 of 2, opened the sum of east, north"
    board.add(Progress("posted", ("nobody",)))
    assert "nobody" not in board.state


def test_elsewhere_lines_are_printed_once_each(capsys: pytest.CaptureFixture[str]) -> None:
    with watching_run(NAMES) as watch:
        for event in events():
            watch(event)
            watch(event)
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "the relay cannot be reached yet; trying again",
        "here: north",
        "here: east, north, south",
        "begun with east, north, south",
        "stage 1 of 2, round 1 of 3, deal: east, north",
        "lost: south",
        "stage 1 of 2, opened the sum of east, north",
    ]


def test_a_terminal_shows_one_table_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with watching_run(NAMES) as watch:
        for event in events():
            watch(event)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "round 1 of 3: deal" in shown.err
    assert "south" in shown.err


class Gone:
    """A terminal that was closed."""

    encoding = "utf-8"

    def __init__(self, error: type[Exception], *, is_terminal: bool) -> None:
        self.error = error
        self.is_terminal = is_terminal
        self.told = 0

    def write(self, _: str) -> int:
        self.told += 1
        raise self.error

    def flush(self) -> None:
        raise self.error

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_run_goes_on_when_nobody_can_be_shown_it(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], is_terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    gone = Gone(error, is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", gone)
    with watching_run(NAMES) as watch:
        for event in events():
            watch(event)
    assert gone.told


def test_a_run_without_a_stderr_prints_nothing_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with watching_run(NAMES) as watch:
        for event in events():
            watch(event)
    assert capsys.readouterr().out == ""
