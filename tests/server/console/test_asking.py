"""The form of the page Ask, refusals and prices, as values."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget
from lapwing.server.console import asking
from lapwing.server.console.chooser import Chooser
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.question.refusal import Refused
from support.served import COUNT, write_data

SHOWN = Chooser("epsilon", "75", "± 75", "n", "0.2", "55", "", None, can_set_within=True)


def test_the_field_that_was_changed_leads() -> None:
    shown = {"sql": "q", "within": "75", "epsilon": "0.2", "odds": "55"}
    for name, value in (("within", "50"), ("epsilon", "0.3"), ("odds", "60")):
        form = asking.AskForm.read({**shown, name: value}, SHOWN)
        assert (form.leads, form.value) == (name, value)
    assert asking.AskForm.read(shown, SHOWN).leads == "epsilon"
    within_led = asking.AskForm.read({"sql": "q", "within": "75"}, None)
    assert (within_led.leads, within_led.value) == ("within", "75")
    assert asking.AskForm.read({"sql": "q"}, None).value == asking.FIRST_EPSILON


def test_a_correction_replaces_text_or_price() -> None:
    form = asking.AskForm.read({"sql": "old", "use_sql": "new\r\nline", "epsilon": "0.2"}, None)
    assert form.sql == "new\nline"
    form = asking.AskForm.read({"sql": "q", "epsilon": "9", "use_epsilon": "0.7"}, SHOWN)
    assert (form.leads, form.value) == ("epsilon", "0.7")


def test_odds_become_an_epsilon_that_keeps_them() -> None:
    question = asking.AskForm("q", "odds", "55").question()
    assert question["sql"] == "q"
    assert 0.2 < float(question["epsilon"]) < 0.201
    with pytest.raises(BadParameter):
        asking.AskForm("q", "odds", "many").question()


def test_options_stay_with_the_question() -> None:
    form = asking.AskForm.read({"sql": "q", "epsilon": "1", "confidence": "0.9", "fresh": "yes"}, None)
    assert form.question() == {"sql": "q", "epsilon": "1", "confidence": "0.9", "fresh": True}


def test_a_refusal_says_first_that_nothing_was_charged() -> None:
    for error in (
        Refused("rows are never shown", "write COUNT(*)"),
        BadParameter("epsilon", "must be above 0"),
        OverBudget("ε 9", "ε 3 of 10", "Ask with less."),
    ):
        refusal = asking.refusal_of(error)
        assert refusal.title.endswith("Nothing was charged.")
        assert refusal.code == error.code
        assert refusal.why


def test_the_least_of_quota_and_budget_is_what_is_left() -> None:
    quota = BudgetLeft(Fraction(2), Fraction(3), Fraction(0))
    assert asking.room_for(quota) == (Fraction(2), Fraction(3), "")
    assert asking.room_for(BudgetLeft(Fraction(1), Fraction(9), Fraction(0), quota)) == (
        Fraction(1),
        Fraction(3),
        " for you",
    )


def test_what_is_left_is_offered_only_where_it_is_sold(tmp_path: Path) -> None:
    """Several aggregates that share an ε cost less than it: the least that is sold of them is more."""
    many = ", ".join(f"SUM(stay + {n})" for n in range(6))
    with Dataset(Curator(load_policy(write_data(tmp_path))), analyst="ann", closes=True) as dataset:
        for sql in (COUNT, f"SELECT {many}, MEDIAN(stay) FROM visits"):
            plan = dataset.plan(sql, epsilon=1, noise="gaussian")
            for room in (Fraction(1, 100), Fraction(3, 100), Fraction(1, 10), Fraction(1, 2)):
                for fix in asking.over_budget(plan, room, Fraction(10)).fixes:
                    dataset.plan(sql, epsilon=fix.value, noise="gaussian")
        assert len(asking.over_budget(plan, Fraction(9), Fraction(10)).fixes) == 2
        assert asking.over_budget(plan, Fraction(1, 100), Fraction(10)).fixes == ()


def test_lines_that_go_and_come_have_signs() -> None:
    lines = asking.diff_lines("a\nb\nc", "a\nB\nc")
    assert [(line.sign, line.text) for line in lines] == [("", "a"), ("-", "b"), ("+", "B"), ("", "c")]


def test_a_correction_has_the_lines_that_the_person_had() -> None:
    one = "SELECT ward, COUNT(*) AS n FROM visits WHERE stay > 2 GROUP BY ward"
    assert asking.laid_out(one, "SELECT *\nFROM visits").splitlines()[1:] == [
        "FROM visits",
        "WHERE stay > 2",
        "GROUP BY ward",
    ]
    assert asking.laid_out(one, "SELECT * FROM visits") == one
    quoted = "SELECT COUNT(*) FROM visits WHERE ward = 'x FROM y'"
    assert asking.laid_out(quoted, "a\nb") == quoted
