"""Faults that a review found, each with the smallest way to it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.config.values import checked_label
from lapwing.core.losses import Loss, ParallelComposition, Pure, Relation, Repeated, SequentialComposition
from lapwing.errors import BadParameter, Unavailable, WorkEnded
from lapwing.ledger import Ledger, Slices
from lapwing.ledger.accountant.textbook import Unreadable, opinion
from lapwing.ledger.gate import Gate
from lapwing.ledger.ledger_place import without_password
from lapwing.ledger.spending import Target
from lapwing.ledger.sqlite_store import SqliteStore
from support.ledgers import SQLITE, Home, open_account, release, spending
from support.raised import named


@pytest.fixture
def home(tmp_path: Path) -> Any:
    made = Home.of(SQLITE, tmp_path)
    yield made
    made.close()


def _is_good(home: Home) -> bool:
    home.close()
    return home.open().verify().findings == ()


def test_a_step_is_priced_for_the_relation_of_its_account(home: Home) -> None:
    ledger = home.create()
    open_account(ledger, relation=Relation.REPLACE)
    work = Gate(ledger, principal="me").reserve(spending("0.5", relation=Relation.REPLACE))
    with pytest.raises(BadParameter, match="add or remove"):
        work.step(ParallelComposition((Pure(Fraction(1, 2)), Pure(Fraction(1, 2)))))
    with pytest.raises(BadParameter, match="must be a loss"):
        work.step("0.1")  # type: ignore[arg-type]
    assert not any(ledger.blocks("visits")[0].spent)
    assert _is_good(home)


def _nested(depth: int) -> Loss:
    loss: Loss = Pure(Fraction(1, 10**6))
    for _ in range(depth):
        loss = Repeated(loss, 1)
    return loss


def test_what_no_reader_would_read_is_not_charged(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger, _nested(50))
    with pytest.raises(BadParameter, match="deep"):
        release(ledger, _nested(51))
    work = Gate(ledger, principal="me").reserve(spending("0.5"))
    with pytest.raises(BadParameter, match="deep"):
        work.step(_nested(51))
    assert _is_good(home)


class _Other(str):
    """Says that it is no other text, and is written like one."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_parameter_is_written_once(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    bad: tuple[Any, ...] = ({"a": 1, _Other("a"): 2}, {"a": 10**5000}, None, [("a", 1)])
    for parameters in bad:
        with pytest.raises(BadParameter, check=named("parameters")):
            release(ledger, parameters=parameters)
    assert _is_good(home)


def test_losses_within_losses_are_priced_in_time_that_grows_with_their_depth() -> None:
    loss: Loss = Pure(Fraction(1, 10**6))
    for _ in range(50):
        loss = SequentialComposition((loss,))
    assert loss.pure == Fraction(1, 10**6)
    assert loss.pair == (Fraction(1, 10**6), Fraction(0))


def test_a_short_text_of_a_huge_number_is_not_computed() -> None:
    with pytest.raises(Unreadable):
        opinion({"loss": "Pure", "epsilon": "1e-999999999"}, (2, 3, 4, 5, 6))


