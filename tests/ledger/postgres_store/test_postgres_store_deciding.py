"""A store in PostgreSQL decides charges as the filter in Python does, whoever spends beside it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.store import Debit, DoesNotFit, KeyTaken, Posting, Transaction
from support.postgres import drawn, sql, until, waiting
from support.stores import (
    CAP,
    MemoryAnchor,
    entries,
    opened,
    posting,
    spent,
)


def test_a_charge_is_marked_when_it_returns(store: PostgresStore, url: str, anchor: MemoryAnchor) -> None:
    asked = posting("a", 1)
    seq = store.charge(asked)
    assert anchor.marks == {seq: asked.digest}
    assert entries(url) == [asked.body]
    assert spent(url, 1) == 1


@pytest.mark.parametrize("blocks", [(1,), (1, 2, 3), (3, 1, 12, 11)], ids=["one", "run", "two accounts"])
def test_a_charge_debits_all_its_blocks_or_none(
    store: PostgresStore, url: str, blocks: tuple[int, ...]
) -> None:
    store.charge(posting("fits", *blocks, costs=[CAP] * 8))
    assert [spent(url, block) for block in blocks] == [CAP] * len(blocks)
    for wanted in (blocks, (*blocks, 9)):
        with pytest.raises(DoesNotFit):
            store.charge(posting("does not", *wanted))
    assert spent(url, 9) == 0
    assert len(entries(url)) == 1


def test_a_run_of_blocks_is_debited_as_a_run(store: PostgresStore, url: str) -> None:
    store.charge(Posting.of(b"run", None, (Debit(1, [[2, 4], [6, 7]], (1,) * 8),)))
    assert [spent(url, block) for block in range(1, 10)] == [0, 1, 1, 1, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("many", [False, True], ids=["one block", "several"])
def test_every_filter_decides_as_in_python(store: PostgresStore, url: str, many: bool) -> None:
    def fits(*costs: int) -> bool:
        sql(url, "INSERT INTO budgets SELECT 100 + block, account, state, "
                 f"{', '.join([str(CAP)] * 8 + ['0'] * 8)} FROM budgets "
                 "WHERE block = 1 AND NOT EXISTS (SELECT FROM budgets WHERE block = 101)")  # fmt: skip
        blocks = [[101, 101], [5, 5]] if many else [[101, 101]]
        try:
            store.write(lambda tx: _undone(tx, Posting.of(b"x", None, (Debit(1, blocks, costs),))))
        except _Fits:
            return True
        except DoesNotFit:
            return False
        raise AssertionError

    over = CAP + 1
    assert fits(0, CAP, CAP, over, over, over, over, over)
    assert not fits(over, 0, 0, 0, 0, 0, 0, 0)
    assert not fits(0, over, 0, over, over, over, over, over)
    assert not fits(0, 0, over, over, over, over, over, over)
    for order in range(3, 8):
        assert fits(0, over, over, *(CAP if k == order else over for k in range(3, 8)))


class _Fits(Exception):
    pass


def _undone(tx: Transaction, asked: Posting) -> None:
    tx.debit(asked)
    raise _Fits


@pytest.mark.parametrize("many", [False, True], ids=["one block", "several"])
def test_what_is_held_counts_and_a_closed_block_takes_nothing(
    store: PostgresStore, url: str, many: bool
) -> None:
    more = (5,) if many else ()
    sql(url, "UPDATE budgets SET " + ", ".join(f"held_{k} = {CAP}" for k in range(8)) + " WHERE block = 1")
    sql(url, "UPDATE budgets SET state = 2 WHERE block = 2")
    for block in (1, 2, 99):
        with pytest.raises(DoesNotFit):
            store.charge(posting("x", block, *more))
    with pytest.raises(DoesNotFit):  # the block of another account
        store.charge(Posting.of(b"x", None, (Debit(2, [[b, b] for b in (3, *more)], (1,) * 8),)))
    assert entries(url) == []


def test_sums_saturate_above_their_caps(store: PostgresStore, url: str) -> None:
    costs = [0, CAP, 0, *[CAP + 1] * 5]
    for key, blocks in (("a", (1,)), ("b", (2, 3))):
        store.charge(posting(key, *blocks, costs=costs))
        store.charge(posting(key * 2, *blocks, costs=[0, 0, 0, *[CAP + 1] * 5]))
    assert (
        sql(url, f"SELECT {CAP} - left_1, {CAP} - left_3, {CAP} - left_7 FROM budgets WHERE block <= 3")
        == [(CAP, CAP + 1, CAP + 1)] * 3
    )


@pytest.mark.parametrize("blocks", [(1,), (1, 2)], ids=["one block", "several"])
def test_a_key_is_taken_once(store: PostgresStore, url: str, blocks: tuple[int, ...]) -> None:
    store.charge(posting("a", *blocks, costs=[CAP] * 8))
    for again in (blocks, (3,), (3, 4)):  # also where there is no room
        with pytest.raises(KeyTaken):
            store.charge(posting("a", *again))
        with pytest.raises(KeyTaken):
            store.write(lambda tx, again=again: tx.debit(posting("a", *again)))  # type: ignore[misc]
    with pytest.raises(KeyTaken):
        store.write(lambda tx: tx.append(b"another", posting("a", 1).key))
    assert spent(url, 3) == 0
    assert len(entries(url)) == 1


def test_of_many_at_once_under_one_key_one_is_charged(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    done = [
        beside(store.charge, posting("a", *blocks)) for blocks in [(1,), (1, 2), (2,), (3,), (3, 1)] * 3
    ]
    outcomes = [future.exception() for future in done]
    assert outcomes.count(None) == 1
    assert all(isinstance(error, KeyTaken) for error in outcomes if error)
    assert len(entries(url)) == 1


def test_many_at_once_spend_exactly_what_there_is(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    with opened(url) as second:
        done = [
            beside((store, second)[n % 2].charge, posting(f"{n}", *blocks, costs=[7] * 8))
            for n, blocks in enumerate([(1,), (2, 1), (1, 2, 3), (12, 3, 1), (3, 11)] * 10)
        ]
        errors = [future.exception() for future in done]
    assert all(error is None or isinstance(error, DoesNotFit) for error in errors)
    assert spent(url, 1) == CAP // 7 * 7
    assert len(entries(url)) == errors.count(None)


@pytest.mark.parametrize("blocks", [(1,), (1, 2)], ids=["one block", "several"])
def test_a_number_is_drawn_only_while_the_blocks_are_locked(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]], blocks: tuple[int, ...]
) -> None:
    def first_in(tx: Transaction) -> int:
        first = tx.debit(posting("first", 1))
        later.append(beside(store.charge, posting("later", *blocks)))
        until(lambda: waiting(url))
        assert drawn(url) == first
        return first

    later: list[Future[int]] = []
    assert later == []
    first = store.write(first_in)
    assert later[0].result() > first
