"""The cost of privacy in accuracy.

`accuracy` draws the error of a count, a mean and a histogram against ε, and `release_error` that of a
release. `curator_and_local` compares a trusted curator with randomized response, where nobody is trusted.
`parties` draws what lies between them: several members, from one to one per person.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.core.conversions import largest_rho, zcdp_to_epsilon
from lapwing.core.exact import Number, exact, short, whole
from lapwing.core.laplace import Laplace
from lapwing.core.losses import checked_epsilon
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.plots.style import (
    BLUE,
    DOTS,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    WHITE_BOX,
    EndLabel,
    error_axes,
    label_ends,
    new_figure,
    note_beside,
    shortened,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BARS = 20
_STEPS = 1000  # a value in [0, 1] is rounded to a thousandth
_EPSILONS = tuple(Fraction(round(10 ** (k / 8) * 10**4), 10**4) for k in range(-16, 5))
_CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class RelativeError:
    """The error of an answer, as a share of its largest possible value."""

    expected: float
    within: float  # with 95 % confidence; NaN where nothing can be said


def mean_size(scale: Fraction) -> float:
    """Return E|noise| of discrete Laplace noise: 2q / (1 - q²), q = exp(-1/scale)."""
    return 1 / math.sinh(1 / float(scale))


def of_count(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of a count of people, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    return RelativeError(mean_size(noise.scale) / n, noise.spread(_CONFIDENCE) / n)


def of_mean(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of the mean of values in [0, 1] (here: with mean 1/2), where n is private.

    It is a noisy sum over a noisy count. Each gets ε/2. The error is (a - b/2) / (n + b) for noises a and
    b. Expected size: to leading order in 1/n, by E|X + Y| = (p² + pq + q²) / (p + q) for Laplace X, Y of
    scales p, q.
    """
    sums, counts = Laplace.for_epsilon(epsilon / 2, l1=_STEPS), Laplace.for_epsilon(epsilon / 2, l1=1)
    p = float(sums.scale) / _STEPS
    q = float(counts.scale) / 2
    expected = (p * p + p * q + q * q) / (p + q) / n
    # Both noises keep within their widths together with 95 % confidence.
    a, b = sums.spread(_CONFIDENCE, answers=2) / _STEPS, counts.spread(_CONFIDENCE, answers=2)
    return RelativeError(expected, (a + b / 2) / (n - b) if 2 * b < n else math.nan)