def test_a_seal_does_not_end_the_turn_of_another_thread(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    store = ledger.store
    assert isinstance(store, SqliteStore)
    committed, looked = threading.Event(), threading.Event()
    other_process = os.open(f"{home.where}.lock", os.O_RDWR)

    def watch(point: str) -> None:
        if point == "committed":
            committed.set()
            looked.wait(10)

    seal = store.seal()
    store._watch = watch
    store.__dict__["write"] = lambda work, alone=True: seal
    charging = threading.Thread(target=lambda: store._commits.do(lambda tx: tx.append(b"{}")))
    sealing = threading.Thread(target=store.seal)
    charging.start()
    assert committed.wait(10)
    sealing.start()
    sealing.join(0.2)
    with pytest.raises(BlockingIOError):  # nobody else can have the turn
        fcntl.flock(other_process, fcntl.LOCK_EX | fcntl.LOCK_NB)
    looked.set()
    charging.join()
    sealing.join()
    os.close(other_process)
    del store.write


def test_whoever_comes_by_a_link_takes_the_same_turns(home: Home, tmp_path: Path) -> None:
    ledger = home.create()
    alias = tmp_path / "alias.ledger"
    alias.symlink_to(home.where)
    with Ledger.open(alias, keys=home.keys, anchor=home.anchor) as other:
        assert other.store.is_alive(ledger.store.session)
    assert not Path(f"{alias}.lock").exists()


def test_a_label_is_measured_in_the_form_in_which_it_is_kept() -> None:
    with pytest.raises(BadParameter, match="200"):
        checked_label("\u0958" * 150, "account")  # two letters each, once normal


def test_finished_work_is_not_run_again(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="me")
    work = gate.reserve(spending("0.5"))
    work.step(Pure(Fraction(1, 10)))
    work.finish(lambda: b"first")
    runs: list[int] = []

    def run() -> bytes:
        runs.append(1)
        return b"second"

    assert work.finish(run).answer == b"first"
    with pytest.raises(WorkEnded):
        gate.resume(work.number).finish(run)
    assert not runs


def test_nothing_can_be_held_for_no_loss_at_all(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    assert not Gate(ledger, principal="me").reserve(spending(SequentialComposition(()))).answered
    assert not any(ledger.blocks("visits")[0].held)


def test_bad_input_gets_a_clear_error(home: Home) -> None:
    ledger = home.create()
    for bad in ({"unit": "person"}, {"relation": "replace"}, {"slices": "units", "rule": "r"}):
        with pytest.raises(BadParameter):
            open_account(ledger, **bad)
    open_account(ledger, slices=Slices.IDENTITIES, rule="r")
    with pytest.raises(BadParameter, match="not one text"):
        ledger.open_blocks("visits", "ab")
    with pytest.raises(BadParameter, check=named("everyone")):
        Target("visits", everyone="no")  # type: ignore[arg-type]
    ledger.close()
    with pytest.raises(Unavailable, match="closed"):
        ledger.open_blocks("visits", ["a"])


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@host/db#x",
        "postgresql://host/db?user=me&password=hush#x",
        "postgresql://host/db?password=hu@hush#x",
    ],
)
def test_no_password_is_shown_wherever_it_stands(url: str) -> None:
    assert "hush" not in without_password(url)


class _Interrupted:
    """A connection in whose user an interrupt arrives just after a statement was run."""

    def __init__(self, connection: Any, after: str) -> None:
        self._connection = connection
        self._after = after

    def execute(self, sql: str, *parameters: Any) -> Any:
        done = self._connection.execute(sql, *parameters)
        if sql == self._after:
            self._after = ""
            raise KeyboardInterrupt
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("after", ["BEGIN IMMEDIATE", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_open(home: Home, after: str) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger)
    store = ledger.store
    assert isinstance(store, SqliteStore)
    connection = store._writer
    store._writer = _Interrupted(connection, after)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        release(ledger)
    assert not connection.in_transaction
    release(ledger)
    store._writer = connection
    assert _is_good(home)


INTERRUPTED = """
import random, signal, sys, threading, time
from pathlib import Path
from support.ledgers import SQLITE, Home, open_account, release

home = Home.of(SQLITE, Path(sys.argv[1]))
ledger = home.create()
open_account(ledger, epsilon=100)
end, armed, interrupts = time.monotonic() + 3, False, 0

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

def charge():
    while time.monotonic() < end:
        release(ledger, "0.0001")

threads = [threading.Thread(target=charge, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, interrupt)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.random() * 0.004 + 1e-5)
        armed = True
        for _ in range(50):
            release(ledger, "0.0001")
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    thread.join(10)
stuck = sum(thread.is_alive() for thread in threads)
print(interrupts > 50, stuck, ledger.verify().findings)
ledger.close()
home.open().close()
"""


def test_interrupts_leave_nobody_waiting(tmp_path: Path) -> None:
    """Ctrl-C again and again in the main thread, at any step of a commit that threads share.

    Threads whose commit was interrupted hear that its outcome is unknown, and end.
    """
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": tests}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "0", "()"], done.stderr[-2000:]
    assert done.returncode == 0
