"""Stored answers by id: the own ones, and those that the policy shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import AllHeld, BadParameter
from lapwing.server.data.answers import StoredAnswer
from lapwing.server.people.person import NotFound, Requester, Role
from support.served import ANN, BOB, OFFICER, STEWARD, STRANGER, Served, asked, person, served, write_data


def test_an_answer_is_rebuilt_from_what_is_stored(visits: Served, tmp_path: Path) -> None:
    questions = [
        asked(), asked(fresh=True), asked("SELECT MEDIAN(stay) AS m FROM visits"), asked(rows=1),
        asked("SELECT AVG(stay) AS a FROM visits WHERE stay > 3", where_first=True),
    ]  # fmt: skip
    for question in questions:
        made = visits.plans.make(ANN, "visits", question)
        given = visits.plans.release(ANN, made.id)
        with served(tmp_path) as other:
            found = other.answers.find(ANN, given.id)
        assert found.answer.to_arrow() == given.answer.to_arrow()
        assert (found.receipt, found.id, found.answer.of) == (given.receipt, given.id, given.answer.of)
        assert found.answer.truncation == given.answer.truncation
    narrow = visits.answers.find(ANN, given.id, confidence="0.5").answer.columns[0]
    wide = visits.answers.find(ANN, given.id, confidence="0.99").answer.columns[0]
    assert narrow.low is not None
    assert wide.low is not None
    assert narrow.low[0] > wide.low[0]
    assert visits.charges() == len(questions)


def test_only_own_answers_are_found(visits: Served) -> None:
    mine = visits.released()
    visits.released(BOB)
    for who in (BOB, STEWARD, OFFICER, STRANGER):
        with pytest.raises(NotFound):
            visits.answers.find(who, mine)
    never = ("visits.1", "visits.2", "visits.999999", "visits.0", "visits", "", "other.5", "visits.-1",
             "visits.1e3", "visits.99999999999999999999")  # fmt: skip
    for bad in never:
        with pytest.raises(NotFound):
            visits.answers.find(ANN, bad)
    with pytest.raises(BadParameter):
        visits.answers.find(ANN, mine, confidence="2")


def test_shared_answers_are_for_all_analysts(tmp_path: Path) -> None:
    write_data(tmp_path, shares=True)
    with served(tmp_path) as found:
        mine = found.released()
        assert found.answers.find(BOB, mine).receipt.principal == "ann"
        with pytest.raises(NotFound):
            found.answers.find(STEWARD, mine)


def test_a_kept_content_is_given_only_to_who_may_read_now(
    visits: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, made = visits.released(), list[str]()

    def content(who: Requester = ANN) -> bytes:
        def make(stored: StoredAnswer) -> bytes:
            made.append(stored.id)
            return b"x"

        return visits.answers.content(who, mine, "0.95", "x", make)

    assert (content(), content(), made) == (b"x", b"x", [mine])
    for who in (BOB, person("ann", Role.STEWARD), person("ann")):
        with pytest.raises(NotFound):
            content(who)
    visits.released(BOB)  # something was charged since
    checked = list[str]()

    def refuse(ledger: object, policy: object, analyst: str, **_: object) -> None:
        checked.append(analyst)
        raise AllHeld([1, 2, 3])

    monkeypatch.setattr("lapwing.sql.policy_ledger.require_few_failures", refuse)
    for _ in range(2):
        with pytest.raises(AllHeld):
            content()
    assert checked == ["ann", "ann"]


def test_the_list_has_the_newest_first(visits: Served) -> None:
    assert visits.answers.all_of(ANN, "visits") == []
    ids = [visits.released(), visits.released(question=asked("SELECT COUNT(*) AS n FROM visits"))]
    visits.released(BOB)
    listed = visits.answers.all_of(ANN, "visits")
    assert [one.id for one in listed] == ids[::-1]
    assert (listed[0].sql, listed[0].cost) == ("SELECT COUNT(*) AS n FROM visits", "ε 0.5")
    assert [one.id for one in visits.answers.all_of(ANN, "visits", 1)] == ids[1:]


def test_nothing_is_worked_out_for_the_id_of_anothers_answer(
    visits: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = visits.released()
    served_data = visits.sets.require(ANN, "visits")
    bound: list[object] = []
    bind = type(served_data.curator).bind

    def noted(*given: object, **more: object) -> object:
        bound.append(given)
        return bind(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(served_data.curator), "bind", noted)
    for answer_id in (mine, "visits.77"):
        with pytest.raises(NotFound):
            visits.answers.find(BOB, answer_id)
    assert bound == []  # else the time would tell which receipts are answers, and how long their SQL is
    assert visits.answers.find(ANN, mine).id == mine
    assert bound
