"""Seals are whole beginnings of history, whoever writes beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lapwing.errors import OverBudget, Unavailable
from lapwing.ledger import postgres_store
from lapwing.ledger.anchors import FileAnchor, Mark
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.seals import MerkleTree
from lapwing.ledger.store import Transaction, last_seal
from lapwing.storage import postgres
from support.ledgers import POSTGRES, Home, open_account, release
from support.postgres import drawn, schema_of, sql, until, waiting
from support.stores import (
    LEDGER_ID,
    SIGNING,
    MemoryAnchor,
    opened,
    posting,
)


def check_seals(store: PostgresStore) -> int:
    """Every seal stands for all entries up to its last one; how many entries are sealed."""
    leaves = store.read(lambda tx: tx.rows("SELECT seq, digest FROM entries ORDER BY seq"))
    seals = store.read(lambda tx: tx.rows("SELECT last, size, root FROM seals ORDER BY number"))
    for last, size, root in seals:
        tree = MerkleTree()
        tree.extend([digest for seq, digest in leaves if seq <= last])
        assert (tree.size, tree.root) == (size, root)
    newest = store.read(last_seal)
    assert newest is None or newest.is_signed_by(SIGNING.public, LEDGER_ID)
    return newest.size if newest else 0


def test_an_insert_draws_its_number_only_with_the_lock_on_the_table(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    with psycopg.connect(url.partition("#")[0]) as sealer:
        sealer.execute(f"SET search_path = {schema_of(url)}")
        sealer.execute("LOCK TABLE entries IN SHARE MODE")
        done = [
            beside(store.charge, posting("a", 1)),
            beside(store.charge, posting("b", 2, 3)),
            beside(store.write, lambda tx: tx.append(b"c"), alone=False),
        ]
        until(lambda: waiting(url) == len(done))
        assert drawn(url) == 0
        sealer.commit()
    assert sorted(future.result() for future in done) == [1, 2, 3]


def test_a_seal_waits_for_numbers_that_are_drawn_and_open(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    def early(tx: Transaction) -> None:
        tx.append(b"early")
        late = store.charge(posting("late", 1))
        sealing.append(beside(store.seal))
        until(lambda: waiting(url))
        assert store.read(last_seal) is None
        assert late == 2

    sealing: list[Future[Any]] = []
    store.write(early, alone=False)
    seal = sealing[0].result()
    assert (seal.last, seal.size) == (2, 2)
    check_seals(store)


def test_an_entry_in_the_way_for_long_is_reported_not_waited_for(store: PostgresStore, url: str) -> None:
    store.charge(posting("a", 1))
    with psycopg.connect(url.partition("#")[0]) as other:
        other.execute(f"LOCK TABLE {schema_of(url)}.entries IN ROW EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="could not be sealed"):
            store._seal((50, 50))
    assert store.seal() is not None


def test_seals_beside_many_charges_are_whole_beginnings(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]]
) -> None:
    rounds = 0

    def charge_on(who: int) -> int:
        n = 0
        while n < 40 or rounds < 3:  # some seals are made meanwhile, however slow they are
            store.charge(posting(f"{who} {n}", who, *([9] if n % 4 == 0 else []), costs=[0] * 8))
            n += 1
        return n

    with opened(url) as second:
        charging = [beside(charge_on, who) for who in (1, 2, 3, 4)]
        while not all(future.done() for future in charging):
            (store, second)[rounds % 2].seal()
            rounds += 1
        charged = sum(future.result() for future in charging)
    store.seal()
    assert rounds > 2
    assert check_seals(store) == charged >= 160


def test_one_process_seals_by_itself_and_another_takes_over(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, "KEEPER_SECONDS", 0.02)
    first, second = MemoryAnchor(), MemoryAnchor()
    with opened(url, create=True, anchor=first) as store:
        store.charge(posting("a", 1))
        until(lambda: first.heads)
        with opened(url, anchor=second) as other:
            other.charge(posting("b", 1))
            until(lambda: len(first.heads) == 2)
            assert second.heads == []
            first.fails = True  # whoever leads and cannot seal makes way
            other.charge(posting("c", 1))
            until(lambda: second.heads)
            first.fails = False
        assert len(second.heads) == 1
        check_seals(store)
    assert sql(url, "SELECT count(*) FROM seals") == [(3,)]
    assert not caplog.records


def test_sealing_that_keeps_failing_is_reported(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, "KEEPER_SECONDS", 0.02)
    anchor = MemoryAnchor()
    with opened(url, create=True, anchor=anchor) as store:
        store.charge(posting("a", 1))
        until(lambda: anchor.heads)
        anchor.fails = True
        with pytest.raises(Unavailable, match="away"):
            store.charge(posting("b", 1))
        until(lambda: caplog.records)
        assert "not sealed: the anchor is away" in caplog.text
        anchor.fails = False
        until(lambda: len(anchor.heads) == 2)


def test_closing_seals_and_ends_the_thread(url: str) -> None:
    anchor = MemoryAnchor()
    with opened(url, create=True, anchor=anchor) as store:
        store.charge(posting("a", 1))
    assert [head.size for head in anchor.heads] == [1]
    assert not [thread for thread in threading.enumerate() if thread.name == "lapwing keeper"]
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.charge(posting("b", 1))


def test_closing_beside_a_long_charge_loses_no_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_store, "PATIENCE_ASKED", (50, 50))
    home = Home.of(POSTGRES, tmp_path)
    ledger = home.create()
    open_account(ledger)
    sealed = ledger.store.read(last_seal)
    told = release(ledger, "0.25")
    with psycopg.connect(home.where.partition("#")[0]) as other:
        other.execute(f"LOCK TABLE {schema_of(home.where)}.entries IN ROW EXCLUSIVE MODE")
        ledger.close()
        assert "could not be sealed. Others have the ledger open" in caplog.text
        assert not [thread for thread in threading.enumerate() if thread.name == "lapwing keeper"]
        assert sql(home.where, "SELECT max(number) FROM seals") == [(sealed.number if sealed else 0,)]
        marks = [line.last for line in FileAnchor(home.anchor).read() if isinstance(line, Mark)]
        assert told.receipt.position in marks
    caplog.clear()
    again = home.open()
    newest = again.store.read(last_seal)
    assert newest is not None
    assert newest.last == max(marks)
    with pytest.raises(OverBudget):
        release(again, "0.76")
    assert not again.verify().findings
    for witness in again.store.witnesses:
        assert [line.last for line in witness.read()][-1] == newest.last
    home.close()
    assert not caplog.records
