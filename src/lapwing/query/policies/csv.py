"""How a table's CSV files are written, as the policy says it."""

from __future__ import annotations

import re
from dataclasses import replace

from lapwing.engines.csv_form import ENCODINGS, PLAIN, SEPARATORS, CsvForm
from lapwing.query.policies.policy import Source
from lapwing.toml.section import Section, kind_of

CSV = ("encoding", "delimiter", "quote", "null", "decimal", "date_format")
NULLS_AT_MOST, NULL_AT_MOST = 20, 100
_FORM = re.compile(r"(?:[^%]|%[dmYyHMSIpbB%])*")  # of strptime, what is alike for everybody who reads it
_SAME = {"utf8": "utf-8", "latin1": "latin-1", "iso-8859-1": "latin-1", "cp1252": "windows-1252"}


def csv_source(section: Section, source: Source) -> Source:
    """A source with what `csv` says of its files."""
    inner = section.below("csv", CSV)
    if inner is None:
        return source
    if source.form != "csv":
        section.wrong("csv", "is for CSV files only. Remove it")
        return source
    delimiter, quote = _letter(inner, "delimiter"), _letter(inner, "quote")
    form = CsvForm(
        _encoding(inner) or PLAIN.encoding,
        delimiter or PLAIN.delimiter,
        quote or PLAIN.quote,
        _nulls(inner, (delimiter or SEPARATORS) + (quote or PLAIN.quote)),
        (inner.one_of("decimal", (".", ",")) if inner.has("decimal") else None) or PLAIN.decimal,
        _date_format(inner) or PLAIN.date_format,
    )
    if form.delimiter and form.delimiter == form.quote:
        inner.wrong("quote", "must be another letter than delimiter")
    return replace(source, csv=form)


def _encoding(section: Section) -> str | None:
    value = section.values.get("encoding")
    if isinstance(value, str) and value.lower() in (*_SAME, *ENCODINGS):
        return _SAME.get(value.lower(), value.lower())
    return section.one_of("encoding", ENCODINGS)


def _letter(section: Section, name: str) -> str | None:
    value = section.values.get(name)
    if value is None:
        return None
    if (
        isinstance(value, str)
        and len(value) == 1
        and value.isascii()
        and (value.isprintable() or value == "\t")
    ):
        return value
    section.wrong(name, 'must be one ASCII letter in quotes, such as ";" or "\\t"')
    return None


def _nulls(section: Section, refused: str) -> tuple[str, ...]:
    value = section.values.get("null")
    if value is None:
        return PLAIN.null
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        section.wrong("null", f'must be a list of texts such as ["", "NA"], not {kind_of(value)}')
    elif not 0 < len(given) <= NULLS_AT_MOST or any(len(one) > NULL_AT_MOST for one in given):
        section.wrong("null", f"must be 1 to {NULLS_AT_MOST} texts of at most {NULL_AT_MOST} letters")
    elif any(letter in one for one in given for letter in f"{refused}\r\n\0"):
        section.wrong("null", "must have no delimiter, quote or line break in it")
    else:
        return tuple(dict.fromkeys(given))
    return PLAIN.null


def _date_format(section: Section) -> str | None:
    value = section.text("date_format")
    if value is not None and ("%" not in value or not _FORM.fullmatch(value)):
        section.wrong(
            "date_format",
            'must be such as "%d.%m.%Y" or "%m/%d/%Y %H:%M": of %d %m %b %B %Y %y %H %I %p %M %S',
        )
        return None
    return value
