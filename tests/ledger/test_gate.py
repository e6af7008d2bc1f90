"""Charged before it is run, stored before it leaves, the same bytes for the same key."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from lapwing.core.losses import ParallelComposition, Pure, Relation
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, Tampered, Unavailable, WorkEnded
from lapwing.ledger import Account, Ledger
from lapwing.ledger import request_status as earlier_module
from lapwing.ledger.anchors import FileAnchor
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep
from lapwing.ledger.request_status import RequestState
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_account, release, spending


def spent(ledger: Ledger) -> int:
    return ledger.blocks("visits")[0].spent[1]


def test_it_is_charged_when_it_runs_and_stored_when_it_leaves(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    seen: list[tuple[ReleaseStep, int, int]] = []

    def look(point: ReleaseStep) -> None:
        stored = ledger.store.read(lambda tx: tx.rows("SELECT count(*) FROM answers"))[0][0]
        seen.append((point, spent(ledger), stored))

    Gate(ledger, principal="analyst", watch=look).release(ChargedRelease(spending("0.1"), lambda: b"42"))
    charged = 100_000_000
    assert seen == [
        (ReleaseStep.PLANNED, 0, 0),
        (ReleaseStep.CHARGED, charged, 0),
        (ReleaseStep.RAN, charged, 0),
        (ReleaseStep.STORED, charged, 1),
    ]


def test_the_receipt_names_who_what_and_where(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    receipt = release(ledger, "0.1", parameters={"scale": "10"}).receipt
    assert receipt.ledger == ledger.id
    assert receipt.principal == "analyst"
    assert receipt.record["mechanism"] == "laplace"
    assert receipt.record["parameters"] == {"scale": "10"}
    assert receipt.record["code"]
    rows = ledger.store.read(
        lambda tx: tx.rows("SELECT digest FROM entries WHERE seq = ?", receipt.position)
    )
    assert bytes(rows[0][0]).hex() == receipt.hash
    assert '"principal": "analyst"' in receipt.to_json()


def test_an_entry_does_not_let_anybody_guess_the_question(home: Home) -> None:
    """The same question under two keys leaves two digests: who has no key has nothing to compare."""
    ledger = home.create()
    open_account(ledger)
    first, second = (release(ledger, "0.1", key=key).receipt.request for key in ("a", "b"))
    assert first != second


class TestTheSameKey:
    def test_gives_the_same_bytes_at_no_charge(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        first = release(ledger, "0.1", key="k", answer=b"\x00noise\xff")
        again = release(home.open(), "0.1", key="k", answer=b"other noise")
        assert (again.answer, again.is_replay) == (b"\x00noise\xff", True)
        assert again.receipt == first.receipt
        assert spent(ledger) == 100_000_000

    def test_gives_them_also_when_nothing_is_left(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        release(ledger, "1", key="k", answer=b"all of it")
        assert release(ledger, "1", key="k").answer == b"all of it"

    @pytest.mark.parametrize(
        "other",
        [{"loss": "0.2"}, {"request": b"how few?"}, {"mechanism": "gaussian"}, {"parameters": {"a": 1}}],
    )
    def test_with_another_request_is_an_error(self, home: Home, other: dict[str, object]) -> None:
        ledger = home.create()
        open_account(ledger)
        release(ledger, "0.1", key="k")
        with pytest.raises(KeyReused):
            release(ledger, key="k", **{"loss": "0.1", **other})  # type: ignore[arg-type]
        assert spent(ledger) == 100_000_000

    def test_is_the_same_after_an_upgrade(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        ledger = home.create()
        open_account(ledger)
        release(ledger, "0.1", key="k", answer=b"before")
        monkeypatch.setattr("lapwing.ledger.charging._code_version", lambda: "9.9")
        assert release(ledger, "0.1", key="k").answer == b"before"

    # Case H1.
    def test_of_another_principal_is_another_key(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        release(ledger, "0.1", key="k", answer=b"mine")
        assert release(ledger, "0.1", key="k", answer=b"yours", principal="other").answer == b"yours"
        assert spent(ledger) == 200_000_000

    def test_in_flight_is_in_progress(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        errors: list[BaseException] = []

        def run() -> bytes:
            for opened in (ledger, home.open()):
                try:
                    release(opened, "0.1", key="k")
                except InProgress as error:
                    errors.append(error)
            return b"42"

        plan = ChargedRelease(spending("0.1"), run)
        assert Gate(ledger, principal="analyst").release(plan, key="k").answer == b"42"
        assert len(errors) == 2
        assert spent(ledger) == 100_000_000

    def test_after_the_work_failed_says_so_and_never_runs_it_again(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)

        def fail() -> bytes:
            raise ZeroDivisionError

        gate = Gate(ledger, principal="analyst")
        with pytest.raises(WorkEnded) as first:
            gate.release(ChargedRelease(spending("0.1"), fail), key="k")
        assert isinstance(first.value.__context__, ZeroDivisionError)
        with pytest.raises(WorkEnded) as again:
            release(ledger, "0.1", key="k")
        assert str(again.value) == str(first.value)
        assert spent(ledger) == 100_000_000

    def test_after_the_work_failed_prints_nothing_of_why(self, file_home: Home) -> None:
        """A log with its traceback would tell what the data made of it."""
        ledger = file_home.create()
        open_account(ledger)

        def fail() -> bytes:
            raise ValueError("patient 7 tested positive")

        with pytest.raises(WorkEnded) as ended:
            Gate(ledger, principal="analyst").release(ChargedRelease(spending("0.1"), fail))
        assert "patient 7" not in "".join(traceback.format_exception(ended.value))

    def test_after_a_crash_says_so(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)

        class Crash(BaseException):
            pass

        def crash(point: ReleaseStep) -> None:
            if point is ReleaseStep.RAN:
                raise Crash

        with pytest.raises(Crash):
            Gate(ledger, principal="analyst", watch=crash).release(
                ChargedRelease(spending("0.1"), lambda: b"1"), key="k"
            )
        with pytest.raises(InProgress):
            release(home.open(), "0.1", key="k")
        ledger.close()
        with pytest.raises(WorkEnded):
            release(home.open(), "0.1", key="k")

    def test_of_a_charge_of_unknown_outcome_says_that_its_work_ended(
        self, file_home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The charge was committed, but its anchor took no mark: nobody ran it, and nobody will."""
        ledger = file_home.create()
        open_account(ledger)

        def fail(*_: object, **__: object) -> None:
            raise Unavailable("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(FileAnchor, "_keep", fail)
            with pytest.raises(Unavailable):
                release(ledger, "0.1", key="k")
        with pytest.raises(WorkEnded):
            release(ledger, "0.1", key="k")
        assert spent(ledger) == 100_000_000

    @pytest.mark.parametrize("error", [Unavailable("the disk is full"), KeyboardInterrupt()], ids=repr)
    def test_of_an_answer_that_could_not_be_stored_says_that_its_work_ended(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        """At once in this process, elsewhere once something can be stored again. It never runs again."""
        ledger = home.create()
        open_account(ledger)
        ledger.principal("analyst")
        ran: list[int] = []

        def run() -> bytes:
            ran.append(1)
            return b"42"

        gate, plan = Gate(ledger, principal="analyst"), ChargedRelease(spending("0.1"), run)
        write, me = ledger.store.write, threading.get_ident()

        def fail(*work: Any, **how: Any) -> Any:
            if threading.get_ident() != me:  # a PostgreSQL ledger seals in a thread of its own
                return write(*work, **how)
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(ledger.store, "write", fail)
            with pytest.raises(type(error)):
                gate.release(plan, key="k")
            with pytest.raises(WorkEnded):
                gate.release(plan, key="k")
        found = gate.find("k")
        assert found is not None
        assert found.state is RequestState.ENDED
        other = home.open()
        with pytest.raises(InProgress):  # its process lives, and could not say yet that it gave up
            release(other, "0.1", key="k")
        release(ledger, "0.1")
        with pytest.raises(WorkEnded):
            release(other, "0.1", key="k")
        assert len(ran) == 1
        assert spent(ledger) == 200_000_000
        assert ledger.verify().findings == ()

    def test_of_an_answer_that_could_not_be_stored_just_now_is_told_to_all(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = home.create()
        open_account(ledger)
        ledger.principal("analyst")
        write, failures, me = ledger.store.write, [Unavailable("busy")], threading.get_ident()

        def fail_once(*work: Any, **how: Any) -> Any:
            if failures and threading.get_ident() == me:
                raise failures.pop()
            return write(*work, **how)

        with monkeypatch.context() as broken:
            broken.setattr(ledger.store, "write", fail_once)
            with pytest.raises(Unavailable, match="could not be stored"):
                release(ledger, "0.1", key="k")
        with pytest.raises(WorkEnded):
            release(home.open(), "0.1", key="k")

    def test_of_an_answer_that_was_stored_but_not_marked_gives_it(
        self, file_home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The outcome was unknown for a moment; then the answer is there, and no failure is stored."""
        ledger = file_home.create()
        open_account(ledger)
        marks: list[int] = []
        keep = FileAnchor._keep

        def fail_second(*content: Any, **how: Any) -> None:
            marks.append(1)
            if len(marks) == 2:
                raise Unavailable("the disk is full")
            keep(*content, **how)

        with monkeypatch.context() as broken:
            broken.setattr(FileAnchor, "_keep", fail_second)
            with pytest.raises(Unavailable, match="could not be stored"):
                release(ledger, "0.1", key="k", answer=b"7")
        assert release(ledger, "0.1", key="k", answer=b"8").answer == b"7"
        assert ledger.verify().findings == ()

    def test_of_work_in_steps_whose_answer_could_not_be_stored_is_not_finished_again(
        self, file_home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = file_home.create()
        open_account(ledger)
        gate = Gate(ledger, principal="analyst")
        work = gate.reserve(spending(Pure(Fraction(1, 10))), key="k")
        work.step(Pure(Fraction(1, 10)))

        def fail(*_: object, **__: object) -> None:
            raise Unavailable("the disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(ledger.store, "write", fail)
            with pytest.raises(Unavailable, match="could not be stored"):
                work.finish(lambda: b"first draw")
            for again in (work, gate.resume(work.number)):
                with pytest.raises(WorkEnded):
                    again.finish(lambda: b"second draw")

    def test_from_many_threads_at_once_is_charged_once(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        outcomes: list[object] = []

        def ask() -> None:
            try:
                outcomes.append(
                    release(ledger, "0.1", key="k", answer=threading.current_thread().name.encode()).answer
                )
            except InProgress:
                outcomes.append(InProgress)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers = {outcome for outcome in outcomes if outcome is not InProgress}
        assert len(outcomes) == 8
        assert len(answers) == 1
        assert spent(ledger) == 100_000_000


@pytest.mark.parametrize("key", ["", "k" * 201, "k" * 10_000_000, "a\nb", "\ud800"], ids=range(5))
def test_a_key_that_makes_no_sense_is_refused(file_home: Home, key: str) -> None:
    ledger = file_home.create()
    open_account(ledger)
    with pytest.raises(BadParameter):
        Gate(ledger, principal="analyst").release(ChargedRelease(spending(), lambda: b""), key=key)
    assert spent(ledger) == 0


BAD: dict[str, Callable[[], object]] = {
    "no account": lambda: spending("0.1", Target("nobody's")),
    "a negative loss": lambda: spending("-0.1"),
    "no number": lambda: spending(Pure(float("nan"))),
    "blocks where there are none": lambda: spending("0.1", Target("visits", ["b"])),
    "the same account twice": lambda: spending("0.1", Target("visits"), Target("visits")),
    "a text for blocks": lambda: spending("0.1", Target("visits", "b0")),
    "a parameter that is no text": lambda: spending("0.1", parameters={"a": 0.5}),
    "too many parameters": lambda: spending("0.1", parameters={"a": "x" * 20_000}),
    "too long a request": lambda: spending("0.1", request=b"x" * (2 << 20)),
    "a mechanism without a name": lambda: spending("0.1", mechanism=""),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_before_anything_happens(file_home: Home, what: str) -> None:
    ledger = file_home.create()
    open_account(ledger)
    ran: list[int] = []

    def run() -> bytes:
        ran.append(1)
        return b""

    with pytest.raises((BadParameter, AttributeError, TypeError)):
        Gate(ledger, principal="analyst").release(ChargedRelease(BAD[what](), run))  # type: ignore[arg-type]
    assert not ran
    assert spent(ledger) == 0


@pytest.mark.parametrize("loss", ["1e300", "1000000000000000000000", "2"])
def test_a_huge_loss_is_refused_and_nothing_charged(home: Home, loss: str) -> None:
    ledger = home.create()
    open_account(ledger)
    with pytest.raises(OverBudget):
        release(ledger, loss)
    assert spent(ledger) == 0
    release(ledger, "1")


def test_a_loss_below_one_unit_costs_one_unit(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger, Fraction(1, 10**30))
    assert spent(ledger) == 1


def test_parallel_composition_is_not_for_replaced_units(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, relation=Relation.REPLACE)
    with pytest.raises(BadParameter, match="add or remove"):
        spending(ParallelComposition((Pure(Fraction(1)), Pure(Fraction(1)))), relation=Relation.REPLACE)


def test_an_answer_is_bytes(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger)
    with pytest.raises(WorkEnded):
        Gate(ledger, principal="analyst").release(ChargedRelease(spending(), lambda: "42"))  # type: ignore[arg-type, return-value]
    assert spent(ledger) == 100_000_000


def test_a_request_that_is_answered_while_we_look_is_answered(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and asking whether it is alive, it was stored and let go of."""
    ledger = file_home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="ann")
    looks: list[int] = []
    look = earlier_module._look

    def ends_meanwhile(*args: Any) -> Any:
        found = look(*args)
        assert found is not None
        looks.append(1)
        return replace(found, state=RequestState.OPEN, answer=b"") if len(looks) == 1 else found

    gate.release(ChargedRelease(spending("0.1"), lambda: b"7"), key="k")
    monkeypatch.setattr(earlier_module, "_look", ends_meanwhile)
    found = gate.find("k")
    assert found is not None
    assert (found.state, found.answer, len(looks)) == (RequestState.ANSWERED, b"7", 2)


@pytest.mark.parametrize("body", [b"[]", b"{}", b"7"])
def test_an_outcome_that_was_changed_is_tampering(
    file_home: Home, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Whatever the bytes are: older entries are checked only here."""
    ledger = file_home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="ann")
    gate.release(ChargedRelease(spending("0.1"), lambda: b"7"), key="k")
    rows = earlier_module._rows
    monkeypatch.setattr(
        earlier_module, "_rows", lambda *args: [(*row[:4], body, *row[5:]) for row in rows(*args)]
    )
    with pytest.raises(Tampered, match="the answer to charge"):
        gate.find("k")


def test_long_work_is_priced_before_the_write_lock_is_taken(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price of many parts takes long. Nobody else has to wait for it."""
    ledger = file_home.create()
    open_account(ledger)
    order: list[str] = []
    write, price = type(ledger.store).write, Account.costs_of_steps

    def written(store: Any, work: Any) -> Any:
        order.append("write")
        return write(store, work)

    def priced(account: Account, loss: Any) -> Any:
        order.append("price")
        return price(account, loss)

    monkeypatch.setattr(type(ledger.store), "write", written)
    monkeypatch.setattr(Account, "costs_of_steps", priced)
    Gate(ledger, principal="ann").reserve(spending("0.1"), key="k")
    reserved = len(order) - 1 - order[::-1].index("write")
    assert "price" in order[:reserved]


def test_used_keys_are_the_own_and_the_shared_ones_that_were_charged(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    ann, bob = (Gate(ledger, principal=name) for name in ("ann", "bob"))
    asked = [(key, shared) for key in ("own", "everybody's", "none") for shared in (False, True)]
    assert ann.used_keys(asked) == ann.used_keys([]) == frozenset()
    ann.release(ChargedRelease(spending("0.1"), lambda: b"42"), key="own")
    ann.release(ChargedRelease(spending("0.1"), lambda: b"43"), key="everybody's", shared=True)
    assert ann.used_keys(asked) == {("own", False), ("everybody's", True)}
    assert bob.used_keys(asked) == {("everybody's", True)}
    with pytest.raises(WorkEnded):
        bob.release(ChargedRelease(spending("0.1"), lambda: 1 / 0), key="none")  # type: ignore[arg-type, return-value]
    assert bob.used_keys(asked) == {("everybody's", True), ("none", False)}
    assert Gate(home.open(), principal="bob").used_keys(asked) == bob.used_keys(asked)
