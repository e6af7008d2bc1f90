"""Drafting a policy for `lapwing init` from the schema of a source alone.

Claim    no value of the data gets into the draft: no bound, category, count or cell.
Because  only the names and types of columns are read, and only the word of a type: `ENUM('A', 'B')` is
         ENUM. Messages of engines about failures are not shown: they can quote data. What else is in it was
         given by the curator.
Test     tests/sql/policy/test_policy_draft.py
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from urllib.parse import urlsplit

from lapwing.config.toml_text import quoted
from lapwing.config.values import RESERVED_PREFIX, did_you_mean, similar_name, why_bad_name
from lapwing.engines.csv_files import CsvForm, is_utf8, is_utf16, read_header, recode
from lapwing.engines.engine import private_folder
from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.sql.policy.policy import Source
from lapwing.sql.policy.source_location import DUCKDB_FILES, FORMS, SPARK, files_in, parse_source

_PATTERN = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """A source and its public facts: the names and types of its columns.

    A type is one word: details can be values.
    """

    text: str  # the source as it is written in a policy
    source: Source
    table: str
    columns: tuple[tuple[str, str], ...]


def read_schema(text: str, *, folder: Path) -> SourceSchema:
    """Return the schema of a source, given as in a policy that lies in `folder`."""
    table = suggested_table_name(text)
    source = parse_source(text, folder=folder, table=table)
    if "#" not in text and source.form == "duckdb":
        return read_schema(f"{text}#{_only_table(source.location)}", folder=folder)
    if "#" not in text and source.form == "postgres":
        raise BadParameter("source", "say which table with #table or #schema.table after the address")
    if source.form == "csv":
        source = replace(source, csv=CsvForm(encoding=_encoding_of(source)))
    columns = tuple((name, _without_details(kind)) for name, kind in _READERS[source.form](source))
    if not columns:
        raise BadParameter("source", f"there is no table {source.table}, or it may not be read")
    return SourceSchema(text, source, table, columns)


def suggested_table_name(text: str) -> str:
    """Return a name for the table: the last name in the source that is not a pattern."""
    if "#" in text or (text.startswith(SPARK) and "/" not in text):
        last = re.split(r"[#.:]", text)[-1]
    else:
        parts = [part for part in text.removeprefix(SPARK).split("/") if not _PATTERN.search(part)]
        last = next((part for part in reversed(parts) if part.strip(".")), "")
        suffixes = [suffix for suffix in (*FORMS, *DUCKDB_FILES) if last.lower().endswith(suffix)]
        last = last[: -len(suffixes[0])] if suffixes else last
    name = similar_name(last) or "rows"
    return f"t_{name}" if name[0].isdigit() or name.lower().startswith(RESERVED_PREFIX) else name


def find_unit_column(schema: SourceSchema, unit: str) -> str:
    """Return the column of that name, as the source spells it. Raises BadParameter if there is none."""
    names = [name for name, _ in schema.columns]
    for name in names:
        if name == unit or name.lower() == unit.strip().lower():
            return name
    raise BadParameter("unit", f"there is no such column. {did_you_mean(unit, names, 'Columns')}")


def _without_details(kind: str) -> str:
    """Return the word of a type alone: ENUM('A', 'B') lists values, and STRUCT(…) may."""
    word = re.match(r"[A-Za-z][A-Za-z0-9_ -]*", kind)
    return (word[0].strip().upper() if word else "UNKNOWN") + ("[]" if kind.endswith("]") else "")


def _in_duckdb(database: str, sql: str, given: Sequence[object], what: str) -> list[tuple[str, str]]:
    import duckdb  # noqa: PLC0415 (only drafts need it)

    try:
        with duckdb.connect(database, read_only=database != ":memory:") as connection:
            rows = connection.execute(sql, given).fetchall()
    except duckdb.Error:  # its message can quote a line of the data
        raise BadParameter("source", f"cannot be read as {what}") from None
    return [(str(row[0]), str(row[1])) for row in rows]


def _of_parquet(source: Source) -> list[tuple[str, str]]:
    sql = "DESCRIBE SELECT * FROM read_parquet(?)"
    return _in_duckdb(":memory:", sql, [source.location], "Parquet")


def _encoding_of(source: Source) -> str:
    """Return UTF-8 if all files are in it, or UTF-16 if one is marked so.

    Else it is a guess for the curator.
    """
    paths = files_in(source)
    if all(is_utf8(path) for path in paths):
        return "utf-8"
    return "utf-16" if any(is_utf16(path) for path in paths) else "latin-1"


def _of_csv(source: Source) -> list[tuple[str, str]]:
    """Return the names in the first line, and the types that DuckDB guesses from the rows."""
    paths = files_in(source)
    if not any(os.path.getsize(path) for path in paths):
        raise BadParameter("source", "is empty: there are no columns to draft from")
    folder, remove = private_folder("init")
    try:
        if source.csv.encoding != "utf-8":
            copies = [Path(folder) / f"{number}.csv" for number, _ in enumerate(paths)]
            for path, copy in zip(paths, copies, strict=True):
                recode(path, source.csv.encoding, copy)
            paths = list(map(str, copies))
        separator, names = read_header(paths, source.csv)
        given: list[object] = [[glob.escape(path) for path in paths], separator]
        described = _in_duckdb(":memory:", "DESCRIBE SELECT * FROM read_csv(?, delim = ?)", given, "CSV")
    finally:
        remove()
    kinds = [kind for _, kind in described]
    return list(zip(names, kinds if len(kinds) == len(names) else ["VARCHAR"] * len(names), strict=True))


def _of_duckdb(source: Source) -> list[tuple[str, str]]:
    schema, _, table = source.table.rpartition(".")
    sql = (
        "SELECT column_name, data_type FROM duckdb_columns() "
        "WHERE schema_name = ? AND lower(table_name) = lower(?) AND NOT internal ORDER BY column_index"
    )
    return _in_duckdb(source.location, sql, [schema or "main", table], "a DuckDB file")


def _only_table(location: str) -> str:
    sql = (
        "SELECT table_name, '' FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal "
        "UNION ALL SELECT view_name, '' FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal "
        "ORDER BY 1"
    )
    tables = [name for name, _ in _in_duckdb(location, sql, [], "a DuckDB file")]
    if len(tables) != 1:
        shown = ", ".join(tables[:20]) or "none"
        raise BadParameter("source", f"say which table with #table after the file. Tables in it: {shown}")
    return tables[0]


def _of_postgres(source: Source) -> list[tuple[str, str]]:
    try:
        import psycopg  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("postgres", "PostgreSQL") from None
    schema, _, table = source.table.rpartition(".")
    sql = (
        "SELECT column_name::text, data_type::text FROM information_schema.columns "
        "WHERE table_schema = coalesce(nullif(%s, ''), current_schema()) AND table_name = %s "
        "ORDER BY ordinal_position"
    )
    try:
        with psycopg.connect(source.location, connect_timeout=10) as connection:
            return connection.execute(sql, (schema, table)).fetchall()
    except psycopg.Error:  # its message can contain the password
        raise Unavailable("the PostgreSQL database could not be reached or read") from None


def _of_spark(source: Source) -> list[tuple[str, str]]:
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("spark", "Spark") from None
    before = SparkSession.getActiveSession()
    session = before or SparkSession.builder.appName("lapwing init").getOrCreate()
    try:
        read = session.table if source.form == "spark" else session.read.parquet
        frame = read(source.table)
        return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
    except PySparkException:
        raise BadParameter("source", "Spark cannot read this table") from None
    finally:
        if before is None:
            session.stop()


_READERS: dict[str, Callable[[Source], list[tuple[str, str]]]] = {
    "parquet": _of_parquet,
    "csv": _of_csv,
    "duckdb": _of_duckdb,
    "postgres": _of_postgres,
    "spark": _of_spark,
    "spark-parquet": _of_spark,
}


NOT_FROM_DATA = "not from the data"
WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
REAL = re.compile(r"FLOAT|DOUBLE|DOUBLE PRECISION|REAL|DECIMAL|NUMERIC")
TEXT = re.compile(r"VARCHAR|TEXT|STRING|CHAR|CHARACTER|CHARACTER VARYING|ENUM|UUID|USER-DEFINED")
TRUTH = re.compile(r"BOOL|BOOLEAN")
DAY = re.compile("DATE")
MOMENT = re.compile(r"(TIMESTAMP|DATETIME)(_NTZ|_LTZ|_S|_MS|_NS)?( WITH(OUT)? TIME ZONE)?")

HOW = {  # the lines that declare a column, by its type
    WHOLE: f"""
