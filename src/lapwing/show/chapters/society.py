"""The chapter "Society"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp
from typing import TYPE_CHECKING

from lapwing.audit.attacks.temporary_gate import temporary_folder
from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.chances import odds_up, percent_up
from lapwing.core.conversions import largest_rho
from lapwing.core.exact import short
from lapwing.examples.town import DISTRICTS, TOWN_CENSUS, TOWN_PEOPLE, write_town
from lapwing.plots import style as plot
from lapwing.publish.census.census_release import expected_errors
from lapwing.publish.publication import Publication
from lapwing.show.deployments import DAILY, MONTHLY, ONCE, PUBLISHED, SIX_HOURLY
from lapwing.show.topic import NumberTable, Progress, Shown, Year

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEAST, _MOST = Fraction(1, 10), Fraction(60)
_LEVELS = ("town", "district", "block")
_TABLE = ("0.1", "0.3", "1", "3", "10", "17.14")  # the last one is that of the 2020 Census, for persons


@dataclass(frozen=True, slots=True)
class _TownErrors:
    """The expected absolute error of a total at each level of the town, at one ε."""

    epsilon: Fraction
    by_level: tuple[float, ...]


def choice(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `choice`."""
    epsilon, delta, prior = values["epsilon"], values["delta"], values["prior"]
    steps = [Fraction(f"{10 ** (k / 8):.3g}") for k in range(-8, 15)]
    grid = sorted({*(step for step in steps if _LEAST <= step <= _MOST), _LEAST, epsilon, _MOST})
    table = sorted({*map(Fraction, _TABLE), epsilon})
    wanted = sorted({*grid, *table, epsilon / 2})
    errors, sizes = _town_errors(wanted, delta, progress)
    errors_at = dict(zip(wanted, errors, strict=True))
    chosen, half = errors_at[epsilon].by_level, errors_at[epsilon / 2].by_level
    in_it = belief_bounds(epsilon, 0, belief=Belief.TOOK_PART)
    fact = belief_bounds(epsilon, 0, belief=Belief.FACT)
    daily = max(
        (entry for entry in PUBLISHED if entry.period == "each day"),
        key=lambda entry: entry.epsilon,
    )
    return Shown(
        headline=f"At ε {short(float(epsilon))} the count of a block is off by {chosen[2]:.2g} people on "
        f"average, and even odds (1 : 1) that you are in it can become {odds_up(in_it.factor)} : 1 at most",
        sentences=(
            f"The example's town has {sizes[0]:,.0f} invented people. One release publishes all counts of "
            "sex and stage of life for the town, its districts and its blocks. Its plan tells the expected "
            "error before anything is spent.",
            f"At ε {short(float(epsilon))} the total of a block, about {sizes[2]:.0f} people, is off by "
            f"{short(chosen[2])}, and that of the town by {short(chosen[0])}. At half this ε it would be "
            f"{short(half[2])} and {short(half[0])}.",
            "ε bounds what your taking part can change. Somebody who knows all other records, and "
            f"believes with {_percent(prior)} that yours is in, believes it with "
            f"{_at_most(in_it.after(prior)[1])} afterwards: the odds grow at most "
            f"{odds_up(in_it.factor)}-fold. A fact of your record, such as your age, is two steps away "
            f"from another one: there the factor is e^2ε = {odds_up(fact.factor)}. ε is not the "
            "probability of being identified, and not a share of noise.",
            f"With δ {short(float(delta))}, the release is no worse than one that tells everything with "
            "this probability, and keeps the bound otherwise.",
            f"Published figures stand below. They protect different units for different periods, so their "
            f"ε cannot be compared alone: {daily.epsilon:g} each day adds up to {daily.in_a_year:,.0f} in "
            "a year, for somebody who takes part every day.",
            "No formula says which point is right. That is society's decision; the picture shows what it "
            "is about.",
        ),
        tables=(
            NumberTable(
                "One release of the town's census: error and risk at each ε (computed)",
                (
                    "ε", "error of the town's total", "of a district's", "of a block's",
                    "even odds become at most (to 1)", f"{_percent(prior)} becomes at most",
                ),
                tuple(
                    (
                        float(value),
                        *errors_at[value].by_level,
                        float(bounds.factor),
                        float(bounds.after(prior)[1]),
                    )
                    for value in table
                    for bounds in (belief_bounds(value, 0, belief=Belief.TOOK_PART),)
                ),
            ),
            NumberTable(
                "Published figures (cited, not computed)",
                (
                    "who", "release", "year", "ε", "δ", "protected unit", "period", "in a year, at most",
                    "source",
                ),
                tuple(
                    (
                        entry.who, entry.release, Year(entry.year), entry.shown, entry.delta, entry.unit,
                        entry.period, entry.in_a_year, entry.source,
                    )
                    for entry in PUBLISHED
                ),
            ),
        ),
        picture=lambda: _choice_picture([errors_at[value] for value in grid], chosen, epsilon, prior),
    )  # fmt: skip


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g}\u00a0%"


