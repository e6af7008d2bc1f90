"""`lapwing stream append` and `status`: new data into a policy's blocks, and what is left of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapwing.cli.opened import AsJson, plainly, print_json, tell
from lapwing.cli.query import Analyst, PolicyFile, Threads

if TYPE_CHECKING:
    from lapwing.learn.growing import Status

SHOWN = 24
app = typer.Typer(help="Growing data: blocks that open as data arrives.", no_args_is_help=True)


@app.command()
def append(
    policy: PolicyFile,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="New rows. Without it: what was put into the source."),
    ] = None,
    *,
    table: Annotated[str | None, typer.Option(help="Whose rows they are, if there are several.")] = None,
    through: Annotated[
        str | None,
        typer.Option(help="The newest block that has data now, such as 2026-03; else by the calendar."),
    ] = None,
    analyst: Analyst = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Take new data in and open its blocks. What was taken in before is never changed."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.learn.growing import Stream  # noqa: PLC0415

    opened = Stream.open(policy, analyst=analyst, threads=threads)
    opened.dataset.tell = tell
    with plainly(), opened as stream, working("taking data in") as report:
        done = stream.append(file, table=table, through=through, progress=_told(report, as_json=as_json))
    if as_json:
        print_json(
            {
                "version": done.version,
                "file": None if done.file is None else str(done.file),
                "blocks": list(done.blocks),
            }
        )
        return
    if done.file is not None:
        print(f"The file is in {done.file}")
    new = ", ".join(done.blocks[:SHOWN]) + (" …" if len(done.blocks) > SHOWN else "")
    print(f"Version {done.version}. New blocks: {new or 'none'}")


def _told(report: Callable[[int, int], None], *, as_json: bool) -> Callable[[float], None]:
    """Progress on a terminal; elsewhere (and not amid JSON) one line before and one after the long work."""
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
    policy: PolicyFile,
    *,
    pipeline: Annotated[str | None, typer.Option(help="What is left for this pipeline.")] = None,
    analyst: Analyst = None,
    as_json: AsJson = False,
) -> None:
    """Show every block, what is left of it, and which are retired. It costs nothing."""
    from lapwing.learn.growing import Stream  # noqa: PLC0415

    with plainly(), Stream.open(policy, analyst=analyst) as stream:
        found = stream.status(pipeline=pipeline)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found)


def _show(found: Status) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from lapwing.learn.growing import blocks_text  # noqa: PLC0415
    from lapwing.ledger.views.price_words import short_down  # noqa: PLC0415

    version = "nothing was taken in yet" if found.version is None else f"version {found.version}"
    table = Table(title=f"{found.name}: {version}; {found.sharing}")
    table.add_column("block")
    for name in ("ε left", "of", "unlocked"):
        table.add_column(name, justify="right")
    table.add_column("")
    shown = [block for block in found.blocks if block.has_arrived or not block.is_untouched]
    for block in shown[-SHOWN:]:
        table.add_row(
            block.label,
            short_down(block.left),
            short_down(block.epsilon),
            f"{float(block.unlocked):.0%}",
            "retired" if block.is_retired else "" if block.has_arrived else "has not come in",
        )
    console = Console(soft_wrap=True)
    if shown:
        console.print(table)
    else:
        print(f"{found.name}: {version}; {found.sharing}")
    waiting = len(found.blocks) - len(shown)
    print(
        f"{blocks_text(len(found.usable))} can be learned from, {_are(len(found.retired))} retired, "
        f"{_are(waiting)} declared and {'has' if waiting == 1 else 'have'} no data yet."
    )
    if len(shown) > SHOWN:
        print(f"Shown are the newest {SHOWN} of {len(shown)}; all of them with --json.")
    if found.several:
        print(found.several)


def _are(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"
