from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from lapwing.audit.attacks.attack_result import SuccessCount
from lapwing.audit.laws import SLACK, dec, independent, laplace, log_ratio
from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.core.conversions import best_renyi_epsilon
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Pure, Repeated
from lapwing.errors import OverBudget
from lapwing.mechanisms import Laplace
from lapwing.show.adaptive_answers import ask_adaptively, fixed_epsilon, least_lifetime
from lapwing.show.guessing import best_guess, counts_up_to
from lapwing.show.personal_losses import spend_by_person
from support.shown import TopicRun
from support.streams import SeededStream


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(2101))


# The best guess


@pytest.mark.parametrize("reports", [1, 2, 3, 4, 7])
def test_the_best_guess_is_half_of_the_sum_of_the_greater_probabilities(reports: int) -> None:
    truth, total = Fraction(3, 4), Fraction(0)
    for told in product((True, False), repeat=reports):
        one, other = (
            math.prod((truth if each == fact else 1 - truth for each in told), start=Fraction(1))
            for fact in (True, False)
        )
        total += max(one, other) / 2
    assert abs(best_guess(dec(truth), reports) - dec(total)) < SLACK


@pytest.mark.parametrize("most", [1, 2, 10, 1_000])
def test_counts_rise_from_one_to_the_last(most: int) -> None:
    counts = counts_up_to(most, 10)
    assert counts[0] == 1
    assert counts[-1] == most
    assert counts == sorted(set(counts))
    assert len(counts) <= 10


# Adding up


def test_the_sum_is_the_epsilon_of_the_joint_law() -> None:
    run = TopicRun.of("adding-up", epsilon="0.2", k="3")
    scale = Laplace.for_epsilon("0.2", l1=1).scale
    out, inside = (independent(*[laplace(scale, count, -4, 5)] * 3) for count in (0, 1))
    exact = log_ratio(out, inside)
    best = sum((max(out[each], inside[each]) for each in out), Decimal(0)) / 2
    answers, total, factor, limit, guess = run.table(0)[-1]
    assert answers == 3
    assert total == pytest.approx(float(exact)) == pytest.approx(0.6)
    assert factor == pytest.approx(math.exp(0.6))
    assert limit == pytest.approx(math.exp(0.6) / (1 + math.exp(0.6)))
    assert guess == pytest.approx(float(best), abs=1e-12)
    assert run.table(1)[0][1] == pytest.approx(0.2)


def test_adding_up_never_calls_a_limit_certain() -> None:
    run = TopicRun.of("adding-up", epsilon="1", k="100")
    assert "can be right in almost all cases" in run.text
    assert "more than 99.9 %" in run.text


# Adaptive


def test_the_least_lifetime_agrees_with_a_ledger_that_is_asked_one_by_one() -> None:
    """An ε of 3 and a δ of 1e-6 admit 38 or 39 Laplace answers at 0.1: the design's own table says so."""
    loss, delta = Laplace.for_epsilon("0.1", l1=1).loss, Fraction(1, 10**6)
    budget = PrivacyFilter(Terms.of(3, delta))
    charge, admitted = budget.terms.price(loss), 0
    with suppress(OverBudget):
        while True:
            budget.admit(charge)
            admitted += 1
    assert admitted in (38, 39)
    assert least_lifetime(loss, admitted, delta) <= 3 * 1.001
    assert least_lifetime(loss, admitted + 1, delta) > 3 * 0.999
    assert least_lifetime(loss, 5, delta) == pytest.approx(0.5, rel=2e-3), "adding up is the least here"


@pytest.mark.parametrize(("price", "answers"), [("0.1", 1), ("0.1", 12), ("0.5", 7), ("0.02", 400)])
def test_prices_that_are_fixed_beforehand_have_the_exact_epsilon(price: str, answers: int) -> None:
    """Beside the second accountant's distribution, which is pessimistic by its grid (1e-4 of a step)."""
    delta = Fraction(1, 10**6)
    loss = Laplace.for_epsilon(price, l1=1).loss
    found = fixed_epsilon(Fraction(price), answers, delta)
    run = FixedRun.of((loss, answers), delta=delta)
    assert found <= float(run._pair[0]) <= found * 1.003 + 1e-4
    assert found <= float(best_renyi_epsilon(Repeated(loss, answers), delta)) * (1 + 1e-9)


