"""Forced draws: the law of a mechanism's own code is that of its description, and a wrong number shows."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from lapwing.audit import laws
from lapwing.audit.forced_draws import ForcedDraws, RealDraw, Scales
from lapwing.core import laplace, order_statistics, randomized_response, selection
from lapwing.core.losses import Relation
from support import exact_laws

CLOSE = Fraction(1, 10**40)


def same(one: laws.Law, other: laws.Law) -> bool:
    return one.keys() == other.keys() and all(abs(one[k] - other[k]) < CLOSE for k in one)


def test_choices_and_coins_follow_their_descriptions() -> None:
    draws = ForcedDraws()
    copy = draws.in_copy(selection)
    scores, rate = [0, 3, 1], Fraction(1, 2)
    for kind, law in (("Exponential", laws.exponential), ("PermuteAndFlip", laws.permute_and_flip)):
        mechanism = getattr(copy, kind).for_epsilon(1, sensitivity=1)
        assert same(draws.law(partial(mechanism.sample, scores)), law(scores, rate))


def test_a_quantile_and_a_report_follow_their_descriptions() -> None:
    draws = ForcedDraws()
    quantile = draws.in_copy(order_statistics).Quantile.for_epsilon(
        1, fraction="0.9", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1
    )
    data, rate = [2, 2, 7, 99], Fraction(1, 2) / Fraction(9, 10)
    found = draws.law(lambda: quantile.sample(np.array(data)))
    assert same(found, exact_laws.quantile(data, Fraction(9, 10), 0, 9, rate))
    response = draws.in_copy(randomized_response).RandomizedResponse.for_truth("2/3", options=4)
    found = draws.law(lambda: int(response.sample([2])[0]))
    assert same(found, laws.randomized_response(2, 4, laws.dec(Fraction(2, 3))))


def test_a_rate_that_only_the_sampler_has_wrong_shows() -> None:
    draws = ForcedDraws()
    copy = draws.in_copy(selection)
    honest = copy.exponential_choice
    copy.exponential_choice = lambda scores, rate: honest(scores, 2 * rate)
    mechanism = copy.Exponential.for_epsilon(1, sensitivity=1)
    assert same(draws.law(lambda: mechanism.sample([0, 3])), laws.exponential([0, 3], Fraction(1)))


def test_scales_are_those_that_reach_the_noise_and_the_module_is_not_touched() -> None:
    scales = Scales()
    copy = scales.in_copy(laplace)
    mechanism = copy.Laplace.for_epsilon("0.5", l1=3)
    assert scales.of_vector(lambda: mechanism.sample([4, 5])) == ([Fraction(6)] * 2, 1, [4, 5])
    shares = copy.LaplaceShares.for_epsilon(1, l1=1, of=3)
    assert scales.of_vector(lambda: shares.sample([0])) == ([Fraction(1)], 3, [0])
    noisy = laplace.Laplace.for_epsilon("0.001", l1=1).sample([0] * 100)
    assert np.count_nonzero(noisy) > 50


def test_real_randomness_inside_an_exact_law_is_refused() -> None:
    copy = ForcedDraws().in_copy(laplace)
    with pytest.raises(RealDraw, match="discrete_laplace"):
        copy.Laplace.for_epsilon(1, l1=1).sample([0])
    with pytest.raises(RealDraw, match="bernoulli_exp"):
        Scales().in_copy(selection).bernoulli_exp([1])


def test_a_path_that_leads_to_two_outcomes_is_refused() -> None:
    draws = ForcedDraws()
    counter = iter(range(100))
    with pytest.raises(RealDraw, match="another outcome"):
        draws.law(lambda: (int(draws.uniform_int(0, 2, 1)[0]), next(counter)))
