"""A store in PostgreSQL decides, orders, seals and guards as it promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lapwing.errors import BadParameter, LapwingError, SessionOver, Unavailable
from lapwing.ledger.proofs.tree import Tree
from lapwing.ledger.stores import postgres_keeper, postgres_transaction
from lapwing.ledger.stores.postgres import PostgresStore
from lapwing.ledger.stores.postgres_links import Address
from lapwing.ledger.stores.store import Debit, DoesNotFit, KeyTaken, Posting, Transaction, last_seal
from support.postgres import Server, fresh_url, schema_of, server, sql
from support.stores import (
    BLOCK,
    CAP,
    LEDGER_ID,
    SIGNING,
    MemoryAnchor,
    block_row,
    entries,
    opened,
    posting,
    spent,
)

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def _nobody_seals_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_keeper, "SECONDS", 3600.0)


@pytest.fixture
def url() -> str:
    return fresh_url()


@pytest.fixture
def anchor() -> MemoryAnchor:
    return MemoryAnchor()


@pytest.fixture
def store(url: str, anchor: MemoryAnchor) -> Iterator[PostgresStore]:
    with opened(url, create=True, anchor=anchor) as made:
        yield made


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(8) as threads:
        yield threads.submit


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def drawn(url: str) -> int:
    """The last number that was drawn for an entry, committed or not."""
    [(name,)] = sql(url, "SELECT pg_get_serial_sequence('entries', 'seq')")
    [(value, was_drawn)] = sql(url, f"SELECT last_value, is_called FROM {name}")
    return int(value) if was_drawn else 0


def waiting(url: str) -> int:
    """How many statements on this ledger wait for a lock."""
    [(count,)] = sql(
        url,
        "SELECT count(DISTINCT w.pid) FROM pg_locks w JOIN pg_locks t ON t.pid = w.pid AND "
        "t.relation IN ('entries'::regclass, 'budgets'::regclass) WHERE NOT w.granted",
    )
    return int(count)


# Where it lies


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{SECRET}@/db#Big",
        f"postgresql://u:{SECRET}@/db#",
        f"postgresql://u:{SECRET}@/db#" + "a" * 41,
        f"postgresql://u:{SECRET}@/db#x; DROP TABLE entries",
        f"postgresql://u:x@{SECRET}@host/db",
        f"postgresql://u:x/{SECRET}@host/db",
        f"postgresql://u:x#{SECRET}@host/db",
        f"postgresql://u:%zz{SECRET}@host/db",
        f"postgresql://u@host:x{SECRET}/db",
    ],
    ids=range(9),
)
def test_a_wrong_url_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(BadParameter) as caught:
        PostgresStore(address, create=True)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_no_password_is_in_an_error_nor_in_where(tmp_path: Path) -> None:
    for address in (
        f"postgresql://u:{SECRET}@/db?host={tmp_path}",
        f"postgresql://u@127.0.0.1:1/db?password={SECRET}&sslmode=disable",
        f"postgresql://u:p@{SECRET}.invalid/db?password={SECRET}.invalid",
    ):
        with pytest.raises(Unavailable) as caught:
            PostgresStore(address, create=True)
        text = f"{caught.value} {caught.value.__cause__} {Address.of(address)!r}"
        assert SECRET not in text.replace(f"//{SECRET}.invalid/", "")
        assert "reached" in text


def test_a_ledger_is_made_once_and_found_again(url: str) -> None:
    with pytest.raises(Unavailable, match="no ledger"):
        PostgresStore(url, create=False)
    with opened(url, create=True):
        pass
    with pytest.raises(BadParameter, match="never replaced"):
        PostgresStore(url, create=True)
    with opened(url) as again:
        assert again.read(lambda tx: tx.rows("SELECT count(*) FROM blocks")) == [(18,)]
        assert again.where.endswith(f"#{url.partition('#')[2]}")


def test_a_ledger_sees_its_schema_only_and_commits_for_good_whatever_the_default(url: str) -> None:
    careless = url.replace(
        "#", "&options=-csynchronous_commit%3Doff%20-cdefault_transaction_isolation%3Dserializable#"
    )
    with opened(careless, create=True) as store:
        for work in (store.read, store.write):
            assert work(lambda tx: tx.rows("SHOW synchronous_commit")) == [("on",)]
            assert work(lambda tx: tx.rows("SHOW search_path")) == [(f"{schema_of(url)}, pg_temp",)]
        assert store.write(lambda tx: tx.rows("SHOW transaction_isolation")) == [("read committed",)]


def test_two_ledgers_in_one_database_do_not_meet(url: str, store: PostgresStore) -> None:
    other = fresh_url()
    with opened(other, create=True) as second:
        second.charge(posting("a", 1))
        assert (spent(url, 1), spent(other, 1)) == (0, 1)
        store.charge(posting("a", 1))
        assert store.seal() is not None


def test_servers_that_could_forget_are_refused() -> None:
    own = Server().start(fsync="off")
    try:
        with pytest.raises(Unavailable, match="fsync is off"):
            PostgresStore(fresh_url(own.url), create=True)
        own.restart(fsync="on", full_page_writes="off")
        with pytest.raises(Unavailable, match="full_page_writes is off"):
            PostgresStore(fresh_url(own.url), create=True)
        own.stop()
        (own.data / "standby.signal").touch(mode=0o644)
        own.start(full_page_writes="on")
        with pytest.raises(Unavailable, match="standby"):
            PostgresStore(fresh_url(own.url), create=True)
    finally:
        own.remove()


def test_without_the_driver_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from lapwing.errors import MissingExtra\n"
        "try:\n    import lapwing.ledger.stores.postgres\n"
        "except MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "A ledger in PostgreSQL needs an extra: pip install 'lapwing[postgres]'\n"


# Deciding


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


# Writing and reading


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
    assert len(runs) == 3


def test_reading_sees_one_moment_and_history_in_order(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_transaction, "ROWS_AT_ONCE", 4)
    asked = [posting(f"{n}", 1) for n in range(11)]
    numbers = [store.charge(one) for one in asked]

    def work(tx: Transaction) -> list[Any]:
        history = store.history(tx)
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


# Sealing


def check_seals(store: PostgresStore) -> int:
    """Every seal stands for all entries up to its last one; how many entries are sealed."""
    leaves = store.read(lambda tx: tx.rows("SELECT seq, digest FROM entries ORDER BY seq"))
    seals = store.read(lambda tx: tx.rows("SELECT last, size, root FROM seals ORDER BY number"))
    for last, size, root in seals:
        tree = Tree()
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
    monkeypatch.setattr(postgres_keeper, "SECONDS", 0.02)
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
    monkeypatch.setattr(postgres_keeper, "SECONDS", 0.02)
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


# Who is there


def test_a_session_lives_as_long_as_its_store(store: PostgresStore, url: str) -> None:
    with opened(url) as second:
        assert store.is_alive(store.session)
        assert store.is_alive(second.session)
        assert second.is_alive(store.session)
        assert not store.is_alive(store.session ^ 1)
    until(lambda: not store.is_alive(second.session))


def test_a_session_that_loses_its_connection_takes_its_number_again(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_keeper, "SECONDS", 0.05)
    with opened(url) as second:
        sql(url, f"SELECT pg_terminate_backend({second._keeper._link.connection.info.backend_pid})")
        until(lambda: not store.is_alive(second.session))
        until(lambda: store.is_alive(second.session))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_no_part_in_it(store: PostgresStore, url: str) -> None:
    store.charge(posting("a", 1))
    child = os.fork()
    if not child:
        try:
            outcomes = []
            attempts: list[Callable[[], Any]] = [
                lambda: store.charge(posting("b", 1)), lambda: store.read(last_seal), store.seal
            ]  # fmt: skip
            for attempt in attempts:
                try:
                    attempt()
                except LapwingError as error:
                    outcomes.append(type(error))
            store.close()
            os._exit(0 if outcomes == [SessionOver] * 3 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.charge(posting("c", 1))
    assert len(entries(url)) == 2


def test_a_child_does_not_keep_the_session_of_a_parent_that_crashed(store: PostgresStore, url: str) -> None:
    code = (
        "import os, sys, time\n"
        "from lapwing.ledger.stores.postgres import PostgresStore\n"
        "store = PostgresStore(sys.argv[1], create=False)\n"
        "if os.fork() == 0:\n    print(store.session, flush=True); time.sleep(30)\n"
        "time.sleep(1); os._exit(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, url], stdout=subprocess.PIPE, process_group=0
    ) as parent:
        assert parent.stdout is not None
        session = int(parent.stdout.readline())
        assert store.is_alive(session)
        parent.wait()
        until(lambda: not store.is_alive(session))
        os.killpg(parent.pid, signal.SIGKILL)


# Guards, against whoever comes by another way

GUARDS = {
    "entries do not change": "UPDATE entries SET body = 'x'",
    "entries do not go": "DELETE FROM entries",
    "entries are not emptied": "TRUNCATE entries",
    "numbers are drawn": "INSERT INTO entries (seq, body, digest) VALUES (99, 'x', 'x')",
    "keys are single": "INSERT INTO entries (key, body, digest) SELECT key, body, digest FROM entries",
    "seals do not change": "UPDATE seals SET size = 0",
    "seals do not go": "DELETE FROM seals",
    "seals are not emptied": "TRUNCATE seals CASCADE",
    "spent does not go down": "UPDATE budgets SET left_1 = left_1 + 1",
    "blocks stay where they are": "UPDATE blocks SET account = 2 WHERE block = 1",
    "blocks keep their names": "UPDATE blocks SET label = 'y' WHERE block = 1",
    "blocks do not go": "DELETE FROM blocks",
    "blocks are not emptied": "TRUNCATE blocks",
    "budgets stay where they are": "UPDATE budgets SET account = 2 WHERE block = 1",
    "budgets keep their blocks": "UPDATE budgets SET block = 77 WHERE block = 1",
    "budgets do not go": "DELETE FROM budgets",
    "budgets are not emptied": "TRUNCATE budgets",
    "held is not below nothing": "UPDATE budgets SET held_3 = -1",
    "closed stays closed": "UPDATE budgets SET state = 0 WHERE block = 9",
    "sums fit a filter": "UPDATE budgets SET left_0 = -1",
    "new sums fit a filter": "INSERT INTO budgets SELECT 200, account, 0, "
    f"{', '.join(['-1'] * 8 + ['0'] * 8)} FROM budgets WHERE block = 1",
    "answers do not change": "UPDATE answers SET bytes = 'x'",
    "answers do not go": "DELETE FROM answers",
}  # fmt: skip


@pytest.mark.parametrize("statement", GUARDS.values(), ids=GUARDS.keys())
def test_the_database_itself_refuses(guarded: str, statement: str) -> None:
    tables = "SELECT * FROM blocks JOIN budgets USING (block) ORDER BY block"
    before = sql(guarded, tables), entries(guarded)
    with pytest.raises(psycopg.Error):
        sql(guarded, statement)
    assert (sql(guarded, tables), entries(guarded)) == before


@pytest.fixture(scope="module")
def guarded() -> str:
    url = fresh_url()
    with opened(url, create=True) as store:
        store.charge(posting("a", *range(1, 10), costs=[2] * 8))
        store.write(lambda tx: tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (1, 1, ?)", b"42"))
        store.write(lambda tx: tx.run("UPDATE budgets SET state = 2 WHERE block = 9"))
    return url


def test_a_guard_that_says_no_changes_nothing_and_names_no_value(store: PostgresStore, url: str) -> None:
    with pytest.raises(Unavailable, match=r"spent is spent\. Nothing was changed"):
        store.write(lambda tx: tx.run("UPDATE budgets SET left_1 = ? WHERE block = 1", CAP + 77))
    with pytest.raises(Unavailable) as caught:
        store.write(
            lambda tx: tx.run_many(BLOCK, [(*block_row(1, 1)[:4], "a patient", *block_row(1, 1)[5:])])
        )
    assert "patient" not in str(caught.value)
    assert spent(url, 1) == 0


def test_the_server_of_the_tests_is_a_real_one() -> None:
    assert sql(server(), "SHOW fsync") == [("on",)]
