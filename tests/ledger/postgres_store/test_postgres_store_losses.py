"""Connections and servers are lost at the worst moment: what was charged is charged once, or it is said."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lapwing.errors import Unavailable
from lapwing.ledger import postgres_store
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.store import DoesNotFit, Transaction
from support.postgres import Server, Wire, fresh_url, schema_of, sql, until
from support.stores import CAP, MemoryAnchor, entries, opened, posting, spent

WAYS = ["lose_reply", "tear_reply", "hang_up"]
SIZES = pytest.mark.parametrize("blocks", [(1,), (1, 2)], ids=["one block", "several"])


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    line = Wire(url)
    yield line
    line.close()


@pytest.fixture
def store(wire: Wire, anchor: MemoryAnchor) -> Iterator[PostgresStore]:
    with opened(wire.url, create=True, anchor=anchor) as made:
        made.charge(posting("before", 9))
        yield made


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    server = Server().start()
    yield server
    server.remove()


def waiting(url: str) -> list[int]:
    """The backends that wait for somebody's lock on a block."""
    rows = sql(
        url,
        "SELECT DISTINCT w.pid FROM pg_locks w JOIN pg_locks t ON t.pid = w.pid "
        "AND t.relation = 'budgets'::regclass WHERE NOT w.granted",
    )
    return [pid for (pid,) in rows]


def locked(url: str, block: int) -> psycopg.Connection[Any]:
    """Somebody who holds a block until they are closed."""
    other = psycopg.connect(url.partition("#")[0])
    other.execute(f"SELECT 1 FROM {schema_of(url)}.budgets WHERE block = {block} FOR UPDATE")
    return other


@SIZES
@pytest.mark.parametrize("way", WAYS)
def test_a_charge_whose_reply_is_lost_is_charged_once_and_marked(
    store: PostgresStore, url: str, wire: Wire, way: str, blocks: tuple[int, ...]
) -> None:
    anchor = store.anchors[0]
    assert isinstance(anchor, MemoryAnchor)
    store.charge(posting("prepare", *blocks))
    wire.fail_next(way)
    asked = posting("asked", *blocks)
    seq = store.charge(asked)
    assert anchor.marks[seq] == asked.digest
    assert entries(url).count(asked.body) == 1
    assert [spent(url, block) for block in blocks] == [2] * len(blocks)


@SIZES
def test_a_charge_that_outlives_its_connection_is_ended_before_it_is_tried_again(
    store: PostgresStore, url: str, wire: Wire, beside: Callable[..., Future[Any]], blocks: tuple[int, ...]
) -> None:
    first = store._pool._idle[-1].connection.info.backend_pid
    with locked(url, 1) as other:
        wire.fail_next("hang_up")  # while it waits for the block, and the server does not notice
        charging = beside(store.charge, posting("asked", *blocks))
        until(lambda: set(waiting(url)) - {first})
        assert sql(url, f"SELECT pid FROM pg_stat_activity WHERE pid = {first}") == []
        other.rollback()
        charging.result()
    assert spent(url, 1) == 1
    assert entries(url).count(posting("asked", 1).body) == 1


@SIZES
def test_a_charge_whose_backend_is_ended_is_tried_again(
    store: PostgresStore, url: str, beside: Callable[..., Future[Any]], blocks: tuple[int, ...]
) -> None:
    with locked(url, 1) as other:
        charging = beside(store.charge, posting("asked", *blocks))
        until(lambda: waiting(url))
        sql(url, f"SELECT pg_terminate_backend({waiting(url)[0]})")
        time.sleep(0.05)
        other.rollback()
        charging.result()
    assert spent(url, 1) == 1


def test_a_charge_without_a_key_is_found_by_its_digest(store: PostgresStore, url: str, wire: Wire) -> None:
    asked = posting("asked", 1)
    nameless = type(asked)(asked.body, asked.digest, None, asked.debits)
    wire.fail_next("lose_reply")
    store.charge(nameless)
    assert entries(url).count(asked.body) == 1


def test_a_refusal_that_is_lost_is_asked_for_again(store: PostgresStore, url: str, wire: Wire) -> None:
    wire.fail_next("lose_reply")
    with pytest.raises(DoesNotFit):
        store.charge(posting("too much", 1, costs=[CAP + 1] * 8))
    assert spent(url, 1) == 0


