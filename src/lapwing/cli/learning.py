"""`lapwing stream`: new data and the blocks that it opens. `lapwing train`: run a pipeline to its verdict.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option

from lapwing.cli import console
from lapwing.errors import BadFile, BadParameter

if TYPE_CHECKING:
    from lapwing.learn.pipelines.training import TrainingEvent, TrainingOutcome, TrainingWatcher
    from lapwing.learn.stream_blocks import StreamStatus


BLOCKS_SHOWN = 24
app = console.Commands(help="Growing data: blocks that open as data arrives.")


@app.command()
def append(
    policy: console.PolicyFile,
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="New rows. Without it: what was put into the source.")
    ] = None,
    *,
    table: Annotated[str | None, Option(help="Whose rows they are, if there are several.")] = None,
    through: Annotated[
        str | None,
        Option(help="The newest block that has data now, such as 2026-03; else by the calendar."),
    ] = None,
    analyst: console.Analyst = None,
    threads: console.Threads = None,
    as_json: console.AsJson = False,
) -> None:
    """Take new data in and open its blocks. What was taken in before is never changed."""
    from lapwing.learn import Stream

    opened = Stream.open(policy, analyst=analyst, threads=threads)
    opened.dataset.curator.notify = console.tell
    with console.os_errors_told(), opened as stream, console.working("taking data in") as report:
        done = stream.append(file, table=table, through=through, progress=_told(report, as_json=as_json))
    if as_json:
        taken = None if done.file is None else str(done.file)
        console.print_json({"version": done.version, "file": taken, "blocks": list(done.blocks)})
        return
    if done.file is not None:
        print(f"The file is in {done.file}")
    new = ", ".join(done.blocks[:BLOCKS_SHOWN]) + (" …" if len(done.blocks) > BLOCKS_SHOWN else "")
    print(f"Version {done.version}. New blocks: {new or 'none'}")


def _told(report: Callable[[int, int], None], *, as_json: bool) -> Callable[[float], None]:
    """Return a progress function: a bar on a terminal; elsewhere, unless JSON, a line before and after."""
    by_lines = not as_json and not sys.stderr.isatty()

    def told(share: float) -> None:
        report(round(share * 100), 100)
        if by_lines and share >= 1:
            print("The data is prepared.", flush=True)

    if by_lines:
        print("Preparing the data.", flush=True)
    return told


@app.command()
def status(
    policy: console.PolicyFile,
    *,
    pipeline: Annotated[str | None, Option(help="What is left for this pipeline.")] = None,
    analyst: console.Analyst = None,
    as_json: console.AsJson = False,
) -> None:
    """Show every block, what is left of it, and which are retired. It costs nothing."""
    from lapwing.learn import Stream

    with console.os_errors_told(), Stream.open(policy, analyst=analyst) as stream:
        stream_status = stream.status(pipeline=pipeline)
    console.print_result(stream_status, _show_status, as_json=as_json)


def _show_status(status: StreamStatus) -> None:
    from lapwing.core.exact import short_down
    from lapwing.learn.stream_blocks import blocks_text

    version = "nothing was taken in yet" if status.version is None else f"version {status.version}"
    grid = Table(title=f"{status.name}: {version}; {status.sharing}")
    grid.add_column("block")
    for name in ("ε left", "of", "unlocked"):
        grid.add_column(name, justify="right")
    grid.add_column("")
    shown = [block for block in status.blocks if block.has_arrived or not block.is_untouched]
    for block in shown[-BLOCKS_SHOWN:]:
        grid.add_row(
            block.label,
            short_down(block.left),
            short_down(block.epsilon),
            f"{float(block.unlocked):.0%}",
            "retired" if block.is_retired else "" if block.has_arrived else "has not come in",
        )
    if shown:
        Console(soft_wrap=True).print(grid)
    else:
        print(f"{status.name}: {version}; {status.sharing}")
    waiting = len(status.blocks) - len(shown)
    print(
        f"{blocks_text(len(status.usable))} can be learned from, {_are(len(status.retired))} retired, "
        f"{_are(waiting)} declared and {'has' if waiting == 1 else 'have'} no data yet."
    )
    if len(shown) > BLOCKS_SHOWN:
        print(f"Shown are the newest {BLOCKS_SHOWN} of {len(shown)}; all of them with --json.")
    if status.several:
        print(status.several)


def _are(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"


EXAMPLE = "example"
CODES = {"OVER_BUDGET": 3, "FAILED": 1}  # exit codes of ends that are failures


def train(
    pipeline: Annotated[
        Path,
        Argument(
            metavar="PIPELINE", help='The pipeline file, such as durations.toml; or "example" to get one.'
        ),
    ],
    folder: Annotated[
        Path | None,
        Argument(metavar="[FOLDER]", help="Where runs are kept (PIPELINE.runs), or the example."),
    ] = None,
    *,
    new_run: Annotated[
        bool, Option("--new-run", help="Begin another run: it spends anew. Else the last goes on.")
    ] = False,
    mlflow: Annotated[str | None, Option(help="Log the run to MLflow at this address.")] = None,
    analyst: console.Analyst = None,
    threads: console.Threads = None,
    as_json: console.AsJson = False,
) -> None:
    """Train until a model is shown to be good: accept, retry with twice as much, or reject."""
    if str(pipeline) == EXAMPLE:
        _example(folder or Path("."))
        return
    from lapwing import learn
    from lapwing.learn.pipelines.pipeline import raise_as_file_mistake
    from lapwing.learn.pipelines.training import check_pipeline

    place = folder or pipeline.with_name(f"{pipeline.stem}.runs")
    with console.os_errors_told():
        wanted = learn.load_pipeline(pipeline)
        with learn.Stream.open(wanted.stream, analyst=analyst, threads=threads) as stream:
            stream.dataset.curator.notify = console.tell
            try:
                check_pipeline(stream, wanted)
            except BadFile:
                raise
            except BadParameter as error:
                raise_as_file_mistake(pipeline, error)
            with watching_attempts(quiet=as_json) as watch:
                outcome = learn.train(stream, wanted, place, new_run=new_run, watch=watch)
            files = learn.write_outputs(outcome, stream.policy, place)
            card = learn.model_card(outcome, stream.policy)
        logged = {} if mlflow is None else {"mlflow_run": learn.log_to_mlflow(card, files, mlflow)}
    if as_json:
        console.print_json({**card, "files": {name: str(path) for name, path in files.items()}, **logged})
    else:
        show_outcome(outcome, card, files)
    if code := CODES.get(outcome.end.name):
        raise Exit(code)


def _example(folder: Path) -> None:
    from lapwing.examples.rides import PIPELINES, RIDES_POLICY, write_rides

    with console.os_errors_told():
        names, is_new = write_rides(folder)
    console.print_written(names, is_new=is_new)
    print(f"  lapwing stream append {folder / RIDES_POLICY} --through 2026-01")
    print(f"  lapwing train {folder / PIPELINES[0]}")


_STYLES = {"accept": "bold green", "reject": "bold red", "retry": "yellow", "crashed": "red"}
_ENDS = {
    "accepted": "bold green", "rejected": "bold red", "over budget": "bold yellow",
    "waiting for data": "bold yellow", "not accepted": "bold yellow", "failed": "bold red",
}  # fmt: skip


class AttemptBoard:
    """The attempts of a run so far."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.now = ""

    def add(self, event: TrainingEvent) -> str:
        """Add one event. Return a line to print where there is no live table."""
        from lapwing.learn.pipelines.model_card import list_blocks
        from lapwing.learn.stream_blocks import blocks_text

        blocks = f"{blocks_text(len(event.blocks))} ({list_blocks(event.blocks)})"
        used = f"{blocks}, ε {float(event.tried.epsilon):.6g}"
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

    def render(self) -> Table:
        """Return the current table."""
        grid = console.table("attempt", "blocks", "ε", "verdict", "shown", "", right=(0, 1, 2))
        for number, blocks, epsilon, verdict, words, again in self.rows:
            grid.add_row(number, blocks, epsilon, Text(verdict, style=_STYLES[verdict]), words, again)
        if self.now:
            grid.add_row("…", "", "", Text("training", style="dim"), self.now, "")
        return grid


