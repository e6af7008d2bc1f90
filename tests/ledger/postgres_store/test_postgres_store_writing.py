"""What is written is written whole, in order and once; what is read is one moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from lapwing.errors import Unavailable
from lapwing.ledger import postgres_store
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.store import DoesNotFit, Transaction
from support.postgres import sql
from support.stores import (
    CAP,
    MemoryAnchor,
    entries,
    opened,
    posting,
    spent,
)


def test_work_that_raises_leaves_nothing(store: PostgresStore, url: str, anchor: MemoryAnchor) -> None:
    def work(tx: Transaction) -> None:
        tx.append(b"entry")
        tx.debit(posting("a", 1))
        tx.debit(posting("b", 2, costs=[CAP + 1] * 8))

    with pytest.raises(DoesNotFit):
        store.write(work)
    assert (entries(url), spent(url, 1), anchor.lines) == ([], 0, [])


def test_work_that_goes_on_after_an_error_is_not_taken_for_done(store: PostgresStore, url: str) -> None:
    def work(tx: Transaction) -> None:
        tx.append(b"entry")
        with suppress(psycopg.Error):
            tx.run("SELECT 1 / 0")

    with pytest.raises(Unavailable, match="Nothing was changed"):
        store.write(work)
    assert entries(url) == []


def test_who_writes_alone_is_alone(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    def count(tx: Transaction) -> None:
        [(number,)] = tx.rows("SELECT coalesce(max(charge), 0) FROM answers")
        time.sleep(0.01)
        tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (?, ?, ?)", number + 1, 1, b"?%")

    with opened(url) as second:
        for future in [beside((store, second)[n % 2].write, count) for n in range(12)]:
            future.result()
    assert sql(url, "SELECT max(charge) FROM answers") == [(12,)]


def test_a_deadlock_is_undone_and_tried_again(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    meet = threading.Barrier(2)
    runs: list[int] = []

    def lock_both(first: int, second: int) -> None:
        def work(tx: Transaction) -> None:
            runs.append(first)
            tx.lock([first])
            if runs.count(first) == 1:
                meet.wait(10)
            tx.lock([second])
            tx.append(b"%d" % first)

        store.write(work, alone=False)

    for future in [beside(lock_both, 1, 2), beside(lock_both, 2, 1)]:
        future.result()
    assert sorted(entries(url)) == [b"1", b"2"]
    # Three runs if the server wakes the waiting transaction at once. On a busy machine the repeated one may
    # take its first lock before that, and both meet again.
    assert len(runs) >= 3


def test_reading_sees_one_moment_and_history_in_order(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "ROWS_AT_ONCE", 4)
    asked = [posting(f"{n}", 1) for n in range(11)]
    numbers = [store.charge(one) for one in asked]

    def work(tx: Transaction) -> list[Any]:
        history = tx.history()
        first = next(history)
        store.charge(posting("meanwhile", 2))
        assert tx.rows("SELECT count(*) FROM entries") == [(11,)]
        return [first, *history]

    found = store.read(work)
    assert found == [(seq, one.body, one.digest) for seq, one in zip(numbers, asked, strict=True)]
    with pytest.raises(Unavailable):
        store.read(lambda tx: tx.append(b"reading is not writing"))


def test_numbers_can_be_skipped_but_never_drawn_again(store: PostgresStore) -> None:
    first = store.charge(posting("a", 1))
    store.write(lambda tx: tx.skip(first + 50))
    assert store.charge(posting("b", 1)) == first + 51
    store.write(lambda tx: tx.skip(first + 10))
    assert store.charge(posting("c", 1)) == first + 52
