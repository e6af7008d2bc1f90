"""Threads that wait together commit together, and each hears its own outcome."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lapwing.ledger.anchors import FileAnchor, Mark
from lapwing.ledger.charging import ChargeRequest
from lapwing.ledger.entry import encode
from lapwing.ledger.spending import Target
from lapwing.ledger.sqlite_store import SqliteStore
from lapwing.ledger.store import DoesNotFit, KeyTaken, Posting
from lapwing.storage.group_commit import GroupCommit, PendingCommit
from support.ledgers import SQLITE, Home, open_sliced, spending


def give(value: int, _: object) -> int:
    return value


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_each_gets_its_own_result_and_commits_are_shared() -> None:
    sizes: list[int] = []

    def commit(group: list[PendingCommit]) -> None:
        sizes.append(len(group))
        time.sleep(0.005)
        for waiting in group:
            waiting.result = waiting.work(None)

    commits = GroupCommit(commit)
    results: list[tuple[int, int]] = []

    def client(number: int) -> None:
        for k in range(20):
            value = number * 100 + k
            results.append((value, commits.do(partial(give, value))))

    run_all([threading.Thread(target=client, args=(number,)) for number in range(16)])
    assert len(results) == 320
    assert all(asked == got for asked, got in results)
    assert sum(sizes) == 320
    assert len(sizes) < 160


def test_never_two_commits_at_once() -> None:
    inside = threading.Lock()

    def commit(group: list[PendingCommit]) -> None:
        assert inside.acquire(blocking=False)
        time.sleep(0.001)
        inside.release()

    commits = GroupCommit(commit)
    run_all([threading.Thread(target=lambda: [commits.do(print) for _ in range(30)]) for _ in range(8)])


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_commit_that_fails_fails_for_all_of_its_group_and_for_nobody_else(
    error: type[BaseException],
) -> None:
    first = threading.Event()

    def commit(group: list[PendingCommit]) -> None:
        if not first.is_set():
            first.set()
            time.sleep(0.05)  # others come meanwhile
            raise error

    commits = GroupCommit(commit)
    outcomes: list[str] = []

    def client(wait: Callable[[], object]) -> None:
        wait()
        try:
            commits.do(print)
            outcomes.append("done")
        except BaseException as failure:
            outcomes.append(type(failure).__name__)

    run_all(
        [
            threading.Thread(target=client, args=(lambda: None,)),
            *(threading.Thread(target=client, args=(first.wait,)) for _ in range(5)),
        ]
    )
    assert sorted(outcomes) == sorted([error.__name__, *["done"] * 5])


def test_a_transaction_within_a_transaction_is_refused() -> None:
    def commit(group: list[PendingCommit]) -> None:
        for waiting in group:
            waiting.result = waiting.work(None)

    commits = GroupCommit(commit)
    with pytest.raises(RuntimeError, match="within"):
        commits.do(lambda _: commits.do(print))
    assert commits.do(partial(give, 7)) == 7


def alone(store: SqliteStore, posting: Posting) -> int:
    return store.charge(posting)


def in_a_transaction(store: SqliteStore, posting: Posting) -> int:
    return store.write(lambda tx: tx.debit(posting))


def in_a_group(store: SqliteStore, posting: Posting) -> int:
    """Beside one that fails, so that both have a savepoint of their own."""
    group = [PendingCommit(), PendingCommit()]
    group[0].work, group[1].work = partial(give, 0), posting
    store._commit(group)
    if group[1].error is not None:
        raise group[1].error
    result: int = group[1].result
    return result


@pytest.mark.parametrize("blocks", [("b1",), ("b1", "b2", "b3"), ("b0", "b2", "b3", "b5")])
def test_a_charge_alone_leaves_what_one_in_a_group_leaves(tmp_path: Path, blocks: tuple[str, ...]) -> None:
    """One block, a run of them, and several runs: the same entry, sums and mark, and the same no."""
    home = Home.of(SQLITE, tmp_path)
    ledger = home.create()
    root = open_sliced(ledger, 6)
    store = ledger.store
    assert isinstance(store, SqliteStore)
    newest = "SELECT key, body, digest FROM entries ORDER BY seq DESC LIMIT 1"
    left: list[Any] = []
    for number, way in enumerate((alone, in_a_transaction, in_a_group)):
        plan = spending("0.01", Target("visits", blocks))  # far from every cap
        request = ChargeRequest(ledger, plan, principal="me", key=f"{number}", kind="charge", shared=False)
        debits = request._debits(None)
        body = request.body(debits)
        assert body == encode(json.loads(body))
        before = [block.spent for _, block in ledger.look_at(root, blocks)]
        posting = Posting.of(body, request.key, debits)
        seq = way(store, posting)
        [entry] = store.read(lambda tx: tx.rows(newest))
        assert entry == (posting.key, posting.body, posting.digest)
        assert FileAnchor(home.anchor).read()[-1] == Mark(seq, posting.digest)
        after = [block.spent for _, block in ledger.look_at(root, blocks)]
        pairs = zip(before, after, strict=True)
        left.append([[b - a for a, b in zip(*pair, strict=True)] for pair in pairs])
        with pytest.raises(KeyTaken):
            way(store, posting)
        elsewhere = tuple(debit._replace(account=99) for debit in debits)
        with pytest.raises(DoesNotFit):
            way(store, posting._replace(key=b"other", debits=elsewhere))
        assert [block.spent for _, block in ledger.look_at(root, blocks)] == after
    assert left[0] == left[1] == left[2]
    assert any(map(any, left[0]))
    assert ledger.verify().findings == ()
    home.close()