@contextmanager
def watching_attempts(*, quiet: bool) -> Iterator[TrainingWatcher]:
    """Show progress: a table on stderr, if that is a terminal; else a line for each event."""
    from rich.live import Live

    from lapwing.learn.pipelines.model_card import printable

    board = AttemptBoard()
    if quiet:
        yield lambda event: None
        return
    if not sys.stderr.isatty():

        def say(event: TrainingEvent) -> None:
            line = board.add(event)
            if event.done is None or not event.done.is_replay:
                print(printable(line), flush=True)

        yield say
        return
    with Live(board.render(), console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def show(event: TrainingEvent) -> None:
            board.add(event)
            live.update(board.render(), refresh=True)

        yield show


def show_outcome(outcome: TrainingOutcome, card: dict[str, Any], files: dict[str, Path]) -> None:
    """Show the attempts, the verdict, the budget spent, and the files."""
    from lapwing.learn.pipelines.calibration import calibration_lines
    from lapwing.learn.pipelines.components import statistic_lines
    from lapwing.learn.pipelines.model_card import printable

    with console.page() as out:
        end = outcome.end.value
        out.heading(f"{outcome.pipeline.name}, run {outcome.run}")
        if card["attempts"]:
            out.print(_attempts(card))
        out.print(Text(f"{end.upper()}: {outcome.words}", style=_ENDS[end]))
        if outcome.end.is_verdict and all(attempt.is_replay for attempt in outcome.attempts):
            out.indented("It was decided before: nothing was spent now. --new-run begins another run.")
        if "statistic" in card:
            out.points(*statistic_lines(card["statistic"], card["statistic"]["error_at_most"]))
        if "calibration" in card:
            out.points(*map(printable, calibration_lines(card["calibration"])))
        privacy = card["privacy"]
        out.indented(
            f"No block lost more than ε {privacy['run_epsilon_at_most']:.6g} by this run, and none will "
            f"lose more than ε {privacy['stream_epsilon_for_life']:g} in its life. Protected: "
            f"{card['data']['unit']}."
        )
        out.points(*(f"{name.replace('_', ' ')}: {path}" for name, path in files.items()))


def _attempts(card: dict[str, Any]) -> Table:
    grid = console.table("attempt", "blocks", "ε", "verdict", "shown", right=(0, 1, 2))
    for attempt in card["attempts"]:
        verdict = Text(attempt["verdict"], style=_STYLES[attempt["verdict"]])
        used = str(len(attempt["blocks"])), f"{attempt['epsilon']:.6g}"
        grid.add_row(str(attempt["attempt"]), *used, verdict, attempt["words"])
    return grid
