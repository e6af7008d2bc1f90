"""Private SQL beside the plain query on the same engine, beside peers, and its error beside its claims.

Each figure is a ratio of two sides measured in turns in one run (medians); absolute times are for
information. `K` is how many rows of a person count. Peers are installed by pip, each in an environment of
its own under --cache.

    .venv/bin/python benchmarks/query.py [--only duckdb,servers,peers,error] [--rows 10000000]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import duckdb
import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from benchmarks.query_data import (
    COLUMNS,
    THREADS,
    Figures,
    Side,
    Size,
    by,
    copy_side,
    heading,
    make_duckdb,
    ms,
    opened,
    plain_side,
    private_side,
    rows_sql,
    say,
    seconds,
    write_policy,
)
from benchmarks.query_error import error_figures
from benchmarks.query_peers import compare_peers
from lapwing.ledger.charging import charge
from lapwing.sql.answering.estimates import estimate
from lapwing.sql.answering.noisy_numbers import add_noise
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy_ledger import row_key
from lapwing.sql.reading.open_sources import open_sources
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.prepared_copy import prepared_folder

BOUND = 5
ABOVE_ALL = 100  # more rows than any person has
LITTLE = "0.01"  # ε of a question here: the budget is for all of them
AGGREGATES = {
    "COUNT(*)": 1.2,
    "SUM(stay)": 1.2,
    "SUM(cost)": 1.2,
    "AVG(stay)": 1.3,
    "VARIANCE(stay)": 1.3,
    "COUNT(DISTINCT patient)": 1.2,
}
KEYS = {"ward": "100 groups", "street": "100,000 groups"}


# DuckDB


def engine_times(
    figures: Figures, dataset: Dataset, label: str, *, targets: dict[tuple[str, str], float]
) -> None:
    """Statements on the prepared copy against the plain query on the source."""
    source = open_sources(dataset.policy, threads=THREADS)
    try:
        for (key, aggregate), most in targets.items():
            sql = by(key, aggregate)
            ours = private_side(dataset, dataset.plan(sql, epsilon=LITTLE).question)
            plain = plain_side(source.engine, source.relations["visits"], sql)
            mine, theirs = figures.in_turns(ours, plain)
            name = f"{label}, {aggregate}, {KEYS[key]}"
            figures.ratio(name, mine / theirs, most, f"private {ms(mine)}, plain {ms(theirs)}")
    finally:
        source.engine.close()


def prepare_side(dataset: Dataset) -> Side:
    """All that `lapwing prepare` does, from nothing."""

    def side() -> None:
        shutil.rmtree(prepared_folder(dataset.policy), ignore_errors=True)
        dataset.prepare()

    return side


def ranks_side(dataset: Dataset) -> Side:
    """Making the copy alone, without telling the ledger who is in it."""
    key = row_key(dataset.ledger)

    def side() -> None:
        shutil.rmtree(prepared_folder(dataset.policy), ignore_errors=True)
        prepare(dataset.policy, key, threads=THREADS)

    return side


def prepare_times(
    figures: Figures, dataset: Dataset, copy: Side, label: str, *, most: float, repeats: int
) -> None:
    """Preparing against a copy of the declared columns by the same engine. The last one is kept."""
    ranks, copied, whole = figures.in_turns(
        ranks_side(dataset), copy, prepare_side(dataset), repeats=repeats
    )
    detail = (
        f"prepare {whole:.2f} s (copy and ranks {ranks:.2f} s, the rest is the ledger's sketch of people)"
    )
    figures.ratio(f"{label}, prepare", whole / copied, most, f"{detail}, plain copy {copied:.2f} s")


def around_the_engine(figures: Figures, dataset: Dataset) -> None:
    """Planning, charge, noise with intervals, and the whole release."""
    sql = by("street", "COUNT(*)")
    numbers = count(10)
    planning = [  # each time another question
        seconds(
            lambda: dataset.plan(f"{by('ward', 'AVG(stay)')} ORDER BY 2 LIMIT {next(numbers)}", epsilon=1)
        )
        for _ in range(max(figures.repeats, 20))
    ]
    figures.note("planning", f"{ms(statistics.median(planning))} (median), {ms(planning[0])} (first)")
    plan = dataset.plan(sql, epsilon=LITTLE)
    spending = dataset.session.spending(plan, plan.request)
    keys = map(str, numbers)
    (charging,) = figures.in_turns(
        lambda: charge(dataset.ledger, spending, principal="benchmark", key=next(keys)), repeats=40
    )
    figures.note("charge", ms(charging))

    with dataset.curator.reading() as reader:
        exact = reader.exact(plan.question)
    source = open_sources(dataset.policy, threads=THREADS)
    plain = plain_side(source.engine, source.relations["visits"], sql)
    mine, theirs, drawing, release, few = figures.in_turns(
        lambda: estimate(plan.shares, add_noise(plan.shares, exact), confidence=plan.confidence),
        plain,
        lambda: add_noise(plan.shares, exact),
        lambda: dataset.plan(by("street", f"COUNT(*) AS n{next(numbers)}"), epsilon=LITTLE).release(),
        lambda: dataset.plan(by("ward", f"COUNT(*) AS n{next(numbers)}"), epsilon=LITTLE).release(),
    )
    source.engine.close()
    detail = f"noise and intervals {ms(mine)} (noise {ms(drawing)}), plain query {ms(theirs)}"
    figures.ratio(f"noise and intervals, {KEYS['street']}, COUNT(*)", mine / theirs, 1 / 3, detail)
    figures.note("plan and release, COUNT(*), 100 groups", ms(few))
    figures.note("plan and release, COUNT(*), 100,000 groups", ms(release))


def duckdb_figures(figures: Figures, folder: Path, size: Size) -> None:
    """Everything on DuckDB."""
    heading(f"DuckDB {duckdb.__version__}: {size}, {THREADS} threads, median of {figures.repeats}")
    source = folder / "visits.duckdb"
    make_duckdb(source, size)
    targets = {(key, aggregate): most for key in KEYS for aggregate, most in AGGREGATES.items()}
    for rows in (BOUND, ABOVE_ALL):
        policy = write_policy(folder / f"visits{rows}.toml", "visits.duckdb#visits", rows)
        label = f"K = {rows}"
        with opened(policy) as dataset:
            say(f"preparing with {label}")
            repeats = max(5, figures.repeats)
            prepare_times(figures, dataset, copy_side(source, folder), label, most=4, repeats=repeats)
            engine_times(figures, dataset, label, targets=targets)
            if rows == BOUND:
                around_the_engine(figures, dataset)


# Servers


def server_targets(street: float) -> dict[tuple[str, str], float]:
    """All aggregates; 100,000 groups have a limit of their own."""
    return {(key, name): street if key == "street" else 1.5 for key in KEYS for name in AGGREGATES}


def postgres_figures(figures: Figures, folder: Path, size: Size) -> None:
    """A server of its own, with room in memory for the table; else its usual settings."""
    from support import postgres  # noqa: PLC0415 (an extra)

    server = postgres.Server().start(shared_buffers="1GB", max_wal_size="8GB")
    try:
        heading(f"PostgreSQL: {size}, median of {figures.repeats}")
        with psycopg.connect(server.url, autocommit=True) as connection:
            drawn = rows_sql(size, uniform="random()")
            connection.execute(
                f"CREATE TABLE visits AS {drawn} generate_series(1, {size.rows}) AS r".encode()
            )
            connection.execute("VACUUM ANALYZE visits")
        policy = write_policy(folder / "on_postgres.toml", f"{server.url}#visits", BOUND)
        with opened(policy) as dataset:
            writing = open_sources(dataset.policy, writes=True)
            columns, relation = ", ".join(COLUMNS), writing.relations["visits"]

            def copy() -> None:
                writing.engine.execute(
                    f"CREATE TABLE public.plain_copy AS SELECT {columns} FROM {relation}"
                )
                writing.engine.execute("ANALYZE public.plain_copy")
                writing.engine.execute("DROP TABLE public.plain_copy")

            prepare_times(figures, dataset, copy, "PostgreSQL", most=8, repeats=figures.repeats)
            writing.engine.close()
            engine_times(figures, dataset, "PostgreSQL", targets=server_targets(2))
    finally:
        server.remove()


def spark_figures(figures: Figures, folder: Path, size: Size) -> None:
    """In this process, on two cores."""
    from support.spark import spark  # noqa: PLC0415 (an extra)

    keeps = spark()  # it stays while engines come and go
    heading(f"Spark, local[2]: {size}, median of {figures.repeats}")
    source, copied = folder / "visits.parquet", folder / "plain-copy.parquet"
    source.mkdir()
    with duckdb.connect() as connection:
        drawn = rows_sql(Size(size.rows // 2, size.people), uniform="random()")
        for part in range(2):
            connection.execute(f"COPY ({drawn} range({size.rows // 2}) AS r) TO '{source}/{part}.parquet'")
    policy = write_policy(folder / "on_spark.toml", f"spark:{source}", BOUND)
    with opened(policy) as dataset:
        writing = open_sources(dataset.policy, writes=True)
        columns, relation = ", ".join(COLUMNS), writing.relations["visits"]
        to = f"INSERT OVERWRITE DIRECTORY {keeps.dialect.text(str(copied))} USING parquet"
        copy = partial(writing.engine.execute, f"{to} SELECT {columns} FROM {relation}")
        prepare_times(figures, dataset, copy, "Spark", most=8, repeats=figures.repeats)
        engine_times(figures, dataset, "Spark", targets=server_targets(1.5))
        writing.engine.close()


def main() -> int:
    """All figures, or some of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="duckdb,postgres,spark,peers,error")
    parser.add_argument("--rows", type=int, default=10_000_000, help="on DuckDB, of a tenth as many people")
    parser.add_argument("--server-rows", type=int, default=2_000_000)
    parser.add_argument("--peer-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", default="", help="only these, such as opendp,tumult")
    parser.add_argument("--questions", default="count,sum,mean", help="for peers")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "lapwing-peers")
    parser.add_argument("--folder", type=Path, default=None, help="where data lies while this runs")
    asked = parser.parse_args()
    wanted = asked.only.replace("servers", "postgres,spark").split(",")
    figures = Figures(asked.repeats)
    with tempfile.TemporaryDirectory(dir=asked.folder) as temporary:
        folder = Path(temporary)
        os.environ["LAPWING_STATE"] = str(folder / "state")
        size, server, peer = (Size(n, n // 10) for n in (asked.rows, asked.server_rows, asked.peer_rows))
        chosen = [text.split(",") for text in (asked.peers, asked.questions)]
        sections: dict[str, Callable[[], None]] = {
            "duckdb": partial(duckdb_figures, figures, folder, size),
            "postgres": partial(postgres_figures, figures, folder, server),
            "spark": partial(spark_figures, figures, folder, server),
            "peers": partial(compare_peers, figures, folder, peer, asked.cache, *chosen),
            "error": partial(error_figures, figures, folder),
        }
        if unknown := set(wanted) - set(sections):
            parser.error(f"there is no section {', '.join(unknown)}")
        for name, section in sections.items():
            if name in wanted:
                section()
    if figures.missed:
        print("\nmissed:", *figures.missed, sep="\n  ")
    return 1 if figures.missed else 0


if __name__ == "__main__":
    sys.exit(main())
