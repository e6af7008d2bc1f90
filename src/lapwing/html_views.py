"""HTML of notebooks: the display hook, and the parts that all displays and pages are made of.

Values show themselves by `html_view`, drawn by a module above theirs. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape


@singledispatch
def html_view(value: object) -> str:
    """Return a value as HTML. `html_view.register` says who draws a type; the others show their text."""
    return f"<pre>{escape(str(value))}</pre>"


def fragment(*parts: str) -> str:
    """Return a part of a page, for a notebook, which has a style of its own."""
    return f'<div style="max-width: 60rem">{"".join(parts)}</div>'


def strong(text: str) -> str:
    """Return a paragraph that stands out."""
    return f"<p><strong>{escape(text)}</strong></p>"


def note(text: str) -> str:
    """Return a paragraph."""
    return f'<p class="note">{escape(text)}</p>'


def notes(lines: Iterable[str]) -> str:
    """Return one paragraph of several lines."""
    return f'<p class="note">{"<br>".join(map(escape, lines))}</p>'


def grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    bars: int | None = None,
    wrapped: int | None = None,
    texts: Iterable[int] = (),
) -> str:
    """Return a table of texts.

    Args:
        heads: The names of the columns.
        rows: The texts of the cells.
        bars: The column that holds bars: HTML that was made here. They are short beside wrapped texts.
        wrapped: A column of long texts, which are broken into lines.
        texts: More such columns. Bars keep their size beside them.
    """
    kinds = {bars: "bars few" if wrapped is not None else "bars", wrapped: "wrap"}
    kinds |= dict.fromkeys(texts, "wrap")

    def cell(place: int, text: str) -> str:
        kind = f' class="{kinds[place]}"' if place in kinds else ""
        return f"<td{kind}>{text if place == bars else escape(text)}</td>"

    body = "".join(f"<tr>{''.join(cell(*item) for item in enumerate(row))}</tr>" for row in rows)
    top = "".join(
        f"<th{' class=wrap' * (kinds.get(place) == 'wrap')}>{escape(head)}</th>"
        for place, head in enumerate(heads)
    )
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'
