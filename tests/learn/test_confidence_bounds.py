"""Bounds of means and shares fail as rarely as they say, and rise and fall with the sums."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from lapwing.learn.confidence_bounds import mean_ceiling, mean_floor, share_ceiling, share_floor
from support.cases import each
from support.exact_verdicts import binomial, sums_law
from support.slowly import slow

RISK = Fraction(1, 20)
SLACK = 1e-12
LAWS = {
    "coin": [0.5, 0, 0, 0, 0.5],
    "rare": [0.97, 0, 0, 0, 0.03],
    "often": [0.1, 0, 0, 0, 0.9],
    "even": [0.2] * 5,
    "narrow": [0, 0.3, 0.5, 0.2, 0],
    "mostly nothing": [0.8, 0.1, 0.05, 0.03, 0.02],
}
sums = st.fractions(min_value=0, max_value=10**6, max_denominator=1000)
risks = st.fractions(min_value=Fraction(1, 10**6), max_value=Fraction(1, 2))


@each("one", LAWS.values())
@pytest.mark.parametrize("units", [1, 7, slow(60)])
@each("risk", [RISK, Fraction(1, 300)])
def test_the_ceiling_of_a_mean_is_rarely_too_low(one: list[float], units: int, risk: Fraction) -> None:
    mean = sum(k * p for k, p in enumerate(one)) / 4
    too_low = too_high = 0.0
    for total, weight in enumerate(sums_law(np.array(one), units)):
        own, rest = Fraction(total, 4), units - Fraction(total, 4)
        too_low += weight * (float(mean_ceiling(own, rest, risk)) < mean - SLACK)
        too_high += weight * (float(mean_floor(own, rest, risk)) > mean + SLACK)
    assert too_low <= risk
    assert too_high <= risk


@each("p", [0.003, 0.1, 0.5, 0.83, 0.999])
@each("n", [1, 10, 80])
def test_the_floor_of_a_share_is_rarely_too_high(n: int, p: float) -> None:
    law = binomial(n, p)
    too_high = sum(w for k, w in enumerate(law) if float(share_floor(k, n - k, RISK)) > p + SLACK)
    too_low = sum(w for k, w in enumerate(law) if float(share_ceiling(k, n - k, RISK)) < p - SLACK)
    assert too_high <= RISK
    assert too_low <= RISK


@each("n", [1, 5, 100, 1200, 10**5, 10**7])
@each("share", [0.0, 0.01, 0.5, 0.9, 1.0])
@each("risk", [RISK, Fraction(1, 10**6)])
def test_the_floor_of_a_share_is_clopper_and_pearsons(n: int, share: float, risk: Fraction) -> None:
    hits = round(n * share)
    found = share_floor(hits, n - hits, risk)
    if hits == 0:
        assert found == 0
        return
    wanted = beta.ppf(float(risk), hits, n - hits + 1)
    assert float(found) == pytest.approx(wanted, rel=1e-6)
    if n <= 1200:
        with mpmath.workdps(60):
            p = mpmath.mpf(found.numerator) / found.denominator
            tail = mpmath.betainc(hits, n - hits + 1, 0, p, regularized=True)
            assert tail <= mpmath.mpf(risk.numerator) / risk.denominator, "on the safe side"


@given(sums, sums, sums, sums, risks)
@settings(max_examples=40, deadline=None)
def test_more_of_x_raises_the_ceiling_and_more_of_the_rest_lowers_it(
    own: Fraction, rest: Fraction, more: Fraction, less: Fraction, risk: Fraction
) -> None:
    assert mean_ceiling(own, rest, risk) <= mean_ceiling(own + more, rest, risk)
    assert mean_ceiling(own, rest, risk) >= mean_ceiling(own, rest + less, risk)


@given(*[st.integers(0, 10**4)] * 4, risks)
@settings(max_examples=40, deadline=None)
def test_more_hits_raise_the_floor_and_more_misses_lower_it(
    hits: int, misses: int, more: int, less: int, risk: Fraction
) -> None:
    """Up to a billionth, which is where the search for it stops."""
    found = share_floor(hits, misses, risk)
    assert share_floor(hits + more, misses, risk) >= found * (1 - Fraction(1, 10**6))
    assert share_floor(hits, misses + less, risk) <= found * (1 + Fraction(1, 10**6))


@given(st.integers(1, 10**6), st.fractions(min_value=0, max_value=1, max_denominator=10**6), risks)
@settings(max_examples=40, deadline=None)
def test_the_ceiling_is_never_above_the_formulas_that_it_replaces(
    n: int, mean: Fraction, risk: Fraction
) -> None:
    """The issue's √(2 L a) + 2 a, the same solved exactly, and Hoeffding's."""
    found = float(mean_ceiling(n * mean, n * (1 - mean), risk))
    a, x = math.log(1 / risk) / n, float(mean)
    solved = x + a + math.sqrt(a * a + 2 * a * x)
    assert solved <= x + math.sqrt(2 * a * x) + 2 * a + SLACK
    assert found <= min(solved, x + math.sqrt(a / 2), 1.0) + SLACK


@each(("own", "rest"), [(0, 0), (5, 0), (5, -3), (-4, -4)])
def test_nothing_is_shown_by_too_little(own: int, rest: int) -> None:
    assert mean_ceiling(own, rest, RISK) == 1
    assert mean_floor(rest, own, RISK) == 0
    assert share_ceiling(own, rest, RISK) == 1
    assert share_floor(rest, own, RISK) == 0


def test_sums_below_nothing_count_as_nothing() -> None:
    assert mean_ceiling(-7, 50, RISK) == mean_ceiling(0, 50, RISK) < 1
    assert share_floor(50, -7, RISK) == share_floor(50, 0, RISK) > 0


def test_sums_as_large_as_they_can_be_are_judged() -> None:
    half = share_floor(1 << 61, 1 << 61, RISK)
    assert Fraction(1, 2) - Fraction(1, 10**8) < half < Fraction(1, 2)
