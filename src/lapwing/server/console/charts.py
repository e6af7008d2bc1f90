"""Charts as SVG files, in the colours of the light and of the dark theme.

A chart is loaded by its address as a picture, beside the table that has its numbers. It uses presentation
attributes alone, because the pages' policy of content allows no style inside of a document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lapwing.core.exact import grouped
from lapwing.server.console.parts import Axis

SANS = "system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, sans-serif"


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one theme."""

    ink: str
    soft: str
    line: str
    edge: str
    bar: str
    error: str


_LIGHT, _DARK = (
    Theme("#1c2622", "#52605a", "#d5dcd6", "#7d8a83", "#4f9680", "#1c2622"),
    Theme("#e8eeea", "#a9b7b0", "#323d37", "#76857d", "#418a74", "#e8eeea"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """The colours and the width of a chart, by the last part of its address."""

    theme: Theme
    width: float


WIDE, NARROW, SPENDING_WIDTH = 640.0, 340.0, 920.0
LOOKS = {
    "light": Look(_LIGHT, WIDE),
    "dark": Look(_DARK, WIDE),
    "light-narrow": Look(_LIGHT, NARROW),
    "dark-narrow": Look(_DARK, NARROW),
}
MOST_BARS = 40
ROW, LABEL_LETTERS = 40, 22


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its interval. Ends that are not finite reach the edge."""

    name: str
    value: float
    low: float
    high: float


def bar_chart(bars: Sequence[Bar], look: Look, *, title: str, is_made_up: bool = False) -> bytes:
    """Return a chart of horizontal bars with error bars, from zero. Made-up bars are dashed and empty."""
    theme, width = look.theme, look.width
    shown = [one for one in bars if math.isfinite(one.value)][:MOST_BARS]
    ends = [end for one in shown for end in (one.low, one.high, one.value)]
    axis = Axis.around(ends, zero=True)
    row = ROW if len(shown) <= 10 else 26
    names = [_shortened(one.name, LABEL_LETTERS if width > NARROW else 13) for one in shown]
    left = min(24 + 7.6 * max(map(len, names), default=0), width * 0.36)
    right, top = 28.0, 8.0
    height = top + row * len(shown) + 30
    bottom = top + row * len(shown)

    def x(value: float) -> float:
        return left + axis.place(value) * (width - left - right)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="{SANS}" font-size="14" role="img">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in axis.ticks(4 if width > NARROW else 2):
        colour = theme.edge if tick == 0 else theme.line
        lines.append(_line(x(tick), top - 4, x(tick), bottom + 2, colour, 1))
        lines.append(_text(x(tick), bottom + 20, grouped(tick, 6), theme.soft, "middle", 13))
    for k, one in enumerate(shown):
        middle = top + row * (k + 0.5)
        half = row * 0.26
        start, end = sorted((x(0.0), x(one.value)))
        fill = (
            f'fill="none" stroke="{theme.edge}" stroke-dasharray="4 3" stroke-width="1.2"'
            if is_made_up
            else f'fill="{theme.bar}"'
        )
        lines.append(_text(left - 12, middle + 4.5, names[k], theme.ink, "end", 14))
        lines.append(
            f'<rect x="{start:.1f}" y="{middle - half:.1f}" width="{max(end - start, 0.5):.1f}" '
            f'height="{2 * half:.1f}" rx="2" {fill}/>'
        )
        low, high = (x(min(max(value, axis.low), axis.high)) for value in (one.low, one.high))
        lines.append(_line(low, middle, high, middle, theme.error, 1.7))
        for place, value in ((low, one.low), (high, one.high)):
            if math.isfinite(value):
                lines.append(_line(place, middle - 6, place, middle + 6, theme.error, 1.7))
    return "\n".join([*lines, "</svg>"]).encode()


@dataclass(frozen=True, slots=True)
class SpentStep:
    """What counted as spent from a moment on. `time` is from 0 to 1 over the chart."""

    time: float
    spent: float


def spending_chart(
    steps: Sequence[SpentStep], cap: float, look: Look, *, title: str, begin: str, end: str
) -> bytes:
    """Return what counted as spent over time, as steps below the budget for life."""
    theme, width = look.theme, SPENDING_WIDTH if look.width > NARROW else NARROW
    height, left, right, top, bottom = 260.0, 48.0, 20.0, 34.0, 216.0
    axis = Axis.around([0.0, cap], zero=True)
    scale = (bottom - top) / (axis.high * 1.02)

    def x(time: float) -> float:
        return left + min(max(time, 0.0), 1.0) * (width - left - right)

    def y(spent: float) -> float:
        return bottom - spent * scale

    path = [f"M{x(steps[0].time):.1f} {y(steps[0].spent):.1f}"] if steps else []
    for one in steps[1:]:
        path += [f"H{x(one.time):.1f}", f"V{y(one.spent):.1f}"]
    if path:
        path.append(f"H{x(1.0):.1f}")
    outline = " ".join(path)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="{SANS}" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
    ]
    for tick in axis.ticks(4):
        if tick < cap * 0.97:
            lines.append(
                _line(left, y(tick), width - right, y(tick), theme.edge if not tick else theme.line, 1)
            )
        lines.append(_text(left - 12, y(tick) + 4.5, grouped(tick, 4), theme.soft, "end", 13))
    lines.append(_line(left, y(cap), width - right, y(cap), theme.ink, 1.5))
    lines.append(_text(left, y(cap) - 8, f"budget for life, ε {grouped(cap, 6)}", theme.ink, "start", 13))
    if path:
        first = x(steps[0].time)
        lines.append(
            f'<path d="{outline} V{bottom:.1f} H{first:.1f} Z" fill="{theme.bar}" fill-opacity="0.28"/>'
        )
        lines.append(f'<path d="{outline}" fill="none" stroke="{theme.bar}" stroke-width="2.5"/>')
    lines.append(_text(left, bottom + 24, begin, theme.soft, "start", 13))
    lines.append(_text(width - right, bottom + 24, end, theme.soft, "end", 13))
    return "\n".join([*lines, "</svg>"]).encode()


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:  # noqa: PLR0917 (as SVG has them)
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str, size: int) -> str:  # noqa: PLR0917 (as SVG has them)
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="{size}">{escape(text)}</text>'


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
