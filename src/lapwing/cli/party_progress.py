"""How far a run is, on the other stream than the answer: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:
    from lapwing.parties.messages.progress import Progress, Watch

_MARKS = {"waiting": ("…", "dim"), "here": ("✓", "green"), "posted": ("✓", "green"), "lost": ("✗", "red")}


class Board:
    """What is known of every member: here, posted, waited for, lost."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.state = dict.fromkeys(names, "waiting")
        self.said = "waiting for the members"

    def hear(self, event: Progress) -> str | None:
        """Take in one event; a line to print where there is no live table."""
        stage = f"stage {event.stage + 1} of {event.stages}, " if event.stages > 1 else ""
        names, line = ", ".join(event.names), None
        match event.kind:
            case "arrived":
                self._mark(event.names, "here")
                line = f"here: {names}"
            case "ready":
                self._mark(event.names, "posted")
                self.said = "waiting until all have read their data; nothing is charged yet"
                line = f"ready: {names}"
            case "refused" | "unserved":
                line = f"{event.kind}: {names}: {event.why}"
            case "begun":
                self.state = {name: "waiting" if name in event.names else "lost" for name in self.names}
                line = f"begun with {names}"
            case "round":
                self._waiting()
                self.said = f"{stage}round {event.index + 1} of {event.rounds}: {event.round}"
            case "posted":
                self._mark(event.names, "posted")
            case "closed":
                self._mark(event.names, "posted")
                line = f"{stage}round {event.index + 1} of {event.rounds}, {event.round}: {names}"
            case "lost":
                self._mark(event.names, "lost")
                line = f"lost: {names}"
            case "opened":
                self.said = f"{stage}opened"
                line = f"{stage}opened the sum of {names}"
            case _:
                self.said = line = "the relay cannot be reached yet; trying again"
        return line

    def _mark(self, names: tuple[str, ...], state: str) -> None:
        for name in names:
            if name in self.state:
                self.state[name] = state

    def _waiting(self) -> None:
        self.state = {name: "lost" if was == "lost" else "waiting" for name, was in self.state.items()}

    def render(self) -> Grid:
        """The table of now."""
        grid = Grid.grid(padding=(0, 2))
        grid.add_row(Text(self.said, style="bold"), *(self._cell(name) for name in self.names))
        return grid

    def _cell(self, name: str) -> Text:
        mark, style = _MARKS[self.state[name]]
        return Text(f"{mark} {name}", style=style)


@contextmanager
def watching(names: tuple[str, ...]) -> Iterator[Watch]:
    """Shows progress on stderr while a run goes on. To watch never raises, whatever became of stderr."""
    board = Board(names)
    with ExitStack() as stack:
        watch = _watch_lines(board)
        if _is_terminal():
            with suppress(OSError, ValueError):
                live = Live(board.render(), console=_Quiet(stderr=True), transient=True, auto_refresh=False)
                stack.enter_context(_closed_quietly(live))
                watch = _watch_live(board, live)
        yield watch


class _Quiet(Console):
    """rich would end the process, and close stdout with it, when stderr is gone."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False


@contextmanager
def _closed_quietly(live: Live) -> Iterator[None]:
    try:
        live.start(refresh=True)
        yield
    finally:
        with suppress(OSError, ValueError):
            live.stop()


def _watch_live(board: Board, live: Live) -> Watch:
    def show(event: Progress) -> None:
        board.hear(event)
        with suppress(OSError, ValueError):
            live.update(board.render(), refresh=True)

    return show


def _watch_lines(board: Board) -> Watch:
    last = ""

    def show(event: Progress) -> None:
        nonlocal last
        line = board.hear(event)
        if line is None or line == last:
            return
        last = line
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)

    return show
