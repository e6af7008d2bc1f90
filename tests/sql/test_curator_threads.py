"""Threads that share a data set: every charge has its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lapwing.core.observed import observing
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter, Held, InProgress
from lapwing.ledger import DataSet
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.reading import registration
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.reader import MAX_READERS, Reader
from sql.conftest import write_visits
from sql.test_releasing import spent
from support.hospital import ENGINES, invented, policy_for
from support.slowly import first, slow

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"


def in_threads(works: Sequence[Callable[..., Any]]) -> list[Any]:
    """What each of them gave or raised, begun at one moment."""
    found: list[Any] = [None] * len(works)
    gate = threading.Barrier(len(works))

    def one(place: int) -> None:
        gate.wait()
        try:
            found[place] = works[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def asker(dataset: Dataset, numbers: range) -> Callable[[], int]:
    """Asks one question for each number, each of its own."""

    def work() -> int:
        for number in numbers:
            answer = dataset.ask(f"{COUNT} WHERE stay <> {1_000 + number}", epsilon="0.01")
            assert not answer.is_replay
        return len(numbers)

    return work


def test_a_plan_does_not_wait_for_work_on_rows(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would show when that work ends, also under `pad` (C14)."""
    dataset, may_end = opened(), threading.Event()
    dataset.prepare()
    real, begun = Reader.exact, threading.Semaphore(0)

    def held(self: Reader, query: BoundQuery) -> list[ExactGrouping]:
        begun.release()
        may_end.wait(60)
        return real(self, query)

    monkeypatch.setattr(Reader, "exact", held)
    asked = [threading.Thread(target=asker(dataset, range(n, n + 1))) for n in range(MAX_READERS)]
    for one in asked:
        one.start()
    for _ in asked:
        assert begun.acquire(timeout=60)
    shown: list[object] = []
    plan = dataset.plan(COUNT, epsilon="0.01")
    planner = threading.Thread(target=lambda: shown.append(plan.statements), daemon=True)
    planner.start()
    planner.join(20)
    is_shown = bool(shown)
    may_end.set()
    for one in (*asked, planner):
        one.join()
    assert is_shown


# Case C5.
@pytest.mark.parametrize("count", [100, slow(500)])
def test_eight_threads_and_five_hundred_questions(opened: Open, count: int) -> None:
    """From the first of all, which makes the ledger and registers the data."""
    dataset = opened()
    assert sum(in_threads([asker(dataset, range(k, count, 8)) for k in range(8)])) == count
    assert 100 * spent(dataset) == count


def test_what_is_asked_while_the_copy_is_made_anew(opened: Open) -> None:
    """Nothing is charged that is neither answered nor held: the version may pass while it is read."""
    dataset = opened()
    dataset.curator.policy = replace(
        dataset.policy, failures=100
    )  # so that nobody is held for the first three
    dataset.prepare()

    def ask(numbers: range) -> int:
        charged = 0
        for number in numbers:
            try:
                asker(dataset, range(number, number + 1))()
                charged += 1
            except Held:
                charged += 1
            except (BadParameter, EngineFailed):
                pass
        return charged

    *charged, made = in_threads(
        [*(partial(ask, range(k, 60, 4)) for k in range(4)), partial(dataset.prepare, again=True)]
    )
    assert made is True
    assert spent(dataset) == sum(charged) / 100 > 0


def test_an_answer_that_is_paid_for_is_told_though_the_source_changes_then(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence about truncation looks at the data once more: that must not cost the answer."""
    dataset = opened()
    dataset.prepare()

    def changed() -> DataSet:
        raise BadParameter("source", "changed since the ledger last saw it")

    def change(_mechanism: object, _inputs: object, draw: Callable[[], Any]) -> Any:
        monkeypatch.setattr(dataset.curator, "data", changed)
        return draw()

    with observing(change, during_charges=True):
        answer = dataset.ask(COUNT, epsilon="0.01")
    assert answer.truncation[0].startswith("Uses at most")
    assert spent(dataset) == 1 / 100


def test_the_same_question_of_all_is_charged_once(opened: Open) -> None:
    dataset = opened()
    found = in_threads([lambda: dataset.ask(COUNT, epsilon=1)] * 8)
    answers = {one.columns[0].values[0] for one in found if not isinstance(one, InProgress)}
    assert len(answers) == 1
    assert spent(dataset) == 1
    assert dataset.ask(COUNT, epsilon=1).is_replay


def test_a_reader_is_not_closed_while_it_is_used(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    question = dataset.plan(COUNT, epsilon=1).question
    with dataset.curator.reading() as old:
        write_visits(tmp_path, range(300, 400), "visits_new")
        with dataset.curator.reading() as new:
            assert new.exact(question)[0].values.sum() == 800
        assert old.exact(question)[0].values.sum() == 600
        dataset.close()
        assert old.exact(question)[0].values.sum() == 600
    with dataset.curator.reading() as last:
        assert last is not old


def test_who_asks_while_the_data_is_registered_waits(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is told first, and the note of it is written then."""
    dataset, remember = opened(), registration.save_registration

    def late(*given: Any) -> None:
        time.sleep(0.5)
        remember(*given)

    monkeypatch.setattr(registration, "save_registration", late)
    found = in_threads([asker(dataset, range(k, k + 1)) for k in range(4)])
    assert found == [1, 1, 1, 1]


def test_closing_waits_for_answers_that_are_paid_for(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, reading, go = opened(), threading.Event(), threading.Event()
    exact = Reader.exact

    def slow(self: Reader, question: Any) -> Any:
        reading.set()
        go.wait(60)
        return exact(self, question)

    def close() -> None:
        reading.wait(60)
        threading.Timer(0.2, go.set).start()
        dataset.close()

    monkeypatch.setattr(Reader, "exact", slow)
    answer, closed = in_threads([lambda: dataset.ask(COUNT, epsilon=1), close])
    assert closed is None
    assert abs(answer.columns[0].values[0] - 600) < 100
    assert dataset.ask(COUNT, epsilon=1).is_replay


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_every_engine_is_asked_by_threads(engine: str, tmp_path: Path) -> None:
    """More of them than read at once."""
    with Dataset(policy_for(invented(1), engine, tmp_path), analyst="ann") as dataset:
        join = (
            "SELECT region, COUNT(*) FROM visits JOIN wards USING (ward) WHERE stay <> {} GROUP BY region"
        )
        asked = [join.format(100 + number) for number in range(MAX_READERS + 2)]
        found = in_threads([partial(dataset.ask, sql, epsilon="0.1") for sql in asked])
        assert [one.is_replay for one in found] == [False] * len(asked)


def test_closing_waits_for_bounds_that_are_paid_for(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, exact, begun = opened(), Reader.exact, threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        time.sleep(0.5)
        return exact(*given)

    def close() -> None:
        begun.wait()
        dataset.close()

    monkeypatch.setattr(Reader, "exact", slow)
    found, _ = in_threads([lambda: dataset.search_bounds("visits", "stay", epsilon=1, step=1), close])
    assert not isinstance(found, Exception), found
    assert spent(dataset) == 1
