"""How the commands look: rich on a terminal, plain text of fixed width elsewhere.

What all commands of the ledger share: which ledger, where its keys and anchor lie, and opening it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lapwing.cli.explanation import Explanation, percent_down, percent_up, short
from lapwing.errors import Unavailable
from lapwing.examples import clinic

if TYPE_CHECKING:
    from lapwing.ledger import Ledger


PLAIN_WIDTH = 100
_TRUTH = "truth (only because\nthis data is invented)"


@contextmanager
def console() -> Iterator[Console]:
    """On a terminal as wide as it is; otherwise of fixed width, so that files look the same everywhere."""
    out = Console(highlight=False, markup=False, emoji=False)
    if out.is_terminal:
        yield out
        return
    lines = StringIO()
    yield Console(file=lines, highlight=False, markup=False, emoji=False, width=PLAIN_WIDTH, no_color=True)
    for line in lines.getvalue().splitlines():
        print(line.rstrip())  # tables pad their lines with spaces


def heading(out: Console, text: str) -> None:
    """A bold line, after an empty one."""
    out.print()
    out.print(Text(text, style="bold"))


def printable(text: str) -> str:
    """A text of somebody else's on one line, in which nothing moves the cursor or turns writing round."""
    letters = (" " if one in "\n\t" else one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
    return "".join(letters)


def indented(out: Console, text: str) -> None:
    """A paragraph under a heading."""
    out.print(Padding(Text(text), (0, 0, 0, 2)))


def points(out: Console, lines: Iterable[str]) -> None:
    """A list of sentences."""
    for line in lines:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("  -"), Text(line))
        out.print(grid)


def table(*columns: str, right: Iterable[int] = ()) -> Table:
    """An empty table; the columns in `right` hold numbers."""
    made = Table(box=SIMPLE_HEAD, pad_edge=True, header_style="bold")
    for k, name in enumerate(columns):
        # Folding rather than cutting: nothing that was computed is ever hidden.
        made.add_column(name, justify="right" if k in set(right) else "left", overflow="fold")
    return made


def show_explanation(it: Explanation) -> None:
    """`lapwing explain`."""
    with console() as out:
        _explanation(out, it)


def _explanation(out: Console, it: Explanation) -> None:
    out.print(Text(f"ε = {short(it.epsilon)}, δ = {short(it.delta)}, n = {it.n:,} people", style="bold"))
    for warning in it.warnings:
        out.print(Text(f"Warning: {warning}", style="bold yellow"))

    heading(out, "What one answer can change")
    indented(out, f"{it.odds[0].upper()}{it.odds[1:]}.")
    indented(out, it.delta_means)
    guesses = table("what somebody thought of you", "then at least", "and at most", right=(0, 1, 2))
    for guess in it.guesses:
        guesses.add_row(percent_up(guess.before), percent_down(guess.at_least), percent_up(guess.at_most))
    out.print(guesses)

    heading(out, "What is promised")
    points(out, it.promised)
    heading(out, "What is not promised")
    points(out, it.not_promised)

    heading(out, "What a count of people will look like")
    counts = table("noise", "size", "95 % of answers lie within", "as a share of n", right=(2, 3))
    for count in it.counts:
        size = f"{count.parameter} {short(count.size)}"
        counts.add_row(count.mechanism, size, f"± {count.within:,}", f"± {percent_up(count.share)}")
    out.print(counts)

    heading(out, "How many such counts fit a lifetime budget, chosen one after another")
    lifetimes = table("lifetime ε", "lifetime δ", "Laplace", "Gaussian", right=(0, 1, 2, 3))
    for life in it.lifetimes:
        gaussian = "needs a δ" if life.gaussian is None else f"{life.gaussian:,}"
        lifetimes.add_row(short(life.epsilon), short(life.delta), f"{life.laplace:,}", gaussian)
    out.print(lifetimes)

    heading(out, "Is this a sensible ε?")
    indented(out, it.advice)


def show_demo(story: clinic.DemoStory) -> None:
    """`lapwing demo`."""
    with console() as out:
        _demo(out, story)


