"""The cases that the auditor attacks: every mechanism and randomizer, on the neighbours of its claim.

A test fails if one of them is not listed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attack import Case, Draw
from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.losses import Relation
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip
from lapwing.publish.measured.private_marginals import choosing, measuring, score
from lapwing.publish.models.marginal_source import GRID, Candidate
from lapwing.survey.randomizers import (
    BitwiseResponse,
    DuchiResponse,
    FrequencyOracle,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)

NONE = Fraction(0)
ONE = Fraction(1)
DELTA = Fraction(1, 100)
Mechanism = TypeVar("Mechanism")
Input = TypeVar("Input")


def _case(
    name: str,
    mechanism: Mechanism,
    draw_on: Callable[[Mechanism, Input], Draw],
    one: Input,
    other: Input,
    *,
    epsilon: Fraction = ONE,
    delta: Fraction = NONE,
) -> Case:
    """Return the case of a mechanism on two neighbouring inputs."""
    return Case(name, type(mechanism), epsilon, delta, draw_on(mechanism, one), draw_on(mechanism, other))


def _vector(mechanism: Laplace, values: list[int]) -> Draw:
    return lambda size: mechanism.sample(values * size).reshape(size, len(values))


def _gaussian(mechanism: Gaussian, value: int) -> Draw:
    # One sample of many coordinates is as many samples of one: the noises are independent.
    return lambda size: replace(mechanism, dimension=size).sample(np.full(size, value))


def _opened(shares: LaplaceShares | GaussianShares, value: int) -> Draw:
    """Return draws of an opened sum without the coalition's own shares: only the honest members' remain."""

    def draw(size: int) -> NDArray[np.int64]:
        each = shares if isinstance(shares, LaplaceShares) else replace(shares, dimension=size)
        others = [each.sample(np.zeros(size, dtype=np.int64)) for _ in range(shares.of - 1)]
        return each.sample(np.full(size, value)) + sum(others)

    return draw


def _chosen(
    mechanism: Exponential | PermuteAndFlip | NoisyMax | Quantile | Extreme, values: list[int]
) -> Draw:
    """Return draws of one choice each, from scores or from values."""
    array = np.array(values, dtype=np.int64)
    return lambda size: np.array([mechanism.sample(array) for _ in range(size)])


def _answers(mechanism: AboveThreshold, values: list[int]) -> Draw:
    """Return draws of the answers of a session, as binary digits: 1 is yes."""

    def one_session() -> int:
        session, answers = mechanism.start(0), 0
        for place, value in enumerate(values):
            if session.is_over:
                break
            answers |= session.ask(value) << place
        return answers

    return lambda size: np.array([one_session() for _ in range(size)])


def _kept(mechanism: PartitionSelection, count: int) -> Draw:
    return lambda size: mechanism.decide(np.full(size, count)).astype(np.int64)


def _report(mechanism: RandomizedResponse, answer: int) -> Draw:
    return lambda size: mechanism.sample(np.full(size, answer))


def _messages(randomizer: Randomizer, answer: int) -> Draw:
    """Return draws of messages as they are sent, a row of bytes each."""
    return lambda size: randomizer.encode(randomizer.sample(np.full(size, answer))).astype(np.int64)


def _words(randomizer: PrefixResponse, word: int, suspected: int = 0) -> Draw:
    """Return draws of whether each message supports the suspected word, and its level.

    There are too many messages to see one of them twice.
    """

    def draw(size: int) -> NDArray[np.int64]:
        rows = randomizer.sample(np.full(size, word))
        seen = rows[:, 0].astype(np.int64) * 2
        for place, inner in enumerate(randomizer.inner):
            prefix = int(randomizer.part_answers(np.array([suspected]), place)[0])
            oracle: FrequencyOracle = inner
            seen[rows[:, 0] == place] += oracle.membership(randomizer.messages_of(rows, place), prefix)
        return seen

    return draw


def cases() -> list[Case]:
    """Return all cases, each at ε = 1 (or ln 3)."""
    return [*_of_mechanisms(), *_of_randomizers(), *_of_releases()]


def _of_randomizers() -> list[Case]:
    """Return the cases of the local model: any two answers of one respondent."""
    window = WindowResponse.with_width(1, steps=4, stride=2, width=5, none=False)
    duchi = DuchiResponse.for_epsilon(1, steps=4, none=False)
    several: list[tuple[str, Randomizer, int, int]] = [
        ("survey: two coins", KaryResponse.two_coins(), 0, 1),
        ("survey: one of five", KaryResponse.for_epsilon(1, options=5), 0, 3),
        ("survey: subset", SubsetSelection.for_epsilon(1, options=6), 0, 5),
        ("survey: unary", UnaryEncoding.for_epsilon(1, options=4), 0, 3),
        ("survey: Hadamard", HadamardResponse.for_epsilon(1, options=7), 0, 6),
        ("survey: projective", ProjectiveResponse.for_epsilon(1, options=13), 0, 12),
        ("survey: bits", BitwiseResponse.for_epsilon(1, options=3), 0, 7),
        ("survey: square wave", SquareWave.for_epsilon(1, steps=6, none=False), 0, 6),
        ("survey: no answer", WindowResponse.with_width(1, steps=4, stride=2, width=5, none=True), 5, 0),
        ("survey: Duchi", duchi, 0, 4),
        ("survey: hybrid", HybridResponse(1 << 47, window, duchi), 0, 4),
    ]
    words = PrefixResponse.for_epsilon(1, letters=2, levels=(1, 2))
    return [
        *(
            _case(name, randomizer, _messages, answer, other, epsilon=randomizer.loss.epsilon)
            for name, randomizer, answer, other in several
        ),
        _case("survey: prefixes", words, _words, 0, 1023, epsilon=words.loss.epsilon),
    ]


def _of_releases() -> list[Case]:
    """Return the cases of publishing: a person with K rows, all in one cell, is there or not."""
    rows = 3
    sigma = Gaussian.for_budget(1, DELTA, l2_squared=rows**2, dimension=1).sigma
    measure = measuring(sigma, rows, 1)
    # The person's rows move the first marginal away from the model, and the second towards it.
    candidates = [
        Candidate(("a",), np.array([4 * GRID, 0])),
        Candidate(("b",), np.array([4 * GRID, 8 * GRID])),
    ]
    without = [np.array([4, 0]), np.array([4, 8 - rows])]
    beside = [np.array([4, rows]), np.array([4, 8])]
    scores, others = (
        [score(counts, one) for counts, one in zip(tables, candidates, strict=True)]
        for tables in (without, beside)
    )
    choose = choosing(ONE, rows, candidates)
    return [
        _case(
            "publish: a measured marginal (independent, tree, adaptive)", measure, _gaussian, 0, rows,
            delta=DELTA,
        ),
        _case("publish: a chosen marginal (tree, adaptive)", choose, _chosen, scores, others),
        _case("publish: one query of one level (census)", measure, _gaussian, 7, 7 + rows, delta=DELTA),
    ]  # fmt: skip


def _of_mechanisms() -> list[Case]:
    laplace, vector = Laplace.for_epsilon(1, l1=1), Laplace.for_epsilon(1, l1=3)
    gaussian = Gaussian.for_budget(1, DELTA, l2_squared=1, dimension=1)
    laplace_shares = LaplaceShares.for_epsilon(1, l1=1, of=3)
    gaussian_shares = GaussianShares.for_budget(1, DELTA, l2_squared=1, dimension=1, of=2)
    exponential = Exponential.for_epsilon(1, sensitivity=1)
    flip = PermuteAndFlip.for_epsilon(1, sensitivity=1)
    noisy_max = NoisyMax.for_epsilon(1, sensitivity=1)
    above = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1)
    median = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1)
    greatest = Extreme.for_epsilon(1, greatest=True, first=0, last=3, rows=1)
    keys = PartitionSelection.for_budget(1, DELTA, keys=1)
    coins, options = RandomizedResponse.two_coins(), RandomizedResponse.for_epsilon(1, options=5)
    return [
        _case("Laplace count", laplace, _vector, [0], [1]),
        _case("Laplace vector", vector, _vector, [0, 0], [1, 2]),
        _case("Gaussian count", gaussian, _gaussian, 0, 1, delta=DELTA),
        _case("Laplace shares", laplace_shares, _opened, 0, 1),
        _case("Gaussian shares", gaussian_shares, _opened, 0, 1, delta=DELTA),
        _case("exponential", exponential, _chosen, [2, 2, 1], [1, 1, 2]),
        _case("permute-and-flip", flip, _chosen, [2, 2, 1], [1, 1, 2]),
        _case("noisy max", noisy_max, _chosen, [0, 0, 1], [1, 1, 0]),
        _case("above threshold", above, _answers, [0, 0, 1], [1, 1, 0]),
        _case("median", median, _chosen, [2, 3], [2, 3, 8]),
        _case("greatest", greatest, _chosen, [2] * 9, [2] * 10),
        _case("first unit of a key", keys, _kept, 0, 1, delta=DELTA),
        _case("one more unit", keys, _kept, 3, 4, delta=DELTA),
        _case("two coins", coins, _report, 0, 1, epsilon=coins.loss.epsilon),
        _case("one of five", options, _report, 0, 3),
    ]
