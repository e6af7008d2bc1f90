"""Pages of HTML without scripts: one file each, with tables and bars. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0
1rem; } h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: .9rem; } .wide { overflow-x: auto; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr + tr td { border-top: 1px solid #eee; }
.bar { background: #0072B2; height: .55rem; } .other { background: #D55E00; } .note { color: #666; }
td.bars { width: 45%; min-width: 8rem; } td.bars div { min-width: 1px; }
td.few { width: 7rem; min-width: 5rem; } .wrap { white-space: normal; text-align: left; }
"""


def page(title: str, sections: Iterable[str], *, style: str = "") -> bytes:
    """Return a whole page. `style` is CSS of this page alone."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body><h1>{escape(title)}</h1>"
        f"{''.join(sections)}</body></html>\n"
    ).encode()


def section(title: str, *parts: str) -> str:
    """Return a heading and what follows it."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}"


def note(text: str) -> str:
    """Return a paragraph."""
    return f'<p class="note">{escape(text)}</p>'


def grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    bars: int | None = None,
    wrapped: int | None = None,
) -> str:
    """Return a table of texts.

    Args:
        heads: The names of the columns.
        rows: The texts of the cells.
        bars: The column that holds bars: HTML that was made here. They are short beside wrapped texts.
        wrapped: A column of long texts, which are broken into lines.
    """
    kinds = {bars: "bars few" if wrapped is not None else "bars", wrapped: "wrap"}

    def cell(place: int, text: str) -> str:
        kind = f' class="{kinds[place]}"' if place in kinds else ""
        return f"<td{kind}>{text if place == bars else escape(text)}</td>"

    body = "".join(f"<tr>{''.join(cell(*one) for one in enumerate(row))}</tr>" for row in rows)
    top = "".join(
        f"<th{' class=wrap' * (place == wrapped)}>{escape(head)}</th>" for place, head in enumerate(heads)
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def bar(share: float, kind: str = "bar") -> str:
    """Return a bar of this share of its cell."""
    return f'<div class="{kind}" style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></div>'