def of_histogram(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of the worst of 20 bars, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    q = math.exp(-1 / float(noise.scale))
    # E max = Σ P[max > w], P[|noise| <= w] = 1 - 2 q^(w+1) / (1 + q); 60 scales leave 1e-25 out.
    widths = np.arange(math.ceil(60 * float(noise.scale)) + 1)
    expected = float((1 - (1 - 2 * q ** (widths + 1) / (1 + q)) ** BARS).sum())
    return RelativeError(expected / n, noise.spread(_CONFIDENCE, answers=BARS) / n)


_PANELS: tuple[tuple[str, str, str, Callable[[Fraction, int], RelativeError]], ...] = (
    ("count", "A count", BLUE, of_count),
    ("mean", "A mean of values from 0 to 1", ORANGE, of_mean),
    ("histogram", f"The worst of {BARS} bars", GREEN, of_histogram),
)


def accuracy(*, n: int) -> Figure:
    """Draw the expected error and its 95 % bound against ε, of three statistics of n people."""
    people = whole(n, "n", at_least=10)
    if people > 10**12:
        raise BadParameter("n", "must be at most 1e12 to be drawn")
    with style():
        at_one, at_tenth = (_percent(of_count(Fraction(1, k), people).within) for k in (1, 10))
        figure, panels = new_figure(
            f"A ten times smaller ε costs ten times the error: at ε = 1 a count of {people:,} people is "
            f"within {at_one}, at ε = 0.1 within {at_tenth}",
            "Error of one answer under Laplace noise, as a share of n (count, bars) or of the range of "
            "values (mean). Dashed: by how much a random sample of n people is off anyway.",
            panels=3,
            size=(11.0, 5.4),
        )
        for axes, (name, title, colour, error) in zip(panels, _PANELS, strict=True):
            errors = [error(epsilon, people) for epsilon in _EPSILONS]
            _panel(axes, name, colour, errors)
            axes.set_title(title, color=colour)
            _sampling(axes, people, labelled=axes is panels[-1])
        panels[0].set_ylabel("error, in % of n or of the range")
        panels[0].set_ylim(bottom=100 * 0.3 / people)  # smaller errors are not drawn
        _name_lines(panels[0], people)
        return figure


def _panel(axes: Axes, name: str, colour: str, errors: list[RelativeError]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 (an extra)

    epsilons = [float(epsilon) for epsilon in _EPSILONS]
    expected = [100 * error.expected for error in errors]
    # Noise that is 0 in 95 % of all cases has no place on a log axis.
    within = [100 * error.within or math.nan for error in errors]
    axes.set(xscale="log", yscale="log", xlabel="ε (smaller is more private)")
    axes.set_xlim(epsilons[0], epsilons[-1])
    axes.fill_between(epsilons, expected, within, color=colour, alpha=0.15, linewidth=0)
    axes.plot(epsilons, within, color=colour, linewidth=1.2, gid=f"{name}-within")
    axes.plot(epsilons, expected, color=colour, gid=f"{name}-expected")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(value)} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _name_lines(axes: Axes, n: int) -> None:
    for epsilon, what, text, shift in (
        (Fraction(2, 10), "within", "95 % of answers\nare within this", (9, 6)),
        (Fraction(1, 10), "expected", "expected error", (-7, -8)),
    ):
        at = (float(epsilon), 100 * getattr(of_count(epsilon, n), what))
        ha, va = "left" if shift[0] > 0 else "right", "bottom" if shift[1] > 0 else "top"
        note_beside(axes, text, at, shift, ha=ha, va=va, color=BLUE, size=9.5, bbox=WHITE_BOX)


def _sampling(axes: Axes, n: int, *, labelled: bool) -> None:
    """Draw the error of a random sample of n people, for comparison."""
    chance = 100 * 1.96 * math.sqrt(0.25 / n)
    axes.axhline(chance, color=GREY, linewidth=1, linestyle=(0, (5, 3)))
    if labelled:
        at = (_EPSILONS[-1], chance)
        note_beside(axes, "sampling error (95 %)", at, (-2, 4), ha="right", color=GREY, size=9.5)


def _percent(share: float) -> str:
    return f"{short(100 * share)} %"


_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
_RELEASE_EPSILONS = tuple(Fraction(round(10 ** (k / 10) * 1000), 1000) for k in range(-10, 13))


def release_error(
    name: str, errors: Sequence[tuple[str, float]], rho: Fraction, delta: Fraction, fits: Fraction
) -> Figure:
    """Draw the expected error of one total of each level against ε.

    Args:
        name: The release.
        errors: For each level, its name and the expected error at `rho`. Errors fall like 1/√ρ.
        rho: The ρ of the release.
        delta: The δ at which ε is shown.
        fits: The largest ρ that the budget admits.
    """
    if not errors:
        raise BadParameter("plot", "there is nothing to draw: no budget is left")
    with style():
        epsilon = float(zcdp_to_epsilon(rho, delta))
        figure, [axes] = new_figure(
            f"{shortened(name)}: half the error costs four times the ρ",
            f"Expected error of one count, before anything is measured. δ {short(float(delta))}. The "
            "line is this release; beyond the dashed one the budget refuses.",
            right=0.8,
        )
        rhos = np.array([float(largest_rho(price, delta)) for price in _RELEASE_EPSILONS])
        xs = np.array([float(price) for price in _RELEASE_EPSILONS])
        ends = []
        for number, (level, error) in enumerate(errors):
            colour = _COLOURS[number % len(_COLOURS)]
            ys = error * np.sqrt(float(rho) / rhos)
            axes.plot(xs, ys, color=colour)
            ends.append(EndLabel(float(ys[-1]), shortened(level), colour))
            axes.plot([epsilon], [error], "o", color=colour, markersize=7)
        axes.set(xscale="log", yscale="log", xlabel="ε for the whole release")
        axes.set_ylabel("expected error of one count (rows)")
        axes.axvline(epsilon, color=GREY, linewidth=1)
        note_beside(axes, f"ε {short(epsilon)}", (epsilon, axes.get_ylim()[0]), (4, 6), color=GREY)
        if fits:
            axes.axvline(float(zcdp_to_epsilon(fits, delta)), color=GREY, linewidth=1, linestyle="--")
        axes.set_xlim(xs[0], xs[-1])
        ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
        axes.set_xticks(ticks, [short(tick) for tick in ticks])
        axes.minorticks_off()
        label_ends(axes, ends)
    return figure


_SIZES = tuple(round(10 ** (k / 2)) for k in range(2, 13))
_SHARE_ERROR = "error of the share, in percentage points"
# A measured point takes this many coins at most, and is left out where that would be too few runs.
_MOST_REPORTS = 4_000_000
_FEWEST_RUNS = 30


def curator_error(epsilon: Fraction, n: int) -> float:
    """Return the root mean square error of a share with Laplace noise on the count.

    It is √(2q) / ((1 - q) n) with q = e^-ε.
    """
    q = math.exp(-float(epsilon))
    return math.sqrt(2 * q) / (1 - q) / n


def local_error(epsilon: Fraction, n: int) -> float:
    """Return the root mean square error of the estimated share of n respondents, whatever they answer.

    √(p (1 - p) / n) / (2p - 1) with p = e^ε / (1 + e^ε), the probability of the truth.
    """
    p = 1 / (1 + math.exp(-float(epsilon)))
    return math.sqrt(p * (1 - p) / n) / (2 * p - 1)


def measured(epsilon: Fraction, n: int, repetitions: int) -> tuple[float, float]:
    """Return root mean square errors of both, over fresh runs of the mechanisms; half of all say yes."""
    answers = np.arange(n) % 2
    count, share = int(answers.sum()), answers.mean()
    released = Laplace.for_epsilon(epsilon, l1=1).sample(np.full(repetitions, count)) / n
    coins = RandomizedResponse.for_epsilon(epsilon)
    estimates = [coins.estimate(coins.sample(answers))[1] for _ in range(repetitions)]
    return _rms(released - share), _rms(np.array(estimates) - share)


def _rms(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.sqrt((errors**2).mean()))


def curator_and_local(*, epsilon: Number, repetitions: int = 200) -> Figure:
    """Draw the error of a share as n grows: a trusted curator against randomized response.

    Lines are exact. Points are measured with fresh noise, over `repetitions` runs where n is small and
    fewer where it is large; 0 draws lines only.
    """
    e = checked_epsilon(epsilon)
    if not Fraction(1, 1000) <= e <= 20:
        raise BadParameter("epsilon", "must lie between 0.001 and 20 to be drawn")
    runs = whole(repetitions, "repetitions")
    with style():
        curator = [100 * curator_error(e, n) for n in _SIZES]
        local = [100 * local_error(e, n) for n in _SIZES]
        people = 10_000
        factor = local_error(e, people) / curator_error(e, people)
        figure, (axes,) = new_figure(
            f"Trusting nobody costs accuracy: with {people:,} people at ε = {short(float(e))} the error "
            f"of a share is {factor:,.0f} times that of a trusted curator",
            "Root mean square error of a share of yes answers. Lines: exact."
            + (" Points: measured with fresh noise." if runs else ""),
            right=0.74,
        )
        error_axes(axes)
        axes.set_xlim(0.8 * _SIZES[0], _SIZES[-1])
        axes.set_ylim(0.3 * curator[-1], 2.5 * max(local[0], curator[0]))
        axes.plot(_SIZES, curator, color=BLUE, gid="curator")
        axes.plot(_SIZES, local, color=ORANGE, gid="local")
        if runs:
            sizes = [n for n in _SIZES if n * min(runs, _FEWEST_RUNS) <= _MOST_REPORTS]
            points = [measured(e, n, min(runs, _MOST_REPORTS // n)) for n in sizes]
            axes.plot(sizes, [100 * c for c, _ in points], color=BLUE, gid="curator-measured", **DOTS)
            axes.plot(sizes, [100 * r for _, r in points], color=ORANGE, gid="local-measured", **DOTS)
        axes.set(xlabel="people asked, n", ylabel=_SHARE_ERROR)
        label_ends(
            axes,
            [
                EndLabel(local[-1], "each flips coins,\nnobody is trusted:\nfalls like 1/√n", ORANGE),
                EndLabel(curator[-1], "a curator sees all,\nadds noise once:\nfalls like 1/n", BLUE),
            ],
        )
        return figure


_SMALLEST, _LARGEST = 10, 100_000
_UP_TO = 100  # the number of members for which the line of order 1/n is drawn
Point = tuple[int, float]
_CURATOR, _SHARED, _ALONE, _EVERYBODY, _LOCAL = "curator", "shared", "alone", "everybody", "local"


@dataclass(frozen=True, slots=True)
class MeasuredErrors:
    """Root mean square errors of a share of n people, measured in real runs of the protocols.

    `by_size` has for each series points (n, error): a curator; three members of whom one may collude
    ("shared"); ten of whom nine may ("alone"); every person a member ("everybody"); and the local model.
    `by_members` has points (m, error) at n = `people`, for "shared" (fewer than half may collude) and
    "alone" (all but one).
    """

    epsilon: Fraction
    people: int
    by_size: Mapping[str, Sequence[Point]]
    by_members: Mapping[str, Sequence[Point]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file beside the picture."""
        return {
            "epsilon": str(self.epsilon),
            "people": self.people,
            "by_size": {name: [list(point) for point in points] for name, points in self.by_size.items()},
            "by_members": {
                name: [list(point) for point in points] for name, points in self.by_members.items()
            },
        }

    @classmethod
    def from_json(cls, stored: Any) -> MeasuredErrors:
        """Read the values that `to_json` returned."""
        try:
            return cls(
                exact(str(stored["epsilon"]), "epsilon"),
                int(stored["people"]),
                _series(stored["by_size"], (_CURATOR, _SHARED, _ALONE, _EVERYBODY, _LOCAL)),
                _series(stored["by_members"], (_SHARED, _ALONE)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadParameter("measured", "is not what `lapwing party compare --json` prints") from None


def _series(stored: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[Point]]:
    return {name: [(int(x), float(error)) for x, error in stored[name]] for name in names}


def shared_error(epsilon: Fraction, n: int, members: int, coalition: int) -> float:
    """Return the error of a share, where each member adds 1/(members - coalition) of a whole noise."""
    return curator_error(epsilon, n) * math.sqrt(members / (members - coalition))


def local_bound(epsilon: Fraction, n: int) -> float:
    """Return a lower bound on the error of every ε-private local protocol.

    Each of n people says yes with a chance of 1/2. Given all that was sent, the answers are still
    independent, and each is yes with a chance between p = 1/(1 + e^ε) and 1 - p: whatever is estimated,
    their share keeps a deviation of √(p (1 - p) / n).
    """
    p = 1 / (1 + math.exp(float(epsilon)))
    return math.sqrt(p * (1 - p) / n)


def members_bound(epsilon: Fraction, n: int, members: int) -> float:
    """Return an upper bound on the error of this many members, even if each hides alone: √(2m) / (ε n)."""
    return math.sqrt(2 * members) / (float(epsilon) * n)


def parties(measured: MeasuredErrors) -> Figure:
    """Draw errors against the number of people, and against the number of members. Lines are exact."""
    with style():
        figure, (left, right) = new_figure(
            "Several parties: sharing noise keeps a curator's 1/n while fewer than half collude; "
            "trusting nobody at all costs 1/√n",
            f"Root mean square error of a share of yes answers at ε = {short(float(measured.epsilon))}, in "
            "percentage points. Lines: exact. Points: real runs.",
            panels=2,
            size=(11.5, 5.8),
            right=0.8,
            one_scale=False,
        )
        for axes in (left, right):
            error_axes(axes)
        _by_size(left, measured)
        _by_members(right, measured)
        title = f"as {measured.people:,} people divide among more members"
        right.set(title=title, xlabel="members, m (of n / m people each)")
        left.set(title="as more people are counted", xlabel="people, n", ylabel=_SHARE_ERROR)
        return figure


def _by_size(axes: Axes, measured: MeasuredErrors) -> None:
    epsilon = measured.epsilon
    sizes = [round(10 ** (k / 4)) for k in range(4, 21)]
    lines: list[tuple[str, str, Callable[[int], float], str]] = [
        (_CURATOR, BLUE, lambda n: curator_error(epsilon, n), "curator"),
        (_SHARED, GREEN, lambda n: shared_error(epsilon, n, 3, 1), "3 members, 1 colludes"),
        (_ALONE, PURPLE, lambda n: shared_error(epsilon, n, 10, 9), "10 members, 9 collude"),
        (_EVERYBODY, GREY, lambda n: shared_error(epsilon, n, n, n - 1), "each person a member"),
        (_LOCAL, ORANGE, lambda n: local_error(epsilon, n), "local model"),
    ]
    for name, colour, error, _ in lines:
        axes.plot(sizes, [100 * error(n) for n in sizes], color=colour, gid=name)
        _dots(axes, measured.by_size[name], colour, f"{name}-measured")
    bounds: list[tuple[str, Callable[[int], float], str]] = [
        ("order-local", lambda n: local_bound(epsilon, n), "Ω(1/√n): no local protocol is below"),
        (
            "order-members",
            lambda n: members_bound(epsilon, n, _UP_TO),
            f"O(1/n): up to {_UP_TO} members are below",
        ),
    ]
    for name, error, _ in bounds:
        heights = [100 * error(n) for n in sizes]
        look: dict[str, Any] = {"linestyle": ":" if name == "order-local" else "--", "linewidth": 1.5}
        axes.plot(sizes, heights, color=INK, gid=name, **look)
    words = [(text, colour) for _, colour, _, text in reversed(lines)]
    words += [(f"{mark}  {text}", INK) for mark, (_, _, text) in zip(("···", "- -"), bounds, strict=True)]
    for place, (text, colour) in enumerate(words):
        axes.text(0.03, 0.36 - 0.055 * place, text, color=colour, transform=axes.transAxes, size=10)
    axes.set_xlim(0.8 * _SMALLEST, 1.2 * _LARGEST)


def _by_members(axes: Axes, measured: MeasuredErrors) -> None:
    epsilon, n = measured.epsilon, measured.people
    members = sorted({*range(1, 11), *(round(10 ** (k / 8)) for k in range(8, 8 * 4)), n})
    members = [m for m in members if m <= n]
    minorities = [m for m in members if m != 2]  # of two members, one is no minority
    shared = [100 * shared_error(epsilon, n, m, (m - 1) // 2) for m in minorities]
    alone = [100 * shared_error(epsilon, n, m, m - 1) for m in members]
    axes.plot(minorities, shared, color=GREEN, gid="members-shared")
    axes.plot(members, alone, color=PURPLE, gid="members-alone")
    for name, colour in ((_SHARED, GREEN), (_ALONE, PURPLE)):
        _dots(axes, measured.by_members[name], colour, f"members-{name}-measured")
    local, curator = 100 * local_error(epsilon, n), 100 * curator_error(epsilon, n)
    axes.axhline(local, color=ORANGE, gid="members-local")
    axes.axhline(curator, color=BLUE, gid="members-curator")
    axes.set_xlim(0.9, 1.1 * n)
    label_ends(
        axes,
        [
            EndLabel(alone[-1], "all but one may collude:\neach hides alone, √m", PURPLE),
            EndLabel(local, "local model:\neach row hides alone", ORANGE),
            EndLabel(shared[-1], "fewer than half collude:\nat most √2 of a curator's", GREEN),
            EndLabel(curator, "one curator, m = 1", BLUE),
        ],
    )


def _dots(axes: Axes, points: Sequence[Point], colour: str, gid: str) -> None:
    axes.plot([x for x, _ in points], [100 * error for _, error in points], color=colour, gid=gid, **DOTS)
