"""Published figures: each with its unit, its period and its source, and consistent with one another."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.show.deployments import A_YEAR, PUBLISHED, PublishedEpsilon


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: f"{one.who}: {one.release}")
def test_each_figure_has_a_unit_a_period_and_a_source_with_its_year(one: PublishedEpsilon) -> None:
    assert one.unit
    assert one.period in A_YEAR
    assert re.search(r"\((20[12]\d)\)", one.source)
    assert 0 < one.epsilon < 100
    assert 0 <= one.delta < 1e-4
    assert one.least is None or one.least < one.epsilon
    assert one.in_a_year >= one.epsilon


@pytest.mark.parametrize(
    ("release", "rho"),
    [
        ("redistricting, persons", "2.56"),
        ("redistricting, housing units", "0.07"),
        ("housing characteristics, persons", "4.96"),
    ],
)
def test_the_figures_of_the_census_follow_from_its_published_rho(release: str, rho: str) -> None:
    """ρ was published with two digits, and ε by a tight conversion, or by ρ + 2 √(ρ ln 1/δ)."""
    [one] = [one for one in PUBLISHED if one.release == release]
    assert one.delta == 1e-10
    least, most = Fraction(rho) - Fraction(1, 200), float(rho) + 0.005
    tight = float(zcdp_to_epsilon(least, Fraction(1, 10**10)))
    assert tight - 0.01 <= one.epsilon <= most + 2 * math.sqrt(most * math.log(1e10)) + 0.01


def test_a_daily_epsilon_adds_up() -> None:
    [apple] = [one for one in PUBLISHED if "macOS" in one.release]
    assert (apple.epsilon, apple.in_a_year) == (16, 365 * 16)
    [gboard] = [one for one in PUBLISHED if one.least is not None]
    assert gboard.shown == "0.994 to 13.69"
