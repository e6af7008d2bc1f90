"""The cost of not trusting one curator: errors of several members, from one member to one per person."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lapwing.core.exact import exact, short
from lapwing.errors import BadParameter
from lapwing.plots.accuracy import curator_error, local_error
from lapwing.plots.style import (
    BLUE,
    DOTS,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    EndLabel,
    error_axes,
    label_ends,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
            "by_size": {name: [list(one) for one in points] for name, points in self.by_size.items()},
            "by_members": {name: [list(one) for one in points] for name, points in self.by_members.items()},
        }

    @classmethod
    def from_json(cls, found: Any) -> MeasuredErrors:
        """Read the values that `to_json` returned."""
        try:
            return cls(
                exact(str(found["epsilon"]), "epsilon"),
                int(found["people"]),
                _series(found["by_size"], (_CURATOR, _SHARED, _ALONE, _EVERYBODY, _LOCAL)),
                _series(found["by_members"], (_SHARED, _ALONE)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadParameter("measured", "is not what `lapwing party compare --json` prints") from None


def _series(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[Point]]:
    return {name: [(int(x), float(error)) for x, error in found[name]] for name in names}


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
        return _draw(measured)


def _draw(measured: MeasuredErrors) -> Figure:
    epsilon, people = measured.epsilon, measured.people
    figure, (left, right) = new_figure(
        "Several parties: sharing noise keeps a curator's 1/n while fewer than half collude; "
        "trusting nobody at all costs 1/√n",
        f"Root mean square error of a share of yes answers at ε = {short(float(epsilon))}, in percentage "
        "points. Lines: exact. Points: real runs.",
        panels=2,
        size=(11.5, 5.8),
        right=0.8,
        one_scale=False,
    )
    for axes in (left, right):
        error_axes(axes)
    _by_size(left, measured)
    _by_members(right, measured)
    title = f"as {people:,} people divide among more members"
    right.set(title=title, xlabel="members, m (of n / m people each)")
    left.set(title="as more people are counted", xlabel="people, n")
    left.set_ylabel("error of the share, in percentage points")
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
