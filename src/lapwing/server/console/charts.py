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
    accent: str
    tint: str
    card: str


_LIGHT, _DARK = (
    Theme(
        "#1c2622", "#52605a", "#d5dcd6", "#7d8a83", "#4f9680", "#1c2622", "#17604c", "#dbe8e2", "#ffffff"
    ),
    Theme(
        "#e8eeea", "#a9b7b0", "#323d37", "#76857d", "#418a74", "#e8eeea", "#7fd1b5", "#26382f", "#1b231f"
    ),
)


@dataclass(frozen=True, slots=True)
class Look:
    """The colours and the width of a chart, by the last part of its address."""

    theme: Theme
    width: float


WIDE, NARROW = 640.0, 340.0
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
    finite = [one for one in bars if math.isfinite(one.value)]
    shown, more = finite[:MOST_BARS], len(finite) - MOST_BARS
    ends = [end for one in shown for end in (one.low, one.high, one.value)]
    axis = Axis.around(ends, zero=True)
    row = ROW if len(shown) <= 10 else 26
    names = [shortened(one.name, LABEL_LETTERS if width > NARROW else 13) for one in shown]
    left = min(24 + 7.6 * max(map(len, names), default=0), width * 0.36)
    right, top = 28.0, 8.0
    height = top + row * len(shown) + (30 if more <= 0 else 56)
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
        lines.append(line(x(tick), top - 4, x(tick), bottom + 2, colour, 1))
        lines.append(
            words(x(tick), bottom + 20, grouped(tick, 6).replace("-", "−"), theme.soft, "middle", 13)
        )
    for k, one in enumerate(shown):
        middle = top + row * (k + 0.5)
        half = row * 0.26
        start, end = sorted((x(0.0), x(one.value)))
        fill = (
            f'fill="none" stroke="{theme.edge}" stroke-dasharray="4 3" stroke-width="1.2"'
            if is_made_up
            else f'fill="{theme.bar}"'
        )
        lines.append(words(left - 12, middle + 4.5, names[k], theme.ink, "end", 14))
        lines.append(
            f'<rect x="{start:.1f}" y="{middle - half:.1f}" width="{max(end - start, 0.5):.1f}" '
            f'height="{2 * half:.1f}" rx="2" {fill}/>'
        )
        low, high = (x(min(max(value, axis.low), axis.high)) for value in (one.low, one.high))
        lines.append(line(low, middle, high, middle, theme.error, 1.7))
        for place, value in ((low, one.low), (high, one.high)):
            if math.isfinite(value):
                lines.append(line(place, middle - 6, place, middle + 6, theme.error, 1.7))
    if more > 0:
        lines.append(
            words(left, bottom + 44, f"… and {more:,} more: see the table", theme.soft, "start", 13)
        )
    return "\n".join([*lines, "</svg>"]).encode()


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:  # noqa: PLR0917 (as SVG has them)
    """Return a line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def words(x: float, y: float, text: str, colour: str, anchor: str, size: int) -> str:  # noqa: PLR0917 (as SVG has them)
    """Return a text, escaped."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="{size}">{escape(text)}</text>'


def shortened(name: str, most: int) -> str:
    """Return a name of at most some letters."""
    return name if len(name) <= most else name[: most - 1] + "…"
