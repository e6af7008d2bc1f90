"""The numbers of `lapwing explain`, beside formulas that are computed another way."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from lapwing.core.chances import odds_up, percent_down, percent_up
from lapwing.core.explanation import Explanation, explain
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter

EPSILONS = ["0.01", "0.1", "0.5", "1", "3", "10"]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_odds_and_posteriors_follow_bayes(epsilon: str) -> None:
    it = explain(epsilon, "1e-6", 10_000)
    assert [moved.steps for moved in it.beliefs] == [1, 2]  # that you took part; a fact about you
    for moved in it.beliefs:
        factor = (moved.steps * Decimal(epsilon)).exp()
        assert moved.odds_factor is not None
        assert 0 <= Decimal(moved.odds_factor) / factor - 1 < Decimal("1e-15")
        for guess in moved.guesses:
            prior = Decimal(repr(guess.before))
            odds = prior / (1 - prior)
            top, bottom = factor * odds, odds / factor
            assert guess.at_most == pytest.approx(float(top / (1 + top)), rel=1e-14)
            assert guess.at_least == pytest.approx(float(bottom / (1 + bottom)), rel=1e-14)
            # Rounded outwards: the true bound never lies outside what is said.
            assert Decimal(guess.at_most) >= top / (1 + top) - Decimal("1e-25")
            assert Decimal(guess.at_least) <= bottom / (1 + bottom) + Decimal("1e-25")


def test_even_odds_give_the_bounds_of_the_foundations() -> None:
    took_part, fact = explain(1, 0, 100).beliefs
    even = took_part.guesses[-1]
    assert even.before == 0.5
    assert even.at_least == pytest.approx(1 / (math.e + 1))
    assert even.at_most == pytest.approx(math.e / (math.e + 1))
    assert "that you took part can rise to at most 2.72 : 1" in took_part.odds
    assert "at most 73.2 %" in took_part.odds
    assert "that something is true of you can rise to at most 7.39 : 1" in fact.odds
    assert "at most 88.1 %" in fact.odds


def test_a_fact_about_a_person_is_bounded_by_two_steps_unless_neighbours_replace() -> None:
    def most(relation: Relation) -> list[str]:
        return [
            percent_up(one.guesses[-1].at_most) for one in explain("0.1", 0, 10, relation=relation).beliefs
        ]

    assert most(Relation.ADD_REMOVE) == ["52.5 %", "55 %"]
    assert most(Relation.REPLACE) == ["52.5 %"]  # who took part is public there


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_laplace_interval_is_the_least_that_holds(epsilon: str) -> None:
    it = explain(epsilon, 0, 1000)
    (count,) = it.counts
    q = math.exp(-float(epsilon))

    def miss(width: int) -> float:
        return 2 * q ** (width + 1) / (1 + q)

    assert miss(count.within) <= 0.05
    assert count.within == 0 or miss(count.within - 1) > 0.05
    assert count.share == count.within / 1000


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_the_gaussian_noise_is_near_the_continuous_formula(epsilon: str) -> None:
    e, delta = float(epsilon), 1e-6

    def excess(sigma: float) -> float:
        r = 1 / sigma
        return float(norm.cdf(r / 2 - e / r) - math.exp(e) * norm.cdf(-r / 2 - e / r)) - delta

    sigma = brentq(excess, 0.1, 1000)
    gaussian = explain(epsilon, "1e-6", 1000).counts[1]
    assert gaussian.size == pytest.approx(sigma, rel=0.01)
    assert gaussian.within == pytest.approx(1.96 * sigma, abs=1)


def test_wide_gaussian_noise_is_bounded_without_summing() -> None:
    gaussian = explain("0.0001", "1e-6", 10**9).counts[1]
    assert gaussian.size > 10_000
    # The whole numbers above w weigh what the integral from w + ½ does, to far less than a step.
    assert norm.sf((gaussian.within + 0.5) / gaussian.size) * 2 <= 0.05
    assert norm.sf((gaussian.within - 1.5) / gaussian.size) * 2 > 0.05


def test_lifetimes_count_what_fits() -> None:
    pure = explain("0.5", 0, 1000)
    assert [(life.epsilon, life.laplace, life.gaussian) for life in pure.lifetimes] == [
        (1, 2, None),
        (3, 6, None),
        (10, 20, None),
    ]
    small = explain("0.01", "1e-6", 10**6).lifetimes[0]
    assert 400 <= small.laplace <= 487  # more than the 100 of adding up, no more than zCDP allows
    assert all(life.laplace == 0 for life in explain(20, 0, 10).lifetimes)


def test_a_delta_above_a_tenth_of_one_over_n_is_warned_of() -> None:
    assert not explain(1, "1e-5", 10_000).warnings  # exactly 1/(10 n)
    (warning,) = explain(1, "1.01e-5", 10_000).warnings
    assert "above 1/(10 n), which is 1e-5" in warning


@pytest.mark.parametrize(
    ("epsilon", "words"), [("100", "next to nothing"), ("0.0001", "2^-80"), ("0.5", "strong")]
)
def test_advice_says_what_is_sensible(epsilon: str, words: str) -> None:
    it = explain(epsilon, 0, 10**9)
    assert it.advice.startswith("Sensible values lie between 0.1 and a few.")
    assert words in it.advice
    assert bool(it.warnings) is (epsilon == "100")


def test_noise_that_drowns_the_answer_is_warned_of() -> None:
    assert any("says little" in warning for warning in explain("0.01", 0, 100).warnings)


def test_delta_is_said_in_odds() -> None:
    told = explain(1, "1e-6", 100).delta_means
    assert "at most 1 in 1,000,000 cases" in told
    assert "at most 1 in 268,941 cases, (1 + e^ε) δ" in told
    assert "(1 + e^ε)" not in explain(1, "1e-6", 100, relation=Relation.REPLACE).delta_means
    assert "without exception" in explain(1, 0, 100).delta_means


def test_it_says_what_is_not_promised() -> None:
    assert any("smoking causes cancer" in line for line in explain(1, 0, 10).not_promised)


@pytest.mark.parametrize(
    ("epsilon", "delta", "n", "name"),
    [
        ("nan", 0, 10, "epsilon"),
        (math.inf, 0, 10, "epsilon"),
        (0, 0, 10, "epsilon"),
        (-1, 0, 10, "epsilon"),
        ("1e999", 0, 10, "epsilon"),
        (1001, 0, 10, "epsilon"),
        (1, -1e-9, 10, "delta"),
        (1, 1, 10, "delta"),
        (1, "1e-19", 10, "delta"),
        (1, "x", 10, "delta"),
        (1, 0, 0, "n"),
        (1, 0, 10**16, "n"),
    ],
)
def test_bad_parameters_are_named(epsilon: float, delta: float, n: int, name: str) -> None:
    with pytest.raises(BadParameter) as caught:
        explain(epsilon, delta, n)
    assert caught.value.name == name


@pytest.mark.parametrize("epsilon", ["1e-9", "1000"])
@pytest.mark.parametrize("delta", ["0", "1e-18", "0.999999"])
def test_the_corners_have_an_answer(epsilon: str, delta: str) -> None:
    it = explain(epsilon, delta, 1)
    assert isinstance(it, Explanation)
    for moved in it.beliefs:
        assert (moved.odds_factor is None) is (epsilon == "1000")
        for guess in moved.guesses:
            assert 0 <= guess.at_least <= guess.before <= guess.at_most <= 1


@pytest.mark.parametrize(
    ("share", "up", "down"),
    [
        (0.01, "1 %", "1 %"),
        (0.62245933, "62.3 %", "62.2 %"),
        (0.99995460, "99.9955 %", "99.9954 %"),
        (0.0, "0 %", "0 %"),
        (1.0, "100 %", "100 %"),
        (0.000123456, "0.013 %", "0.012 %"),
        (25.5, "2,550 %", "2,550 %"),
    ],
)
def test_percentages_are_rounded_the_safe_way(share: float, up: str, down: str) -> None:
    assert Decimal(up[:-2].replace(",", "")) / 100 >= Decimal(repr(share))
    assert Decimal(down[:-2].replace(",", "")) / 100 <= Decimal(repr(share))
    assert (percent_up(share), percent_down(share)) == (up, down)


def test_odds_are_rounded_up() -> None:
    assert odds_up(Fraction(16487, 10000)) == "1.65"
    assert odds_up(Fraction(14841, 100)) == "149"
    assert odds_up(Fraction(22026, 1)) == "22,026"
    assert odds_up(Fraction(10**12 + 1)) == "1.01e12"
