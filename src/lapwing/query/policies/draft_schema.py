"""The names and types of a table's columns, and no value. What engines say of failures stays unsaid."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lapwing.engines.csv_form import CsvForm, is_utf8, is_utf16, read_header, recode
from lapwing.engines.engine import private_folder
from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.query.policies.policy import Source
from lapwing.query.policies.source import DUCKDB_FILES, FORMS, SPARK, files_in, source_of
from lapwing.toml.section import OURS, did_you_mean

_PATTERN = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class Schema:
    """A source, and what is public about it: names and types. A type has no details: they can be values."""

    text: str  # the source as it may be written in a policy
    source: Source
    table: str
    columns: tuple[tuple[str, str], ...]


def schema_of(text: str, *, folder: Path) -> Schema:
    """The schema of a source as it is written in a policy that lies in `folder`."""
    table = table_name(text)
    source = source_of(text, folder=folder, table=table)
    if "#" not in text and source.form == "duckdb":
        return schema_of(f"{text}#{_only_table(source.location)}", folder=folder)
    if "#" not in text and source.form == "postgres":
        raise BadParameter("source", "say which table with #table or #schema.table after the address")
    if source.form == "csv":
        source = replace(source, csv=CsvForm(encoding=_encoding_of(source)))
    columns = _READERS[source.form](source)
    if not columns:
        raise BadParameter("source", f"there is no table {source.table}, or it may not be read")
    return Schema(text, source, table, tuple([(name, _without_details(kind)) for name, kind in columns]))


def table_name(text: str) -> str:
    """What the table may be called: the last name in a source that is not a pattern."""
    if "#" in text or (text.startswith(SPARK) and "/" not in text):
        last = re.split(r"[#.:]", text)[-1]
    else:
        parts = [part for part in text.removeprefix(SPARK).split("/") if not _PATTERN.search(part)]
        last = next((part for part in reversed(parts) if part.strip(".")), "")
        suffixes = [suffix for suffix in (*FORMS, *DUCKDB_FILES) if last.lower().endswith(suffix)]
        last = last[: -len(suffixes[0])] if suffixes else last
    name = re.sub(r"[^A-Za-z0-9_]+", "_", last).strip("_")[:50] or "rows"
    return f"t_{name}" if name[0].isdigit() or name.lower().startswith(OURS) else name


def checked_unit(schema: Schema, unit: str) -> str:
    """The column with that name, as the source spells it."""
    names = [name for name, _ in schema.columns]
    for name in names:
        if name == unit or name.lower() == unit.strip().lower():
            return name
    raise BadParameter("unit", f"there is no such column. {did_you_mean(unit, names, 'Columns')}")


def _without_details(kind: str) -> str:
    """The word alone: ENUM('A', 'B') lists values, and STRUCT(…) may."""
    word = re.match(r"[A-Za-z][A-Za-z0-9_ -]*", kind)
    return (word[0].strip().upper() if word else "UNKNOWN") + ("[]" if kind.endswith("]") else "")


def _in_duckdb(database: str, question: str, given: Sequence[object], what: str) -> list[tuple[str, str]]:
    import duckdb  # noqa: PLC0415 - only who drafts needs it

    try:
        with duckdb.connect(database, read_only=database != ":memory:") as connection:
            rows = connection.execute(question, given).fetchall()
    except duckdb.Error:  # its text can show a line of the data
        raise BadParameter("source", f"cannot be read as {what}") from None
    return [(str(row[0]), str(row[1])) for row in rows]


def _of_parquet(source: Source) -> list[tuple[str, str]]:
    question = "DESCRIBE SELECT * FROM read_parquet(?)"
    return _in_duckdb(":memory:", question, [source.location], "Parquet")


def _encoding_of(source: Source) -> str:
    """UTF-8 if all files are, UTF-16 if one says so; else a guess, for the curator to look at."""
    paths = files_in(source)
    if all(is_utf8(path) for path in paths):
        return "utf-8"
    return "utf-16" if any(is_utf16(path) for path in paths) else "latin-1"


def _of_csv(source: Source) -> list[tuple[str, str]]:
    """Names as they are read later, from the first line; types as they are guessed from rows."""
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
        found = _in_duckdb(":memory:", "DESCRIBE SELECT * FROM read_csv(?, delim = ?)", given, "CSV")
    finally:
        remove()
    kinds = [kind for _, kind in found]
    return list(zip(names, kinds if len(kinds) == len(names) else ["VARCHAR"] * len(names), strict=True))


def _of_duckdb(source: Source) -> list[tuple[str, str]]:
    schema, _, table = source.table.rpartition(".")
    question = (
        "SELECT column_name, data_type FROM duckdb_columns() "
        "WHERE schema_name = ? AND lower(table_name) = lower(?) AND NOT internal ORDER BY column_index"
    )
    return _in_duckdb(source.location, question, [schema or "main", table], "a DuckDB file")


def _only_table(location: str) -> str:
    question = (
        "SELECT table_name, '' FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal "
        "UNION ALL SELECT view_name, '' FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal "
        "ORDER BY 1"
    )
    tables = [name for name, _ in _in_duckdb(location, question, [], "a DuckDB file")]
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
    question = (
        "SELECT column_name::text, data_type::text FROM information_schema.columns "
        "WHERE table_schema = coalesce(nullif(%s, ''), current_schema()) AND table_name = %s "
        "ORDER BY ordinal_position"
    )
    try:
        with psycopg.connect(source.location, connect_timeout=10) as connection:
            return connection.execute(question, (schema, table)).fetchall()
    except psycopg.Error:  # its text can hold the password
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
        frame = (
            session.read.parquet(source.table) if source.form != "spark" else session.table(source.table)
        )
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
