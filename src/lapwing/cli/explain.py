"""`lapwing explain`: what ε and δ promise, in words and odds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lapwing.cli import console

if TYPE_CHECKING:
    from lapwing.core.explanation import Explanation


def explain(
    epsilon: Annotated[str, Option(help="The ε of one answer, such as 0.5.")],
    n: Annotated[str, Option("--n", help="How many people the data is about.")],
    delta: Annotated[str, Option(help="The δ of one answer, such as 1e-6; 0 for none.")] = "0",
    plot: Annotated[
        Path | None, Option(help="Draw the privacy loss into this .svg, .png or .pdf file.")
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Say in plain words what ε and δ promise, and what they cost in accuracy."""
    from lapwing.core.explanation import explain as explained

    explanation = explained(epsilon, delta, console.whole_number(n, "n", example=10000))
    console.check_plot(plot)
    if plot is not None:
        from lapwing.plots.loss import privacy_loss

        console.write_plot(plot, privacy_loss(epsilon, delta), quiet=True)
    if as_json:
        console.print_json(asdict(explanation))
        return
    with console.page() as out:
        _show(out, explanation)
    if plot is not None:
        print(f"\nThe picture is in {plot}")


def _show(out: console.Page, it: Explanation) -> None:
    from lapwing.core.chances import percent_down, percent_up
    from lapwing.core.exact import short

    out.title(f"ε {short(it.epsilon)}, δ {short(it.delta)}, {it.n:,} people")
    for warning in it.warnings:
        out.warning(f"Warning: {warning}")

    out.heading("What one answer can change")
    out.indented(*(f"{moved.odds[0].upper()}{moved.odds[1:]}." for moved in it.beliefs), it.delta_means)
    guesses = console.table("belief", "before", "then at least", "and at most", right=(1, 2, 3))
    for moved in it.beliefs:
        for guess in moved.guesses:
            bounds = percent_down(guess.at_least), percent_up(guess.at_most)
            guesses.add_row(moved.belief, percent_up(guess.before), *bounds)
    out.print(guesses)

    out.heading("What is promised")
    out.points(*it.promised)
    out.heading("What is not promised")
    out.points(*it.not_promised)

    out.heading("What a count of people will look like")
    counts = console.table("noise", "size", "95 % of answers lie within", "as a share of n", right=(2, 3))
    for count in it.counts:
        size = f"{count.parameter} {short(count.size)}"
        counts.add_row(count.mechanism, size, f"± {count.within:,}", f"± {percent_up(count.share)}")
    out.print(counts)

    out.heading("How many such counts fit a lifetime budget, chosen one after another")
    lifetimes = console.table("lifetime ε", "lifetime δ", "Laplace", "Gaussian", right=(0, 1, 2, 3))
    for life in it.lifetimes:
        gaussian = "needs a δ" if life.gaussian is None else f"{life.gaussian:,}"
        lifetimes.add_row(short(life.epsilon), short(life.delta), f"{life.laplace:,}", gaussian)
    out.print(lifetimes)

    out.heading("Is this a sensible ε?")
    out.indented(it.advice)
