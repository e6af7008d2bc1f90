"""Figures of publishing: synthetic tables of Adult, and a census of Rhode Island.

    python -m benchmarks.publish --data FOLDER [--runs 3] [--only synthetic|census]

FOLDER has adult_encoded.csv with adult_encoded_domain.json (48,842 people, 15 columns), and
ri_2010_block.csv (25,181 blocks). What is not there is left out. Noise is exact, and charged nowhere: this
measures methods, not ledgers.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import resource
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.core.conversions import largest_rho, zcdp_to_epsilon
from lapwing.core.gaussian import Gaussian
from lapwing.core.selection import Exponential
from lapwing.publish import methods
from lapwing.publish.census.least_squares import (
    LevelMeasurement,
    Query,
    Spine,
    answer_variance,
    estimate_spine,
    own_variances,
    spine_of,
    subsets,
    tree_variances,
)
from lapwing.publish.census.whole_tables import SpineFacts, whole_tables
from lapwing.publish.measured.private_marginals import GRID, Candidate, choosing_cost, measuring_cost
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import NoisyMarginal, sample_rows

Wholes = NDArray[np.int64]
DELTA = Fraction(1, 10**9)
# method, ε, K, and the greatest wanted mean total variation of two- and three-way marginals
SYNTHETIC: list[tuple[str, str, int, tuple[float, float] | None]] = [
    ("independent", "1", 1, None),
    ("tree", "1", 1, (0.045, 0.096)),
    ("tree", "1", 5, None),
    ("adaptive", "0.1", 1, (0.097, 0.162)),
    ("adaptive", "1", 1, (0.031, 0.067)),
    ("adaptive", "1", 5, None),
    ("adaptive", "10", 1, (0.017, 0.045)),
]
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
RHO = Fraction(128, 100)
QUERIES: tuple[Query, ...] = ((), (0,), (1,), (0, 1))
OURS = ((4, 0, 0, 1), (32, 1, 1, 2), (6, 3, 2, 5), (18, 6, 4, 12), (3, 6, 2, 20))  # hundredths of ρ 1
# The levels' shares of the Bureau's 2020 redistricting file (4,099ths without the nation's 104), each level
# divided as ours is, and blocks measured by cells alone.
BUREAU_LEVELS = (1440, 447, 687, 1256, 165)
BUREAU = tuple(
    tuple(128 * level / sum(BUREAU_LEVELS) * part / sum(ours) for part in ours)
    for level, ours in zip(BUREAU_LEVELS, (*OURS[:-1], (0, 0, 0, 1)), strict=True)
)
CLASSES = ((0, 0), (1, 10), (11, 50), (51, 200), (201, 10**9))


class Table:
    """Rows in memory, as a source of marginals with exact noise."""

    def __init__(self, domain: Domain, rows: Wholes, budget: Fraction, rows_per_unit: int) -> None:
        self.domain, self.rows, self.rows_per_unit = domain, rows, rows_per_unit
        self.budget = self.left = budget
        self.known: dict[Clique, Wholes] = {}

    def counts(self, clique: Clique) -> Wholes:
        """Return the exact counts of a marginal."""
        if clique not in self.known:
            shape = self.domain.shape(clique)
            cells = np.ravel_multi_index([self.rows[:, self.domain.place(name)] for name in clique], shape)
            self.known[clique] = np.bincount(cells, minlength=self.domain.cells(clique)).reshape(shape)
        return self.known[clique]

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        """Return noisy counts."""
        self.left -= measuring_cost(sigma, self.rows_per_unit)
        counts = self.counts(clique)
        noisy = Gaussian(sigma, Fraction(self.rows_per_unit**2), counts.size).sample(counts.ravel())
        return NoisyMarginal(clique, noisy.reshape(counts.shape).astype(float), float(sigma))

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        """Return a marginal of large score."""
        self.left -= choosing_cost(epsilon)
        scores = [
            one.weight * (int(np.abs(self.counts(one.clique) * GRID - one.expected).sum()) - one.penalty)
            for one in candidates
        ]
        heaviest = max(one.weight for one in candidates)
        mechanism = Exponential(epsilon, Fraction(GRID * self.rows_per_unit * heaviest))
        return candidates[mechanism.sample(scores)].clique


def total_variation(domain: Domain, rows: Wholes, others: Wholes, size: int) -> float:
    """Return the mean total variation of all marginals of some size."""
    found = []
    for clique in combinations(domain.columns, size):
        shares = []
        for table in (rows, others):
            columns = [table[:, domain.place(name)] for name in clique]
            cells = np.ravel_multi_index(columns, domain.shape(clique))
            shares.append(np.bincount(cells, minlength=domain.cells(clique)) / len(table))
        found.append(float(np.abs(shares[0] - shares[1]).sum()) / 2)
    return float(np.mean(found))


def fitted_by_mbi(domain: Domain, rows: Wholes, measured: Sequence[NoisyMarginal], count: int) -> str:
    """Return the errors of rows that mbi fits to the same measurements and samples, if it is installed."""
    try:
        import jax  # noqa: PLC0415 (a peer, with a large runtime: pip install mbi==2.0.0)

        jax.config.update("jax_enable_x64", True)
        import mbi  # noqa: PLC0415
    except ImportError:
        return "\n  (mbi is not installed)"
    began = time.process_time()
    measurements = [mbi.LinearMeasurement(one.counts.ravel(), one.clique, one.sigma) for one in measured]
    model = mbi.estimation.MirrorDescent().estimate(
        mbi.Domain(domain.columns, domain.sizes), measurements, iters=methods.STEPS_AT_THE_END
    )
    made = model.synthetic_data(rows=count)
    seconds = time.process_time() - began
    columns = np.column_stack([np.asarray(made.to_dict()[name]) for name in domain.columns])
    two, three = (total_variation(domain, rows, columns, size) for size in (2, 3))
    figures = f"{two:.4f} / {three:.4f}  {seconds:6.1f} CPU-s"
    return f"\n  mbi, the same measurements: {figures} for the last fit and the rows"


def synthetic(folder: Path, runs: int) -> None:
    """Print the errors of sampled rows."""
    sizes = json.loads((folder / "adult_encoded_domain.json").read_text())
    with open(folder / "adult_encoded.csv", encoding="utf-8") as file:
        names = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    domain = Domain(tuple(names), tuple(sizes[name] for name in names))
    print(
        "\nAdult, 15 columns, δ = 1e-9: mean total variation of sampled rows, two- and three-way marginals"
    )
    for method, epsilon, rows_per_unit, wanted in SYNTHETIC:
        seconds, errors = [], []
        peer = ""
        for number in range(runs):
            source = Table(domain, rows, largest_rho(Fraction(epsilon), DELTA), rows_per_unit)
            began = time.process_time()
            done = getattr(methods, method)(source)
            model = methods.fit_measured(domain, done, {})
            made = sample_rows(model, round(model.total))
            seconds.append(time.process_time() - began)
            errors.append([total_variation(domain, rows, made, size) for size in (2, 3)])
            if number == 0 and method == "adaptive" and rows_per_unit == 1:
                peer = fitted_by_mbi(domain, rows, done.marginals, round(model.total))
        two, three = np.mean(errors, axis=0)
        most = f"  (wanted at most {wanted[0]:.3f} / {wanted[1]:.3f})" if wanted else ""
        print(
            f"{method:12} ε {epsilon:4} K {rows_per_unit}: {two:.4f} / {three:.4f}"
            f"  {np.mean(seconds):6.1f} CPU-s{most}{peer}",
            flush=True,
        )
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def blocks_of(folder: Path) -> tuple[Spine, Wholes]:
    """Return the spine of Rhode Island, and the counts of each block by race and voting age."""
    with open(folder / "ri_2010_block.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ids = [row["GEOID"] for row in rows]
    ends = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}
    spine = spine_of({level: [name[:end] for name in ids] for level, end in ends.items()})
    place = {name: k for k, name in enumerate(spine.leaves)}
    counts = np.zeros((len(ids), len(RACES), 2), np.int64)
    for row in rows:
        for k, race in enumerate(RACES):
            voting = int(row[f"vap_{race}"])
            counts[place[row["GEOID"]], k] = int(row[f"pop_{race}"]) - voting, voting
    return spine, counts


def no_facts(spine: Spine, cells: int) -> SpineFacts:
    """Return facts that say nothing."""
    return SpineFacts(
        tuple(np.zeros(len(names), np.bool_) for names in spine.nodes),
        tuple(np.full(len(names), -1, np.int64) for names in spine.nodes),
        np.zeros(cells, np.bool_),
    )


def census(folder: Path, runs: int) -> None:
    """Print the errors of totals by level."""
    spine, counts = blocks_of(folder)
    truth = []
    for level, nodes in enumerate(spine.nodes):
        table = np.zeros((len(nodes), *counts.shape[1:]), np.int64)
        np.add.at(table, spine.ancestors(level), counts)
        truth.append(table)
    epsilon = float(zcdp_to_epsilon(RHO, Fraction(1, 10**6)))
    people = f"{len(counts):,} blocks, {counts.sum():,} people"
    print(f"\nRhode Island, {people}, ρ {float(RHO)}: ε {epsilon:.2f} at δ 1e-6")
    for name, shares in (("these shares", OURS), ("the Bureau's levels, blocks by cells alone", BUREAU)):
        _census_of(name, spine, truth, shares=shares, runs=runs)
    facts = no_facts(spine, len(RACES) * 2)
    empty = truth[-1].sum(axis=(1, 2)) == 0
    known = SpineFacts((*facts.empty[:-1], empty), facts.totals, facts.impossible)
    _census_of("emptiness is a fact", spine, truth, shares=OURS, runs=1, facts=known)


def _census_of(
    name: str,
    spine: Spine,
    truth: list[Wholes],
    *,
    shares: Sequence[Sequence[float]],
    runs: int,
    facts: SpineFacts | None = None,
) -> None:
    sizes = (len(RACES), 2)
    sigmas = [
        {query: math.sqrt(50 / share) for query, share in zip(QUERIES, level, strict=True) if share}
        for level in shares
    ]
    own = [own_variances(sizes, level) for level in sigmas]
    final = {
        effect: tree_variances(spine, [level[effect] for level in own])[2] for effect in subsets((0, 1))
    }
    expected = [
        float(
            np.mean(np.sqrt(2 / math.pi * answer_variance(sizes, {e: v[k] for e, v in final.items()}, ())))
        )
        for k in range(len(sigmas))
    ]
    errors, seconds, biases = [], [], []
    for _ in range(runs):
        measured = []
        for table, level in zip(truth, sigmas, strict=True):
            answers = {}
            for query, sigma in level.items():
                exact = table.sum(axis=tuple(k + 1 for k in (0, 1) if k not in query))
                mechanism = Gaussian(Fraction(sigma).limit_denominator(10**6), Fraction(1), exact.size)
                answers[query] = mechanism.sample(exact.ravel()).reshape(exact.shape).astype(float)
            measured.append(LevelMeasurement(answers, level))
        began = time.process_time()
        estimate = estimate_spine(spine, sizes, measured)
        flat = [table.reshape(len(table), -1) for table in estimate.tables]
        wholes = whole_tables(spine, flat, facts or no_facts(spine, sizes[0] * 2))
        seconds.append(time.process_time() - began)
        totals = [
            (table.sum(axis=1), real.sum(axis=(1, 2))) for table, real in zip(wholes, truth, strict=True)
        ]
        errors.append([float(np.abs(got - real).mean()) for got, real in totals])
        got, real = totals[-1]
        biases.append([float((got - real)[(real >= low) & (real <= high)].mean()) for low, high in CLASSES])
    levels = " / ".join(spine.levels[1:])
    print(f"{name}: mean absolute error of totals, {levels}, mean of {runs} runs")
    print(f"  expected, before rounding: {' / '.join(f'{one:.2f}' for one in expected[1:])}")
    print(f"  whole numbers:             {' / '.join(f'{one:.2f}' for one in np.mean(errors, axis=0)[1:])}")
    shown = ", ".join(
        f"{low}" + (f"-{high}" if low < high < 10**9 else "+" if high == 10**9 else "") + f": {bias:+.2f}"
        for (low, high), bias in zip(CLASSES, np.mean(biases, axis=0), strict=True)
    )
    print(f"  bias of blocks by size:    {shown};  {np.mean(seconds):.1f} CPU-s", flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=("synthetic", "census"))
    asked = parser.parse_args()
    if asked.only != "census" and (asked.data / "adult_encoded.csv").is_file():
        synthetic(asked.data, asked.runs)
    if asked.only != "synthetic" and (asked.data / "ri_2010_block.csv").is_file():
        census(asked.data, asked.runs)


if __name__ == "__main__":
    main()
