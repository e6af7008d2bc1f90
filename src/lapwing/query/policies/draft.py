"""`lapwing init`: a policy drafted from the schema alone.

Claim    no value of the data gets into the draft: no bound, category, count or cell.
Because  only names and types of columns are read, and of types only the word: `ENUM('A', 'B')` is ENUM.
Test     tests/query/test_draft.py
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from lapwing.query.policies.draft_schema import Schema, checked_unit, schema_of
from lapwing.query.policies.policy import Source
from lapwing.toml.section import why_no_name
from lapwing.toml.text import quoted

NOT_FROM_DATA = "not from the data"
WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
REAL = re.compile(r"FLOAT|DOUBLE|DOUBLE PRECISION|REAL|DECIMAL|NUMERIC")
TEXT = re.compile(r"VARCHAR|TEXT|STRING|CHAR|CHARACTER|CHARACTER VARYING|ENUM|UUID|USER-DEFINED")
TRUTH = re.compile(r"BOOL|BOOLEAN")
MOMENT = re.compile(r"(TIMESTAMP|DATETIME)(_NTZ|_LTZ|_S|_MS|_NS)?( WITH(OUT)? TIME ZONE)?")

HOW: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        WHOLE,
        (
            f'low = "TODO"   # such as 0: the least value that can occur, {NOT_FROM_DATA}',
            f'high = "TODO"  # such as 100: the greatest, {NOT_FROM_DATA}; values beyond are clamped',
        ),
    ),
    (
        REAL,
        (
            f'low = "TODO"   # such as 0.0: the least value that can occur, {NOT_FROM_DATA}',
            f'high = "TODO"  # such as 100.0: the greatest, {NOT_FROM_DATA}; values beyond are clamped',
            'step = "TODO"  # such as 0.01: how fine values are; sums are computed in whole steps',
        ),
    ),
    (
        TEXT,
        (
            f'values = ["TODO"]   # such as ["A", "B"]: all that can occur, {NOT_FROM_DATA}',
            '# or: type = "text"  # not listed: groups are shown only where many people are in them',
        ),
    ),
    (TRUTH, ('type = "bool"',)),
    (
        re.compile("DATE"),
        (
            f'low = "TODO"   # such as 2000-01-01: the earliest date that can occur, {NOT_FROM_DATA}',
            f'high = "TODO"  # such as 2029-12-31: the latest, {NOT_FROM_DATA}',
        ),
    ),
    (
        MOMENT,
        (
            f'low = "TODO"     # such as 2000-01-01T00:00:00: the earliest time (UTC), {NOT_FROM_DATA}',
            f'high = "TODO"    # such as 2029-12-31T23:59:59: the latest, {NOT_FROM_DATA}',
            'step = "second"  # or "minute", "hour", "day"',
        ),
    ),
)


def draft(source: str, *, unit: str | None) -> str:
    """The text of a policy for a source, to be saved in the current folder."""
    return draft_of(schema_of(source, folder=Path.cwd()), unit=unit)


def draft_of(schema: Schema, *, unit: str | None, folder: Path | None = None) -> str:
    """The text of a policy. It loads once unit, rows_per_unit, epsilon and delta are there.

    folder  where the policy will lie, if not in the current folder.
    """
    unit = None if unit is None else checked_unit(schema, unit)
    names = _names([name for name, _ in schema.columns])
    lines = [*_head(schema), *_table(schema, _source_from(folder, schema), unit, names)]
    for name, kind in schema.columns:
        if name != unit:
            lines += _column(schema.table, name, names[name], kind)
    return "\n".join(lines) + "\n"


def _names(columns: list[str]) -> dict[str, str]:
    """How questions call columns: as the source does, or like it where SQL needs another name."""
    taken = {name.lower() for name in columns if not why_no_name(name)}
    found = {}
    for number, name in enumerate(columns, 1):
        found[name] = name
        if why_no_name(name):
            found[name] = _like(name, number, taken)
            taken.add(found[name])
    return found


def _like(name: str, number: int, taken: set[str]) -> str:
    """Return a name that SQL can use and that no other column has."""
    letters = (
        unicodedata.normalize("NFKD", name.lower().replace("ß", "ss")).encode("ascii", "ignore").decode()
    )
    near = re.sub(r"[^a-z0-9]+", "_", letters).strip("_")[:50] or f"column_{number}"
    near = f"c_{near}" if why_no_name(near) else near
    return (
        near
        if near not in taken
        else next(again for n in count(2) if (again := f"{near}_{n}") not in taken)
    )


def _source_from(folder: Path | None, schema: Schema) -> str:
    """The source as it is called from the policy's folder: relative stays relative."""
    source = schema.text
    mark = "spark:" if source.startswith("spark:") else ""
    path = source.removeprefix(mark)
    is_file = schema.source.engine == "duckdb" or schema.source.form == "spark-parquet"
    if folder is None or not is_file or "://" in path or os.path.isabs(path):
        return source
    return mark + os.path.relpath(path, folder)


