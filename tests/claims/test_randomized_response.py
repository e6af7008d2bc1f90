"""Randomized response: every report within the claimed ratio, for any two true answers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from lapwing.audit.laws import SLACK, Law, dec, exp, independent, log_ratio, middle, total
from lapwing.core.randomized_response import RandomizedResponse
from support.cases import each
from support.exact_laws import renyi
from support.laws import follows
from support.streams import SeededStream


def response(truth: Decimal, options: int, answer: int) -> Law:
    other = (1 - truth) / (options - 1)
    return {report: truth if report == answer else other for report in range(options)}


def truth_at(epsilon: Fraction, options: int) -> Decimal:
    return exp(epsilon) / (exp(epsilon) + options - 1)


def as_decimal(ball: arb) -> Decimal:
    return Decimal(ball.str(60, radius=False))


@each("options", [2, 3, 7])
@each("epsilon", [Fraction(1, 100), Fraction(1), Fraction(5)])
def test_every_report_is_within_the_claimed_ratio(epsilon: Fraction, options: int) -> None:
    mechanism = RandomizedResponse.for_epsilon(epsilon, options=options)
    assert mechanism.loss.pure == epsilon
    truth = truth_at(epsilon, options)
    assert abs(as_decimal(mechanism.truth_probability()(200)) - truth) < SLACK
    laws = [response(truth, options, answer) for answer in range(options)]
    ratios = [log_ratio(one, other) for one in laws for other in laws if one is not other]
    assert all(abs(ratio - dec(epsilon)) < SLACK for ratio in ratios), "all pairs reach exactly ε"
    assert abs(total(laws[0]) - 1) < SLACK
    for order in (Fraction(3, 2), Fraction(9)):
        found = renyi(laws[0], laws[1], order)
        assert found <= middle(mechanism.loss.renyi(order)) + SLACK
        if options == 2:
            assert found >= middle(mechanism.loss.renyi(order)) - SLACK


@each(("truth", "options"), [("3/4", 2), ("0.51", 2), ("0.999999", 2), ("0.3", 4)])
def test_a_rational_truth_costs_its_log_odds_rounded_up(truth: str, options: int) -> None:
    mechanism = RandomizedResponse.for_truth(truth, options=options)
    exact = log_ratio(*(response(dec(Fraction(truth)), options, answer) for answer in (0, 1)))
    claimed = dec(mechanism.loss.epsilon)
    assert exact - SLACK <= claimed < exact + Decimal("1e-20")
    assert as_decimal(mechanism.truth_probability()(64)) == dec(Fraction(truth))


def test_m_questions_cost_m_epsilon() -> None:
    yes, no = response(Decimal("0.75"), 2, 1), response(Decimal("0.75"), 2, 0)
    three = log_ratio(independent(yes, yes, yes), independent(no, no, no))
    assert abs(three - 3 * Decimal(3).ln()) < Decimal("1e-20")
    assert RandomizedResponse.two_coins().loss.for_group(3).pure >= Fraction(three)


@pytest.mark.parametrize(
    ("mechanism", "truth"),
    [
        (RandomizedResponse.two_coins(), Decimal("0.75")),
        (RandomizedResponse.for_epsilon(1, options=2), truth_at(Fraction(1), 2)),
        (RandomizedResponse.for_epsilon(2, options=5), truth_at(Fraction(2), 5)),
    ],
)
def test_the_sampler_follows_the_law_that_was_compared(
    mechanism: RandomizedResponse, truth: Decimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(69))
    for answer in range(mechanism.options):
        reports = mechanism.sample(np.full(200_000, answer))
        law = response(truth, mechanism.options, answer)
        follows(reports, [law[i] for i in range(mechanism.options)])


def test_a_truth_barely_above_a_guess_has_a_wide_but_finite_spread() -> None:
    barely = RandomizedResponse.for_truth(Fraction(1, 2) + Fraction(1, 10**20))
    assert 1e19 < barely.spread("0.95", n=4) < 1e21
    assert 1e19 < barely.standard_error(4) < 1e21
