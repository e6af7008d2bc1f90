"""Permute-and-flip: every choice within e^ε, but not in a range of ε."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, dec, exponential, log_ratio, middle, permute_and_flip, total
from lapwing.core.selection import PermuteAndFlip
from support.cases import each
from support.exact_laws import renyi
from support.laws import follows
from support.streams import SeededStream

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(4)]
SCORES = [(0, *rest) for rest in product((-6, -2, -1, 0), repeat=2)]
MOVES = list(product((-1, 0, 1), repeat=3))


def moved(scores: tuple[int, ...], move: tuple[int, ...]) -> list[int]:
    return [s + m for s, m in zip(scores, move, strict=True)]


@each("epsilon", EPSILONS)
def test_every_choice_is_within_the_claimed_ratio(epsilon: Fraction) -> None:
    mechanism = PermuteAndFlip.for_epsilon(epsilon, sensitivity=1)
    assert mechanism.loss.pure == epsilon
    assert mechanism.rate == epsilon / 2
    worst = Decimal(0)
    for scores in SCORES:
        here = permute_and_flip(scores, epsilon / 2)
        assert abs(total(here) - 1) < SLACK
        for move in MOVES:
            found = log_ratio(here, permute_and_flip(moved(scores, move), epsilon / 2))
            assert found <= dec(epsilon) + SLACK
            worst = max(worst, found)
    for gap in range(0, 40, 13):  # with two candidates the bound is reached exactly
        two = log_ratio(
            permute_and_flip([0, -gap], epsilon / 2), permute_and_flip([1, -gap - 1], epsilon / 2)
        )
        assert two <= dec(epsilon) + SLACK
        worst = max(worst, two)
    assert worst > dec(epsilon) - Decimal("1e-9")


@each("epsilon", EPSILONS)
def test_renyi_divergence_is_within_the_curve_of_any_pure_mechanism(epsilon: Fraction) -> None:
    loss = PermuteAndFlip.for_epsilon(epsilon, sensitivity=1).loss
    for order in (Fraction(101, 100), Fraction(2), Fraction(10)):
        claimed = middle(loss.renyi(order))
        for scores in SCORES:
            here = permute_and_flip(scores, epsilon / 2)
            for move in MOVES[:13]:
                there = permute_and_flip(moved(scores, move), epsilon / 2)
                assert max(renyi(here, there, order), renyi(there, here, order)) <= claimed + SLACK


def test_N6_an_eighth_of_epsilon_squared_is_exceeded_four_times() -> None:
    epsilon, order = Fraction(1, 100), Fraction(2)
    even, apart = permute_and_flip([0, 0], epsilon / 2), permute_and_flip([1, -1], epsilon / 2)
    found = max(renyi(even, apart, order), renyi(apart, even, order))
    wrong_claim = dec(order * epsilon**2 / 8)
    assert found > wrong_claim * Decimal("3.9")
    assert found <= dec(order * epsilon**2 / 2), "what is charged for pure ε covers it"
    loss = PermuteAndFlip.for_epsilon(epsilon, sensitivity=1).loss
    assert middle(loss.renyi(order)) >= found


def test_it_is_never_worse_than_the_exponential_mechanism() -> None:
    for scores in SCORES:
        flip, exponent = permute_and_flip(scores, Fraction(1, 2)), exponential(scores, Fraction(1, 2))
        for least in set(scores):
            chosen = [i for i, score in enumerate(scores) if score >= least]
            assert sum(flip[i] for i in chosen) >= sum(exponent[i] for i in chosen) - SLACK


def test_the_sampler_follows_the_law_that_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(64))
    mechanism = PermuteAndFlip.for_epsilon(2, sensitivity=2)
    scores = [0, 2, -1, 1]
    drawn = np.array([mechanism.sample(scores) for _ in range(12_000)])
    law = permute_and_flip(scores, Fraction(1, 2))
    follows(drawn, [law[i] for i in range(4)])
