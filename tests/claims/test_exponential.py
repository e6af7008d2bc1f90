"""Exponential: every choice within e^ε, and Rényi divergence within order * ε² / 8."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Rational, dec, exponential, log_ratio, middle
from lapwing.core.selection import Exponential
from support.cases import each
from support.exact_laws import renyi
from support.laws import follows
from support.streams import SeededStream

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(4)]
ORDERS = [Fraction(101, 100), Fraction(2), Fraction(10)]
# All score vectors of three candidates up to a common shift, and all moves of each score within Δ.
SCORES = [(0, *rest) for rest in product((-7, -2, 0, 1), repeat=2)]
MOVES = list(product((-1, 0, 1), repeat=3))


def moved(scores: tuple[int, ...], move: tuple[int, ...], sensitivity: Rational) -> list[Fraction]:
    return [Fraction(s) + m * Fraction(sensitivity) for s, m in zip(scores, move, strict=True)]


@each("epsilon", EPSILONS)
@each("sensitivity", [Fraction(1), Fraction(1, 3)])
def test_every_choice_is_within_the_claimed_ratio(epsilon: Fraction, sensitivity: Fraction) -> None:
    mechanism = Exponential.for_epsilon(epsilon, sensitivity=sensitivity)
    assert mechanism.loss.pure == epsilon
    rate = epsilon / (2 * sensitivity)
    assert mechanism.rate == rate
    for scores in SCORES:
        here = exponential(scores, rate)
        for move in MOVES:
            assert (
                log_ratio(here, exponential(moved(scores, move, sensitivity), rate)) <= dec(epsilon) + SLACK
            )


@each("epsilon", EPSILONS)
def test_a_hopeless_candidate_reaches_the_claimed_ratio(epsilon: Fraction) -> None:
    gap = int(60 / epsilon)
    found = log_ratio(exponential([0, -gap], epsilon / 2), exponential([-1, 1 - gap], epsilon / 2))
    assert dec(epsilon) - Decimal("1e-9") < found <= dec(epsilon) + SLACK


@each("epsilon", EPSILONS)
def test_renyi_divergence_is_within_the_curve_of_a_bounded_range(epsilon: Fraction) -> None:
    loss = Exponential.for_epsilon(epsilon, sensitivity=1).loss
    for scores in SCORES:
        here = exponential(scores, epsilon / 2)
        for move in MOVES[:13]:
            there = exponential(moved(scores, move, 1), epsilon / 2)
            for order in ORDERS:
                found = max(renyi(here, there, order), renyi(there, here, order))
                assert found <= dec(order * epsilon**2 / 8) + SLACK
                assert found <= middle(loss.renyi(order)) + SLACK


def test_an_eighth_of_epsilon_squared_is_nearly_reached_by_two_equal_candidates() -> None:
    epsilon, order = Fraction(1, 100), Fraction(2)
    found = renyi(exponential([1, 0], epsilon / 2), exponential([0, 1], epsilon / 2), order)
    assert found > dec(order * epsilon**2 / 8) * Decimal("0.999")


def test_the_sampler_follows_the_law_that_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(63))
    mechanism = Exponential.for_epsilon("3/2", sensitivity="5/2")
    scores = [0, 3, -2, 6]
    drawn = np.array([mechanism.sample(scores) for _ in range(12_000)])
    law = exponential(scores, Fraction(3, 10))
    follows(drawn, [law[i] for i in range(4)])