low = "TODO"   # such as 0: the least value that can occur, {NOT_FROM_DATA}
high = "TODO"  # such as 100: the greatest, {NOT_FROM_DATA}; values beyond are clamped
""",
    REAL: f"""
low = "TODO"   # such as 0.0: the least value that can occur, {NOT_FROM_DATA}
high = "TODO"  # such as 100.0: the greatest, {NOT_FROM_DATA}; values beyond are clamped
step = "TODO"  # such as 0.01: how fine values are; sums are computed in whole steps
""",
    TEXT: f"""
values = ["TODO"]   # such as ["A", "B"]: all that can occur, {NOT_FROM_DATA}
# or: type = "text"  # not listed: groups are shown only where many people are in them
""",
    TRUTH: 'type = "bool"',
    DAY: f"""
low = "TODO"   # such as 2000-01-01: the earliest date that can occur, {NOT_FROM_DATA}
high = "TODO"  # such as 2029-12-31: the latest, {NOT_FROM_DATA}
""",
    MOMENT: f"""
low = "TODO"     # such as 2000-01-01T00:00:00: the earliest time (UTC), {NOT_FROM_DATA}
high = "TODO"    # such as 2029-12-31T23:59:59: the latest, {NOT_FROM_DATA}
step = "second"  # or "minute", "hour", "day"
""",
}


WORDS = {"date": DAY, "time": MOMENT, "whole": WHOLE, "number": REAL}  # types whose bounds are left to say
RANGE = re.compile(r"(?P<low>[^/]+?)\.\.(?P<high>[^/]+?)(?:/(?P<step>[^/]+))?")
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)?)?")
COLUMN_HOW = (
    "Write amount=0..500/0.01, city=Oslo,Bergen, day=2026-01-01..2026-12-31, note=text or paid=bool; or "
    "date, time, whole or number, and fill in the bounds"
)


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """Public facts that the curator gives beforehand, so that less is left to fill in.

    `columns` has texts such as "0..500/0.01" (low, high and step), "Oslo,Bergen" (all values), "text" and
    "bool", by the column's name in the source. "date", "time", "whole" and "number" leave bounds open.
    """

    unit: str | None = None
    rows_per_unit: int | None = None
    epsilon: str | None = None
    delta: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, number in (("epsilon", self.epsilon), ("delta", self.delta)):
            if number is not None and not NUMBER.fullmatch(number):
                raise BadParameter(name, "must be a number such as 3, 0.5 or 1e-7")

    @property
    def complete(self) -> bool:
        """True if a policy that is drafted with them can be loaded."""
        has_bounds = not any(fact in WORDS for fact in self.columns.values())
        return has_bounds and None not in (self.unit, self.rows_per_unit, self.epsilon, self.delta)


def read_column_facts(given: Sequence[str], schema: SourceSchema) -> dict[str, str]:
    """Return what was said about columns, by their names in the source. Raises BadParameter."""
    facts: dict[str, str] = {}
    names = {name.lower(): name for name, _ in schema.columns}
    for text in given:
        column, mark, fact = (part.strip() for part in text.partition("="))
        if not mark or not column or not fact:
            raise BadParameter("column", f"must be a name, = and its values. {COLUMN_HOW}")
        if column.lower() not in names:
            known = did_you_mean(column, list(names.values()), "Columns")
            raise BadParameter("column", f"there is no column of that name. {known}")
        facts[names[column.lower()]] = fact
    return facts


def draft_of(schema: SourceSchema, facts: KnownFacts, *, folder: Path | None = None) -> str:
    """Return the text of a policy.

    It can be loaded once unit, rows_per_unit, epsilon and delta are filled in.

    `folder` is the folder that the policy will lie in, if that is not the current one.
    """
    unit = None if facts.unit is None else find_unit_column(schema, facts.unit)
    names = _names([name for name, _ in schema.columns])
    lines = [*_head(schema, facts), *_table(schema, _source_from(folder, schema), unit, names, facts)]
    for name, kind in schema.columns:
        if name != unit:
            lines += _column(schema.table, name, names[name], kind, facts.columns.get(name))
    return "\n".join(lines) + "\n"


def _names(columns: list[str]) -> dict[str, str]:
    """Return the SQL name of each column: its name in the source, or a similar one that SQL accepts."""
    taken = {name.lower() for name in columns if not why_bad_name(name)}
    names = {}
    for number, name in enumerate(columns, 1):
        names[name] = name
        if why_bad_name(name):
            names[name] = _like(name, number, taken)
            taken.add(names[name])
    return names


def _like(name: str, number: int, taken: set[str]) -> str:
    """Return a similar name that SQL accepts and that no other column has."""
    near = similar_name(name.lower()) or f"column_{number}"
    near = f"c_{near}" if why_bad_name(near) else near
    names = chain([near], (f"{near}_{again}" for again in count(2)))
    return next(name for name in names if name not in taken)


def _source_from(folder: Path | None, schema: SourceSchema) -> str:
    """Return the source as it is written in the policy's folder. Relative paths stay relative."""
    source = schema.text
    mark = "spark:" if source.startswith("spark:") else ""
    path = source.removeprefix(mark)
    is_file = schema.source.engine == "duckdb" or schema.source.form == "spark-parquet"
    if folder is None or not is_file or "://" in path or os.path.isabs(path):
        return source
    return mark + os.path.relpath(path, folder)


