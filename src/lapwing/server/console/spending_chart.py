"""The chart of spending: prices by person, what counts of them, and the forecast with its error bar."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from html import escape

from lapwing.core.exact import grouped, short_up
from lapwing.server.console.charts import NARROW, SANS, Look, Theme, line, shortened, words
from lapwing.server.console.parts import Axis
from lapwing.server.console.words import MONTHS
from lapwing.server.data.forecast import Forecast
from lapwing.server.data.spending import PastSpending

WIDTH = 920.0
FUTURE = 0.6  # of the length of the past: room for a forecast, and for the labels
_DAY = timedelta(days=1)
_STRIPES = "stripes"


@dataclass(frozen=True, slots=True)
class _Frame:
    """The place of a day and of an ε in a picture."""

    begin: datetime
    now: datetime
    end: datetime
    left: float
    right: float
    top: float
    bottom: float
    high: float

    def x(self, time: datetime) -> float:
        share = (time - self.begin) / (self.end - self.begin)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def y(self, spent: float) -> float:
        return self.bottom - spent / self.high * (self.bottom - self.top)


def month_words(day: datetime) -> str:
    """Return a month such as "Feb 2027": a forecast has no days."""
    return f"{MONTHS[day.month - 1]} {day.year}"


def spending_chart(
    spending: PastSpending, forecast: Forecast | None, now: datetime, look: Look, *, title: str
) -> bytes:
    """Return the picture of an account's spending.

    Areas are the sums of prices, the black line is what counts, the upper line is the budget for life. The
    dashed line is the forecast, and the bar on the upper line is its range.
    """
    theme, is_wide = look.theme, look.width > NARROW
    width = WIDTH if is_wide else NARROW
    rows = 0 if is_wide else len(spending.people)
    height = 300.0 + 22 * rows
    begin = min([now - _DAY, *(time for time, _ in spending.counted[:1])])
    past = max(now - begin, _DAY)
    cap, stacked = float(spending.cap) or 1.0, float(sum(spending.totals))
    frame = _Frame(
        begin,
        now,
        now + past * FUTURE,
        44.0,
        width - 16.0,
        44.0,
        252.0,
        max(cap, stacked, spending.spent) * 1.02,
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="{SANS}" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<defs><pattern id="{_STRIPES}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{theme.card}"/><rect width="6" height="2.4" fill="{theme.bar}"/>'
        "</pattern></defs>",
        *_grid(frame, cap, theme),
        *_areas(frame, spending, theme),
    ]
    if spending.counted:
        path = _steps(frame, list(spending.counted))
        lines.append(f'<path d="{path}" fill="none" stroke="{theme.ink}" stroke-width="1.8"/>')
        lines += _future(frame, spending.spent, cap, forecast, theme)
        anchor = "end" if frame.x(now) > frame.left + 130 else "start"
        at = frame.y(max(stacked, spending.spent)) - 8
        lines.append(
            _haloed(
                frame.x(now) if anchor == "end" else frame.left,
                at,
                f"counts: ε {grouped(spending.spent, 4)}",
                theme,
                anchor,
            )
        )
    lines += list(_labels(frame, spending, theme, is_wide=is_wide))
    return "\n".join([*lines, "</svg>"]).encode()


def _grid(frame: _Frame, cap: float, theme: Theme) -> Iterator[str]:
    for tick in Axis(0.0, frame.high).ticks(4):
        if not 0.9 * cap < tick < 1.1 * cap:
            colour = theme.line if tick else theme.edge
            yield line(frame.left, frame.y(tick), frame.right, frame.y(tick), colour, 1)
            yield words(frame.left - 10, frame.y(tick) + 4.5, grouped(tick, 4), theme.soft, "end", 13)
    yield line(frame.left, frame.y(cap), frame.right, frame.y(cap), theme.ink, 1.5)
    yield words(
        frame.left, frame.y(cap) - 8, f"budget for life, ε {grouped(cap, 6)}", theme.ink, "start", 13
    )
    days = (frame.end - frame.begin).days
    most = 7 if frame.right > NARROW else 4
    step = next((step for step in (1, 2, 3, 6, 12, 24, 60) if days / 30.44 / step <= most), 120)
    month = datetime(frame.begin.year, frame.begin.month, 1, tzinfo=UTC)
    before = -math.inf
    while month <= frame.end:
        if month >= frame.begin and (month.year * 12 + month.month - 1) % step == 0:
            named = f"{MONTHS[month.month - 1]}{f' {month:%y}' if month.month <= step else ''}"
            if (at := frame.x(month)) - before > 36:
                yield words(at, frame.bottom + 20, named, theme.soft, "middle", 13)
                before = at
        month = datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)
    at = frame.x(frame.now)
    yield f'<path d="M{at:.1f} {frame.bottom:.1f}v6" stroke="{theme.edge}"/>'
    if not before > -math.inf or days < 62:
        yield words(at, frame.bottom + 20, "now", theme.soft, "middle", 13)


def _steps(frame: _Frame, steps: list[tuple[datetime, float]]) -> str:
    found = [f"M{frame.x(steps[0][0]):.1f} {frame.y(steps[0][1]):.1f}"]
    found += [f"H{frame.x(time):.1f}V{frame.y(spent):.1f}" for time, spent in steps[1:]]
    return "".join([*found, f"H{frame.x(frame.now):.1f}"])


def _look(place: int, theme: Theme) -> str:
    """Return how a series is filled: solid, lighter, striped, outlined."""
    return (
        f'fill="{theme.accent}" stroke="{theme.card}"',
        f'fill="{theme.bar}" stroke="{theme.card}"',
        f'fill="url(#{_STRIPES})" stroke="{theme.bar}"',
        f'fill="{theme.card}" stroke="{theme.edge}"',
    )[place % 4]


def _areas(frame: _Frame, spending: PastSpending, theme: Theme) -> Iterator[str]:
    """Yield an area for each person, the upper ones first: each covers what is below it."""
    sums = [Fraction(0)] * len(spending.people)
    tops: list[list[tuple[datetime, float]]] = [[(frame.begin, 0.0)] for _ in spending.people]
    for one in spending.payments:
        sums[one.person] += one.epsilon
        for place, total in enumerate(itertools.accumulate(sums)):
            tops[place].append((one.time, float(total)))
    for place in reversed(range(len(tops))):
        path = _steps(frame, tops[place])
        yield f'<path d="{path}V{frame.bottom:.1f}H{frame.x(frame.begin):.1f}Z" {_look(place, theme)}/>'


def _future(
    frame: _Frame, spent: float, cap: float, forecast: Forecast | None, theme: Theme
) -> Iterator[str]:
    """Yield a dashed line to the day when the budget is used up, and the range of that day."""
    if forecast is None or forecast.days is None or spent >= cap:
        return
    start = frame.x(frame.now), frame.y(spent)

    def meets(days: float | None) -> tuple[float, float]:
        """Return where a line to the budget ends: at the budget, or at the edge of the picture."""
        room = (frame.end - frame.now) / _DAY
        if days is None or not math.isfinite(days):
            return frame.right, start[1]
        share = 1.0 if days <= room else room / days
        return frame.x(frame.now + timedelta(days=days * share)), frame.y(spent + (cap - spent) * share)

    soon, middle, late = (meets(days) for days in (forecast.at_least, forecast.days, forecast.at_most))
    corner = "" if late[1] <= frame.y(cap) + 0.1 else f"L{frame.right:.1f} {frame.y(cap):.1f}"
    if soon[1] > frame.y(cap) + 0.1:
        corner = ""
    wedge = (
        f"M{start[0]:.1f} {start[1]:.1f}L{soon[0]:.1f} {soon[1]:.1f}{corner}L{late[0]:.1f} {late[1]:.1f}Z"
    )
    yield f'<path d="{wedge}" fill="{theme.tint}"/>'
    yield (
        f'<path d="M{start[0]:.1f} {start[1]:.1f}L{middle[0]:.1f} {middle[1]:.1f}" fill="none" '
        f'stroke="{theme.accent}" stroke-width="2" stroke-dasharray="5 4"/>'
    )
    top = frame.y(cap)
    if soon[1] <= top + 0.1:  # the range begins inside of the picture
        for end in (soon, late):
            if end[1] <= top + 0.1:
                yield line(end[0], top - 6, end[0], top + 6, theme.ink, 1.6)
        yield line(soon[0], top, late[0] if late[1] <= top + 0.1 else frame.right, top, theme.ink, 3)
    if middle[1] <= top + 0.1:
        yield f'<circle cx="{middle[0]:.1f}" cy="{top:.1f}" r="4.5" fill="{theme.ink}"/>'
    named = f"used up about {month_words(frame.now + timedelta(days=min(forecast.days, 36_500)))}"
    at = min(middle[0], frame.right - 84)
    yield words(at, top - 12 if at - 84 > frame.left + 150 else 14.0, named, theme.ink, "middle", 13)


def _haloed(x: float, y: float, text: str, theme: Theme, anchor: str) -> str:
    """Return a text that can be read over lines."""
    found = words(x, y, text, theme.ink, anchor, 13)
    return found.replace("<text ", f'<text stroke="{theme.card}" stroke-width="4" paint-order="stroke" ', 1)


def _labels(frame: _Frame, spending: PastSpending, theme: Theme, *, is_wide: bool) -> Iterator[str]:
    """Yield the names of the series: beside their areas, or below the picture where it is narrow."""
    below, before = Fraction(0), frame.bottom + 14
    for place, (name, total) in enumerate(zip(spending.people, spending.totals, strict=True)):
        text = f"{shortened(name, 20)}, ε {short_up(total, 4)}"
        if is_wide:
            middle = frame.y(float(below + total / 2))
            at = min(middle, before - 20)
            x = frame.x(frame.now) + 30
            path = f"M{x - 28:.1f} {middle:.1f}h6L{x - 8:.1f} {at:.1f}h4"
            yield f'<path d="{path}" fill="none" stroke="{theme.edge}"/>'
        else:
            x, at = frame.left, frame.bottom + 44 + 22 * place
        below, before = below + total, at
        yield f'<rect x="{x:.1f}" y="{at - 5.5:.1f}" width="11" height="11" rx="2" {_look(place, theme)}/>'
        yield _haloed(x + 18, at + 4.5, text, theme, "start")
