"""Plans: their owner's alone, and each spends once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Held, OverBudget, TokenSpent
from lapwing.server.data.plan_file import MOST_OF_A_PERSON, NAME, PlanFile
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.people.person import NotAllowed, NotFound, Requester, Role
from lapwing.sql.reading.reader import Reader
from support.served import ANN, BOB, STEWARD, STRANGER, Served, asked, person, served, write_data


def test_a_plan_is_free_and_its_release_spends_once(visits: Served) -> None:
    made = visits.plans.make(ANN, "visits", asked())
    assert made.plan.cost.epsilon == Fraction(1, 2)
    assert visits.charges() == 0
    first, again = visits.plans.release(ANN, made.id), visits.plans.release(ANN, made.id)
    assert (first.is_replay, again.is_replay, first.id) == (False, True, again.id)
    assert first.answer.to_arrow() == again.answer.to_arrow()
    assert visits.charges() == 1


def test_another_workers_plan_is_planned_again(visits: Served, tmp_path: Path) -> None:
    made = visits.plans.make(ANN, "visits", asked(confidence="0.9", rows=1))
    with served(tmp_path) as other:
        assert str(other.plans.find(ANN, made.id).plan) == str(made.plan)
        first = other.plans.release(ANN, made.id)
    assert visits.plans.release(ANN, made.id).receipt == first.receipt
    assert visits.charges() == 1


def test_a_fresh_plan_spends_once_and_two_of_the_same_moment_too(visits: Served, tmp_path: Path) -> None:
    visits.released()
    one, two = (visits.plans.make(ANN, "visits", asked(fresh=True)) for _ in range(2))
    first = visits.plans.release(ANN, one.id)
    assert not first.is_replay
    assert visits.plans.release(ANN, one.id).id == visits.plans.release(ANN, two.id).id == first.id
    with served(tmp_path) as other:  # which has nothing in memory
        assert other.plans.release(ANN, one.id).id == first.id
    assert visits.charges() == 2
    later = visits.plans.make(ANN, "visits", asked(fresh=True))
    assert visits.plans.release(ANN, later.id).id != first.id
    assert visits.charges() == 3


def test_a_plan_is_released_once_also_if_its_row_lost_the_receipt(visits: Served, tmp_path: Path) -> None:
    made = visits.plans.make(ANN, "visits", asked(fresh=True))
    first = visits.plans.release(ANN, made.id)
    _forget_receipt(tmp_path, made.id)
    assert visits.plans.release(ANN, made.id).id == first.id
    assert visits.charges() == 1


def _forget_receipt(folder: Path, plan_id: str) -> None:
    """As a crash between the charge and the note does."""
    file = PlanFile(folder / ".lapwing-server" / NAME)
    with file._transaction() as run:
        run("UPDATE plans SET receipt = 0 WHERE id = ?", (plan_id,))
    file.close()


def test_new_data_are_not_charged_under_an_old_plan(visits: Served, tmp_path: Path) -> None:
    released = visits.plans.make(ANN, "visits", asked())
    first = visits.plans.release(ANN, released.id)
    waiting = visits.plans.make(ANN, "visits", asked(epsilon="0.25"))
    visits.sets.require(ANN, "visits").curator.prepare(again=True)
    _forget_receipt(tmp_path, released.id)
    assert visits.plans.release(ANN, released.id).id == first.id  # the answer of its version
    with pytest.raises(BadParameter, match="version 1"):
        visits.plans.release(ANN, waiting.id)
    assert visits.charges() == 1


@pytest.mark.parametrize(
    ("before", "after", "sql", "price"),
    [
        ("high = 10", "high = 100", "SELECT SUM(stay) AS s FROM visits", {"within": "100"}),
        ("rows_per_unit = 2", "rows_per_unit = 3", "SELECT COUNT(*) AS n FROM visits", {"epsilon": "0.5"}),
    ],
)
def test_a_policy_that_was_edited_charges_nothing_under_an_old_plan(
    tmp_path: Path, before: str, after: str, sql: str, price: dict[str, str]
) -> None:
    policy, question = write_data(tmp_path), QuestionForm.read({"sql": sql, **price})
    with served(tmp_path) as found:
        made = found.plans.make(ANN, "visits", question)
    policy.write_text(policy.read_text().replace(before, after))
    with served(tmp_path) as found:  # after a restart
        for act in (found.plans.find, found.plans.release, found.plans.dry_run):
            with pytest.raises(BadParameter, match="Plan the question again"):
                act(ANN, made.id)
        assert found.charges() == 0
        again = found.plans.make(ANN, "visits", question)
        assert not found.plans.release(ANN, again.id).is_replay


def test_a_file_of_plans_without_promises_can_be_read(tmp_path: Path) -> None:
    write_data(tmp_path)
    with served(tmp_path) as found:
        made = found.plans.make(ANN, "visits", asked())
    file = PlanFile(tmp_path / ".lapwing-server" / NAME)
    with file._transaction() as run:
        run("ALTER TABLE plans DROP COLUMN promise")
    file.close()
    with served(tmp_path) as found:
        assert not found.plans.release(ANN, made.id).is_replay


def test_a_plan_is_its_owners_alone(visits: Served) -> None:
    made = visits.plans.make(ANN, "visits", asked())
    for who in (BOB, STEWARD, STRANGER):
        for act in (visits.plans.find, visits.plans.release, visits.plans.dry_run):
            with pytest.raises(NotFound):
                act(who, made.id)
    for bad in ("", "0" * 32, "../x", "0" * 10_000):
        with pytest.raises(NotFound):
            visits.plans.find(ANN, bad)
    with pytest.raises(NotAllowed):  # no analyst any more
        visits.plans.release(person("ann", Role.STEWARD), made.id)
    with pytest.raises(NotAllowed):
        visits.plans.make(STEWARD, "visits", asked())
    assert visits.charges() == 0


def test_a_dry_run_costs_nothing(visits: Served) -> None:
    made = visits.plans.make(ANN, "visits", asked())
    assert visits.plans.dry_run(ANN, made.id).is_fake
    assert visits.charges() == 0


def _token(visits: Served, most: str) -> Requester:
    """Somebody with a token of a most ε."""
    visits.people.accounts.make("ann")
    expires = datetime.now(UTC) + timedelta(days=1)
    made, secret = visits.people.tokens.make(
        ANN, name="a program", data=None, most_epsilon=Fraction(most), expires=expires
    )
    assert secret
    return replace(ANN, credential="token", credential_id=made.id)


def _left(visits: Served, who: Requester) -> Fraction | None:
    return visits.people.tokens.known(who.credential_id).left


def test_a_token_pays_once_and_a_refusal_takes_nothing_from_it(visits: Served) -> None:
    who = _token(visits, "12")
    made = visits.plans.make(who, "visits", asked())
    visits.plans.release(who, made.id)
    again = visits.plans.make(who, "visits", asked())
    visits.plans.release(who, made.id)
    visits.plans.release(who, again.id)  # stored: nothing to pay
    assert _left(visits, who) == Fraction("11.5")
    dear = visits.plans.make(who, "visits", asked("SELECT COUNT(*) FROM visits", "11"))
    with pytest.raises(OverBudget):
        visits.plans.release(who, dear.id)
    assert _left(visits, who) == Fraction("11.5")


def test_a_token_spends_no_more_than_its_most(visits: Served) -> None:
    who = _token(visits, "0.7")
    visits.plans.release(who, visits.plans.make(who, "visits", asked()).id)
    more = visits.plans.make(who, "visits", asked(fresh=True))
    for _ in range(2):
        with pytest.raises(TokenSpent):
            visits.plans.release(who, more.id)
    assert visits.charges() == 1
    assert not visits.plans.release(ANN, more.id).is_replay  # with a session


def test_a_booking_stays_if_the_charge_may_have_been_made(
    visits: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = _token(visits, "1")
    made = visits.plans.make(who, "visits", asked())
    session = visits.sets.require(who, "visits").session(who).session
    for error in (Held(7), OverBudget("ε 1", "ε 0", "Stop.")):  # the second time nothing was charged

        def fail(*_: object, raised: Exception = error, **__: object) -> object:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(type(session), "release", fail)
            with pytest.raises(type(error)):
                visits.plans.release(who, made.id)
        assert _left(visits, who) == Fraction("0.5")


def test_a_question_that_is_charged_again_after_a_hold_is_booked_again(
    visits: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = _token(visits, "0.7")
    made = visits.plans.make(who, "visits", asked())

    def fail(*_: object, **__: object) -> object:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", fail)
        with pytest.raises(Held):
            visits.plans.release(who, made.id)
    [failed] = visits.records.history(STEWARD, "visits")
    assert _left(visits, who) == Fraction("0.2")
    with pytest.raises(Held):
        visits.plans.release(who, made.id)
    assert _left(visits, who) == Fraction("0.2")
    visits.sets.require(ANN, "visits").curator.clear_hold(failed.line.number)
    with pytest.raises(TokenSpent):
        visits.plans.release(who, made.id)
    assert visits.charges() == 1
    assert not visits.plans.release(ANN, made.id).is_replay  # with a session
    assert visits.charges() == 2
    assert visits.plans.release(who, made.id).is_replay
    assert _left(visits, who) == Fraction("0.2")


def test_old_plans_are_forgotten(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "state" / NAME)
    first = file.add(person="ann", data="visits", form="{}", since=0, version=0)
    for _ in range(MOST_OF_A_PERSON + 128):
        last = file.add(person="ann", data="visits", form="{}", since=0, version=0)
    assert file.find(first.id) is None
    assert file.find(last.id) == last
    assert (tmp_path / "state" / NAME).stat().st_mode & 0o077 == 0
    file.close()


def test_a_quota_that_is_missing_is_said_before_a_charge(tmp_path: Path) -> None:
    write_data(tmp_path, after="[analysts.ann]\nepsilon = 1\ndelta = 0\n")
    with served(tmp_path) as found:
        made = found.plans.make(BOB, "visits", asked())
        with pytest.raises(BadParameter, match="quota"):
            found.plans.release(BOB, made.id)
        assert found.charges() == 0
