"""The same question at the same moment: everybody gets the answer, and one charge is made."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lapwing.errors import InProgress
from support.served import ANN, BOB, Served, asked, released_elsewhere, served, write_data

CLIENTS = 8


def test_eight_threads_get_one_answer(visits: Served) -> None:
    plans = [visits.plans.make(ANN, "visits", asked(fresh=one % 2 == 0)).id for one in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(lambda plan: visits.plans.release(ANN, plan), plans))
    assert len({one.id for one in found}) == 1
    assert [one.is_replay for one in found].count(False) == 1
    assert visits.charges() == 1


def test_processes_get_one_answer(visits: Served, tmp_path: Path) -> None:
    visits.released()  # a ledger and a copy are there
    made = visits.plans.make(ANN, "visits", asked("SELECT COUNT(*) FROM visits"))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.starmap(released_elsewhere, [(tmp_path, made.id)] * 3)
    assert len(set(found)) == 1
    assert visits.charges() == 2


def test_a_wait_has_an_end(visits: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = visits.plans.make(ANN, "visits", asked())
    session = visits.sets.require(ANN, "visits").session(ANN).session

    def busy(*_: object, **__: object) -> object:
        raise InProgress

    monkeypatch.setattr(type(session), "release", busy)
    with pytest.raises(InProgress):
        visits.plans.release(ANN, made.id, patience=0.05)


def test_a_policy_with_shared_answers_charges_one_of_many(tmp_path: Path) -> None:
    write_data(tmp_path, shares=True)
    with served(tmp_path) as found:
        plans = [(who, found.plans.make(who, "visits", asked()).id) for who in (ANN, BOB) * 3]
        with ThreadPoolExecutor(6) as pool:
            ids = set(pool.map(lambda one: found.plans.release(*one).id, plans))
        assert len(ids) == 1
        assert found.charges() == 1
