"""All topics as one HTML file without scripts: contents, texts, pictures, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape

from lapwing.plots.html_page import bar, contents, grid, note, page, paragraph, picture, section
from lapwing.plots.style import svg_bytes
from lapwing.show.topic import Chapter, NumberTable, Shown, Topic, argument_page, cell_text

TITLE = "Differential privacy, one idea at a time"
_INTRODUCTION = (
    "Every number and picture in this booklet was computed when the booklet was made, with the mechanisms "
    "of Lapwing. Some are drawn with fresh noise, so they differ a little from one booklet to the next. "
    "Data sets are invented unless a topic names its source."
)
_LOOK = """
h2 { font-size: 1.35rem; border-bottom: 2px solid #0072B2; } h3 { font-size: 1.1rem; margin-top: 2.4rem; }
img { max-width: 100%; height: auto; } nav li { margin: .15rem 0; } code { overflow-wrap: anywhere; }
@media print { h2 { break-before: page; } img, table { break-inside: avoid; } }
"""


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A topic, the values that it was computed with, and the result."""

    topic: Topic
    values: Mapping[str, Fraction]
    shown: Shown


def booklet(chapters: Sequence[Chapter], found: Mapping[str, ShownTopic], left_out: Sequence[str]) -> bytes:
    """Return the page. `left_out` has a sentence for each topic that could not be shown."""
    parts = [note(_INTRODUCTION), contents(_entries(chapters, found))]
    for chapter in chapters:
        here = [found[topic.name] for topic in chapter.topics if topic.name in found]
        if here:
            parts.append(section(chapter.title, *(_topic(one) for one in here)))
    if left_out:
        parts.append(section("Left out", *(note(sentence) for sentence in left_out)))
    return page(TITLE, parts, more_style=_LOOK)


def _entries(
    chapters: Sequence[Chapter], found: Mapping[str, ShownTopic]
) -> list[tuple[str, list[tuple[str, str]]]]:
    every = [
        (chapter.title, [(topic.name, topic.question) for topic in chapter.topics if topic.name in found])
        for chapter in chapters
    ]
    return [(title, entries) for title, entries in every if entries]


def _topic(one: ShownTopic) -> str:
    topic, shown = one.topic, one.shown
    figure = shown.picture()
    command = " ".join([f"lapwing show {topic.name}", *given_options(one)])
    return section(
        topic.question,
        f"<p><strong>{escape(shown.headline)}</strong></p>",
        paragraph(" ".join(shown.sentences)),
        picture(svg_bytes(figure), str(figure.get_label()) or shown.headline),
        *(_table(table) for table in shown.tables),
        f'<p class="note"><code>{escape(command)}</code><br>Why it holds: '
        f"<code>{escape(argument_page(topic))}</code></p>",
        anchor=topic.name,
        level=3,
    )


def given_options(one: ShownTopic) -> list[str]:
    """Return the options that give these values to the topic."""
    return [f"--{name} {_written(value)}" for name, value in one.values.items()]


def _written(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else cell_text(float(value)).replace(",", "")


def _table(table: NumberTable) -> str:
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    heads = list(table.heads)
    place = None
    if table.bars is not None:
        place = table.bars + 1
        heads.insert(place, "")
        for row, share in zip(rows, table.shares(), strict=True):
            row.insert(place, bar(share))
    return f"<h4>{escape(table.title)}</h4>{grid(heads, rows, bars=place)}"
