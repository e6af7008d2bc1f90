"""Who has a ledger open, and who has not any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lapwing.errors import LapwingError, SessionOver
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.store import last_seal
from lapwing.storage import postgres
from support.postgres import sql, until
from support.stores import (
    entries,
    opened,
    posting,
)


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
    monkeypatch.setattr(postgres, "KEEPER_SECONDS", 0.05)
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
        "from lapwing.ledger.postgres_store import PostgresStore\n"
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