def _demo(out: Console, story: clinic.DemoStory) -> None:
    terms = story.terms
    budget = f"ε {short(float(terms.epsilon))}, δ {short(float(terms.delta))}"
    out.print(Text("A clinic and its patients (an invented data set)", style="bold"))
    points(
        out,
        (
            "Protected: everything about one patient, that is one answer to a survey and up to "
            f"{clinic.VISITS_AT_MOST} visits. Further visits are left out.",
            "Neighbours: data sets in which one patient is replaced by another. That there are "
            f"{clinic.PATIENTS} patients is public.",
            f"Budget: {budget}, for life, on a ledger in a file. Each question is charged there before "
            "it is computed.",
        ),
    )
    # Two lines a cell, so that the table fits a terminal of 80 columns.
    steps = table(
        "question\nand mechanism",
        "price\nand what is left",
        "answer\nand 95 % interval",
        _TRUTH,
        right=(3,),
    )
    for step in story.steps:
        steps.add_row(
            f"{step.question}\n{step.mechanism}",
            f"{step.price}\nε {float(step.left):.3f} left",
            f"{step.answer}\n{step.interval}",
            step.truth,
            end_section=True,
        )
    out.print(steps)
    indented(
        out,
        "Intervals cover the noise. What the bounds leave out (further visits, costs above "
        f"{float(clinic.COSTS.high):,.0f}) is missing besides.",
    )

    heading(out, "Patients by the ward that they came to first")
    bars = table("ward", "patients, noisy", "", _TRUTH, right=(1, 3))
    for bar in story.bars:
        bars.add_row(bar.ward, str(bar.patients), "▇" * max(round(bar.patients / 5), 0), str(bar.truth))
    out.print(bars)

    heading(out, "One question too many")
    indented(out, f"Refused: {story.refused}")
    left = f"ε {float(story.left_after_refusal):.3f}"
    indented(out, f"Nothing was computed and nothing was charged: {left} is left, as before.")
    _ending(out, story)


def _ending(out: Console, story: clinic.DemoStory) -> None:
    ending, question = story.ending, story.asked_twice.question
    same = "the same bytes" if ending.again == ending.first else "OTHER BYTES"
    wrong = "; ".join(ending.findings) or "nothing differs"
    heading(out, "The ledger: closed, opened again, and cheated")
    points(
        out,
        (
            f"The same key: {question} {ending.again.decode()}, {same}, "
            f"and ε {float(ending.left):.3f} is left, as before.",
            f"Verified: {ending.entries} entries replayed by a second accountant, {wrong}.",
            f"A copy in which somebody gave spent budget back: refused, {ending.edited}.",
            f"A copy from before the first question: refused, {ending.older}.",
        ),
    )


Where = Annotated[str, typer.Argument(metavar="LEDGER", help="A path, or postgresql://…#name.")]
Keys = Annotated[
    Path | None,
    typer.Option("--keys", envvar="LAPWING_KEYS", help="The ledger's key file; else LEDGER.keys."),
]
AnchorAt = Annotated[
    str | None,
    typer.Option(
        "--anchor",
        envvar="LAPWING_ANCHOR",
        help="Where the newest state is kept besides; else LEDGER.anchor.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def opened(where: str, keys: Path | None, anchor: str | None) -> Iterator[Ledger]:
    """The ledger, checked against its entries and anchors."""
    from lapwing.cli.ledger import working  # noqa: PLC0415
    from lapwing.ledger import Ledger  # noqa: PLC0415

    with plainly():
        require_file(where)
        with working("checking the ledger"):
            ledger = Ledger.open(where, keys=keys, anchor=anchor)
        with ledger:
            yield ledger


@contextmanager
def plainly() -> Iterator[None]:
    """What the operating system refuses is said in one line."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads our output has had enough
    except OSError as error:
        what = f"{error.filename}: " if error.filename and len(str(error.filename)) < 300 else ""
        raise Unavailable(f"{what}{error.strerror}") from None


def tell(text: str) -> None:
    """A line on stderr, if anybody can still read it: a run does not end because its terminal did."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:  # closed before we began
            print(f"lapwing: {text}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One JSON value. Nothing in it is rounded up to infinity or down to a word."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def require_file(where: str) -> None:
    """There is something to open."""
    from lapwing.ledger.ledger import is_postgres  # noqa: PLC0415

    if not is_postgres(where) and not Path(where).is_file():
        raise Unavailable(f"there is no ledger at {where}")
