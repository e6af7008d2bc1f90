"""Budgets: what is left, of whom, and in questions like this."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import OverBudget
from lapwing.server.data.budget_view import how_many_like, odds_of
from support.served import ANN, BOB, OFFICER, Served, asked, served, write_data


def test_what_is_left_is_what_the_ledger_says(visits: Served) -> None:
    before = visits.records.budget(ANN, "visits")
    assert [float(one) for one in (before.least.epsilon, before.epsilon, before.least.used)] == [10, 10, 0]
    visits.released()
    after = visits.records.budget(ANN, "visits")
    assert after.least.epsilon == visits.sets.require(ANN, "visits").left(ANN).epsilon == Fraction(19, 2)
    assert after.least.used == Fraction(1, 20)
    assert visits.records.budget(ANN, "visits") is after  # nothing was charged since
    assert after.forecast is None  # of a day
    visits.released(BOB)
    assert visits.records.budget(ANN, "visits").least.epsilon == 9


def test_quotas_are_seen_by_their_owner_and_by_those_who_see_all(tmp_path: Path) -> None:
    write_data(
        tmp_path, after='[analysts.ann]\nepsilon = 1\ndelta = 0\n[analysts."*"]\nepsilon = 2\ndelta = 0\n'
    )
    with served(tmp_path) as found:
        for _ in range(2):
            people = [(one.name, float(one.of)) for one in found.records.budget(OFFICER, "visits").people]
            assert people == [("ann", 1), ("*", 2)]
            assert [one.name for one in found.records.budget(ANN, "visits").people] == ["ann"]
            assert [one.name for one in found.records.budget(BOB, "visits").people] == ["*"]
            found.released()
        assert found.records.budget(ANN, "visits").people[0].epsilon == Fraction(1, 2)


def test_so_many_more_questions_fit_and_not_one_more(tmp_path: Path) -> None:
    write_data(tmp_path, after="[analysts.ann]\nepsilon = 2\ndelta = 0\n")
    with served(tmp_path) as found:
        made = found.plans.make(ANN, "visits", asked(epsilon="0.5", fresh=True))
        assert how_many_like(made.plan.session, made.plan) == 4
        for left in (3, 2, 1, 0):
            found.released(question=asked(epsilon="0.5", fresh=True))
            assert how_many_like(made.plan.session, made.plan) == left
        with pytest.raises(OverBudget):
            found.released(question=asked(epsilon="0.5", fresh=True))


def test_odds_are_those_of_the_explanation() -> None:
    part, fact = odds_of(Fraction(1), Fraction(0))
    assert "2.72 : 1" in part
    assert "7.39 : 1" in fact
