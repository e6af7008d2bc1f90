"""Opening the engine that a policy's tables lie in.

Whether every stored value can be read: one that cannot would make every question fail after its charge.

Claim    a question of an unprepared source is charged only if all rows of its tables could be read before.
Because  the same SELECT that questions read from is run to its end once for a version, before any charge.
         It asks nothing that an analyst chose: a source that cannot be read is refused alike to everybody.
Test     tests/query/test_readable.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lapwing.engines.csv_files import is_utf8
from lapwing.engines.dialect import SqlDialect
from lapwing.engines.dialects import DuckDbDialect
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed, EngineLimits
from lapwing.errors import Unavailable
from lapwing.sql.policy import Policy, Source, Table
from lapwing.sql.relation import RANK, UNIT
from lapwing.sql.source_location import files_in
from lapwing.sql.truncated.truncated_table import TruncatedTable

FILES = ("parquet", "csv")


@dataclass(frozen=True, slots=True)
class OpenedSources:
    """An engine, and the FROM items (without an alias) of the tables that it was opened for."""

    engine: Engine
    relations: Mapping[str, str]
    batches: Mapping[str, str] = field(default_factory=dict)  # of single files, by their paths


def private_tables(policy: Policy) -> list[Table]:
    """Those whose rows are about units."""
    return [table for table in policy.tables.values() if not table.is_public]


def open_sources(
    policy: Policy, *,
    writable: Path | None = None, before: Path | None = None, batches: Mapping[str, Source] | None = None,
    threads: int | None = None, writes: bool = False,
) -> OpenedSources:  # fmt: skip
    """The private tables' sources.

    With DuckDB, `writable` is a database to be written (known as `prepared`), `before` one to be read, and
    `batches` are single files (with their sources) to be read as well. `writes` opens a server to write.
    """
    tables = private_tables(policy)
    if any(table.source.engine != "duckdb" for table in tables):
        return open_server(tables, limits_of(policy, threads), writes=writes)
    databases: dict[str, str | Path] = {} if before is None else {"before": before}
    names: dict[str, str] = {}
    for table in tables:
        if table.source.form == "duckdb":
            names[table.source.location] = names.get(table.source.location, f"source{len(names)}")
    databases.update({name: location for location, name in names.items()})
    files = [table.source.location for table in tables if table.source.form in FILES]
    more = batches or {}
    limits = limits_of(policy, threads)
    engine = DuckDbEngine.open(
        [*files, *more], databases, writable=writable, limits=limits,
        encodings=encodings_of({**{one.source.location: one.source for one in tables}, **more}),
    )  # fmt: skip
    try:
        relations = {}
        for table in tables:
            source = table.source
            location = (
                names.get(source.location, source.location) if source.form == "duckdb" else source.location
            )
            relations[table.name] = engine.relation_of(source.form, location, source.table, source.csv)
        return OpenedSources(
            engine,
            relations,
            {path: engine.relation_of(one.form, path, csv=one.csv) for path, one in more.items()},
        )
    except BaseException:
        engine.close()
        raise


def encodings_of(sources: Mapping[str, Source]) -> dict[str, str]:
    """The encodings of CSV files, by location, that are not UTF-8."""
    return {location: one.csv.encoding for location, one in sources.items() if one.csv.encoding != "utf-8"}


def limits_of(policy: Policy, threads: int | None = None) -> EngineLimits:
    """Return the engine's limits from the policy; the caller may set the threads."""
    return policy.limits if threads is None else replace(policy.limits, threads=threads)


def open_server(tables: list[Table], limits: EngineLimits, *, writes: bool) -> OpenedSources:
    """Tables of a server, all in one place."""
    source = tables[0].source
    if source.engine == "postgres":
        from lapwing.engines.postgres import PostgresEngine  # noqa: PLC0415 (an extra)

        engine = PostgresEngine(source.location, writable=writes, limits=limits)
        return OpenedSources(
            engine, {table.name: engine.relation_of(table.source.table) for table in tables}
        )
    from lapwing.engines.spark import SparkEngine  # noqa: PLC0415 (an extra)

    spark = SparkEngine(source.location, writable=writes, limits=limits)
    try:
        named = {table.name: spark.relation_of(table.source.form, table.source.table) for table in tables}
    except BaseException:
        spark.close()
        raise
    return OpenedSources(spark, named)


def dialect_of(policy: Policy) -> SqlDialect:
    """How the engine of the private tables spells SQL. Nothing is opened."""
    engine = private_tables(policy)[0].source.engine
    if engine == "postgres":
        from lapwing.engines.dialects import PostgresDialect  # noqa: PLC0415 (an extra)

        return PostgresDialect()
    if engine == "spark":
        from lapwing.engines.dialects import SparkDialect  # noqa: PLC0415 (an extra)

        return SparkDialect()
    return DuckDbDialect()


WHAT = "a stored value cannot be read: a text that is not UTF-8, or a time beyond the engine's range"


def require_readable(policy: Policy, *, threads: int | None = None) -> None:
    """Raise `Unavailable`, without saying where, unless all private tables can be read in time."""
    opened = open_sources(policy, threads=threads)
    try:
        if all(_is_readable(policy, table, opened) for table in private_tables(policy)):
            return
    finally:
        opened.engine.close()
    raise unreadable_error()


def unreadable_error() -> Unavailable:
    """To be raised: the one sentence for everybody but the curator."""
    return Unavailable(
        f"{WHAT}, or not within the time that the policy gives. Nothing was charged. "
        "`lapwing prepare` (the curator runs it) tells where"
    )


def tables_not_utf8(policy: Policy) -> list[str]:
    """The private tables with CSV files that should be in UTF-8 and are not. For the curator."""
    return [
        table.name
        for table in private_tables(policy)
        if table.source.form == "csv"
        and table.source.csv.encoding == "utf-8"
        and not all(map(is_utf8, files_in(table.source)))
    ]


def first_unreadable(policy: Policy, *, threads: int | None = None) -> Unavailable | None:
    """The first column of the policy with such a value, for the curator; None if there is none."""
    opened = open_sources(policy, threads=threads)
    try:
        for place, part in _parts(policy):
            if not _is_readable(policy, part, opened):
                return Unavailable(
                    f"{place}: {WHAT}. Mend the source, or leave the column out of the policy. "
                    "The last copy is kept"
                )
    finally:
        opened.engine.close()
    return None


def _parts(policy: Policy) -> Iterator[tuple[str, Table]]:
    """Each private table without columns, then with each of them alone, then whole."""
    for table in private_tables(policy):
        where, bare = f"tables.{table.name}", replace(table, columns={}, primary_key=())
        yield f"{where}.unit", bare
        for name, column in table.columns.items():
            yield f"{where}.columns.{name}", replace(bare, columns={name: column})
        yield where, table


def _is_readable(policy: Policy, table: Table, opened: OpenedSources) -> bool:
    """Ranks are found from all codes of a table: whoever wants the greatest one reads all of them."""
    rows = TruncatedTable(replace(policy, blocks=None), table, opened.engine, bytes(32), opened.relations)
    sql = f"SELECT max({UNIT}) AS u, max({RANK}) AS r FROM ({rows.ranked(rows.codes())}) AS b"  # noqa: S608
    try:
        opened.engine.run(sql, timeout=policy.timeout)
    except EngineFailed:
        return False
    return True
