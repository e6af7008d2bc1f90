"""For benchmarks/query.py: noise beside its claimed deviation, and how often intervals hold the truth."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.query_data import (
    LONGEST,
    STREETS,
    Figures,
    Size,
    by,
    heading,
    make_duckdb,
    opened,
    write_policy,
)
from lapwing.sql.answering.estimates import estimate
from lapwing.sql.answering.noisy_numbers import add_noise
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.noise_shares import deviation
from lapwing.sql.reading.exact_numbers import ExactGrouping

ROWS = 5  # of a person
DRAWS = 30_000  # of each interval


def noise_errors(figures: Figures, dataset: Dataset) -> None:
    """The noise that was drawn against the deviation that is claimed, over all streets."""
    additive = ("COUNT(*)", "COUNT(stay)", "SUM(stay)", "SUM(cost)",
                "COUNT(DISTINCT patient)", "COUNT(DISTINCT stay)")  # fmt: skip
    for aggregate in additive:
        for kind in ("laplace", "gaussian"):
            plan = dataset.plan(by("street", aggregate), epsilon=1, noise=kind)
            with dataset.curator.reading() as reader:
                (exact,) = reader.exact(plan.question)
            errors = np.concatenate(
                [add_noise(plan.shares, [exact])[0].parts[0] - exact.values[:, 0] for _ in range(5)]
            )
            claimed = deviation(plan.shares.mechanism(0, 0))
            measured = float(np.sqrt(np.mean(np.square(errors.astype(float)))))
            detail = f"measured {measured:,.4f}, claimed {claimed:,.4f}, {len(errors):,} draws"
            figures.within(f"RMSE / claim, {aggregate}, {kind}", measured / claimed, 0.98, 1.02, detail)


def coverages(figures: Figures, folder: Path, draws: int) -> None:
    """How often the intervals of ratios hold the truth. The exact sums of one group stand for many."""
    sizes = (30, 300, 30_000)
    for rows in (1, ROWS):
        source = folder / f"ratios{rows}.duckdb"
        with duckdb.connect(source) as connection:
            connection.execute("SELECT setseed(0.5)")
            each = " UNION ALL ".join(f"SELECT {s} AS street, range AS i FROM range({n})"
                                      for s, n in enumerate(sizes))  # fmt: skip
            stay = f"least(floor(-9 * ln(1 - random())), {LONGEST})"  # most are short
            connection.execute(
                f"CREATE TABLE visits AS SELECT street * 100000 + i // {rows} AS patient, street,"
                f" 0 AS ward, {stay} AS stay, 1 AS cost FROM ({each})"
            )
        policy = write_policy(folder / f"ratios{rows}.toml", f"{source.name}#visits", rows)
        with opened(policy) as dataset:
            for aggregate in ("AVG(stay)", "AVG(stay > 12)"):
                for epsilon in ("0.5", "2"):
                    _coverage(figures, dataset, aggregate, epsilon, sizes, draws)


def _coverage(  # noqa: PLR0917
    figures: Figures, dataset: Dataset, aggregate: str, epsilon: str, sizes: tuple[int, ...], draws: int
) -> None:
    sql = by("street", aggregate)
    with duckdb.connect(dataset.policy.tables["visits"].source.location, read_only=True) as connection:
        plain = aggregate.replace("(", "(CAST(").replace(")", " AS INTEGER))")
        found = connection.execute(f"{by('street', plain)} ORDER BY street").fetchall()
    truth = np.array([value for _, value in found])
    plan = dataset.plan(sql, epsilon=epsilon)
    with dataset.curator.reading() as reader:
        (exact,) = reader.exact(plan.question)
    which = np.arange(STREETS) % len(sizes)
    many = [ExactGrouping(exact.values[which])]
    held: list[list[float]] = [[] for _ in sizes]
    for _ in range(-(-draws * len(sizes) // STREETS)):
        column = estimate(plan.shares, add_noise(plan.shares, many), confidence="0.95").columns[1]
        inside = (column.low <= truth[which]) & (truth[which] <= column.high)
        for n in range(len(sizes)):
            held[n].append(float(np.mean(inside[which == n])))
    for n, size in enumerate(sizes):
        name = f"coverage %, {aggregate}, n = {size:,}, K = {plan.question.rows}, ε = {epsilon}"
        assert column.low is not None
        assert column.high is not None
        width = float(np.median((column.high - column.low)[which == n])) / 2
        figures.within(name, 100 * float(np.mean(held[n])), 94, 99, f"± {width:.3g}, {draws:,} draws")


def error_figures(figures: Figures, folder: Path) -> None:
    """Noise and intervals against what is claimed of them."""
    heading("error")
    make_duckdb(folder / "noise.duckdb", Size(100_000, 20_000))
    policy = write_policy(folder / "noise.toml", "noise.duckdb#visits", ROWS)
    with opened(policy) as dataset:
        noise_errors(figures, dataset)
    coverages(figures, folder, DRAWS)


# Of peers, and ours beside them


@dataclass(frozen=True)
class Error:
    """Of answers by group."""

    rmse: float  # against the truth of all rows
    uncertain: float  # its standard error, relative
    scatter: float  # around each group's own mean


def errors_of(answers: list[dict[str, float]], truth: dict[int, float]) -> Error:
    """Of several answers. Those of one group may share what was dropped: groups are the sample."""
    squares, scatters = [], []
    for key, true in truth.items():
        errors = [float(answer.get(str(key)) or 0.0) - float(true) for answer in answers]
        squares.append(statistics.fmean(error * error for error in errors))
        scatters.append(statistics.variance(errors) if len(errors) > 1 else 0.0)
    mean = statistics.fmean(squares)
    uncertain = statistics.stdev(squares) / mean / len(squares) ** 0.5 / 2
    return Error(mean**0.5, uncertain, statistics.fmean(scatters) ** 0.5)