def _head(schema: SourceSchema, facts: KnownFacts) -> list[str]:
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
        "# Lines with TODO are for you. They become public: write what you know about the subject.",
        "",
        "[dataset]",
        f"name = {quoted(schema.table)}",
        '# protects = "person"  # or "row", or "person-period" (see blocks)',
        '# population = "…"     # one account for all data about the same people',
        '# ids = "folded"       # "A1", "a1" and " a1" are one person; other spaces than U+0020 are kept',
        "",
        "[budget]  # for life: all answers together never reveal more than this about anybody",
        "# epsilon = 3.0  # TODO: 1 is cautious, 3 usual, 10 weak; `lapwing explain` says what it means"
        if facts.epsilon is None
        else f"epsilon = {facts.epsilon}  # `lapwing explain` says what it means",
        "# delta = 1e-7   # TODO: far below 1 / the number of people"
        if facts.delta is None
        else f"delta = {facts.delta}  # far below 1 / the number of people",
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


def _table(
    schema: SourceSchema, source: str, unit: str | None, names: Mapping[str, str], facts: KnownFacts
) -> list[str]:
    if unit is None:
        line = 'unit = ""  # TODO: which column says which person a row belongs to?'
    else:
        called = quoted(unit)
        if names[unit] != unit:
            called = f"{{ name = {quoted(names[unit])}, source = {called} }}"
        line = f"unit = {called}  # the column that says which person a row belongs to"
    return [
        f"[tables.{schema.table}]",
        f"source = {quoted(source)}",
        *_csv(schema.source),
        line,
        "# rows_per_unit = 5  # TODO: how many rows of one person may count; more rows, more noise"
        if facts.rows_per_unit is None
        else f"rows_per_unit = {facts.rows_per_unit}  # so many rows of one person may count",
        '# primary_key = "id"  # the column that tells rows apart, if there is one',
        "# rows = 100000       # about how many rows there are, only if that is public",
        "",
        "# A column that is not declared cannot be used. Remove the first # of each line to declare one.",
        "",
    ]


