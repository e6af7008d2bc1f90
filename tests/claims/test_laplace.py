"""Laplace: the loss is the distance over the scale, for vectors too, and its Rényi curve holds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, dec, independent, laplace, log_ratio, middle, total
from lapwing.core.laplace import Laplace
from support.cases import each
from support.exact_laws import renyi, shifts
from support.laws import follows
from support.streams import SeededStream

SCALES = [Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(40)]
ORDERS = [Fraction(101, 100), Fraction(3, 2), Fraction(2), Fraction(7), Fraction(64)]


def shifted(scale: Fraction, shift: tuple[int, ...], reach: int) -> Law:
    """The joint law around `shift`. Beyond the reach all ratios are those at the reach."""
    return independent(*(laplace(scale, centre, -reach, reach) for centre in shift))


@each("scale", SCALES)
@each("l1", [1, 2, 3])
def test_loss_is_distance_over_scale(scale: Fraction, l1: int) -> None:
    claimed = Laplace(scale, l1).loss.pure
    assert claimed == Fraction(l1) / scale
    worst = Fraction(0)
    for dimension in (1, 2):
        at_home = shifted(scale, (0,) * dimension, l1 + 1)
        assert abs(total(at_home) - 1) < SLACK
        for shift in shifts(dimension, l1):
            found = log_ratio(at_home, shifted(scale, shift, l1 + 1))
            assert found <= dec(claimed) + SLACK
            worst = max(worst, Fraction(found))
    assert abs(worst - claimed) < Fraction(SLACK), "and some pair of neighbours reaches it"


@each("epsilon", ["0.1", "1", "7/3"])
@each("l1", [1, 5])
def test_the_scale_for_epsilon_gives_exactly_epsilon(epsilon: str, l1: int) -> None:
    mechanism = Laplace.for_epsilon(epsilon, l1=l1)
    found = log_ratio(laplace(mechanism.scale, 0, 0, l1), laplace(mechanism.scale, l1, 0, l1))
    assert abs(found - dec(Fraction(epsilon))) < SLACK


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("l1", [1, 3])
def test_renyi_divergence_stays_below_the_claimed_curve_and_reaches_it(scale: Fraction, l1: int) -> None:
    loss = Laplace(scale, l1).loss
    for order in ORDERS:
        claimed = middle(loss.renyi(order))
        at_home = shifted(scale, (0, 0), l1 + 1)
        worst = max(renyi(shifted(scale, shift, l1 + 1), at_home, order) for shift in shifts(2, l1))
        assert worst <= claimed + SLACK
        assert worst >= claimed - SLACK


@pytest.mark.parametrize("scale", SCALES)
def test_the_sampler_follows_the_law_that_was_compared(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(61))
    drawn = Laplace(scale, 1).sample(np.full(200_000, 5))
    reach = int(scale * 12) + 3
    law = laplace(scale, 5, 5 - reach, 5 + reach)
    follows(np.clip(drawn, 5 - reach, 5 + reach), [law[k] for k in law], first=5 - reach)
