"""How the commands look: rich on a terminal, plain text of fixed width elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lapwing.cli import demo
from lapwing.cli.explain import Explanation, percent_down, percent_up, short

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


def _heading(out: Console, text: str) -> None:
    out.print()
    out.print(Text(text, style="bold"))


def _indented(out: Console, text: str) -> None:
    out.print(Padding(Text(text), (0, 0, 0, 2)))


def _points(out: Console, lines: Iterable[str]) -> None:
    for line in lines:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("  -"), Text(line))
        out.print(grid)


def _table(*columns: str, right: Iterable[int] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True, header_style="bold")
    for k, name in enumerate(columns):
        # Folding rather than cutting: nothing that was computed is ever hidden.
        table.add_column(name, justify="right" if k in set(right) else "left", overflow="fold")
    return table


def show_explanation(it: Explanation) -> None:
    """`lapwing explain`."""
    with console() as out:
        _explanation(out, it)


def _explanation(out: Console, it: Explanation) -> None:
    out.print(Text(f"ε = {short(it.epsilon)}, δ = {short(it.delta)}, n = {it.n:,} people", style="bold"))
    for warning in it.warnings:
        out.print(Text(f"Warning: {warning}", style="bold yellow"))

    _heading(out, "What one answer can change")
    _indented(out, f"{it.odds[0].upper()}{it.odds[1:]}.")
    _indented(out, it.delta_means)
    guesses = _table("what somebody thought of you", "then at least", "and at most", right=(0, 1, 2))
    for guess in it.guesses:
        guesses.add_row(percent_up(guess.before), percent_down(guess.at_least), percent_up(guess.at_most))
    out.print(guesses)

    _heading(out, "What is promised")
    _points(out, it.promised)
    _heading(out, "What is not promised")
    _points(out, it.not_promised)

    _heading(out, "What a count of people will look like")
    counts = _table("noise", "size", "95 % of answers lie within", "as a share of n", right=(2, 3))
    for count in it.counts:
        size = f"{count.parameter} {short(count.size)}"
        counts.add_row(count.mechanism, size, f"± {count.within:,}", f"± {percent_up(count.share)}")
    out.print(counts)

    _heading(out, "How many such counts fit a lifetime budget, chosen one after another")
    lifetimes = _table("lifetime ε", "lifetime δ", "Laplace", "Gaussian", right=(0, 1, 2, 3))
    for life in it.lifetimes:
        gaussian = "needs a δ" if life.gaussian is None else f"{life.gaussian:,}"
        lifetimes.add_row(short(life.epsilon), short(life.delta), f"{life.laplace:,}", gaussian)
    out.print(lifetimes)

    _heading(out, "Is this a sensible ε?")
    _indented(out, it.advice)


def show_demo(story: demo.Story) -> None:
    """`lapwing demo`."""
    with console() as out:
        _demo(out, story)


def _demo(out: Console, story: demo.Story) -> None:
    terms = story.terms
    budget = f"ε {short(float(terms.epsilon))}, δ {short(float(terms.delta))}"
    out.print(Text("A clinic and its patients (an invented data set)", style="bold"))
    _points(
        out,
        (
            "Protected: everything about one patient, that is one answer to a survey and up to "
            f"{demo.VISITS_AT_MOST} visits. Further visits are left out.",
            "Neighbours: data sets in which one patient is replaced by another. That there are "
            f"{demo.PATIENTS} patients is public.",
            f"Budget: {budget}, for life. Each question is charged before it is computed.",
        ),
    )
    # Two lines a cell, so that the table fits a terminal of 80 columns.
    steps = _table(
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
    _indented(
        out,
        "Intervals cover the noise. What the bounds leave out (further visits, costs above "
        f"{float(demo.COSTS.high):,.0f}) is missing besides.",
    )

    _heading(out, "Patients by the ward that they came to first")
    bars = _table("ward", "patients, noisy", "", _TRUTH, right=(1, 3))
    for bar in story.bars:
        bars.add_row(bar.ward, str(bar.patients), "▇" * max(round(bar.patients / 5), 0), str(bar.truth))
    out.print(bars)

    _heading(out, "One question too many")
    _indented(out, f"Refused: {story.refused}")
    left = f"ε {float(story.left_after_refusal):.3f}"
    out.print(
        Padding(
            Text(f"Nothing was computed and nothing was charged: {left} is left, as before."), (0, 0, 0, 2)
        )
    )
