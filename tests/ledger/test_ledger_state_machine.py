"""Anything in any order, against a model of a page: two objects, crashes, restarts, old copies, odd clocks.

After every step the ledger must say exactly what `support.model` says, and at the end it must find itself
sound.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lapwing.core.budget import Terms
from lapwing.core.losses import Approximate, GaussianNoise, Loss, Pure, Repeated
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, Tampered, WorkEnded
from lapwing.ledger import Ledger, entry
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep, Work
from lapwing.ledger.spending import Spending, Target
from support.clients import Place, nursery
from support.clocks import Clock
from support.ledgers import SQLITE, Home, open_account, open_sliced, spending
from support.model import Family, Held, Part, Slot, clipped, plus, price
from support.spenders import STEP, request_of_a_crash

BUDGET: dict[str, Any] = {"epsilon": 1, "delta": "1e-3"}
LOSSES: tuple[Loss, ...] = (
    Pure(Fraction(1, 10)),
    Pure(Fraction(1, 3)),
    Pure(Fraction(9, 10)),
    Pure(Fraction(1, 10**12)),
    Approximate(Fraction(1, 50), Fraction(1, 10**5)),
    GaussianNoise(Fraction(12), Fraction(1), 1),
    GaussianNoise(Fraction(40), Fraction(1), 1),
)


@dataclass
class Asked:
    """A request that was charged under a key."""

    spending: Spending
    key: str
    answer: bytes | None
    by: Ledger | None  # who has not answered yet


class Hang(BaseException):
    """The process neither goes on nor ends."""


def hang(point: ReleaseStep) -> None:
    if point is ReleaseStep.CHARGED:
        raise Hang


which = st.integers(0, 1)
losses = st.sampled_from(LOSSES)
Whom = tuple[set[int], bool, bool]  # some of the blocks, or everyone; and the staff
whom = st.tuples(st.sets(st.integers(0, 7), min_size=1, max_size=4), st.booleans(), st.booleans())
# How far a process gets before it dies, whether it is charged then, and answered.
DEATHS = {
    "charge written": (False, False), "charge committed": (True, False), "ran": (True, False),
    "answer written": (True, False), "answer committed": (True, True), "returned": (True, True),
}  # fmt: skip


class AnyOrder(RuleBasedStateMachine):
    """Rules do something to the ledger and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lapwing_machine_"))
        self.before, self.told = os.environ["LAPWING_STATE"], Clock.told
        os.environ["LAPWING_STATE"] = str(self.folder / "state")
        setattr(entry, "time_ns", Clock.time_ns)  # noqa: B010 (it is not for others to use)
        (self.folder / "ledger").mkdir()
        self.home = Home.of(SQLITE, self.folder / "ledger")
        first = self.home.create()
        open_sliced(first, 3, **BUDGET)
        open_account(first, "staff", **BUDGET)
        terms = Terms.of(**BUDGET)
        self.families = {"visits": Family([Slot(terms)]), "staff": Family([Slot(terms)])}
        self.families["visits"].open(["b0", "b1", "b2"])
        self.ledgers = [first, self.home.open()]
        self.hanging: list[Ledger] = []
        self.asked: list[Asked] = []
        self.held: list[Held] = []
        self.copy: tuple[Path, int] | None = None
        self.died = False
        self.names = 3

    def teardown(self) -> None:
        try:
            self._close_all()
            with self.home.open() as ledger:
                assert ledger.verify().findings == ()
                self._compare(ledger)
                ledger.close()
        finally:
            os.environ["LAPWING_STATE"], Clock.told = self.before, self.told
            setattr(entry, "time_ns", time_ns)  # noqa: B010
            shutil.rmtree(self.folder)

    # What is compared

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        for ledger in self.ledgers:
            self._compare(ledger)

    def _compare(self, ledger: Ledger) -> None:
        for label, family in self.families.items():
            found = {
                block.label: (ledger.numbered(block.account).terms, block.spent, block.held)
                for block in ledger.blocks(label)
            }
            assert found == {name: slot.seen() for name, slot in family.current().items()}

    # Spending

    def _slots(self, targets: Sequence[Target]) -> list[Slot]:
        found = []
        for target in targets:
            family = self.families[target.account]
            if target.everyone:
                found += list(family.current().values())
            elif target.blocks:
                found += [family.blocks[name] for name in target.blocks]
            else:
                found.append(family.everyone[-1])
        return found

    def _targets(self, whom: Whom) -> tuple[Target, ...]:
        picks, everyone, staff = whom
        names = list(self.families["visits"].blocks)
        chosen = sorted({names[pick % len(names)] for pick in picks})
        also = (Target("staff"),) if staff else ()
        return (Target("visits", everyone=True) if everyone else Target("visits", chosen), *also)

    def _new_request(self, loss: Loss, targets: tuple[Target, ...]) -> tuple[Spending, str]:
        self.names += 1
        return spending(loss, *targets, request=b"%d" % self.names), f"key {self.names}"

    def _admit(self, asked: Spending, do: Callable[[], object]) -> bool:
        """Do it where the model admits it; otherwise it must be refused."""
        slots = self._slots(asked.targets)
        if all(slot.admits(price(slot.terms, asked.loss)) for slot in slots):
            do()
            for slot in slots:
                slot.spent = plus(slot.spent, price(slot.terms, asked.loss))
            return True
        with pytest.raises(OverBudget):
            do()
        return False

    @rule(by=which, loss=losses, whom=whom)
    def charge(self, by: int, loss: Loss, whom: Whom) -> None:
        asked, key = self._new_request(loss, self._targets(whom))
        answer = os.urandom(4)
        gate = Gate(self.ledgers[by], principal="analyst")
        if self._admit(asked, lambda: gate.release(ChargedRelease(asked, lambda: answer), key=key)):
            self.asked.append(Asked(asked, key, answer, None))

    @rule(by=which, loss=losses, whom=whom)
    def charge_and_fail(self, by: int, loss: Loss, whom: Whom) -> None:
        asked, key = self._new_request(loss, self._targets(whom))
        gate = Gate(self.ledgers[by], principal="analyst")

        def do() -> None:
            with suppress(WorkEnded):
                gate.release(ChargedRelease(asked, lambda: bytes(1 // 0)), key=key)

        if self._admit(asked, do):
            self.asked.append(Asked(asked, key, None, None))

    @rule(by=which, loss=losses, whom=whom)
    def charge_and_hang(self, by: int, loss: Loss, whom: Whom) -> None:
        """The object is left as it is, neither closed nor used again. Somebody else takes its place."""
        asked, key = self._new_request(loss, self._targets(whom))
        ledger = self.ledgers[by]
        gate = Gate(ledger, principal="analyst", watch=hang)

        def do() -> None:
            with suppress(Hang):
                gate.release(ChargedRelease(asked, lambda: b""), key=key)

        if self._admit(asked, do):
            self.asked.append(Asked(asked, key, None, ledger))
            self.hanging.append(ledger)
            self.ledgers[by] = self.home.open()

    @precondition(lambda self: not self.died)
    @rule(at=st.sampled_from(sorted(DEATHS)))
    def a_process_dies(self, at: str) -> None:
        """A real one, by SIGKILL."""
        self.died = True
        asked = request_of_a_crash()
        charged, answered = DEATHS[at]
        slots = self._slots(asked.targets)
        if not all(slot.admits(price(slot.terms, asked.loss)) for slot in slots):
            return
        said = nursery().start("spenders:crash", Place.of(self.home), what="release", at=at).wait()
        if charged:
            for slot in slots:
                slot.spent = plus(slot.spent, price(slot.terms, asked.loss))
            made = [bytes.fromhex(one["made"]) for one in said if "made" in one]
            self.asked.append(Asked(asked, "k", made[0] if answered else None, None))

    @precondition(lambda self: self.asked)
    @rule(by=which, pick=st.integers(0, 99), same=st.booleans())
    def ask_again(self, by: int, pick: int, same: bool) -> None:
        before = self.asked[pick % len(self.asked)]
        gate = Gate(self.ledgers[by], principal="analyst")
        if not same:
            other = spending(before.spending.loss, *before.spending.targets, request=b"other")
            with pytest.raises(KeyReused):
                gate.release(ChargedRelease(other, lambda: b"new noise"), key=before.key)
        elif before.answer is not None:
            again = gate.release(ChargedRelease(before.spending, lambda: b"new noise"), key=before.key)
            assert (again.answer, again.is_replay) == (before.answer, True)
        else:
            with pytest.raises(InProgress if before.by in self.hanging else WorkEnded):
                gate.release(ChargedRelease(before.spending, lambda: b"new noise"), key=before.key)

    # Reservations

    @rule(by=which, each=st.sampled_from([STEP, *LOSSES]), times=st.integers(1, 3), whom=whom)
    def reserve(self, by: int, each: Loss, times: int, whom: Whom) -> None:
        asked, key = self._new_request(Repeated(each, times), self._targets(whom))
        gate = Gate(self.ledgers[by], principal="trainer")
        parts: dict[Terms, Part] = {}
        slots = self._slots(asked.targets)
        # The two accounts have the same terms at first, and are moved alike.
        for slot in slots:
            total = clipped(slot.terms, [times * cost for cost in price(slot.terms, each)])
            parts.setdefault(slot.terms, Part(slot.terms, [], total)).slots.append(slot)
        if not all(slot.admits(part.total) for part in parts.values() for slot in part.slots):
            with pytest.raises(OverBudget):
                gate.reserve(asked, key=key)
            return
        self.held.append(Held(gate.reserve(asked, key=key), each, list(parts.values())))
        for part in parts.values():
            for slot in part.slots:
                slot.held = plus(slot.held, part.total)

    def _resumed(self, by: int, pick: int) -> tuple[Held, Work]:
        held = self.held[pick % len(self.held)]
        return held, Gate(self.ledgers[by], principal="trainer").resume(held.work.number)

    @precondition(lambda self: self.held)
    @rule(by=which, pick=st.integers(0, 99), times=st.integers(1, 4))
    def step(self, by: int, pick: int, times: int) -> None:
        held, work = self._resumed(by, pick)
        for _ in range(times):
            if held.step():
                work.step(held.each)
            else:
                with pytest.raises(OverBudget):
                    work.step(held.each)

    @precondition(lambda self: self.held)
    @rule(by=which, pick=st.integers(0, 99), lapses=st.booleans())
    def settle(self, by: int, pick: int, lapses: bool) -> None:
        held, work = self._resumed(by, pick)
        work.settle(stopping_was_decided_from_released_values=lapses)
        held.settle(lapses=lapses)
        self.held.remove(held)
        with pytest.raises(BadParameter):
            work.step(held.each)

    # Accounts

    @rule(by=which, count=st.integers(1, 2))
    def open_blocks(self, by: int, count: int) -> None:
        family = self.families["visits"]
        labels = [f"b{len(family.blocks) + k}" for k in range(count)]
        if any(family.everyone[-1].held):
            with pytest.raises(BadParameter):
                self.ledgers[by].open_blocks("visits", labels)
            return
        self.ledgers[by].open_blocks("visits", labels)
        family.open(labels)

    @rule(by=which, epsilon=st.sampled_from(["0.5", "2"]))
    def raise_the_budget(self, by: int, epsilon: str) -> None:
        family, terms = self.families["visits"], Terms.of(epsilon, "1e-4")
        if len(family.everyone) > 2:
            return
        slots = list(family.current().values())
        more: dict[str, Any] = {"epsilon": epsilon, "delta": "1e-4", "curator": self.home.curator}
        if any(slot in slots for held in self.held for part in held.parts for slot in part.slots):
            with pytest.raises(BadParameter):
                self.ledgers[by].raise_budget("visits", **more)
            return
        self.ledgers[by].raise_budget("visits", **more)
        family.raised(terms)

    # Time, restarts, copies

    @rule(year=st.sampled_from([1970, 2016, 2026, 2027, 2099]), month=st.integers(1, 12))
    def the_clock_jumps(self, year: int, month: int) -> None:
        Clock.told = datetime(year, month, 1, tzinfo=UTC)

    @rule(by=which)
    def restart(self, by: int) -> None:
        self.ledgers[by].close()
        self.ledgers[by] = self.home.open()

    def _close_all(self) -> None:
        for ledger in (*self.ledgers, *self.hanging):
            ledger.close()
        self.hanging.clear()

    def _entries(self) -> int:
        read = self.ledgers[0].store.read
        return int(read(lambda tx: tx.rows("SELECT count(*) FROM entries"))[0][0])

    @rule()
    def back_up(self) -> None:
        path = self.folder / "copy"
        path.unlink(missing_ok=True)
        one, other = sqlite3.connect(self.home.where), sqlite3.connect(path)
        one.backup(other)
        one.close()
        other.close()
        self.copy = path, self._entries()

    @precondition(lambda self: self.copy)
    @rule()
    def restore_the_copy(self) -> None:
        """It must not open if anything happened since. Then the right one is put back."""
        assert self.copy is not None
        copy, entries = self.copy
        has_grown = self._entries() > entries
        self._close_all()
        where, aside = Path(self.home.where), self.folder / "aside"
        os.replace(where, aside)
        shutil.copy(copy, where)
        if has_grown:
            with pytest.raises(Tampered, match="older copy"):
                self.home.open()
        for path in (where, Path(f"{where}-wal"), Path(f"{where}-shm")):
            path.unlink(missing_ok=True)
        os.replace(aside, where)
        self.ledgers = [self.home.open(), self.home.open()]


def profile(examples: int, steps: int, *, same: bool) -> Any:
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=same, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def test_anything_in_any_order() -> None:
    run_state_machine_as_test(AnyOrder, settings=profile(30, 20, same=True))


@pytest.mark.slow
def test_anything_in_any_order_for_long() -> None:
    run_state_machine_as_test(AnyOrder, settings=profile(300, 60, same=False))
