"""Measured variances of shares beside closed forms, and errors of counts beside published ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.query_data import Figures, heading
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.survey.randomizers import (
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    ProjectiveResponse,
    SubsetSelection,
    UnaryEncoding,
)

CLOSED = 0.03  # a measured variance is so close to its closed form
PEOPLE, RUNS, AT_ONCE = 10_000, 1000, 100
SURE = 3  # deviations of one run, ours and theirs: "within simulation error"
Run = Callable[[], float]


def estimates(oracle: FrequencyOracle, messages: NDArray[np.generic]) -> NDArray[np.float64]:
    """Unbiased shares of all options."""
    gap = float(oracle.inside - oracle.outside)
    return (oracle.counts(messages) / len(messages) - float(oracle.outside)) / gap


def shares(figures: Figures) -> None:
    """n Var at a share of 0: everyone holds option 0, and the others are looked at."""
    heading(f"variance: k = 100, ε = 1, n Var of a share of 0, {RUNS} times {PEOPLE:,} people")
    kinds: list[
        tuple[
            str,
            type[KaryResponse] | type[UnaryEncoding] | type[SubsetSelection] | type[HadamardResponse],
            float,
        ]
    ] = [
        ("k-ary randomized response", KaryResponse, 34.11),
        ("unary encoding (OUE)", UnaryEncoding, 3.683),
        ("subset selection", SubsetSelection, 3.590),
        ("Hadamard response", HadamardResponse, 4.683),
    ]
    for name, kind, published in kinds:
        oracle: FrequencyOracle = kind.for_epsilon(1, options=100)
        squares = []
        for _ in range(RUNS // AT_ONCE):
            messages = oracle.sample(np.zeros(PEOPLE * AT_ONCE, dtype=np.int64))
            squares += [
                float(np.mean(estimates(oracle, part)[1:] ** 2)) for part in np.split(messages, AT_ONCE)
            ]
        measured = PEOPLE * float(np.mean(squares))
        low, high = published * (1 - CLOSED), published * (1 + CLOSED)
        error = PEOPLE * float(np.std(squares)) / math.sqrt(RUNS)
        figures.within(name, measured, low, high, f"± {error:.2g}; closed form {oracle.variance(0):.4f}")


class Blocks:
    """General Hadamard response (Acharya, Sun and Zhang, 2019): blocks of b messages, half of one favoured.

    The number of blocks is the largest power of two up to e^ε, and a block holds b - 1 items. It is here
    for comparison only: points of a projective space have the smaller error.
    """

    def __init__(self, epsilon: float, options: int) -> None:
        self.options = options
        self.blocks = 1 << math.floor(math.log2(math.exp(epsilon)))
        self.size = 1 << math.ceil(math.log2(options / self.blocks + 1))
        odds = math.exp(epsilon) / (2 * self.blocks - 1)
        self.truth = Fraction(odds / (1 + odds))

    def sample_first(self, people: int) -> NDArray[np.int64]:
        """Messages of people who all hold item 0: row 1 of block 0, favouring even numbers of its block."""
        half = self.size // 2
        near = 2 * uniform_int(0, half, people)
        # Without the favoured ones, the odd numbers of block 0 come first.
        far = uniform_int(0, self.blocks * self.size - half, people)
        far = np.where(far < half, 2 * far + 1, far + half)
        return np.where(bernoulli(self.truth, people), near, far)

    def estimate(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Counts of all items: the favoured half of the block less the other half, scaled."""
        found = np.bincount(messages, minlength=self.blocks * self.size).reshape(self.blocks, self.size)
        for bit in range(self.size.bit_length() - 1):
            pairs = found.reshape(self.blocks, -1, 2, 1 << bit)
            sums = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
            found = np.stack(sums, axis=2).reshape(self.blocks, self.size)
        gap = float(self.truth - (1 - self.truth) / (2 * self.blocks - 1))
        items: NDArray[np.float64] = found[:, 1:].reshape(-1)[: self.options] / gap
        return items

    def closed_form(self, people: int) -> float:
        """The mean squared error of counts when everyone holds one item: its block has most of it."""
        truth = float(self.truth)
        other_half = (1 - truth) / (2 * self.blocks - 1)
        own, gap = truth + other_half, truth - other_half
        alike = self.size - 2
        apart = self.options - alike - 1
        total = alike * own / gap**2 + (own / gap**2 - 1) + apart * 2 * other_half / gap**2
        return people * total / self.options


def counts_off(found: NDArray[np.float64], people: int) -> float:
    """The mean squared error of counts, where item 0 has everyone."""
    truth = np.zeros(len(found))
    truth[0] = people
    return float(np.mean((found - truth) ** 2))


def error_of(oracle: FrequencyOracle, people: int) -> tuple[Run, float]:
    """One run, and the closed form."""

    def run() -> float:
        messages = oracle.sample(np.zeros(people, dtype=np.int64))
        return counts_off(people * estimates(oracle, messages), people)

    others = oracle.options - 1
    return run, people * (oracle.variance(1) + others * oracle.variance(0)) / oracle.options


def published_errors(figures: Figures) -> None:
    """Everyone on one item, as in the published tables (Feldman, Nelson, Nguyen and Talwar, 2022)."""
    heading("mean squared error of counts, everyone on one item; published ones are from simulations")
    people, few = 10_000, 1000
    blocks = Blocks(5, 22_000)
    sets, points = (
        SubsetSelection.for_epsilon(5, options=22_000),
        ProjectiveResponse.for_epsilon(5, options=22_000),
    )
    small = SubsetSelection.for_epsilon(5, options=1024)
    parity = HadamardResponse.for_epsilon(5, options=22_000)
    block_run: Run = lambda: counts_off(blocks.estimate(blocks.sample_first(people)), people)  # noqa: E731
    rows: list[tuple[str, Run, float, float, int]] = [
        (f"subset, k = 22,000, ε = 5, d = {sets.chosen}", *error_of(sets, people), 272.8, 20),
        (f"projective, k = 22,000, ε = 5, q = {points.prime}", *error_of(points, people), 272.7, 40),
        (
            f"Hadamard in {blocks.blocks} blocks of {blocks.size}, k = 22,000, ε = 5",
            block_run,
            blocks.closed_form(people),
            689.6,
            200,
        ),
        (f"subset, k = 1,024, ε = 5, n = 1,000, d = {small.chosen}", *error_of(small, few), 26.17, 200),
    ]
    for name, run, closed, published, runs in rows:
        found = [run() for _ in range(runs)]
        once = float(np.std(found, ddof=1))
        reach = SURE * once * math.sqrt(1 + 1 / runs)
        detail = (
            f"published {published}, one run strays by {once:.2g}; "
            f"ours ± {once / math.sqrt(runs):.2g} of {runs} runs, closed form {closed:.2f}"
        )
        figures.within(name, float(np.mean(found)), published - reach, published + reach, detail)
    run, closed = error_of(parity, people)
    figures.note(
        "Hadamard without blocks (what surveys offer, for ε <= 1)",
        f"{np.mean([run() for _ in range(20)]):,.0f}, closed form {closed:,.0f}",
    )


def variance_figures(figures: Figures) -> None:
    """Both."""
    shares(figures)
    published_errors(figures)
