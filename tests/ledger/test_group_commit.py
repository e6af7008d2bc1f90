"""Threads that wait together commit together, and each hears its own outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from lapwing.ledger.stores.group_commit import GroupCommit, Waiting


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

    def commit(group: list[Waiting]) -> None:
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

    def commit(group: list[Waiting]) -> None:
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

    def commit(group: list[Waiting]) -> None:
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
    def commit(group: list[Waiting]) -> None:
        for waiting in group:
            waiting.result = waiting.work(None)

    commits = GroupCommit(commit)
    with pytest.raises(RuntimeError, match="within"):
        commits.do(lambda _: commits.do(print))
    assert commits.do(partial(give, 7)) == 7