def test_the_ledger_is_between_the_fixed_prices_and_the_sum() -> None:
    run = TopicRun.of("adaptive")
    for answers, added, ledger, fixed in run.table(0):
        assert added == pytest.approx(answers * 0.05)
        assert fixed <= ledger * 1.002
        assert ledger <= added * 1.002
    curve = [row[2] for row in run.table(1)]
    assert curve == sorted(curve, reverse=True), "a smaller δ never needs less ε"


def test_an_adaptive_analyst_is_stopped_by_the_budget() -> None:
    price, terms = Fraction(1, 10), Terms.of(2, "1e-6")
    asked = ask_adaptively(terms.epsilon, terms.delta, price)
    prices = [Fraction(round(row[2] * 10), 10) for row in asked.rows]
    budget = PrivacyFilter(terms)
    for one in prices:
        budget.admit(terms.price(Pure(one)))
    before = asked.rows[-1]
    last = 4 * price if prices[-1] == price and abs(before[3] - 500) < 3 / before[2] else price
    with pytest.raises(OverBudget):
        budget.admit(terms.price(Pure(last)))
    for row, later in zip(asked.rows, prices[1:], strict=False):
        is_near = abs(row[3] - 500) < 3 / row[2] and row[2] == pytest.approx(0.1)
        assert later == (4 * price if is_near else price)
    assert set(prices) == {price, 4 * price}
    assert "is left" in asked.refusal


# Per person


def test_a_person_loses_what_was_charged_to_the_blocks_of_that_person() -> None:
    price, months = Fraction(1, 8), 5
    found, refusal = spend_by_person(price, 10, months, lambda _, __: None)
    assert len(found) == 10
    for person in found:
        # A month is among the three newest in its own month and in the two after it.
        times = 0 if person.month is None else min(3, months - person.month + 1)
        assert person.clinic == times * price
        assert person.school == (2 * price if person.is_at_school else 0)
    assert [(one.month is None, one.is_at_school) for one in found[:4]] == [
        (False, True), (False, False), (True, True), (True, False),
    ]  # fmt: skip
    assert found[3].total == 0
    assert "used up" in refusal


def test_the_losses_of_two_data_sets_are_shown_as_a_sum() -> None:
    run = TopicRun.of("per-person", n="4", months="4")
    for row in run.table(0):
        assert row[5] == pytest.approx(row[3] + row[4])


# Trials and the daily reset


def test_trials_without_a_budget_expose_everybody() -> None:
    run = TopicRun.of("trials", n="10", epsilon="0.5")
    assert run.table(0)[-1][0] == 10_000
    assert run.table(0)[-1][2] == 1, "wrong with a probability of about 2e-3 for one of ten people"
    assert run.table(0)[0][5] == pytest.approx(math.exp(0.5) / (1 + math.exp(0.5)))
    _, people, _, rate, interval, _ = run.table(0)[-1]
    measured = SuccessCount(round(people * rate), people)
    assert interval == f"{100 * measured.low:.1f} to {100 * measured.high:.1f} %"
    assert f"{100 * rate:.1f} % (95 % interval {interval})" in run.text, (
        "it may lie above the limit by chance"
    )
    assert "broke" not in run.text
    assert run.reported == [(0, 10), (10, 10)]


def test_a_daily_budget_adds_up_and_a_lifetime_budget_does_not() -> None:
    run = TopicRun.of("daily-reset", n="10", days="3")
    p = math.e / (1 + math.e)
    assert [row[:2] for row in run.table(0)] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [row[2] for row in run.table(0)] == pytest.approx([p, p, p**3 + 3 * p**2 * (1 - p)])
    assert [row[4] for row in run.table(0)] == pytest.approx([p] * 3)
    assert len({row[3] for row in run.table(1)}) == 1, "one report for life: nothing more is ever learnt"
    assert "broke" not in run.text