def _at_most(chance: Fraction) -> str:
    is_certain = chance > Fraction(99999, 100_000)
    return "up to nearly 100 %" if is_certain else f"at most {percent_up(float(chance))}"


def _town_errors(
    epsilons: Sequence[Fraction], delta: Fraction, progress: Progress
) -> tuple[list[_TownErrors], tuple[float, float, float]]:
    """Return the expected errors of the plan of the example's census at each ε, and the mean sizes.

    Sizes are people of the town, of a district and of a block. Parks, where nobody lives, do not count.
    """
    town_errors = []
    with temporary_folder() as folder:
        write_town(folder)
        with Publication.open(folder / TOWN_CENSUS, analyst="reader", threads=1) as release:
            census = release.census
            assert census is not None
            assert census.spine.levels == _LEVELS
            for done, epsilon in enumerate(epsilons):
                progress(done, len(epsilons))
                errors = expected_errors(census, largest_rho(epsilon, delta))
                town_errors.append(_TownErrors(epsilon, tuple(level["total"] for level in errors)))
        blocks = (folder / "blocks.csv").read_text(encoding="utf-8").count(",false\n")
    progress(len(epsilons), len(epsilons))
    return town_errors, (TOWN_PEOPLE, TOWN_PEOPLE / DISTRICTS, TOWN_PEOPLE / blocks)


# The picture


@plot.style()
def _choice_picture(
    town_errors: Sequence[_TownErrors], chosen: Sequence[float], epsilon: Fraction, prior: Fraction
) -> Figure:
    figure, (whole,) = plot.new_figure(
        f"One choice, three sides: at ε = {short(float(epsilon))} a block's count is off by "
        f"{chosen[2]:.2g} people, and even odds that you are in it can become "
        f"{odds_up(belief_bounds(epsilon, 0, belief=Belief.TOOK_PART).factor)} : 1",
        "Top: expected error of one count in the example's town census. Middle: the most that a "
        "belief that you are in the data can become. Bottom: published ε. Each has its own unit and "
        "period, so it says nothing of the town's error.",
        size=(11.0, 10.8),
        left=3.85,
        right=0.87,
    )
    room = figure.subplotpars
    whole.remove()
    grid = figure.add_gridspec(
        3, 1, height_ratios=(1, 0.95, 1.6), hspace=0.14,
        left=room.left, right=room.right, bottom=0.055, top=room.top,
    )  # fmt: skip
    top = figure.add_subplot(grid[0])
    middle = figure.add_subplot(grid[1], sharex=top)
    bottom = figure.add_subplot(grid[2], sharex=top)
    _draw_errors(top, town_errors, chosen, epsilon)
    _draw_odds(middle, epsilon, prior)
    _draw_published(bottom)
    for axes in (top, middle, bottom):
        axes.axvline(float(epsilon), color=plot.GREY, linewidth=1, gid="chosen")
    for axes in (top, middle):
        axes.tick_params(labelbottom=False)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]
    bottom.set_xticks(ticks, [short(tick) for tick in ticks])
    bottom.minorticks_off()
    bottom.set_xlabel("ε (smaller is more private)")
    return figure


