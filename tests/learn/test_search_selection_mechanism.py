"""The choice of the selection mechanism, and its error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.budget import EPSILON, FIRST_ORDER, Terms
from lapwing.core.losses import Pure
from lapwing.core.selection import Exponential, PermuteAndFlip
from lapwing.errors import BadParameter
from lapwing.learn.search import (
    binding_filter,
    exponential_error,
    flip_error,
    selection_mechanism_for,
    worst_error,
)

SMALL, LARGE = Fraction(1, 20), Fraction(1, 2)
LIFE = Terms.of(1, 1e-6)


def test_where_pure_epsilon_binds_permute_and_flip_chooses() -> None:
    for terms, epsilon in ((Terms.of(1, 0), SMALL), (LIFE, LARGE)):
        assert binding_filter(terms, Pure(epsilon)) == EPSILON
        choice = selection_mechanism_for(epsilon, sensitivity=1, candidates=10, terms=terms)
        assert choice == PermuteAndFlip(epsilon, Fraction(1))


def test_where_a_renyi_order_binds_the_exponential_mechanism_chooses_at_a_larger_epsilon() -> None:
    assert binding_filter(LIFE, Pure(SMALL)) >= FIRST_ORDER
    choice = selection_mechanism_for(SMALL, sensitivity=1, candidates=10, terms=LIFE)
    assert isinstance(choice, Exponential)
    assert choice.epsilon > Fraction(17, 10) * SMALL


@pytest.mark.parametrize("epsilon", [SMALL, LARGE])
@pytest.mark.parametrize("candidates", [2, 3, 10, 1000])
def test_it_costs_no_more_than_was_asked_and_errs_no_more_than_either(
    epsilon: Fraction, candidates: int
) -> None:
    choice = selection_mechanism_for(epsilon, sensitivity=3, candidates=candidates, terms=LIFE)
    place = binding_filter(LIFE, Pure(epsilon))
    assert LIFE.price(choice.loss).costs[place] <= LIFE.price(Pure(epsilon)).costs[place]
    error = worst_error(choice, candidates)
    assert error <= worst_error(PermuteAndFlip(epsilon, Fraction(3)), candidates)
    assert error <= worst_error(Exponential(epsilon, Fraction(3)), candidates)


def test_what_was_spent_moves_the_binding_filter() -> None:
    """A Rényi order that is used up no longer binds."""
    spent = [0] * len(LIFE.caps)
    spent[FIRST_ORDER:] = [cap + 1 for cap in LIFE.caps[FIRST_ORDER:]]
    assert binding_filter(LIFE, Pure(SMALL), spent=tuple(spent)) == EPSILON
    choice = selection_mechanism_for(SMALL, sensitivity=1, candidates=10, terms=LIFE, spent=tuple(spent))
    assert isinstance(choice, PermuteAndFlip)


def test_nothing_is_chosen_from_an_account_that_is_used_up() -> None:
    spent = tuple(cap + 1 for cap in LIFE.caps)
    with pytest.raises(BadParameter):
        selection_mechanism_for(SMALL, sensitivity=1, candidates=10, terms=LIFE, spent=spent)


@pytest.mark.parametrize("gap", [0.5, 2.0, 4.0])
def test_errors_are_those_of_the_exact_laws(gap: float) -> None:
    """Of three candidates: permute-and-flip by enumerating its coins."""
    p = math.exp(-gap)
    best = (1 - p) ** 2 + 2 * p * (1 - p) / 2 + p**2 / 3
    assert flip_error(gap, 2) == pytest.approx(gap * (1 - best))
    assert exponential_error(gap, 2) == pytest.approx(gap * 2 * p / (1 + 2 * p))


def test_the_worst_gap_is_among_those_looked_at() -> None:
    for candidates in (2, 10, 10_000):
        for error in (exponential_error, flip_error):
            finer = max(
                error(gap, candidates - 1) for gap in np.linspace(0.001, math.log(candidates) + 20, 20_000)
            )
            coarse = max(error(k * (math.log(candidates) + 3) / 400, candidates - 1) for k in range(1, 401))
            assert coarse == pytest.approx(finer, rel=1e-3)


def test_one_candidate_needs_no_error() -> None:
    assert worst_error(PermuteAndFlip(SMALL, Fraction(1)), 1) == 0
