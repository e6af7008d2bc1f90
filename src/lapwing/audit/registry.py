"""Every mechanism and randomizer, on the neighbouring inputs of its claim: what the auditor attacks.

A test fails when one of them is not listed here.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

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


def _vector(mechanism: Laplace, values: list[int]) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        return mechanism.sample(values * size).reshape(size, len(values))

    return draw


def _gaussian(mechanism: Gaussian, value: int) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        # One sample of many coordinates is as many samples of one: the noises are independent.
        wide = Gaussian(mechanism.sigma, mechanism.l2_squared, size)
        return wide.sample(np.full(size, value))

    return draw


def _opened(shares: LaplaceShares | GaussianShares, value: int) -> Draw:
    """What is left of an opened sum when the coalition has subtracted its own: the honest members'."""

    def draw(size: int) -> NDArray[np.int64]:
        each = shares if isinstance(shares, LaplaceShares) else replace(shares, dimension=size)
        others = [each.sample(np.zeros(size, dtype=np.int64)) for _ in range(shares.of - 1)]
        return each.sample(np.full(size, value)) + sum(others)

    return draw


def _chosen(mechanism: Exponential | PermuteAndFlip | NoisyMax, scores: list[int]) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        return np.array([mechanism.sample(np.array(scores)) for _ in range(size)])

    return draw


def _course(mechanism: AboveThreshold, values: list[int]) -> Draw:
    """Which questions of a session were told yes, as binary digits."""

    def one() -> int:
        session, answers = mechanism.start(0), 0
        for place, value in enumerate(values):
            if session.is_over:
                break
            answers |= session.ask(value) << place
        return answers

    def draw(size: int) -> NDArray[np.int64]:
        return np.array([one() for _ in range(size)])

    return draw


def _ranked(mechanism: Quantile | Extreme, values: list[int]) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        return np.array([mechanism.sample(np.array(values, dtype=np.int64)) for _ in range(size)])

    return draw


def _kept(mechanism: PartitionSelection, count: int) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        return mechanism.decide(np.full(size, count)).astype(np.int64)

    return draw


def _report(mechanism: RandomizedResponse, answer: int) -> Draw:
    def draw(size: int) -> NDArray[np.int64]:
        return mechanism.sample(np.full(size, answer))

    return draw


def _messages(randomizer: Randomizer, answer: int) -> Draw:
    """Messages as they are sent, a row of bytes each."""

    def draw(size: int) -> NDArray[np.int64]:
        return randomizer.encode(randomizer.sample(np.full(size, answer))).astype(np.int64)

    return draw


def _words(randomizer: PrefixResponse, word: int, suspected: int) -> Draw:
    """There are too many messages to see one twice: only whether each speaks for a suspected word."""

    def draw(size: int) -> NDArray[np.int64]:
        rows = randomizer.sample(np.full(size, word))
        seen = rows[:, 0].astype(np.int64) * 2
        for place, inner in enumerate(randomizer.inner):
            prefix = int(randomizer.prefix(np.array([suspected]), place)[0])
            oracle: FrequencyOracle = inner
            seen[rows[:, 0] == place] += oracle.membership(randomizer.messages_of(rows, place), prefix)
        return seen

    return draw


def cases() -> list[Case]:
    """All cases, each at ε = 1 (or ln 3)."""
    return [*_of_mechanisms(), *_of_randomizers()]


def _of_randomizers() -> list[Case]:
    """In the local model: any two answers of one respondent."""
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
        ("survey: Duchi", DuchiResponse.for_epsilon(1, steps=4, none=False), 0, 4),
        (
            "survey: hybrid",
            HybridResponse(
                1 << 47,
                WindowResponse.with_width(1, steps=4, stride=2, width=5, none=False),
                DuchiResponse.for_epsilon(1, steps=4, none=False),
            ),
            0,
            4,
        ),
    ]
    found = [
        Case(name, type(one), one.loss.epsilon, NONE, _messages(one, answer), _messages(one, other))
        for name, one, answer, other in several
    ]
    words = PrefixResponse.for_epsilon(1, letters=2, levels=(1, 2))
    draws = _words(words, 0, 0), _words(words, 1023, 0)
    return [*found, Case("survey: prefixes", PrefixResponse, words.loss.epsilon, NONE, *draws)]


def _of_mechanisms() -> list[Case]:
    laplace = Laplace.for_epsilon(1, l1=1)
    vector = Laplace.for_epsilon(1, l1=3)
    gaussian = Gaussian.for_budget(1, DELTA, l2_squared=1, dimension=1)
    parts = LaplaceShares.for_epsilon(1, l1=1, of=3)
    waves = GaussianShares.for_budget(1, DELTA, l2_squared=1, dimension=1, of=2)
    choice = Exponential.for_epsilon(1, sensitivity=1)
    flip = PermuteAndFlip.for_epsilon(1, sensitivity=1)
    winner = NoisyMax.for_epsilon(1, sensitivity=1)
    above = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1)
    median = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1)
    top = Extreme.for_epsilon(1, greatest=True, first=0, last=3, rows=1)
    keys = PartitionSelection.for_budget(1, DELTA, keys=1)
    coins, wheel = RandomizedResponse.two_coins(), RandomizedResponse.for_epsilon(1, options=5)
    return [
        Case("Laplace count", Laplace, ONE, NONE, _vector(laplace, [0]), _vector(laplace, [1])),
        Case("Laplace vector", Laplace, ONE, NONE, _vector(vector, [0, 0]), _vector(vector, [1, 2])),
        Case("Gaussian count", Gaussian, ONE, DELTA, _gaussian(gaussian, 0), _gaussian(gaussian, 1)),
        Case("Laplace shares", LaplaceShares, ONE, NONE, _opened(parts, 0), _opened(parts, 1)),
        Case("Gaussian shares", GaussianShares, ONE, DELTA, _opened(waves, 0), _opened(waves, 1)),
        Case("exponential", Exponential, ONE, NONE, _chosen(choice, [2, 2, 1]), _chosen(choice, [1, 1, 2])),
        Case(
            "permute-and-flip",
            PermuteAndFlip,
            ONE,
            NONE,
            _chosen(flip, [2, 2, 1]),
            _chosen(flip, [1, 1, 2]),
        ),
        Case("noisy max", NoisyMax, ONE, NONE, _chosen(winner, [0, 0, 1]), _chosen(winner, [1, 1, 0])),
        Case(
            "above threshold",
            AboveThreshold,
            ONE,
            NONE,
            _course(above, [0, 0, 1]),
            _course(above, [1, 1, 0]),
        ),
        Case("median", Quantile, ONE, NONE, _ranked(median, [2, 3]), _ranked(median, [2, 3, 8])),
        Case("greatest", Extreme, ONE, NONE, _ranked(top, [2] * 9), _ranked(top, [2] * 10)),
        Case("first unit of a key", PartitionSelection, ONE, DELTA, _kept(keys, 0), _kept(keys, 1)),
        Case("one more unit", PartitionSelection, ONE, DELTA, _kept(keys, 3), _kept(keys, 4)),
        Case(
            "two coins", RandomizedResponse, coins.loss.epsilon, NONE, _report(coins, 0), _report(coins, 1)
        ),
        Case("one of five", RandomizedResponse, ONE, NONE, _report(wheel, 0), _report(wheel, 3)),
    ]
