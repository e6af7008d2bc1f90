"""Whether time tells that one person is in the data: the same text, with and without this person.

Each question has a condition that this person alone passes: a value that nobody else has ("outlier"), so
that an engine can skip what it knows not to match, or usual values that nobody else has together ("usual").
It is asked of data with the person, of data without, and of a second copy without (the null control), in
random order. An attacker who sees the CPU time as exactly as this program needs about 10.8 (σ / d)²
questions to decide with errors of 5 %: d is the difference of the medians, σ the spread of one measurement.

    .venv/bin/python benchmarks/time_oracle.py [--rows 3000000] [--rounds 40] [--threads 2]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader

KEY = bytes(32)
K = 10
POLICY = """
dataset.name = "people"
budget = {{epsilon = 1.0, delta = 1e-6}}
[engine]
threads = {threads}
[tables.t]
source = "t.parquet"
unit = "person"
rows_per_unit = 10
[tables.t.columns]
k = {{low = 0, high = 9}}
age = {{low = 0, high = 120}}
income = {{low = 0, high = 100000}}
ward = {{values = ["N", "S", "E", "W"]}}
note = {{type = "text"}}
[tables.services]
source = "services.parquet"
public = true
"""
ROWS = """SELECT p AS person, i % 10 AS k, CASE WHEN p = {middle} THEN 37 ELSE p * 37 % 90 END AS age,
CASE WHEN p = {middle} THEN 100000 ELSE p * 7919 % 100000 END AS income,
['N', 'S', 'E', 'W'][1 + p % 4] AS ward, 'note ' || i % 1000 AS note
FROM (SELECT i, i // 10 AS p FROM range({rows}) r(i)) WHERE {kept} ORDER BY hash(i)"""
PUBLIC: dict[str, list[object]] = {"ward": ["N", "S", "E", "W"] * 16, "code": list(range(64))}
CONDITIONS = {
    "outlier": "a.income = 100000",
    "usual": "a.age = 37 AND a.income % 1000 = 0 AND a.income > 99500",
}
MIXED = " + ".join(f"(a.k * {n + 3} + b.k * c.k) % {n + 11}" for n in range(4))
JOIN = "FROM t a JOIN t b ON a.person = b.person"
QUESTIONS = {
    "count": "SELECT COUNT(*) AS c FROM t a WHERE {}",
    "sum by declared keys": "SELECT ward, SUM(k) AS s FROM t a WHERE {} GROUP BY ward",
    "undeclared keys": "SELECT note, COUNT(*) AS c FROM t a WHERE {} GROUP BY note",
    "median": "SELECT MEDIAN(k) AS m FROM t a WHERE {}",
    "per person": "SELECT AVG(n) AS m FROM (SELECT person, SUM(k) AS n FROM t a WHERE {} GROUP BY 1) x",
    "public join": "SELECT COUNT(*) AS c FROM t a JOIN services s ON a.ward = s.ward WHERE {}",
    "self-join": f"SELECT COUNT(*) AS c {JOIN} WHERE {{}}",
    "two self-joins, most steps": f"SELECT COUNT_IF(({MIXED}) % 7 = 3) AS c {JOIN} "
    "JOIN t c ON a.person = c.person WHERE {}",
}


def reader_of(folder: Path, rows: int, threads: int, *, has_person: bool) -> tuple[Reader, Catalog]:
    """Return a reader of a prepared copy of the data, with or without the person."""
    folder.mkdir()
    (folder / "p.toml").write_text(POLICY.format(threads=threads))
    middle = rows // K // 2
    kept = "TRUE" if has_person else f"p <> {middle}"
    made = ROWS.format(rows=rows, middle=middle, kept=kept)
    duckdb.execute(f"COPY ({made}) TO '{folder}/t.parquet' (FORMAT parquet)")
    duckdb.execute(f"COPY (SELECT 'N' AS ward, 0 AS code) TO '{folder}/services.parquet' (FORMAT parquet)")
    policy = load_policy(folder / "p.toml")
    prepare(policy, KEY)
    public = {"services": PublicTable("services", PUBLIC)}
    return Reader.open(policy, KEY, public), Catalog(policy, public)


def measured(readers: Sequence[tuple[Reader, Catalog]], sql: str, rounds: int) -> list[list[float]]:
    """Return the CPU milliseconds of a question on each reader, asked in random order."""
    question = bind(sql, readers[0][1])
    found: list[list[float]] = [[] for _ in readers]
    for number in range(rounds + 2):
        for place in random.sample(range(len(readers)), len(readers)):
            began = time.process_time_ns()
            readers[place][0].exact(question)
            if number > 1:  # the first rounds fill caches
                found[place].append((time.process_time_ns() - began) / 1e6)
    return found


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of the middle values, as a normal law has it."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def needed(sigma: float, difference: float) -> str:
    """Return the questions that decide at 95 %."""
    return "—" if not difference else f"{max(1, round(10.8 * (sigma / difference) ** 2)):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        readers = [
            reader_of(Path(place) / name, given.rows, given.threads, has_person=name == "with")
            for name in ("with", "without", "control")
        ]
        print(f"{given.rows:,} rows, {given.rounds} rounds, {given.threads} threads; CPU milliseconds")
        heads = ("with", 9), ("without", 9), ("d", 8), ("σ", 7), ("decide", 9), ("null d", 8), ("decide", 9)
        print("question".ljust(36) + "".join(head.rjust(width) for head, width in heads))
        for name, sql in QUESTIONS.items():
            for values, condition in CONDITIONS.items():
                times = measured(readers, sql.format(condition), given.rounds)
                present, absent, control = map(statistics.median, times)
                sigma = statistics.mean(map(spread, times))
                d, null = present - absent, control - absent
                print(
                    f"{name + ', ' + values:36}{present:9.2f}{absent:9.2f}{d:8.2f}{sigma:7.2f}"
                    f"{needed(sigma, d):>9}{null:8.2f}{needed(sigma, null):>9}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
