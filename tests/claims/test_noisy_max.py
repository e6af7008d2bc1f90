"""Noisy max: every winner within e^ε."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, dec, log_ratio, middle, noisy_max, total
from lapwing.core.selection import NoisyMax
from support.cases import each
from support.exact_laws import renyi
from support.laws import follows
from support.streams import SeededStream


@each(("epsilon", "sensitivity"), [(Fraction(1), 1), (Fraction(4), 1), (Fraction(6), 2)])
def test_every_winner_is_within_the_claimed_ratio(epsilon: Fraction, sensitivity: int) -> None:
    mechanism = NoisyMax.for_epsilon(epsilon, sensitivity=sensitivity)
    assert mechanism.loss.pure == epsilon
    scale = 2 * Fraction(sensitivity) / epsilon
    assert mechanism.scale == scale
    steps = range(-2 * sensitivity, 3 * sensitivity, sensitivity)
    laws: dict[tuple[int, ...], Law] = {s: noisy_max(s, scale) for s in product(steps, repeat=3)}
    worst = Decimal(0)
    for scores, law in laws.items():
        assert abs(total(law) - 1) < SLACK
        for move in product((-sensitivity, 0, sensitivity), repeat=3):
            moved = tuple(s + m for s, m in zip(scores, move, strict=True))
            if moved in laws:
                worst = max(worst, log_ratio(law, laws[moved]))
    assert worst <= dec(epsilon) + SLACK
    claimed = middle(mechanism.loss.renyi(Fraction(3)))
    assert renyi(laws[(0, 0, 0)], laws[(sensitivity, -sensitivity, -sensitivity)], 3) <= claimed


def test_a_hopeless_candidate_comes_ever_closer_to_the_claimed_ratio() -> None:
    epsilon = Fraction(2)
    found = [
        log_ratio(noisy_max([0, -gap], Fraction(1)), noisy_max([1, -gap - 1], Fraction(1)))
        for gap in (2, 20, 200)
    ]
    assert found == sorted(found)
    assert dec(epsilon) * Decimal("0.99") < found[-1] < dec(epsilon)


def test_half_the_noise_would_break_the_claim() -> None:
    found = log_ratio(noisy_max([0, -9], Fraction(1)), noisy_max([1, -10], Fraction(1)))
    assert found > dec(1), "scale Δ/ε instead of 2Δ/ε exceeds ε = 1"


def test_the_sampler_follows_the_law_that_was_compared_also_for_ties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(65))
    mechanism = NoisyMax.for_epsilon(4, sensitivity=1)
    scores = [1, 1, 0, 1]
    drawn = np.array([mechanism.sample(scores) for _ in range(12_000)])
    law = noisy_max(scores, Fraction(1, 2))
    assert law[0] > law[1] > law[3], "ties go to the first"
    follows(drawn, [law[i] for i in range(4)])
