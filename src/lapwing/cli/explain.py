"""`lapwing explain`: what ε and δ promise, in words and odds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from lapwing.cli.console import (
    AsJson,
    check_plot,
    console,
    heading,
    indented,
    points,
    print_json,
    table,
    warning,
    write_plot,
)
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from rich.console import Console

    from lapwing.core.explanation import Explanation


def explain(
    epsilon: Annotated[str, typer.Option(help="The ε of one answer, such as 0.5.")],
    n: Annotated[str, typer.Option("--n", help="How many people the data is about.")],
    delta: Annotated[str, typer.Option(help="The δ of one answer, such as 1e-6; 0 for none.")] = "0",
    plot: Annotated[
        Path | None, typer.Option(help="Draw the privacy loss into this .svg, .png or .pdf file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say in plain words what ε and δ promise, and what they cost in accuracy."""
    from lapwing.core.explanation import explain as explained

    explanation = explained(epsilon, delta, _whole(n))
    check_plot(plot)
    if plot is not None:
        from lapwing.plots.loss import privacy_loss

        figure = privacy_loss(epsilon, delta)
        write_plot(plot, figure, quiet=True)
    if as_json:
        print_json(asdict(explanation))
        return
    with console() as out:
        _show(out, explanation)
    if plot is not None:
        print(f"\nThe picture is in {plot}")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadParameter("n", "must be a whole number, such as 10000") from None


def _show(out: Console, it: Explanation) -> None:
    from lapwing.core.chances import percent_down, percent_up
    from lapwing.core.exact import short

    out.print(Text(f"ε {short(it.epsilon)}, δ {short(it.delta)}, {it.n:,} people", style="bold"))
    for found in it.warnings:
        warning(out, f"Warning: {found}")

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
