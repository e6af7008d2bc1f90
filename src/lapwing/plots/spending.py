"""Spending over time: the budget that each block of an account has left, until now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import short
from lapwing.errors import BadParameter
from lapwing.ledger.budget_history import BudgetHistory
from lapwing.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    WHITE_BOX,
    EndLabel,
    in_title,
    label_ends,
    new_figure,
    note_beside,
    shortened,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 13  # if there are more, bands are drawn: 13 are a year by months, and the rest
MOST_TEXTS = 3
_SMALL = 9.5
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 2, 2)))
Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EqualBlocks:
    """Blocks that had the same budget left at all times."""

    blocks: tuple[str, ...]
    left: Reals

    @property
    def text(self) -> str:
        """The label of the line."""
        others = len(self.blocks) - 1
        return shortened(self.blocks[0]) + (f"\nand {others:,} more" if others else "")


def equal_blocks(course: BudgetHistory) -> list[EqualBlocks]:
    """Group blocks whose budget left was the same at all times, in the order of their first blocks."""
    alike: dict[bytes, list[int]] = {}
    for column in range(course.left.shape[1]):
        alike.setdefault(np.ascontiguousarray(course.left[:, column]).tobytes(), []).append(column)
    return [
        EqualBlocks(tuple([course.blocks[k] for k in columns]), course.left[:, columns[0]])
        for columns in alike.values()
    ]


def spending(course: BudgetHistory) -> Figure:
    """Draw the budget left of each block, as steps over time: the largest pure ε for a next question.

    Up to thirteen different histories are lines of their own; more are bands from the least to the most.
    """
    if not course.times or not course.grants:
        raise BadParameter("course", "must begin with an account")
    with style():
        lines = equal_blocks(course)
        figure, (axes,) = new_figure(_headline(course), _note(course, lines), right=0.75)
        events = _events(course)
        _frame(axes, course, min(len(events), MOST_TEXTS))
        _caps(axes, course)
        _mark(axes, events)
        labels = _draw_lines(axes, course, lines) if len(lines) <= MOST_LINES else _draw_bands(axes, course)
        label_ends(axes, labels)
        return figure


def _headline(course: BudgetHistory) -> str:
    now = course.left[-1]
    least, most = float(np.nanmin(now)), float(np.nanmax(now))
    if not most:
        left = "nothing is left for a next question"
    elif len(now) == 1:
        left = f"ε {_floor(least)} is left for a next question"
    elif least == most:
        left = f"each of its {len(now):,} blocks has ε {_floor(least)} left for a next question"
    else:
        left = f"its {len(now):,} blocks have ε {_floor(least)} to {_floor(most)} left for a next question"
    raises = len(course.grants) - 1
    after = "" if not raises else " after a raise" if raises == 1 else f" after {raises} raises"
    return f"{in_title(course.label)}: ε {short(_given(course))} for life{after}; {left}"


def _given(course: BudgetHistory, grants: int | None = None) -> float:
    return float(sum((grant.epsilon for grant in course.grants[:grants]), Fraction(0)))


def _note(course: BudgetHistory, lines: Sequence[EqualBlocks]) -> str:
    note = "The largest pure ε that a next question could spend."
    if len(lines) > MOST_LINES:
        note += " Bands: all blocks, and the middle half of them."
    if len(course.grants) > 1:
        note += " After a raise, what people may lose is the sum."
    return note


def _frame(axes: Axes, course: BudgetHistory, rows: int) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 (an extra)

    begin, end = course.times[0], course.times[-1]
    room = (end - begin) / 40 or timedelta(hours=1)
    axes.set_xlim(_number(begin - room), _number(end + room))
    top = max(float(np.nanmax(course.left)), *(grant.at_first for grant in course.grants))
    axes.set_ylim(0, (1.1 + 0.075 * rows) * top)
    locator: Any = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))  # type: ignore[no-untyped-call]
    axes.set(xlabel=f"time (UTC), {_span(begin, end)}", ylabel="ε left for a next question")


def _number(time: datetime) -> float:
    from matplotlib.dates import date2num  # noqa: PLC0415 (an extra)

    return float(date2num(time))  # type: ignore[no-untyped-call]


def _draw_lines(axes: Axes, course: BudgetHistory, lines: Sequence[EqualBlocks]) -> list[EndLabel]:
    times, width = _till_the_edge(axes, course), 2.2 if len(lines) < 5 else 1.6
    labels = []
    for k, line in enumerate(lines):
        colour, dash, now = _COLOURS[k % len(_COLOURS)], _DASHES[k // len(_COLOURS)], float(line.left[-1])
        look: dict[str, Any] = {"drawstyle": "steps-post", "linestyle": dash, "linewidth": width}
        axes.plot(times, np.append(line.left, now), color=colour, gid=f"line-{k}", **look)
        labels.append(EndLabel(now, f"{line.text}: {_floor(now)}", colour))
    return labels


def _draw_bands(axes: Axes, course: BudgetHistory) -> list[EndLabel]:
    times = _till_the_edge(axes, course)
    left = np.vstack([course.left, course.left[-1:]])
    low, quarter, middle, three, high = np.nanquantile(left, (0, 0.25, 0.5, 0.75, 1), axis=1)
    steps: dict[str, Any] = {"step": "post", "color": BLUE, "linewidth": 0}
    axes.fill_between(times, low, high, alpha=0.15, gid="all", **steps)
    axes.fill_between(times, quarter, three, alpha=0.3, gid="half", **steps)
    axes.plot(times, middle, drawstyle="steps-post", color=BLUE, gid="middle")
    axes.plot(times, low, drawstyle="steps-post", color=ORANGE, linewidth=1.4, gid="least")
    axes.plot(times, high, drawstyle="steps-post", color=GREEN, linewidth=1.4, gid="most")
    labels = []
    for heights, colour, what in ((low, ORANGE, "least"), (middle, BLUE, "middle"), (high, GREEN, "most")):
        value = heights[-1]
        text = f"{what}: {_floor(float(value))}"
        if what != "middle":
            who = np.flatnonzero(course.left[-1] == value)
            text += f"\n({shortened(course.blocks[who[0]]) if len(who) == 1 else f'{len(who):,} blocks'})"
        labels.append(EndLabel(float(value), text, colour))
    return labels


def _till_the_edge(axes: Axes, course: BudgetHistory) -> list[float]:
    """Return the times, and the right edge: the budget left stays the same until now."""
    return [*map(_number, course.times), axes.get_xlim()[1]]


def _caps(axes: Axes, course: BudgetHistory) -> None:
    """Draw the ε that each budget admitted while nothing was spent."""
    edge = axes.get_xlim()[1]
    ends = [*(_number(grant.time) for grant in course.grants[1:]), edge]
    for k, (grant, end) in enumerate(zip(course.grants, ends, strict=True)):
        ends_of_line, caps = [_number(grant.time), end], [grant.at_first] * 2
        axes.plot(ends_of_line, caps, color=GREY, linewidth=1, linestyle=(0, (5, 3)), gid=f"cap-{k}")
    first = course.grants[0]
    at = (_number(first.time), first.at_first)
    note_beside(axes, f"at first: {short(first.at_first)}", at, (2, 4), color=GREY, size=_SMALL)


@dataclass(frozen=True, slots=True)
class _Event:
    """A raise or a recovery: a line from top to bottom, and a text above everything else."""

    time: datetime
    text: str
    colour: str
    gid: str


def _events(course: BudgetHistory) -> list[_Event]:
    events = []
    for k, grant in enumerate(course.grants[1:], 1):
        text = f"raised by ε {short(float(grant.epsilon))}: in all {short(_given(course, k + 1))}"
        events.append(_Event(grant.time, text, INK, f"raise-{k}"))
    for k, time in enumerate(course.recovered):
        events.append(_Event(time, "recovered: the rest counts as spent", ORANGE, f"recovered-{k}"))
    return sorted(events, key=lambda event: event.time)


def _mark(axes: Axes, events: Sequence[_Event]) -> None:
    """Draw the events. Only the last few have texts, one row each, so that they cannot overlap."""
    begin, end = axes.get_xlim()
    for row, event in enumerate(reversed(events)):
        at = _number(event.time)
        axes.axvline(at, color=event.colour, linewidth=1, gid=event.gid)
        if row >= MOST_TEXTS:
            continue
        is_late = at > (begin + end) / 2
        shift = (-5 if is_late else 5, -3 - 1.5 * _SMALL * row)
        look: dict[str, Any] = {"ha": "right" if is_late else "left", "va": "top", "color": event.colour}
        place = ("data", "axes fraction")
        note_beside(
            axes, event.text, (at, 1), shift, xycoords=place, size=_SMALL, bbox=WHITE_BOX, zorder=5, **look
        )


def _floor(value: float) -> str:
    """Return three digits, rounded down: never more than is left."""
    text = short(value)
    if float(text) <= value or not value:
        return text
    return short(float(f"{value:.2e}") - 10.0 ** (np.floor(np.log10(value)) - 2))


def _span(begin: datetime, end: datetime) -> str:
    if begin.date() == end.date():
        return f"{begin:%Y-%m-%d, %H:%M:%S} to {end:%H:%M:%S}"
    return f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
