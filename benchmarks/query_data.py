"""Invented visits for benchmarks/query.py, their policies, and how figures are measured and printed."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineLimits
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.question.bound_query import BoundQuery

WARDS = 100
STREETS = 100_000
LONGEST = 60  # days of a stay
THREADS = 2
COLUMNS = ("patient", "ward", "street", "stay", "cost")
DELTA = "1e-6"
MOST_TURNS, ENOUGH = 31, 4.0  # seconds for a figure
Side = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """How many rows, of how many people."""

    rows: int
    people: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.people:,} people"


@dataclass
class Figures:
    """Prints each figure beside what is asked for, and remembers whether all were met."""

    repeats: int
    missed: list[str] = field(default_factory=list)

    def ratio(self, name: str, ratio: float, most: float, detail: str) -> None:
        """A figure that must not be above a number."""
        self._line(name, f"{ratio:8.2f}", f"<= {most:.3g}", ratio <= most, detail)

    def factor(self, name: str, ratio: float, least: float, detail: str) -> None:
        """A figure that must reach a number."""
        self._line(name, f"{ratio:8.1f}", f">= {least:.3g}", ratio >= least, detail)

    def within(self, name: str, value: float, low: float, high: float, detail: str) -> None:
        """A figure between two numbers."""
        self._line(name, f"{value:8.4g}", f"{low:.4g} to {high:.4g}", low <= value <= high, detail)

    def note(self, name: str, detail: str) -> None:
        """For information."""
        print(f"{name:<62} {'':8}   {'':18}       {detail}", flush=True)

    def _line(self, name: str, value: str, wanted: str, good: bool, detail: str) -> None:
        if not good:
            self.missed.append(name)
        mark = "yes" if good else "NO"
        print(f"{name:<62} {value}   wanted {wanted:<11} {mark:<3}   {detail}", flush=True)

    def in_turns(self, *sides: Side, repeats: int = 0) -> list[float]:
        """Median seconds of each side. They take turns, so that a slow moment hits all of them.

        Where no number is given, what is short is repeated more often.
        """
        for side in sides:
            side()  # what is read or compiled once is not measured
        times: list[list[float]] = [[] for _ in sides]
        start, turns = time.perf_counter(), 0
        while turns < (repeats or self.repeats) or (
            not repeats and turns < MOST_TURNS and time.perf_counter() - start < ENOUGH
        ):
            turns += 1
            for side, taken in zip(sides, times, strict=True):
                taken.append(seconds(side))
        return [statistics.median(taken) for taken in times]


def seconds(side: Side) -> float:
    """How long it takes."""
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def heading(text: str) -> None:
    """Above a section, with how busy the machine is."""
    print(f"\n{text}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


def say(text: str) -> None:
    """On stderr: what takes long."""
    print(f"  {text}", file=sys.stderr, flush=True)


def ms(value: float) -> str:
    """For people."""
    return f"{value * 1e3:,.1f} ms"


def rows_sql(size: Size, *, uniform: str, wards: int = WARDS) -> str:
    """SELECT of the columns from a relation `r`. `uniform` is the engine's word for a draw from [0, 1)."""
    ints = {"patient": size.people, "ward": wards, "street": STREETS, "stay": LONGEST + 1}
    kinds = {"patient": "bigint"}
    drawn = [
        f"cast(floor({uniform} * {count}) AS {kinds.get(name, 'integer')}) AS {name}"
        for name, count in ints.items()
    ]
    return f"SELECT {', '.join(drawn)}, floor({uniform} * 2000000) / 100 AS cost FROM"


def make_duckdb(path: Path, size: Size, wards: int = WARDS) -> None:
    """A DuckDB file with the table `visits`, the same on every run."""
    say(f"generating {size}")
    with duckdb.connect(path, config={"threads": 1}) as connection:
        connection.execute("SELECT setseed(0.25)")
        drawn = rows_sql(size, uniform="random()", wards=wards)
        connection.execute(f"CREATE TABLE visits AS {drawn} range({size.rows}) AS r")


def write_policy(path: Path, source: str, rows_per_unit: int, wards: int = WARDS) -> Path:
    """All groups are declared, so that all are answered. The budget is wide: nothing is refused here."""
    bounds = {
        "ward": (0, wards - 1, 1), "street": (0, STREETS - 1, 1), "stay": (0, LONGEST, 1),
        "cost": (0, 20000, 0.01),
    }  # fmt: skip
    columns = [
        f"[tables.visits.columns.{name}]\nlow = {low}\nhigh = {high}\nstep = {step}"
        for name, (low, high, step) in bounds.items()
    ]
    lines = [
        "[dataset]", f'name = "{path.stem}"', "[budget]", "epsilon = 1000", f"delta = {DELTA}",
        "[tables.visits]", f'source = "{source}"', 'unit = "patient"', f"rows_per_unit = {rows_per_unit}",
        *columns,
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def opened(path: Path) -> Dataset:
    """The data set of a policy file, on as many threads as all sides have."""
    return open_dataset(path, analyst="benchmark", threads=THREADS)


def private_side(dataset: Dataset, question: BoundQuery) -> Side:
    """The statements of a question on the prepared copy: what `Reader.exact` asks of its engine."""
    with dataset.curator.reading() as reader:  # it stays open behind this, and only this thread asks
        assert reader.is_prepared
        found = reader.statements(question)
    texts = [*found.sums, *(text for several in found.spectra for text in several)]

    def side() -> None:
        for text in texts:
            reader.engine.run(text)

    return side


def by(key: str, aggregate: str) -> str:
    """A question, which is plain SQL as well."""
    return f"SELECT {key}, {aggregate} FROM visits GROUP BY {key}"


def plain_side(engine: Engine, relation: str, sql: str) -> Side:
    """The question as it is asked, without privacy, on the source."""
    text = sql.replace("FROM visits", f"FROM {relation} AS v")
    return lambda: engine.run(text)


def copy_side(source: Path, folder: Path) -> Side:
    """Copying the declared columns to a new DuckDB file, and to the disk."""
    path = folder / "plain-copy.duckdb"

    def side() -> None:
        engine = DuckDbEngine.open(
            databases={"source": source}, writable=path, limits=EngineLimits(threads=THREADS)
        )
        engine.execute(f"CREATE TABLE prepared.visits AS SELECT {', '.join(COLUMNS)} FROM source.visits")
        engine.close()
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        path.unlink()

    return side
