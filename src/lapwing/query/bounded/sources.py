"""Opening the engine that a policy's tables lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.duckdb_spelling import DuckDbSpelling
from lapwing.engines.engine import Engine
from lapwing.engines.limits import Limits
from lapwing.engines.spelling import Spelling
from lapwing.query.policies.policy import Policy, Source, Table

FILES = ("parquet", "csv")


@dataclass(frozen=True, slots=True)
class Opened:
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
) -> Opened:  # fmt: skip
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
        return Opened(
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


def limits_of(policy: Policy, threads: int | None = None) -> Limits:
    """Return the engine's limits from the policy; the caller may set the threads."""
    return policy.limits if threads is None else replace(policy.limits, threads=threads)


def open_server(tables: list[Table], limits: Limits, *, writes: bool) -> Opened:
    """Tables of a server, all in one place."""
    source = tables[0].source
    if source.engine == "postgres":
        from lapwing.engines.postgres import PostgresEngine  # noqa: PLC0415 (an extra)

        engine = PostgresEngine(source.location, writable=writes, limits=limits)
        return Opened(engine, {table.name: engine.relation_of(table.source.table) for table in tables})
    from lapwing.engines.spark import SparkEngine  # noqa: PLC0415 (an extra)

    spark = SparkEngine(source.location, writable=writes, limits=limits)
    try:
        named = {table.name: spark.relation_of(table.source.form, table.source.table) for table in tables}
    except BaseException:
        spark.close()
        raise
    return Opened(spark, named)


def spelling_of(policy: Policy) -> Spelling:
    """How the engine of the private tables spells SQL. Nothing is opened."""
    engine = private_tables(policy)[0].source.engine
    if engine == "postgres":
        from lapwing.engines.postgres_spelling import PostgresSpelling  # noqa: PLC0415 (an extra)

        return PostgresSpelling()
    if engine == "spark":
        from lapwing.engines.spark_spelling import SparkSpelling  # noqa: PLC0415 (an extra)

        return SparkSpelling()
    return DuckDbSpelling()
