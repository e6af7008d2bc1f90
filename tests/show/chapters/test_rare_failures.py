"""The numbers of the chapter "Rare failures", beside facts that are computed in another way."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.stats import norm

from lapwing.mechanisms import Gaussian
from lapwing.show.chapters.rare_failures import gaussian_events, laplace_events, noise_of
from support.shown import numbers, shown
from support.slowly import slow


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-3"), ("1", "1e-5"), ("5", "1e-9")])
def test_the_area_of_the_gaussian_is_delta_and_that_of_laplace_is_0(epsilon: str, delta: str) -> None:
    rows = shown("delta-area", epsilon=epsilon, delta=delta).tables[0].rows
    (_, laplace, gaussian), *_ = [row for row in rows if row[0] == float(epsilon)]
    assert laplace == 0
    # σ is the least with six digits that needs no more than δ.
    assert 0.999 * float(delta) <= numbers(gaussian)[0] <= float(delta)
    at_zero = rows[0]
    # At ε = 0 the area is the total variation distance.
    e = float(epsilon)
    assert at_zero[1] == pytest.approx((math.exp(e) - 1) / (math.exp(e) + 1))


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-6"), ("1", "1e-4"), ("5", "0.1")])
def test_the_event_that_needs_delta_needs_exactly_delta(epsilon: str, delta: str) -> None:
    one = shown("telling-event", epsilon=epsilon, delta=delta)
    laplace, best, rarer, ends = one.tables[0].rows
    factor = math.exp(float(epsilon))
    assert laplace[4] == pytest.approx(factor)
    with_you, without_you, ratio = numbers(*best[2:])
    assert with_you - factor * without_you == pytest.approx(float(delta), rel=1e-3)
    assert numbers(rarer[4])[0] > ratio > factor
    assert 0.9 * float(delta) <= numbers(ends[2])[0] <= float(delta)
    assert ends[3:] == (0, math.inf)


def test_tail_events_are_those_of_the_laws() -> None:
    scale = Fraction(2)
    for event in laplace_events(scale, Fraction(1, 1000)):
        for count, chance in ((1, event.with_you), (0, event.without_you)):
            q = math.exp(-1 / scale)
            law = sum(q ** abs(k - count) * (1 - q) / (1 + q) for k in range(event.least, 200))
            assert chance == pytest.approx(law)
    sigma = Gaussian.for_budget("0.1", "1e-6", l2_squared=1, dimension=1).sigma
    for event in gaussian_events(sigma, Fraction(1, 10**6))[::20]:
        # For wide noise a sum over whole numbers is the integral from half a step before them.
        assert event.without_you == pytest.approx(norm.sf((event.least - 0.5) / float(sigma)), rel=1e-3)
        assert event.with_you == pytest.approx(norm.sf((event.least - 1.5) / float(sigma)), rel=1e-3)


def test_gaussian_noise_grows_with_the_root_of_k_and_laplace_noise_with_k() -> None:
    """A measured deviation over 20,000 draws is off by 10 % with probability below 1e-8."""
    few, many = (noise_of(k, Fraction(1), Fraction(1, 10**6)) for k in (100, 10_000))
    assert many.laplace / few.laplace == pytest.approx(100, rel=1e-3)
    assert many.gaussian / few.gaussian == pytest.approx(10, rel=1e-2)
    for one in (few, many):
        assert one.laplace_drawn == pytest.approx(one.laplace, rel=0.1)
        assert one.gaussian_drawn == pytest.approx(one.gaussian, rel=0.1)


def test_a_few_numbers_are_better_with_laplace_noise_and_the_text_says_so() -> None:
    assert "Laplace noise is the smaller one for all sizes up to 10" in " ".join(
        shown("many-numbers", k=10, delta="1e-12").sentences
    )


@pytest.mark.parametrize(("epsilon", "delta", "first"), [("1", "1e-6", 10), slow("5", "1e-6", 14)])
def test_the_turn_is_the_first_number_where_gaussian_noise_is_smaller(
    epsilon: str, delta: str, first: int
) -> None:
    for k, is_smaller in ((first - 1, False), (first, True)):
        q = math.exp(-float(epsilon) / k)
        sigma = Gaussian.for_budget(epsilon, delta, l2_squared=k, dimension=k).sigma
        assert (float(sigma) < math.sqrt(2 * q) / (1 - q)) is is_smaller
    found = shown("many-numbers", epsilon=epsilon, delta=delta, k=30)
    assert f"from {first} numbers on" in " ".join(found.sentences)