def _draw_errors(
    axes: Axes, town_errors: Sequence[_TownErrors], chosen: Sequence[float], epsilon: Fraction
) -> None:
    from matplotlib.ticker import NullLocator

    xs = [float(error.epsilon) for error in town_errors]
    axes.set(xscale="log", yscale="log", ylabel="error of a total\n(people)")
    axes.set_xlim(float(_LEAST), float(_MOST))
    ends = []
    for level, (name, colour) in enumerate(zip(_LEVELS, (plot.BLUE, plot.GREEN, plot.ORANGE), strict=True)):
        ys = [error.by_level[level] for error in town_errors]
        axes.plot(xs, ys, color=colour, gid=name)
        axes.plot([float(epsilon)], [chosen[level]], "o", color=colour, markersize=6)
        ends.append(plot.EndLabel(ys[-1], f"{'the' if name == 'town' else 'a'} {name}", colour))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    plot.label_ends(axes, ends[::-1])


def _draw_odds(axes: Axes, epsilon: Fraction, prior: Fraction) -> None:
    xs = [float(_LEAST) * (float(_MOST / _LEAST)) ** (k / 200) for k in range(201)]
    across = axes.get_yaxis_transform()
    for guess, colour in ((Fraction(1, 2), plot.PURPLE), (prior, plot.GREY)):
        before = float(guess / (1 - guess))
        ys = [100 / (1 + exp(-x) / before) for x in xs]
        at = 100 / (1 + exp(-epsilon) / before)
        axes.plot(xs, ys, color=colour, gid=f"guess-{float(guess):g}")
        axes.plot([float(epsilon)], [at], "o", color=colour, markersize=6)
        plot.note_beside(axes, f"from {_percent(guess)}", (xs[0], ys[0]), (6, 9), color=colour, size=10)
    axes.set(ylabel="a belief that you are\nin it becomes at most", ylim=(0, 104))
    axes.set_yticks([0, 25, 50, 75, 100], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    for chance, text in {50: "1 : 1", 75: "3 : 1", 90: "9 : 1", 99: "99 : 1"}.items():
        axes.plot(
            [0.99, 1.005], [chance] * 2, color=plot.PURPLE, linewidth=1, transform=across, clip_on=False
        )
        look = {"va": "center", "color": plot.PURPLE, "size": 9.5, "annotation_clip": False}
        plot.note_beside(axes, f"odds {text}", (1, chance), (8, 0), xycoords=across, **look)


def _draw_published(axes: Axes) -> None:
    colours = {ONCE: plot.BLUE, MONTHLY: plot.GREEN, DAILY: plot.ORANGE, SIX_HOURLY: plot.PURPLE}
    for row, entry in enumerate(PUBLISHED):
        y, colour = len(PUBLISHED) - 1 - row, colours[entry.period]
        if entry.least is not None:
            axes.plot([entry.least, entry.epsilon], [y, y], "o-", color=colour, linewidth=1.5, markersize=6)
        axes.plot([entry.epsilon], [y], "o", color=colour, markersize=6, gid=f"published-{row}")
        text = entry.shown if entry.least is not None else f"{entry.epsilon:g}"
        look = {"va": "center", "color": colour, "size": 9.5, "bbox": plot.WHITE_BOX}
        plot.note_beside(axes, str(text), (entry.epsilon, y), (8, 0), **look)
    names = [f"{entry.who}: {entry.release}" for entry in reversed(PUBLISHED)]
    axes.set_yticks(range(len(PUBLISHED)), names, size=9.5)
    for label, entry in zip(axes.get_yticklabels(), reversed(PUBLISHED), strict=True):
        label.set_color(colours[entry.period])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.8, len(PUBLISHED) - 0.2)
    axes.grid(axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)
    for line, (period, colour) in enumerate(colours.items()):
        axes.text(
            1.02, 0.95 - 0.07 * line, f"● {period}", color=colour, transform=axes.transAxes, va="center"
        )
