"""Pages of HTML without scripts: one file each, with tables and bars. All texts are escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
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


def page(title: str, sections: Iterable[str], *, more_style: str = "") -> bytes:
    """Return a whole page. `more_style` is CSS that only this page needs."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{more_style}</style></head><body><h1>{escape(title)}</h1>"
        f"{''.join(sections)}</body></html>\n"
    ).encode()


def section(title: str, *parts: str, anchor: str = "", level: int = 2) -> str:
    """Return a heading and what follows it. Links can lead to its anchor."""
    name = f' id="{escape(anchor)}"' if anchor else ""
    return f"<h{level}{name}>{escape(title)}</h{level}>{''.join(parts)}"


def bar(share: float, kind: str = "bar") -> str:
    """Return a bar of this share of its cell."""
    return f'<div class="{kind}" style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></div>'


def contents(chapters: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> str:
    """Return a table of contents: titles of chapters, each with anchors and the texts of their links."""
    parts = []
    for title, entries in chapters:
        lines = "".join(
            f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>' for anchor, text in entries
        )
        parts.append(f"<li>{escape(title)}<ul>{lines}</ul></li>")
    return f"<nav><ul>{''.join(parts)}</ul></nav>"


def picture(svg: bytes, text: str) -> str:
    """Return an SVG picture that is part of the page, and a text for those who cannot see it.

    A picture that is loaded as an image runs no scripts and loads nothing.
    """
    data = b64encode(svg).decode()
    return f'<p><img alt="{escape(text)}" src="data:image/svg+xml;base64,{data}"></p>'