def _head(schema: Schema) -> list[str]:
    notes = []
    if schema.source.form == "csv":
        notes = [
            "# CSV has no schema: the types were guessed from its rows, and the names are its first line.",
            "# If the file has no header, the names below are data: then give it one and draft again.",
        ]
    if schema.source.form == "postgres" and _has_password(schema.text):
        notes = ["# The address below holds a password. Better: leave it out, and keep it in ~/.pgpass."]
    return [
        "# A policy: who is protected, what is public, and the budget for life.",
        "# Drafted by `lapwing init` from names and types of columns alone: no value was copied.",
        *notes,
        "# Lines with TODO are for you. What they say becomes public: write what you know of the subject.",
        "",
        "[dataset]",
        f"name = {quoted(schema.table)}",
        '# protects = "person"  # or "row", or "person-period" (see blocks)',
        '# population = "…"     # one account for all data about the same people',
        '# ids = "folded"       # "A1", "a1" and " a1" are one person; other spaces than U+0020 are kept',
        "",
        "[budget]  # for life: all answers together never reveal more than this about anybody",
        "# epsilon = 3.0  # TODO: 1 is cautious, 3 usual, 10 weak; `lapwing explain` says what it means",
        "# delta = 1e-7   # TODO: far below 1 / the number of people",
        "",
        "# [blocks]         # optional: slices of people, each with the whole budget",
        '# by = "unit"',
        "# cohorts = 64",
        "",
        "# [analysts.ana]   # optional: at most so much of the budget for one analyst",
        "# epsilon = 1.0",
        "# delta = 1e-8",
        "",
    ]


def _has_password(source: str) -> bool:
    try:
        return urlsplit(source).password is not None or "password=" in source
    except ValueError:
        return True


def _table(schema: Schema, source: str, unit: str | None, names: Mapping[str, str]) -> list[str]:
    if unit is None:
        line = 'unit = ""  # TODO: which column says whom a row is about?'
    else:
        called = quoted(unit)
        if names[unit] != unit:
            called = f"{{ name = {quoted(names[unit])}, source = {called} }}"
        line = f"unit = {called}  # the column that says whom a row is about"
    return [
        f"[tables.{schema.table}]",
        f"source = {quoted(source)}",
        *_csv(schema.source),
        line,
        "# rows_per_unit = 5  # TODO: how many rows of one person may count; more rows, more noise",
        '# primary_key = "id"  # the column that tells rows apart, if there is one',
        "# rows = 100000       # about how many rows there are, only if that is public",
        "",
        "# A column that is not declared cannot be used. Remove the first # of each line to declare one.",
        "",
    ]


def _csv(source: Source) -> list[str]:
    """What CSV files do not say themselves."""
    if source.form != "csv":
        return []
    said, encoding = [], source.csv.encoding
    if encoding != "utf-8":
        other = ', or "windows-1252"' if encoding == "latin-1" else ""
        said = [
            f"csv = {{ encoding = {quoted(encoding)} }}  # it is not in UTF-8: look whether it is so{other}"
        ]
    more = 'decimal = ",", date_format = "%d.%m.%Y", null = ["", "NA"], delimiter = ";"'
    return [*said, f"# csv = {{ {more} }}  # what else a CSV file does not say itself"]


def _column(table: str, source: str, name: str, kind: str) -> list[str]:
    how = next((lines for pattern, lines in HOW if pattern.fullmatch(kind)), None)
    if how is None:
        shown = name if name == source else quoted(source, at_most=80)
        return [f"# {shown} ({kind}): values of this type cannot be declared", ""]
    called = [] if name == source else [f"source = {quoted(source)}  # what the source calls it"]
    return [f"# [tables.{table}.columns.{name}]  # {kind}", *[f"# {line}" for line in (*called, *how)], ""]
