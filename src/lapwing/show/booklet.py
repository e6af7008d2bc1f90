"""All topics as one HTML file without scripts: contents, texts, pictures, tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from pathlib import Path

import lapwing
from lapwing.html_views import grid, note
from lapwing.plots.html_page import bar, contents, page, picture, section
from lapwing.plots.style import svg_bytes
from lapwing.show.topic import Chapter, NumberTable, Shown, Topic, argument_page, cell_text

TITLE = "Differential privacy, one idea at a time"
_INTRODUCTION = (
    "Every number and picture in this booklet was computed when the booklet was made, with the mechanisms "
    "of Lapwing. Some are drawn with fresh noise, so they differ a little from one booklet to the next. "
    "Data sets are invented unless a topic names its source."
)
_LONG = 30  # letters of a cell that is broken into lines
_LOOK = """
h2 { font-size: 1.35rem; border-bottom: 2px solid #0072B2; } h3 { font-size: 1.1rem; margin-top: 2.4rem; }
img { max-width: 100%; height: auto; } nav li { margin: .15rem 0; }
h3, p, code, pre { overflow-wrap: anywhere; }
th { white-space: normal; vertical-align: bottom; }
pre { white-space: pre-wrap; font-size: .8rem; }
@media print { h2 { break-before: page; } img, table { break-inside: avoid; } }
"""


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A topic, the values that it was computed with, and the result."""

    topic: Topic
    values: Mapping[str, Fraction]
    shown: Shown


def booklet(
    chapters: Sequence[Chapter], topics: Mapping[str, ShownTopic], left_out: Sequence[str]
) -> bytes:
    """Return the page. `left_out` has a sentence for each topic that could not be shown.

    The argument pages are at the end of it, if the source of Lapwing is on this machine.
    """
    arguments = {name: path for name, path in _arguments(topics).items() if path.is_file()}
    parts = [note(_INTRODUCTION), contents(_entries(chapters, topics))]
    for chapter in chapters:
        here = [topics[topic.name] for topic in chapter.topics if topic.name in topics]
        if here:
            parts.append(
                section(chapter.title, *(_topic(shown_topic, topics, arguments) for shown_topic in here))
            )
    if left_out:
        parts.append(section("Left out", *(note(sentence) for sentence in left_out)))
    if arguments:
        pages = (
            section(name, f"<pre>{escape(path.read_text(encoding='utf-8'))}</pre>", anchor=name, level=3)
            for name, path in arguments.items()
        )
        parts.append(
            section("Arguments", note("Why the claims hold, as it is written in the source."), *pages)
        )
    return page(TITLE, parts, more_style=_LOOK)


def _arguments(topics: Mapping[str, ShownTopic]) -> dict[str, Path]:
    """Return the argument pages of these topics, and where they are in a copy of the source."""
    source = Path(lapwing.__file__).parents[2]
    pages = sorted({argument_page(shown_topic.topic) for shown_topic in topics.values()})
    return {name: source / name for name in pages}


def _entries(
    chapters: Sequence[Chapter], topics: Mapping[str, ShownTopic]
) -> list[tuple[str, list[tuple[str, str]]]]:
    every = [
        (chapter.title, [(topic.name, topic.question) for topic in chapter.topics if topic.name in topics])
        for chapter in chapters
    ]
    return [(title, entries) for title, entries in every if entries]


def _topic(shown_topic: ShownTopic, topics: Mapping[str, ShownTopic], arguments: Mapping[str, Path]) -> str:
    topic, shown = shown_topic.topic, shown_topic.shown
    name = argument_page(topic)
    why = f'<a href="#{name}">{name}</a>' if name in arguments else f"<code>{escape(name)}</code>"
    figure = shown.picture()
    command = " ".join([f"lapwing show {topic.name}", *given_options(shown_topic)])
    return section(
        topic.question,
        f"<p><strong>{escape(shown.headline)}</strong></p>",
        *(f"<p>{_with_links(sentence, topics)}</p>" for sentence in shown.sentences),
        picture(svg_bytes(figure), str(figure.get_label()) or shown.headline),
        *(_table(table) for table in shown.tables),
        f'<p class="note"><code>{escape(command)}</code><br>Why it holds: {why}</p>',
        anchor=topic.name,
        level=3,
    )


def _with_links(text: str, topics: Mapping[str, ShownTopic]) -> str:
    """Return a text as HTML. Commands between backticks are set as such, and lead to their topics."""

    def shown(match: re.Match[str]) -> str:
        command, _, name = match[1].rpartition(" ")
        code = f"<code>{match[1]}</code>"
        is_here = command == "lapwing show" and name in topics
        return f'<a href="#{name}">{code}</a>' if is_here else code

    return re.sub("`([^`]+)`", shown, escape(text))


def given_options(shown_topic: ShownTopic) -> list[str]:
    """Return the options that give these values to the topic."""
    return [f"--{name} {_written(value)}" for name, value in shown_topic.values.items()]


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
    texts = [column for column in range(len(heads)) if column != place and _has_texts(rows, column)]
    return f"<h4>{escape(table.title)}</h4>{grid(heads, rows, bars=place, texts=texts)}"


def _has_texts(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether a column has long texts, or texts that are not the names of the rows."""
    cells = [row[column] for row in rows]
    return any(len(cell) > _LONG for cell in cells) or (
        column > 0 and any(letter.isalpha() for cell in cells for letter in cell[:1])
    )
