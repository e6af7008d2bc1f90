"""The common look of all pictures, and texts that fit into them.

White, few lines, labels beside what they name, colours that all can tell apart. matplotlib is an extra,
so it is imported only when a picture is drawn. Figures are made without pyplot: nothing global is kept,
no window is opened, and a server may draw in many threads. Names that people chose are shortened to a
width, with letters that the font has, and never read as a formula.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapwing.core.exact import short
from lapwing.errors import BadParameter, MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font


# Okabe and Ito's palette, which the common kinds of colour blindness can tell apart.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#AA4499"
INK, GREY, PALE = "#222222", "#666666", "#DDDDDD"
SUFFIXES = (".svg", ".png", ".pdf")

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it looks the same everywhere
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.labelpad": 7.0,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "lapwing",  # else every run would give its elements new names
    "svg.fonttype": "path",  # looks right without the font; the title is kept as text, too
}
_TITLE_SIZE, _NOTE_SIZE = 14.0, 10.5
DOTS: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6, "markeredgecolor": "white"}
WHITE_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 1}
_POINTS = 72.0


@contextmanager
def style() -> Iterator[None]:
    """Draw in the shared look, or say which extra is missing."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("plots", "Drawing pictures") from None
    with mpl.rc_context(_SETTINGS):
        yield


def new_figure(
    title: str,
    note: str,
    *,
    panels: int = 1,
    size: tuple[float, float] = (9.0, 5.4),
    left: float = 1.25,
    right: float = 0.96,
    one_scale: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Create a figure with a title that says what to see, and a note below it.

    `left` (inches) is room for the labels of the y axis. `right` (a share of the width) is where the
    panels end; the rest is room for labels at the ends of lines. With `one_scale` the panels share their
    x axis.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)

    width, height = size
    figure = Figure(figsize=size, facecolor="white")
    headline = textwrap.fill(title, int(width * 8.4))
    remark = textwrap.fill(note, int(width * 11.9))
    top = 1 - 0.18 / height
    edge = 0.25 / width
    figure.text(edge, top, headline, size=_TITLE_SIZE, weight="bold", va="top", linespacing=1.25)
    top -= (headline.count("\n") + 1) * 1.4 * _TITLE_SIZE / _POINTS / height + 0.04 / height
    figure.text(edge, top, remark, size=_NOTE_SIZE, color=GREY, va="top", linespacing=1.3)
    top -= (remark.count("\n") + 1) * 1.4 * _NOTE_SIZE / _POINTS / height
    axes = figure.subplots(1, panels, sharex=one_scale, sharey=True, squeeze=False)[0]
    figure.subplots_adjust(
        left=left / width,
        right=right,
        bottom=0.75 / height,
        top=top - (0.45 if panels > 1 else 0.15) / height,
        wspace=0.16,
    )
    figure.set_label(title)
    return figure, list(axes)


def note_beside(
    axes: Axes, text: str, at: tuple[Any, Any], shift: tuple[float, float], **look: Any
) -> None:
    """Write a text beside a point; `shift` is in points (1/72 inch)."""
    axes.annotate(text, xy=at, xytext=shift, textcoords="offset points", **look)


def error_axes(axes: Axes) -> None:
    """Make both axes logarithmic: numbers of people below, per cent at the left, no minor ticks."""
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 (an extra)

    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(value)} %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())


@dataclass(frozen=True, slots=True)
class EndLabel:
    """A text at height `y` beside the right end of a line."""

    y: float
    text: str
    colour: str


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Write each label beside its line's right end. Move labels apart that would overlap."""
    line = 0.68 * _NOTE_SIZE * axes.figure.dpi / _POINTS  # half the height of a line of text
    box = axes.get_window_extent()
    rising = sorted(labels, key=lambda label: label.y)
    halves = [line * (label.text.count("\n") + 1) for label in rising]
    heights = [float(axes.transData.transform((1, label.y))[1]) for label in rising]
    for _ in range(200):  # labels that overlap move apart, by half the overlap each
        for k in range(len(rising) - 1):
            overlap = heights[k] + halves[k] + halves[k + 1] - heights[k + 1]
            if overlap > 0:
                heights[k] -= overlap / 2
                heights[k + 1] += overlap / 2
        heights[0] = max(heights[0], float(box.y0) + halves[0])
    for label, height in zip(rising, heights, strict=True):
        at = (1, (height - box.y0) / box.height)
        look: dict[str, Any] = {"color": label.colour, "size": _NOTE_SIZE, "va": "center"}
        note_beside(axes, label.text, at, (8, 0), xycoords="axes fraction", annotation_clip=False, **look)


def checked_path(path: str | Path) -> Path:
    """Return a path whose suffix names a format that `save` writes. Raise BadParameter for others."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise BadParameter("plot", f"must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    return target


def save(figure: Figure, path: str | Path) -> None:
    """Write the figure as SVG, PNG or PDF, by the suffix. The same figure gives the same bytes."""
    target = checked_path(path)
    _save(figure, target, target.suffix.lower().removeprefix("."))


def svg_bytes(figure: Figure) -> bytes:
    """Return the figure as SVG. The same figure gives the same bytes."""
    target = BytesIO()
    _save(figure, target, "svg")
    return target.getvalue()


def _save(figure: Figure, target: Path | BytesIO, kind: str) -> None:
    title = str(figure.get_label())
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Date": None, "Creator": "lapwing", "Title": title},
        "png": {"Software": "lapwing", "Title": title},
        "pdf": {"CreationDate": None, "Creator": "lapwing", "Producer": None, "Title": title},
    }
    with style():
        figure.savefig(target, format=kind, dpi=150, metadata=metadata[kind])


LABEL_CHARACTERS, TITLE_CHARACTERS = 16, 40
EM_A_LETTER = 0.6  # width of a usual letter, in em
WIDER_AT_MOST = 1.5  # em that a name in a title may be wider: titles are broken by the number of letters


def shortened(text: str, letters: int = LABEL_CHARACTERS) -> str:
    """Return as much of a text as is not wider than this many usual letters."""
    room, shown = letters * EM_A_LETTER, ""
    for letter in text:
        known = letter if _width(letter) else "?"
        room -= _width(known)
        if room < 0:
            shown += "…"
            break
        shown += known
    return shown.replace("$", r"\$")  # else two of them make a formula


def in_title(text: str) -> str:
    """Return a name for the beginning of a title; "This account" if its letters are too wide."""
    shown = shortened(text, TITLE_CHARACTERS)
    is_wide = sum(map(_width, shown)) > len(shown) * EM_A_LETTER + WIDER_AT_MOST
    return "This account" if is_wide else shown


@cache
def _font() -> FT2Font:
    from matplotlib import get_data_path  # noqa: PLC0415 (an extra)
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415 (an extra)

    font = FT2Font(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    font.set_size(100, 72)
    return font


@cache
def _width(letter: str) -> float:
    """Return the width of a letter in em; 0 for a letter that the font does not have."""
    font = _font()
    if not font.get_char_index(ord(letter)):
        return 0.0
    return float(font.load_char(ord(letter)).linearHoriAdvance) / 65536 / 100
