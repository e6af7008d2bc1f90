"""Stored answers are found whoever stored them, also a moment ago, and shown to nobody else."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import Held
from lapwing.ledger import Gate
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.pricing.truncation_requests import truncation_requests
from lapwing.sql.question.truncation_questions import ROWS_BEYOND, truncation_question
from lapwing.sql.reading.reader import Reader
from sql.conftest import Open
from sql.test_curator_threads import in_threads
from support.askers import count_truncated
from support.forking import forked

COUNT = "SELECT COUNT(*) AS n FROM visits"
CONFIDENCE = Fraction(95, 100)


def known(dataset: Dataset, rows: int = 2) -> int | None:
    """The receipt of what is known about truncated rows."""
    found = dataset.session.look().truncation("visits", rows, confidence=CONFIDENCE)
    return None if found is None else found.position


def says(dataset: Dataset) -> bool:
    return " About " in dataset.plan(COUNT, epsilon="0.1").bounds[0]


def receipt(answer: Any) -> int:
    return int(answer.receipt.position)


@pytest.mark.parametrize("beyond", [None, *ROWS_BEYOND])
def test_keys_of_truncation_requests_are_those_of_their_questions(opened: Open, beyond: int | None) -> None:
    dataset = opened()
    data = dataset.curator.data()
    question, name, lowered = truncation_question(dataset.policy, "visits", 2, beyond)
    blank = QueryRequest(name, 0, Fraction(0), Fraction(0), "", lowered, "")
    wanted = dataset.session.look().requests_about(question, blank, data)
    found = truncation_requests(
        dataset.policy, "visits", 2, version=data.version, data=data.number, earlier_ranks=False
    )
    [one] = (one for one in found if one.beyond == beyond)
    assert one.requests == wanted
    assert one.keys == tuple(key for request in wanted for key in request.first_keys)


def test_an_answer_of_another_process_is_found_by_the_next_plan(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon="0.1")
    before = dataset.plan(COUNT, epsilon="0.2")
    assert known(dataset) is None
    assert not says(dataset)
    other = forked(count_truncated, tmp_path / "visits.toml", "0.5")
    other.start()
    other.join()
    assert other.exitcode == 0
    assert says(dataset)
    assert " About " in before.release().truncation[0]  # an old plan, too
    position = known(dataset)
    assert position is not None
    more = forked(count_truncated, tmp_path / "visits.toml", "0.7")
    more.start()
    more.join()
    newest = known(dataset)
    assert newest is not None
    assert newest > position
    assert known(opened(rewrite=False)) == newest  # and after a restart


def test_a_curator_that_was_closed_reads_its_ledger_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older state of the ledger may have been put back in the meantime."""
    dataset = opened()
    paid = receipt(dataset.ask(COUNT, epsilon="0.1"))
    read: list[str] = []
    find = Gate.find

    def noted(self: Gate, key: str, **how: bool) -> Any:
        read.append(key)
        return find(self, key, **how)

    monkeypatch.setattr(Gate, "find", noted)
    keys = []
    for _ in range(3):
        assert receipt(dataset.ask(COUNT, epsilon="0.1")) == paid
        keys.append(len(read))
        read.clear()
    assert keys[0] > keys[1] == keys[2]  # the answer is kept
    dataset.curator.close()
    assert receipt(dataset.ask(COUNT, epsilon="0.1")) == paid
    assert len(read) == keys[0]


def test_threads_find_what_one_of_them_stored(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon="0.1")

    def one(number: int) -> int | None:
        if number == 0:
            return receipt(dataset.truncated("visits", epsilon="0.5"))
        return known(dataset)

    first, *others = in_threads([partial(one, number) for number in range(4)])
    assert set(others) <= {None, first}
    assert known(dataset) == first


def test_answers_about_truncated_rows_belong_to_who_paid(opened: Open) -> None:
    """Unless the policy shares answers: without quotas it does."""
    quotas = "[analysts.ann]\nepsilon = 2\ndelta = 0\n[analysts.bob]\nepsilon = 2\ndelta = 0\n"
    ann = opened(more=quotas)
    assert not ann.policy.shares_answers
    paid = receipt(ann.truncated("visits", epsilon="0.5"))
    bob = opened(rewrite=False, analyst="bob")
    assert known(bob) is None
    assert not says(bob)
    assert known(ann) == paid
    own = receipt(bob.truncated("visits", epsilon="0.5"))
    assert known(bob) == own
    assert known(ann) == paid


def test_an_analyst_reads_no_request_of_another_one(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the look-up takes as long whether others asked or not: one statement."""
    quotas = "[analysts.ann]\nepsilon = 2\ndelta = 0\n[analysts.bob]\nepsilon = 2\ndelta = 0\n"
    ann, bob = opened(more=quotas), opened(rewrite=False, analyst="bob")
    bob.ask(COUNT, epsilon="0.5")
    read: list[str] = []
    find = Gate.find

    def noted(self: Gate, key: str, **how: bool) -> Any:
        read.append(key)
        return find(self, key, **how)

    monkeypatch.setattr(Gate, "find", noted)
    assert known(bob) is None
    ann.truncated("visits", epsilon="0.5")
    read.clear()
    assert known(bob) is None
    assert read == []
    assert known(ann) is not None
    assert read


def test_a_shared_answer_is_found_by_all(opened: Open) -> None:
    ann, bob = opened(), opened(rewrite=False, analyst="bob")
    assert ann.policy.shares_answers
    paid = receipt(ann.truncated("visits", epsilon="0.5"))
    assert known(bob) == known(ann) == paid


def test_a_failed_request_hides_no_other(opened: Open) -> None:
    """It is no answer, and is looked up each time: the curator may clear it."""
    dataset = opened()
    people = receipt(dataset.truncated("visits", epsilon="0.5"))

    def fails(*_: object) -> None:
        raise RuntimeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "exact", fails)
        with pytest.raises(Held) as held:
            dataset.truncated("visits", epsilon="0.5", beyond=10)
    assert known(dataset) == people
    dataset.clear_hold(held.value.position)
    rows = receipt(dataset.truncated("visits", epsilon="0.5", beyond=10))
    assert known(dataset) == rows
    assert known(dataset, rows=1) is None
