"""A gate that reads too early, admits too much or forgets is found; Lapwing's own holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget, StageResult
from lapwing.audit.registry.gate import gate_cases
from lapwing.core import budget
from lapwing.errors import OverBudget
from lapwing.learn.payer import LedgerPayer
from lapwing.ledger import charging, sqlite_store
from lapwing.ledger.gate import ChargedRelease, Gate, Work
from lapwing.sql import releasing
from lapwing.sql.earlier_answers import EarlierAnswers
from lapwing.sql.releasing import ReleaseSession
from lapwing.survey import offered, respondent

CASES = {case.name: case for case in gate_cases()}
GATE, QUESTIONS, DEVICE = (
    CASES[name] for name in ("ledger: the gate", "ledger: questions", "survey: a device's account")
)


def result(case: AuditCase) -> StageResult:
    return case.stages[Stage.REPLAY](StageBudget(is_thorough=False))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_lapwing_holds(case: AuditCase) -> None:
    assert result(case).holds


@pytest.mark.parametrize("case", [GATE, QUESTIONS])
def test_work_that_begins_before_its_charge_is_found(
    monkeypatch: pytest.MonkeyPatch, case: AuditCase
) -> None:
    release = Gate.release

    def early(self: Gate, planned: ChargedRelease, **options: Any) -> Any:
        found = planned.run()
        return release(self, ChargedRelease(planned.spending, lambda: found), **options)

    monkeypatch.setattr(Gate, "release", early)
    witness = result(case).witness
    assert witness is not None
    assert "before" in witness.event


def test_a_filter_that_admits_one_charge_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    release, spared = Gate.release, set[int]()

    def generous(self: Gate, planned: ChargedRelease, **options: Any) -> Any:
        try:
            return release(self, planned, **options)
        except OverBudget:
            if id(self) in spared:
                raise
            spared.add(id(self))

    monkeypatch.setattr(Gate, "release", generous)
    witness = result(GATE).witness
    assert witness is not None
    assert "fit" in witness.event


def _forgets_the_report(state: Any) -> None:
    for memo in state.memos.values():
        memo.pop("report", None)


def _forgets_the_price(state: Any) -> None:
    for memo in state.memos.values():
        memo["price"] = 0


@pytest.mark.parametrize("forget", [_forgets_the_report, _forgets_the_price])
def test_a_device_that_forgets_is_found(
    monkeypatch: pytest.MonkeyPatch, forget: Callable[[Any], None]
) -> None:
    store = respondent.DeviceState.store

    def forgetful(self: Any) -> None:
        forget(self)
        store(self)

    monkeypatch.setattr(respondent.DeviceState, "store", forgetful)
    assert result(DEVICE).witness is not None


def test_an_answer_that_is_not_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charging, "store_answer", lambda _ledger, receipt, _answer: receipt)
    assert result(GATE).witness is not None


def test_a_stored_answer_that_gets_new_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ReleaseSession._answer

    def noised_again(self: Any, plan: Any, noisy: Any, receipt: Any, *, is_replay: bool) -> Any:
        if is_replay:
            noisy = [replace(one, parts=tuple(part + 1 for part in one.parts)) for one in noisy]
        return shown(self, plan, noisy, receipt, is_replay=is_replay)

    monkeypatch.setattr(ReleaseSession, "_answer", noised_again)
    witness = result(QUESTIONS).witness
    assert witness is not None
    assert "another answer" in witness.event


def test_an_answer_that_is_made_anew_each_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "readable_answers", lambda *_: [])
    monkeypatch.setattr(EarlierAnswers, "find", lambda *_: ([], None))
    assert result(QUESTIONS).witness is not None


def test_failed_work_that_gives_its_reservation_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Work.settle

    def given_back(self: Work, **_: Any) -> None:
        settle(self, stopping_was_decided_from_released_values=True)

    monkeypatch.setattr(Work, "settle", given_back)
    witness = result(GATE).witness
    assert witness is not None
    assert "failed work" in witness.event


def test_a_device_that_draws_its_question_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    code = respondent._code

    def looks_at_all(survey: Any, place: int, answers: Any) -> int:
        assert all(one.name in answers for one in survey.questions)
        return code(survey, place, answers)

    monkeypatch.setattr(respondent, "_code", looks_at_all)
    witness = result(DEVICE).witness
    assert witness is not None
    assert "answers to 2" in witness.event


def test_steps_beyond_their_reservation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charging._Part, "move", lambda _self, costs: costs)
    monkeypatch.setattr(charging, "_move", lambda *_args, **_costs: None)
    witness = result(GATE).witness
    assert witness is not None
    assert "reservation of ε 1/2" in witness.event


def test_a_price_that_is_rounded_down_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "round_up", lambda value, unit: int(value * unit))
    witness = result(GATE).witness
    assert witness is not None
    assert "charged less" in witness.event


def test_a_reservation_that_charges_may_take_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_DEBIT_ONE", "_DEBIT_RANGE", "_DEBIT_MANY"):
        sql = getattr(sqlite_store, name)
        with monkeypatch.context() as patched:
            patched.setattr(sqlite_store, name, re.sub(r" - held_\d", "", sql))
            witness = result(GATE).witness
            assert witness is not None
            assert "reservation" in witness.pair


def test_a_device_that_charges_one_of_two_questions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respondent, "read_offered", lambda public: halved(offered.read_offered(public)))
    witness = result(DEVICE).witness
    assert witness is not None
    assert "several questions" in witness.pair


def halved(survey: Any) -> Any:
    return replace(survey, price=survey.price // 2) if len(survey.questions) == 2 else survey


def test_training_that_runs_before_its_charge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pay = LedgerPayer.pay

    def early(self: LedgerPayer, loss: Any, run: Callable[[], bytes], **described: Any) -> Any:
        found = run()
        return pay(self, loss, lambda: found, **described)

    monkeypatch.setattr(LedgerPayer, "pay", early)
    witness = result(GATE).witness
    assert witness is not None
    assert "training" in witness.event