def test_connections_that_were_ended_while_idle_are_replaced(store: PostgresStore, url: str) -> None:
    for work in (
        lambda: store.charge(posting("charged", 1)),
        lambda: store.write(lambda tx: tx.append(b"written")),
        lambda: store.read(lambda tx: tx.rows("SELECT 1")),
    ):
        sql(
            url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lapwing'"
        )
        work()
    assert len(entries(url)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_commit_whose_reply_is_lost_is_looked_up(
    store: PostgresStore, url: str, wire: Wire, anchor: MemoryAnchor, way: str
) -> None:
    def work(tx: Transaction) -> int:
        seq = tx.append(b"entry")
        wire.fail_next(way)
        return seq

    before, undone = set(anchor.marks), ""
    try:
        store.write(work)
    except Unavailable as error:
        undone = str(error)
    if undone:  # the server was told to end before it had read that it should commit
        assert way == "hang_up"
        assert "Nothing was changed" in undone
    assert entries(url).count(b"entry") == len(set(anchor.marks) - before) == (not undone)


def test_a_commit_of_nothing_to_look_up_is_of_unknown_outcome(store: PostgresStore, wire: Wire) -> None:
    def work(tx: Transaction) -> None:
        tx.run("UPDATE budgets SET state = 2 WHERE block = 9")
        wire.fail_next("lose_reply")

    with pytest.raises(Unavailable, match="unknown, and counts as spent"):
        store.write(work)


def test_work_whose_connection_is_lost_before_its_commit_changed_nothing(
    store: PostgresStore, url: str
) -> None:
    def work(tx: Transaction) -> None:
        tx.append(b"entry")
        [(pid,)] = tx.rows("SELECT pg_backend_pid()")
        sql(url, f"SELECT pg_terminate_backend({pid})")
        tx.append(b"another")

    with pytest.raises(Unavailable, match="Nothing was changed"):
        store.write(work)
    assert len(entries(url)) == 1


def test_a_server_that_crashes_under_load_loses_and_doubles_nothing(own: Server) -> None:
    url, anchor = fresh_url(own.url), MemoryAnchor()
    with opened(url, create=True, anchor=anchor) as store:
        known: dict[int, bytes] = {}
        over = threading.Event()

        def charge_on(who: int) -> None:
            for n in range(1_000_000):
                if over.is_set():
                    return
                asked = posting(f"{who} {n}", who, *([5] if n % 3 == 0 else []), costs=[0] * 8)
                known[store.charge(asked)] = asked.digest

        with ThreadPoolExecutor(4) as threads:
            charging = [threads.submit(charge_on, who) for who in (1, 2, 3, 4)]
            for _ in range(2):
                before = len(known)
                until(lambda before=before: len(known) > before + 20)  # type: ignore[misc]
                own.restart("immediate")
            before = len(known)
            until(lambda: len(known) > before + 20)
            over.set()
            for future in charging:
                future.result()
    rows = {seq: bytes(digest) for seq, digest in sql(url, "SELECT seq, digest FROM entries")}
    assert rows == known == anchor.marks  # each of them waited until the server was back
    assert len(set(known.values())) == len(known)


def test_a_server_that_does_not_come_back_leaves_the_outcome_unknown(
    own: Server, beside: Callable[..., Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "WAIT_AFTER_BREAK", 0.5)
    url, anchor = fresh_url(own.url), MemoryAnchor()
    with opened(url, create=True, anchor=anchor) as store:
        store.charge(posting("before", 1))
        with closing(locked(url, 1)):
            charging = beside(store.charge, posting("asked", 1))
            until(lambda: waiting(url))
            own.stop("immediate")
            with pytest.raises(Unavailable, match="unknown, and counts as spent"):
                charging.result()
        for _ in range(2):
            with pytest.raises(Unavailable):
                store.charge(posting("while it is away", 1))
            with pytest.raises(Unavailable, match="reached"):
                store.read(lambda tx: tx.rows("SELECT 1"))
        own.start()
        store.charge(posting("asked", 1))
    assert len(entries(url)) == 2


@pytest.mark.slow
def test_a_full_disk_charges_nothing_and_is_survived(own: Server) -> None:
    small = Path(f"{own.folder}/small")
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(small)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("nobody may mount here")
    try:
        user = pwd.getpwuid(own.data.stat().st_uid)
        os.chown(small, user.pw_uid, user.pw_gid)
        own.sql(f"CREATE TABLESPACE small LOCATION '{small}'")
        url = fresh_url(f"{own.url}&options=-cdefault_tablespace%3Dsmall")
        charged: list[int] = []
        with opened(url, create=True) as store:

            def charge_on() -> None:
                for n in range(5000):
                    costs = [0] * 7 + [1 if n < CAP else 0]
                    charged.append(store.charge(posting(f"{n} {os.urandom(4000).hex()}", 1, costs=costs)))

            with pytest.raises(Unavailable, match=r"No space left.* Nothing was changed"):
                charge_on()
            assert sql(url, "SELECT seq FROM entries ORDER BY seq") == [(seq,) for seq in charged]
            assert sql(url, f"SELECT {CAP} - left_7 FROM budgets WHERE block = 1") == [
                (min(len(charged), CAP),)
            ]
            subprocess.run(["mount", "-o", "remount,size=32m", str(small)], check=True)
            store.charge(posting("room again", 1, costs=[0] * 8))
        sql(url, f"DROP SCHEMA {schema_of(url)} CASCADE")
        own.sql("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
        shutil.rmtree(small)