def _csv(source: Source) -> list[str]:
    """Return the lines about properties that CSV files do not state themselves."""
    if source.form != "csv":
        return []
    said, encoding = [], source.csv.encoding
    if encoding != "utf-8":
        other = ', or "windows-1252"' if encoding == "latin-1" else ""
        said = [f"csv = {{ encoding = {quoted(encoding)} }}  # it is not in UTF-8: check this guess{other}"]
    more = 'decimal = ",", date_format = "%d.%m.%Y", null = ["", "NA"], delimiter = ";"'
    return [*said, f"# csv = {{ {more} }}  # other properties that CSV files do not state"]


def _column(table: str, source: str, name: str, kind: str, fact: str | None) -> list[str]:
    """Return the lines of a column: as comments, unless the curator said something about it."""
    head = [f"[tables.{table}.columns.{name}]  # {kind}"]
    head += [] if name == source else [f"source = {quoted(source)}  # its name in the source"]
    if fact is not None:
        return [*head, *_fact_lines(source, kind, fact), ""]
    how = next((text for pattern, text in HOW.items() if pattern.fullmatch(kind)), None)
    if how is None:
        shown = name if name == source else quoted(source, at_most=80)
        return [f"# {shown} ({kind}): values of this type cannot be declared", ""]
    return [*[f"# {line}" for line in (*head, *how.strip().splitlines())], ""]


def _fact_lines(column: str, kind: str, fact: str) -> list[str]:
    if fact in ("text", "bool"):
        return [f"type = {quoted(fact)}"]
    if fact in WORDS:
        return HOW[WORDS[fact]].strip().splitlines()
    bounds = RANGE.fullmatch(fact)
    if bounds is None:
        values = [value.strip() for value in fact.split(",")]
        is_whole = WHOLE.fullmatch(kind) and all(re.fullmatch(r"[+-]?\d+", value) for value in values)
        return [f"values = [{', '.join(value if is_whole else quoted(value) for value in values)}]"]
    low, high, step = (part and part.strip() for part in bounds.group("low", "high", "step"))
    if step is None and REAL.fullmatch(kind):
        raise BadParameter(
            "column",
            f"{quoted(column)} has decimals: say how fine they are, as in {column}={low}..{high}/0.01",
        )
    for value in (low, high):
        if not NUMBER.fullmatch(value) and not DATE.fullmatch(value):
            raise BadParameter("column", f"the ends must be numbers or dates. {COLUMN_HOW}")
    shown = [] if step is None else [f"step = {step if NUMBER.fullmatch(step) else quoted(step)}"]
    return [f"low = {low}", f"high = {high}", *shown]
