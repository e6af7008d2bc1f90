"""How training looks: a table that grows while it goes on, and the verdict at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from lapwing.cli.show import console, heading, indented, points, table
from lapwing.learn.growing import blocks_text
from lapwing.learn.pipelines.calibration import calibration_lines
from lapwing.learn.pipelines.card import listed, printable
from lapwing.learn.pipelines.statistics import statistic_lines

if TYPE_CHECKING:
    from lapwing.learn.pipelines import Event, Outcome
    from lapwing.learn.pipelines.running import Watch

_STYLES = {"accept": "bold green", "reject": "bold red", "retry": "yellow", "crashed": "red"}
_ENDS = {
    "accepted": "bold green", "rejected": "bold red", "over budget": "bold yellow",
    "waiting for data": "bold yellow", "not accepted": "bold yellow", "failed": "bold red",
}  # fmt: skip


class Board:
    """What is known of every attempt so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.now = ""

    def hear(self, event: Event) -> str:
        """Take in one event; a line to print where there is no live table."""
        used = (
            f"{blocks_text(len(event.blocks))} ({listed(event.blocks)}), ε {float(event.tried.epsilon):.6g}"
        )
        if event.done is None:
            self.now = f"attempt {event.tried.attempt}: {used}"
            return self.now
        judged = event.done.judged
        verdict = "crashed" if judged is None else judged.verdict.value
        words = "it was charged, and crashed: it counts as failed" if judged is None else judged.words
        again = "stored" if event.done.is_replay else ""
        self.now = ""
        number, epsilon = str(event.done.number), f"{float(event.done.epsilon):.6g}"
        self.rows.append((number, str(len(event.blocks)), epsilon, verdict, words, again))
        return f"attempt {number}: {verdict}, {words}{again and f' ({again})'}"

    def render(self) -> Grid:
        """The table of now."""
        grid = table("attempt", "blocks", "ε", "verdict", "shown", "", right=(0, 1, 2))
        for number, blocks, epsilon, verdict, words, again in self.rows:
            grid.add_row(number, blocks, epsilon, Text(verdict, style=_STYLES[verdict]), words, again)
        if self.now:
            grid.add_row("…", "", "", Text("training", style="dim"), self.now, "")
        return grid


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watch]:
    """Shows progress: a table on stderr, if that is a terminal; else a line for all that happens."""
    board = Board()
    if quiet:
        yield lambda event: None
        return
    if not sys.stderr.isatty():

        def say(event: Event) -> None:
            line = board.hear(event)
            if event.done is None or not event.done.is_replay:
                print(printable(line), flush=True)

        yield say
        return
    with Live(board.render(), console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def show(event: Event) -> None:
            board.hear(event)
            live.update(board.render(), refresh=True)

        yield show


def show_outcome(outcome: Outcome, card: dict[str, Any], files: dict[str, Path]) -> None:
    """The attempts, the verdict, what was spent, and where everything is."""
    with console() as out:
        end = outcome.end.value
        heading(out, f"{outcome.pipeline.name}, run {outcome.run}")
        if card["attempts"]:
            out.print(_attempts(card))
        out.print(Text(f"{end.upper()}: {outcome.words}", style=_ENDS[end]))
        if outcome.end.is_verdict and all(one.is_replay for one in outcome.attempts):
            indented(out, "It was decided before: nothing was spent now. --new-run begins another run.")
        if "statistic" in card:
            points(out, statistic_lines(card["statistic"], card["statistic"]["error_at_most"]))
        if "calibration" in card:
            points(out, map(printable, calibration_lines(card["calibration"])))
        privacy = card["privacy"]
        indented(
            out,
            f"No block lost more than ε {privacy['run_epsilon_at_most']:.6g} by this run, and none will "
            f"lose more than ε {privacy['stream_epsilon_for_life']:g} in its life. Protected: "
            f"{card['data']['unit']}.",
        )
        points(out, [f"{name.replace('_', ' ')}: {path}" for name, path in files.items()])


def _attempts(card: dict[str, Any]) -> Grid:
    grid = table("attempt", "blocks", "ε", "verdict", "shown", right=(0, 1, 2))
    for one in card["attempts"]:
        verdict = Text(one["verdict"], style=_STYLES[one["verdict"]])
        used = str(len(one["blocks"])), f"{one['epsilon']:.6g}"
        grid.add_row(str(one["attempt"]), *used, verdict, one["words"])
    return grid
