"""One unit raises every score by 0 to `most`, and the differences by at most that."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from lapwing.core.selection import Exponential
from lapwing.errors import BadParameter
from lapwing.learn.search import CORRECT, Score


class Sign:
    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.sizes: list[int] = []

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        self.sizes.append(len(rows))
        return (rows[:, 0] * self.weight > 0).astype(np.float64)


ROWS = np.random.default_rng(7).normal(size=(40, 2))
TRUTH = (ROWS[:, 0] > 0).astype(np.float64)


@pytest.mark.parametrize("score", [CORRECT, Score(10, lambda truth, guess: 10 - 25 * abs(truth - guess))])
def test_a_unit_raises_every_score_by_at_most_its_bound(score: Score) -> None:
    for gone in range(len(ROWS)):
        kept = np.arange(len(ROWS)) != gone
        moved = [
            score.total(Sign(w), ROWS, TRUTH) - score.total(Sign(w), ROWS[kept], TRUTH[kept])
            for w in (-1, 1)
        ]
        assert all(0 <= one <= score.most for one in moved)
        assert abs(moved[0] - moved[1]) <= 2 * score.sensitivity


def exponential_law(scores: tuple[int, ...], rate: float) -> list[float]:
    weights = [math.exp(rate * score) for score in scores]
    return [weight / sum(weights) for weight in weights]


def flip_law(scores: tuple[int, ...], rate: float) -> list[float]:
    """By enumerating all coins: a uniform choice among the heads."""
    heads = [math.exp(rate * (score - max(scores))) for score in scores]
    law = [0.0] * len(scores)
    for coins in product((False, True), repeat=len(scores)):
        chance = math.prod(p if coin else 1 - p for p, coin in zip(heads, coins, strict=True))
        for k in range(len(scores)):
            law[k] += chance * coins[k] / max(sum(coins), 1)
    return law


@pytest.mark.parametrize("law", [exponential_law, flip_law])
def test_choices_among_scores_have_half_the_sensitivity(
    law: Callable[[tuple[int, ...], float], list[float]],
) -> None:
    """All scores of three candidates, and all that one unit can add, at ε = 1: exact laws."""
    rate = float(Exponential(Fraction(1), CORRECT.sensitivity).rate)
    for scores in product(range(4), repeat=3):
        for added in product((0, 1), repeat=3):
            more = tuple(a + b for a, b in zip(scores, added, strict=True))
            for p, q in zip(law(scores, rate), law(more, rate), strict=True):
                assert abs(math.log(p / q)) <= 1 + 1e-12


def test_each_row_is_predicted_by_itself() -> None:
    model = Sign(1)
    assert CORRECT.total(model, ROWS, TRUTH) == len(ROWS)
    assert set(model.sizes) == {1}


@pytest.mark.parametrize("worth", [math.nan, math.inf, -math.inf, 1e300, -3.0])
def test_whatever_a_row_scores_is_clipped(worth: float) -> None:
    total = Score(3, lambda *_: worth).total(Sign(1), ROWS[:1], TRUTH[:1])
    assert total == (3 if worth > 3 else 0)


def test_numbers_are_rounded_down() -> None:
    assert Score(3, lambda *_: 1.99).total(Sign(1), ROWS[:2], TRUTH[:2]) == 2


def test_no_units_score_nothing() -> None:
    assert CORRECT.total(Sign(1), ROWS[:0], TRUTH[:0]) == 0
    assert CORRECT.sensitivity == Fraction(1, 2)


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_a_bound_must_be_a_whole_number_above_zero(most: Any) -> None:
    of: Callable[[Any, Any], float] = max
    with pytest.raises(BadParameter):
        Score(most, of)


class Zero:
    """Predicts 0, except for rows that it fails on."""

    def predict(self, rows: NDArray[Any]) -> NDArray[Any]:
        if rows[0, 0] < 0:
            raise RuntimeError("Alice")
        return np.array([0])


@pytest.mark.parametrize("odd", [None, "x", pd.NA, [0, 0]])
def test_a_row_for_which_the_score_fails_scores_nothing(odd: object) -> None:
    truth = np.empty(3, dtype=object)
    truth[:] = [0, 4, odd]
    near = Score(10, lambda wanted, given: 10 - abs(float(wanted) - given))
    assert near.total(Zero(), np.zeros((3, 1)), truth) == 16
    assert CORRECT.total(Zero(), np.zeros((3, 1)), truth) == 1


def test_a_row_for_which_the_model_fails_scores_nothing() -> None:
    assert CORRECT.total(Zero(), np.array([[1.0], [-1.0], [1.0]]), np.zeros(3)) == 2
