"""The numbers of the chapter "Choosing", beside facts that are computed in another way."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.show.chapters.choosing import DRAWS, HIGHEST, PRICES, chosen_accuracy, highest_bids
from lapwing.show.small_network import LARGEST_WEIGHT, WEIGHT_COUNT, TownData, right_answers, trained
from support.shown import numbers, shown


def _incomes(bids: list[int]) -> list[int]:
    return [sum(price for bid in bids if bid >= price) for price in PRICES]


@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
def test_the_prices_have_the_probabilities_of_the_exponential_mechanism(epsilon: float) -> None:
    """A share is off by more than 6 deviations with probability below 1e-8, 20 of them below 3e-8."""
    one = shown("exponential", epsilon=epsilon, n=40)
    incomes = _incomes(highest_bids(40).tolist())
    weights = [math.exp(epsilon * income / (2 * HIGHEST)) for income in incomes]
    for price, income, weight, row in zip(PRICES, incomes, weights, one.tables[0].rows, strict=True):
        chance = weight / sum(weights)
        assert row[:2] == (price, income)
        assert row[2] == pytest.approx(chance)
        assert abs(numbers(row[3])[0] - chance) <= 6 * math.sqrt(chance * (1 - chance) / DRAWS) + 0.004


def test_nobody_moves_an_income_by_more_than_the_highest_price() -> None:
    bids = highest_bids(200).tolist()
    incomes = np.array(_incomes(bids))
    for left_out in range(200):
        other = np.array(_incomes(bids[:left_out] + bids[left_out + 1 :]))
        assert np.abs(incomes - other).max() <= HIGHEST


def test_a_private_choice_earns_more_than_a_noisy_price() -> None:
    best, chosen, noisy, _ = numbers(*(row[1] for row in shown("exponential", n=300).tables[1].rows))
    assert noisy < 0.5 * best < 0.99 * best < chosen < best


def test_the_network_learns_and_keeps_its_weights_bounded() -> None:
    data = TownData.of(40, 300, first=0)
    weights = trained(data)
    assert weights.shape == (WEIGHT_COUNT,)
    assert np.abs(weights).max() <= LARGEST_WEIGHT
    assert right_answers(weights, data) > 0.97 * 300
    assert 0.4 < data.classes.mean() < 0.6


def test_the_chosen_networks_accuracy_is_an_average_over_the_choice() -> None:
    weights = [math.exp(0.5 * score) for score in (3, 1)]
    expected = (weights[0] * 0.9 + weights[1] * 0.2) / sum(weights)
    assert chosen_accuracy([3, 1], [0.9, 0.2], Fraction(1)) == pytest.approx(expected)


def test_noise_ruins_the_weights_and_a_choice_does_not() -> None:
    """Sixty noisy networks guess: their mean is above 65 % with probability far below 1e-6."""
    one = shown("network-choice", epsilon=1)
    noisy, chosen = next(numbers(*row[1:]) for row in one.tables[0].rows if row[0] == 1)
    assert 30 < noisy < 65
    assert chosen > 90
    assert sum(row[3] for row in one.tables[1].rows if isinstance(row[3], float)) == pytest.approx(1)
