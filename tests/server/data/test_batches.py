"""Batches: one price, one charge, all answers or none, however often the release is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, OverBudget
from lapwing.server.data.batches import BATCHES, Batches, BatchForm
from lapwing.server.data.plan_file import PlanFile
from lapwing.server.people.person import NotAllowed, NotFound
from support.served import ANN, BOB, COUNT, STEWARD, Served, served, write_data

TOTAL = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def batches(visits: Served, tmp_path: Path) -> Any:
    """Batches of the same data."""
    file = PlanFile(tmp_path / ".lapwing-server" / BATCHES)
    yield Batches(visits.sets, file, visits.people.tokens)
    file.close()


def _form(epsilon: str = "1", **more: Any) -> BatchForm:
    return BatchForm.read(
        {"data": "visits", "epsilon": epsilon, "questions": [{"sql": COUNT}, {"sql": TOTAL}], **more}
    )


def test_a_batch_is_one_charge(visits: Served, batches: Batches) -> None:
    made = batches.make(ANN, _form(weights=["3", "1"]))
    assert made.plan.cost.epsilon == 1
    assert visits.charges() == 0
    with ThreadPoolExecutor(4) as pool:
        released = list(pool.map(lambda _: batches.release(ANN, made.id), range(4)))
    assert visits.charges() == 1
    assert len({one[0].receipt.position for one in released}) == 1
    assert len({str(one[1].answer.to_arrow().to_pydict()) for one in released}) == 1
    assert batches.find(ANN, made.id).plan.charged == ()
    for one in released[0]:  # each has an id of its own
        again = visits.answers.find(ANN, one.id)
        assert (again.sql, again.answer.to_arrow()) == (one.sql, one.answer.to_arrow())
    with pytest.raises(NotFound):
        visits.answers.find(ANN, f"{released[0][0].id}9")
    visits.sets.require(ANN, "visits").curator.prepare(again=True)
    assert batches.release(ANN, made.id)[0].receipt == released[0][0].receipt  # of its version
    assert visits.charges() == 1


def test_a_policy_that_was_edited_charges_nothing_under_an_old_batch(tmp_path: Path) -> None:
    policy = write_data(tmp_path)
    questions = [{"sql": TOTAL, "epsilon": "1"}]
    file = PlanFile(tmp_path / BATCHES)
    with served(tmp_path) as found:
        made = Batches(found.sets, file, found.people.tokens).make(
            ANN, BatchForm.read({"data": "visits", "questions": questions})
        )
    policy.write_text(policy.read_text().replace("high = 10", "high = 100"))
    with served(tmp_path) as found:  # after a restart
        with pytest.raises(BadParameter, match="Plan the question again"):
            Batches(found.sets, file, found.people.tokens).release(ANN, made.id)
        assert found.charges() == 0
    file.close()


def test_the_same_question_under_two_names_has_one_answer(visits: Served, batches: Batches) -> None:
    other = TOTAL.replace("AS n", "AS m")
    questions = [{"sql": sql, "epsilon": "0.5"} for sql in (COUNT, TOTAL, other)]
    made = batches.make(ANN, BatchForm.read({"data": "visits", "questions": questions}))
    ward, first, second = batches.release(ANN, made.id)
    assert (ward.id, first.id, second.id) == ("visits.4-1", "visits.4-2", "visits.4-2")
    assert visits.charges() == 1


def test_all_or_none(visits: Served, batches: Batches) -> None:
    made = batches.make(ANN, _form("11"))
    with pytest.raises(OverBudget):
        batches.release(ANN, made.id)
    with pytest.raises(BadParameter):
        batches.make(ANN, _form(questions=[{"sql": COUNT}, {"sql": "SELECT * FROM visits"}]))
    assert visits.charges() == 0


def test_a_batch_is_its_owners_alone(batches: Batches) -> None:
    made = batches.make(ANN, _form())
    for who in (BOB, STEWARD):
        with pytest.raises(NotFound):
            batches.release(who, made.id)
        with pytest.raises(NotFound):
            batches.find(who, made.id)
    with pytest.raises(NotAllowed):
        batches.make(STEWARD, _form())


def test_forms_that_do_not_fit_are_refused() -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"questions": []},
        {"questions": [{"sql": COUNT}] * 101},
        {"epsilon": 1.0},
        {"weights": [1, 2]},
        {"questions": [{"sql": COUNT, "epsilon": 0.5}]},
        {"questions": "canary"},
    )
    for wrong in wrongs:
        with pytest.raises(BadParameter) as caught:
            _form(**wrong)
        assert "canary" not in str(caught.value)
