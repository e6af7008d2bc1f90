"""Scheduling of pipeline attempts: how much of their time goes into choosing and charging blocks.

    python -m benchmarks.learn_schedule [--attempts 1000] [--blocks 1000] [--workers 32]

All attempts wait for one of the workers (threads of one process, one ledger). An attempt chooses blocks,
charges them, reads their rows and fits a linear model on them, each under its own charge. Scheduling is all
but reading and fitting: choosing, the ledger's transaction with its fsync, storing the answer, and waiting
for other attempts' transactions. Wanted: at most 5 % of the attempts' time.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.query_data import heading
from lapwing.core.losses import Approximate, Relation
from lapwing.errors import OverBudget
from lapwing.learn.features import Features
from lapwing.learn.payer import LedgerPayer, PublicData
from lapwing.learn.stream import Stream
from lapwing.learn.trainers import LinearRegression, Real
from lapwing.ledger.gate import Gate
from lapwing.sql import policy_ledger, row_questions

WANTED = 0.05
POLICY = """
[dataset]
name = "rides"
protects = "person-period"
[budget]
epsilon = 1.0
delta = 1e-5
[blocks]
by = "row"
column = "day"
every = "day"
[tables.rides]
source = "rides/*.parquet"
unit = "rider"
rows_per_unit = 3
[tables.rides.columns.minutes]
low = 0
high = 120
[tables.rides.columns.km]
low = 0
high = 50
step = 0.1
[tables.rides.columns.hour]
low = 0
high = 23
[tables.rides.columns.zone]
values = ["a", "b", "c", "d", "e", "f", "g", "h"]
[tables.rides.columns.day]
low = 2020-01-01
high = {last}
"""


@dataclass(slots=True)
class Spent:
    """Seconds of one attempt."""

    scheduling: float
    total: float
    refused: int
    blocks: int


def make(folder: Path, blocks: int, rows_of_a_block: int) -> Path:
    """A stream of rides, some in every block."""
    (folder / "rides").mkdir()
    duckdb.execute(
        f"""COPY (
            SELECT d * {rows_of_a_block} + r AS rider, ((r * 7919) % 1201) / 10 AS minutes,
                ((r * 104729) % 501) / 10 AS km, (r * 31) % 24 AS hour, chr(97 + (r % 8)::INT) AS zone,
                DATE '2020-01-01' + d::INT AS day
            FROM range({blocks}) AS a(d), range({rows_of_a_block}) AS b(r)
        ) TO '{folder / "rides" / "all.parquet"}'"""
    )
    (last,) = duckdb.execute(f"SELECT DATE '2020-01-01' + {blocks - 1}").fetchone() or (None,)
    path = folder / "rides.toml"
    path.write_text(POLICY.format(last=last))
    return path


def run(path: Path, *, attempts: int, workers: int, of_attempt: int) -> tuple[list[Spent], float]:
    """All attempts, and how long they took together."""
    with Stream.open(path, analyst="bench", threads=1) as stream:
        stream.append()
        dataset = stream.dataset
        question = row_questions.row_question(dataset, "SELECT km, hour, zone, minutes FROM rides")
        features = Features.of(question, label="minutes", indicators=False)
        version, meaning = (
            row_questions.checked_version(dataset, question),
            row_questions.meaning_digest(dataset, question),
        )
        loss = Approximate(Fraction(1, 20), Fraction(1, 10**8))
        gate = Gate(stream.ledger, principal="bench")
        reading = threading.Lock()  # one engine, one question at a time

        def attempt(number: int) -> Spent:
            begun, worked, refused = time.perf_counter(), 0.0, 0

            def work() -> bytes:
                nonlocal worked
                start = time.perf_counter()
                with reading:
                    read = row_questions.read_rows(dataset, question, chosen)
                low, high = features.target_bounds
                model = LinearRegression(
                    epsilon=Fraction(1, 20), delta=Fraction(1, 10**8), columns=features.declared,
                    target=Real(low, high), payer=PublicData(),
                )  # fmt: skip
                model.fit(features.table(read), features.target(read), units=read.units)
                worked = time.perf_counter() - start
                return repr(np.asarray(model.weights_).tolist()).encode()

            while True:
                chosen = stream.choose_blocks(of_attempt, loss=loss, pipeline="bench")
                if not chosen:
                    break
                payer = LedgerPayer(
                    gate,
                    targets=stream.targets(question, chosen, pipeline="bench"),
                    unit=policy_ledger.unit_of(stream.policy),
                    relation=Relation.ADD_REMOVE,
                    request=f"{number} {version} {meaning}".encode(),
                )
                try:
                    payer.pay(loss, work, mechanism="linear regression", parameters={"attempt": number})
                    break
                except OverBudget:  # somebody was faster
                    refused += 1
            total = time.perf_counter() - begun
            return Spent(total - worked, total, refused, len(chosen))

        start = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            done = list(pool.map(attempt, range(attempts)))
        return done, time.perf_counter() - start


def main() -> None:
    """Print the figure beside what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--of-attempt", type=int, default=20, help="blocks of one attempt")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of one block")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder), given.blocks, given.rows)
        done, wall = run(path, attempts=given.attempts, workers=given.workers, of_attempt=given.of_attempt)
    scheduling, total = sum(one.scheduling for one in done), sum(one.total for one in done)
    heading(f"{given.attempts:,} attempts over {given.blocks:,} blocks, {given.workers} at once")
    print(f"scheduling  {scheduling / total:.1%} of the attempts' time (wanted: at most {WANTED:.0%})")
    print(
        f"            {scheduling / len(done) * 1000:.1f} of {total / len(done) * 1000:.1f} ms an attempt"
    )
    print(f"in all      {wall:.1f} s; refused and chosen anew {sum(one.refused for one in done)} times;")
    print(f"            {sum(not one.blocks for one in done)} attempts found no block that could pay")


if __name__ == "__main__":
    main()
