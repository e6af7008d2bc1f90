"""A report as Markdown and as HTML. Both show the same content in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.html_views import grid, note
from lapwing.ledger import Ledger
from lapwing.ledger.budget_history import BudgetHistory
from lapwing.ledger.request_log import OTHERS
from lapwing.plots.html_page import page, picture, section
from lapwing.reporting.officer_file import NOT_ANSWERED
from lapwing.reporting.privacy_report import SOURCES, PrivacyReport, ReportTable

_SPECIAL = re.compile(r"([\\*_\[\]|#~$])")
_STYLE = """
ul { padding-left: 1.2rem; } li { margin: .35rem 0; }
.source { color: #666; font-size: .8rem; white-space: nowrap; }
.report td, .report th { white-space: normal; text-align: left; vertical-align: top; padding-right: 1rem; }
.report td:last-child { overflow-wrap: anywhere; min-width: 7rem; }
img { max-width: 100%; height: auto; } .open { color: #a33; }
@media (max-width: 40rem) { body { margin: 1rem auto; } .report td, .report th { padding-right: .7rem; } }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } h2 { break-after: avoid; }
tr, li, img { break-inside: avoid; } .wide { overflow: visible; } }
"""
LEGEND = "Sources: " + "; ".join(f"({name}) {words}" for name, words in SOURCES.items()) + "."


def subtitle(report: PrivacyReport, *, is_signed: bool) -> str:
    """Return the line under the heading."""
    signed = "signed with the ledger's key" if is_signed else "UNSIGNED"
    return (
        f"{report.date}, written by Lapwing {report.version}, {signed}. Sections follow NIST SP 800-226, "
        "Guidelines for Evaluating Differential Privacy Guarantees."
    )


def markdown(report: PrivacyReport, *, is_signed: bool) -> str:
    """Return the report as Markdown."""
    return "\n".join(_markdown_lines(report, is_signed=is_signed)) + "\n"


def _markdown_lines(report: PrivacyReport, *, is_signed: bool) -> Iterator[str]:
    yield from (f"# {_plain(report.title)}", "", subtitle(report, is_signed=is_signed))
    for part in report.sections:
        yield from ("", f"## {part.title}", "")
        if part.topic:
            yield from (f"SP 800-226: {part.topic}.", "")
        for fact in part.facts:
            yield f"- {_plain(fact.text)} ({fact.source})"
        for table in part.tables:
            yield from ("", *_markdown_table(table))
    yield from ("", "---", "", LEGEND)


def _markdown_table(table: ReportTable) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, table.heads))} |"
    yield f"|{'---|' * len(table.heads)}"
    for row in table.rows:
        yield f"| {' | '.join(map(_plain, row))} |"
    yield from ("", f"({table.source})")


def _plain(text: str) -> str:
    """Return a text on one line whose letters mean nothing in Markdown and HTML, but for `code`."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(text.split()), quote=False))


def html(report: PrivacyReport, pictures: Mapping[str, Sequence[bytes]], *, is_signed: bool) -> bytes:
    """Return the report as one page without scripts. `pictures` are SVG images by section."""
    parts = [note(subtitle(report, is_signed=is_signed))]
    for part in report.sections:
        facts = "".join(
            f"<li{_openness(fact.text)}>{_coded(fact.text)} {_source(fact.source, 'span')}</li>"
            for fact in part.facts
        )
        tables = [
            f'<div class="report">{grid(table.heads, table.rows)}{_source(table.source, "p")}</div>'
            for table in part.tables
        ]
        topic = note(f"SP 800-226: {part.topic}") if part.topic else ""
        images = [picture(svg, part.title) for svg in pictures.get(part.key, ())]
        parts.append(section(part.title, topic, f"<ul>{facts}</ul>", *images, *tables))
    return page(report.title, [*parts, "<hr>", note(LEGEND)], more_style=_STYLE)


def _source(source: str, tag: str) -> str:
    return f'<{tag} class="source">({escape(source)})</{tag}>'


def _coded(text: str) -> str:
    """Return a text as HTML, with commands in a fixed font."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _openness(text: str) -> str:
    return " class=open" if text.endswith(f"{NOT_ANSWERED}.") else ""


def spending_pictures(ledger: Ledger, labels: Sequence[str], *, is_of_people: bool) -> list[bytes]:
    """Return a picture of spending over time for each account; none without the extra `plots`.

    Blocks of single people are not named: a name is a hash that follows the person through the files.
    """
    try:
        from lapwing.plots.spending import spending  # noqa: PLC0415
        from lapwing.plots.style import save  # noqa: PLC0415

        pictures = []
        with TemporaryDirectory(prefix="lapwing-report-") as folder:
            for label in labels:
                path = Path(folder) / "spending.svg"
                course = BudgetHistory.of(ledger, label)
                if is_of_people:
                    names = [name if name == OTHERS else "one person" for name in course.blocks]
                    course = replace(course, blocks=tuple(names))
                save(spending(course), path)
                pictures.append(path.read_bytes())
        return pictures
    except ModuleNotFoundError:
        return []
