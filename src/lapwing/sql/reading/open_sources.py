"""Opening the engine that holds a policy's tables, and checking that every stored value can be read.

A value that cannot be read would make every query fail after its charge.

Claim    a query of a source without a copy is charged only if all rows of its tables could be read before.
Because  the same SELECT that queries read from is run to its end once for each version, before any charge.
         It contains nothing that an analyst chose: an unreadable source is refused to everybody alike.
Test     tests/sql/reading/test_open_sources_readable.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lapwing.engines.csv_files import NOT_UTF8, is_utf8
from lapwing.engines.dialect import SqlDialect
from lapwing.engines.dialects import DuckDbDialect, PostgresDialect, SparkDialect
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import (
    Engine,
    EngineFailed,
    EngineLimits,
    TimedOut,
    engine_cause,
    undo_on_failure,
)
from lapwing.errors import Unavailable
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Source
from lapwing.sql.policy.source_location import files_in
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.reading.truncated_table import TruncatedTable

FILES = ("parquet", "csv")


@dataclass(frozen=True, slots=True)
class OpenedSources:
    """An engine, and the FROM items (without an alias) of the tables that it was opened for."""

    engine: Engine
    relations: Mapping[str, str]
    batches: Mapping[str, str] = field(default_factory=dict)  # FROM items of single files, by their paths


def open_sources(
    policy: CheckedPolicy, tables: Sequence[CheckedTable] | None = None, *,
    writable: Path | None = None, before: Path | None = None, batches: Mapping[str, Source] | None = None,
    threads: int | None = None, writes: bool = False,
) -> OpenedSources:  # fmt: skip
    """Open the sources of the given tables, or of all private ones if `tables` is None.

    With DuckDB, `writable` is a database to be written (attached as `prepared`), `before` is one to be
    read, and `batches` are single files (with their sources) to be read as well. `writes` opens a server
    for writing. `threads` None means the policy's limit.
    """
    tables = policy.private_tables if tables is None else tables
    if any(table.source.engine != "duckdb" for table in tables):
        return open_server(tables, limits_of(policy, threads), writes=writes)
    sources, more = [table.source for table in tables], batches or {}
    locations = dict.fromkeys(source.location for source in sources if source.form == "duckdb")
    names = {location: f"source{n}" for n, location in enumerate(locations)}
    databases: dict[str, str | Path] = {} if before is None else {"before": before}
    databases.update({name: location for location, name in names.items()})
    engine = DuckDbEngine.open(
        [*[source.location for source in sources if source.form in FILES], *more],
        databases, writable=writable, limits=limits_of(policy, threads),
        encodings=encodings_of({**{source.location: source for source in sources}, **more}),
    )  # fmt: skip
    with undo_on_failure(engine.close):
        relations = {
            table.name: engine.relation_of(
                source.form, names.get(source.location, source.location), source.table, source.csv
            )
            for table, source in zip(tables, sources, strict=True)
        }
        single = {
            path: engine.relation_of(source.form, path, csv=source.csv) for path, source in more.items()
        }
        return OpenedSources(engine, relations, single)


def encodings_of(sources: Mapping[str, Source]) -> dict[str, str]:
    """Return the encodings of CSV files that are not in UTF-8, by location."""
    return {
        location: source.csv.encoding
        for location, source in sources.items()
        if source.csv.encoding != "utf-8"
    }


def limits_of(policy: CheckedPolicy, threads: int | None = None) -> EngineLimits:
    """Return the engine's limits from the policy. `threads` replaces the policy's number of threads."""
    return policy.limits if threads is None else replace(policy.limits, threads=threads)


def open_server(tables: Sequence[CheckedTable], limits: EngineLimits, *, writes: bool) -> OpenedSources:
    """Open tables of one PostgreSQL or Spark server."""
    source = tables[0].source
    if source.engine == "postgres":
        from lapwing.engines.postgres import PostgresEngine  # noqa: PLC0415 (an extra)

        engine = PostgresEngine(source.location, writable=writes, limits=limits)
        relations = {table.name: engine.relation_of(table.source.table) for table in tables}
        return OpenedSources(engine, relations)
    from lapwing.engines.spark import SparkEngine  # noqa: PLC0415 (an extra)

    spark = SparkEngine(source.location, writable=writes, limits=limits)
    with undo_on_failure(spark.close):
        named = {table.name: spark.relation_of(table.source.form, table.source.table) for table in tables}
        return OpenedSources(spark, named)


def stream_ids(engine: Engine, statement: str) -> Iterator[Any]:
    """Yield the ids in the one column of a statement: texts one by one, whole numbers in arrays."""
    for batch in engine.stream(statement):
        column = batch.column(0)
        if pa.types.is_integer(column.type):
            yield column.to_numpy(zero_copy_only=False)
        else:
            yield from column.to_pylist()


def dialect_of(policy: CheckedPolicy) -> SqlDialect:
    """Return the SQL dialect of the engine that holds the private tables. Nothing is opened."""
    dialects = {"postgres": PostgresDialect, "spark": SparkDialect}
    return dialects.get(policy.private_tables[0].source.engine, DuckDbDialect)()


def read_public_tables(policy: CheckedPolicy) -> dict[str, PublicTable]:
    """Read all public tables of a policy. Columns get the names that the policy gives them."""
    public = {}
    for table in (table for table in policy.tables.values() if table.is_public):
        opened = open_sources(policy, [table])
        with closing(opened.engine):
            rows = opened.engine.run(f"SELECT * FROM {opened.relations[table.name]}")  # noqa: S608
        names = {column.source.lower(): column.name for column in table.columns.values() if column.source}
        rows = rows.rename_columns([names.get(name.lower(), name) for name in rows.column_names])
        kinds = {name: column.kind for name, column in table.columns.items()}
        csv = table.source.csv if table.source.form == "csv" else None
        public[table.name] = PublicTable.of(table.name, rows, kinds, csv=csv)
    return public


WHAT = "cannot be read, for example a text that is not UTF-8, or a time beyond the engine's range"


def require_readable(policy: CheckedPolicy, *, threads: int | None = None) -> None:
    """Raise Unavailable, without saying where, unless all private tables can be read in time."""
    opened = open_sources(policy, threads=threads)
    with closing(opened.engine):
        for table in policy.private_tables:
            if failed := _reading_failure(policy, table, opened):
                raise _behind(unreadable_error(), failed)


def unreadable_error() -> Unavailable:
    """Return the error for everybody but the curator. It is the same for every cause."""
    return Unavailable(
        "the tables cannot be read, or not within the policy's time limit. Nothing was charged. "
        "Ask the curator to run `lapwing prepare`: it says where, or what the engine raised"
    )


def preparing_error(failed: EngineFailed) -> Unavailable:
    """Return the error of a `prepare` that failed although all values can be read. For the curator only."""
    return Unavailable(
        f"the copy could not be prepared: {raised_by(failed)}. Nothing was changed, and the last copy is "
        "kept. In Python, `lapwing.engines.engine.engine_cause(error)` has its text, which may show data"
    )


def encoding_notes(policy: CheckedPolicy) -> list[str]:
    """Return a sentence on each private table with CSV files that should be in UTF-8, and are not.

    For the curator only.
    """
    return [
        f"tables.{table.name}: some lines count as no rows, since they are {NOT_UTF8}"
        for table in policy.private_tables
        if table.source.form == "csv"
        and table.source.csv.encoding == "utf-8"
        and not all(map(is_utf8, files_in(table.source)))
    ]


def first_unreadable(policy: CheckedPolicy, *, threads: int | None = None) -> Unavailable | None:
    """Return an error that names the first column that cannot be read, or None. For the curator only."""
    opened = open_sources(policy, threads=threads)
    with closing(opened.engine):
        for place, part in _parts(policy):
            if failed := _reading_failure(policy, part, opened):
                advice = "Repair the source, or leave the column out of the policy. The last copy is kept"
                return _behind(Unavailable(f"{place}: {WHAT} ({raised_by(failed)}). {advice}"), failed)
    return None


def _parts(policy: CheckedPolicy) -> Iterator[tuple[str, CheckedTable]]:
    """Yield each private table without columns, then with each column alone, then whole."""
    for table in policy.private_tables:
        where, bare = f"tables.{table.name}", replace(table, columns={}, primary_key=())
        yield f"{where}.unit", bare
        for name, column in table.columns.items():
            yield f"{where}.columns.{name}", replace(bare, columns={name: column})
        yield where, table


def _behind(error: Unavailable, failed: EngineFailed) -> Unavailable:
    """Return the error with its cause, which no traceback prints."""
    error.__cause__, error.__suppress_context__ = None, True
    error.__context__ = failed
    return error


def raised_by(error: EngineFailed) -> str:
    """Return the class of the engine's own error, which names no value. For the curator only."""
    if isinstance(error, TimedOut):
        return "the engine was stopped at the policy's time limit"
    cause = engine_cause(error)
    return f"the engine raised {type(cause).__name__}" if cause else "the engine gave no reason"


def _reading_failure(
    policy: CheckedPolicy, table: CheckedTable, opened: OpenedSources
) -> EngineFailed | None:
    """Return why not all rows of a table can be read, or None. Other failures of the engine are raised."""
    rows = TruncatedTable(replace(policy, blocks=None), table, opened.engine, bytes(32), opened.relations)
    sql = rows.read_all()
    try:
        opened.engine.run(sql, timeout=policy.timeout)
    except EngineFailed as failed:
        return failed
    return None
