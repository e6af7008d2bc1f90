"""The power of canaries: what one run can be expected to show."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.audit.stages.canaries import OneRun, audit_one_run
from lapwing.audit.stages.canary_power import (
    best_expected_bound,
    expected_bound,
    gaussian_ratio,
    guess_accuracy,
    shown_bound,
    smallest_caught,
)
from lapwing.core.conversions import largest_rho
from lapwing.core.noise import discrete_gaussian

DELTA, ERROR = Fraction(1, 10**6), Fraction(1, 20)


@pytest.mark.parametrize(("claimed", "expected"), [(1, 0.31), (3, 1.2), (8, 3.1)])
def test_the_bound_to_be_expected_is_far_below_the_claim(claimed: int, expected: float) -> None:
    """5,000 canaries at 95 %. The figures are of noise sized by zCDP; the least noise shows more."""
    sized = math.sqrt(1 / (2 * largest_rho(Fraction(claimed), DELTA)))
    found = max(
        expected_bound(sized, canaries=5000, guesses=guesses, delta=DELTA, error=ERROR)
        for guesses in range(100, 600, 20)
    )
    assert found == pytest.approx(expected, rel=0.03)
    best, _ = best_expected_bound(Fraction(claimed), canaries=5000, delta=DELTA, error=ERROR)
    assert best == pytest.approx(expected, rel=0.1)
    assert best > found


@pytest.mark.parametrize(("guesses", "right"), [(100, 90), (400, 260), (1000, 100), (1000, 999)])
@pytest.mark.parametrize("delta", [Fraction(0), DELTA])
def test_floats_show_what_balls_show(guesses: int, right: int, delta: Fraction) -> None:
    exactly = OneRun(Fraction(1), delta, ERROR, 1000, guesses, right).at_least
    assert shown_bound(1000, guesses, right, delta, ERROR) == pytest.approx(exactly, abs=1e-4)


def test_the_accuracy_is_that_of_normal_scores() -> None:
    rng = np.random.default_rng(1)
    included = rng.random(1_000_000) < 0.5
    scores = included + 2.0 * rng.normal(size=1_000_000)
    order = np.argsort(scores)
    right = (~included[order[:50_000]]).sum() + included[order[-50_000:]].sum()
    assert guess_accuracy(2.0, 1_000_000, 100_000) == pytest.approx(right / 100_000, abs=0.01)


def test_a_release_that_could_be_shown_is_shown() -> None:
    """At the least ε that is caught in 95 % of runs: 12 misses in 20 have a probability below 1e-9."""
    claimed, error = Fraction(1), Fraction(1, 100)
    fixed = OneRun(claimed, DELTA, error, 1000, 300, 300)
    caught = smallest_caught(fixed.least_right, canaries=1000, guesses=300, delta=DELTA)
    sigma = Fraction(gaussian_ratio(Fraction(caught).limit_denominator(10**6), DELTA)) * 1000
    results = [
        audit_one_run(
            lambda included: (1000 * included + discrete_gaussian(sigma, 1000)).astype(float),
            canaries=1000, guesses=300, claimed=claimed, delta=DELTA, error=error,
        ).holds
        for _ in range(20)
    ]  # fmt: skip
    assert results.count(True) < 12


def test_pure_privacy_is_forecast_by_randomized_response() -> None:
    """With 1,000 guesses at ε = 1, all of the data is used, and the bound comes close."""
    best, guesses = best_expected_bound(Fraction(1), canaries=1000, delta=Fraction(0), error=ERROR)
    assert guesses == 1000
    assert 0.8 < best < 1
    caught = smallest_caught(760, canaries=1000, guesses=1000, delta=Fraction(0))
    assert 1.2 < caught < 1.5


def test_all_guesses_must_be_right_of_few() -> None:
    assert smallest_caught(2, canaries=10, guesses=2, delta=Fraction(0)) == pytest.approx(3.6, abs=0.1)
