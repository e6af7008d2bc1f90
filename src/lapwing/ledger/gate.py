"""The gate: plan, charge, run, store, receipt. It is the only code that spends.

Claim    no answer leaves that was not durably charged first, and none leaves that is not stored: the same
         key again returns the same bytes.
Because  the price is fixed before data is read; the charge is on disk before `run` is called; the answer
         is on disk before `release` returns. A request that crashed in between stays charged and is never
         run again under the same key.
Test     tests/ledger/test_gate.py, tests/faults/test_ledger_crashes.py (every step of `ReleaseStep`)

Claim    if the gate pads, the moment at which a charge gets its answer, or fails, is a rung of a random
         ladder (`lapwing.ledger.padding`), and so are all moments that follow from it.
Because  the wait comes before the outcome is stored, and only what is stored is seen.
Test     tests/ledger/test_gate_padding.py

`ChargedRead` is one charged read of private data: check, charge, read, check again, store. SQL questions,
contributions to joint statistics and attempts of pipelines all read in this way.

Claim    rows are read only after their charge is on disk. The result is stored before it is returned, and
         is made of the version of the data that was charged. A key is charged once.
Because  the gate charges, then reads, then stores, and refuses a key that was used for another request. The
         request names the version, which is compared with the current one after the rows were read: new
         rows may be about people who were not charged.
Test     tests/ledger/test_gate_charged_read.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from lapwing.core.losses import Loss
from lapwing.core.noise import random_bytes
from lapwing.core.observed import require_unobserved
from lapwing.errors import BadParameter, Unavailable, WorkEnded
from lapwing.ledger import charging
from lapwing.ledger.accounts import Slices
from lapwing.ledger.data_sets import find_data_set, spends_by_block
from lapwing.ledger.entry import Receipt
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.padding import NO_LADDER, Ladder
from lapwing.ledger.request_status import (
    RequestState,
    RequestStatus,
    status_of_request,
    used_keys,
)
from lapwing.ledger.spending import Spending, Target


class ReleaseStep(Enum):
    """The steps of a release, in order. A crash at any of them is tested."""

    PLANNED = "planned"
    CHARGED = "charged"
    RAN = "ran"
    STORED = "stored"


Watch = Callable[[ReleaseStep], None]


def _nobody_watches(_: ReleaseStep) -> None:
    """Do nothing. Progress bars and crash tests watch the steps."""


@dataclass(frozen=True, slots=True)
class ChargedRelease:
    """A planned release: its price, and the function that computes the answer after it is charged.

    `run` returns the bytes of the answer. It must release nothing in other ways. If it fails, the reason is
    not shown. Price and work are one value, not two arguments of `Gate.release`: who plans a release hands
    both on together, and asks again with the same value under the same key.

    Args:
        spending: the price, and the accounts that pay it.
        run: computes the answer after the charge.

    Example:
        >>> from lapwing.ledger import ChargedRelease, Gate
        >>> planned = ChargedRelease(price, lambda: b"42")
        >>> Gate(ledger, principal="ann").release(planned).answer
        b'42'
    """

    spending: Spending
    run: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Release:
    """An answer that was charged, and its receipt.

    Args:
        answer: the bytes that were stored.
        receipt: the receipt of the charge.
        is_replay: whether the answer was stored before, and nothing was charged now.

    Example:
        >>> from lapwing.ledger import ChargedRelease, Gate
        >>> gate = Gate(ledger, principal="ann")
        >>> gate.release(ChargedRelease(price, lambda: b"42"), key="monday").is_replay
        False
        >>> gate.release(ChargedRelease(price, lambda: b"43"), key="monday").answer
        b'42'
    """

    answer: bytes
    receipt: Receipt
    is_replay: bool


class Gate:
    """The only way for one principal to spend budget.

    Args:
        ledger: the open ledger.
        principal: the name of the principal that is charged.
        watch: a function that is told each step of a release.
        pads: whether work ends at a rung of a random ladder, so that its time says little about rows.

    Example:
        >>> from fractions import Fraction
        >>> from lapwing.ledger import ChargedRelease, Gate, Ledger, Spending, Target, Unit
        >>> from lapwing.core import Pure, Relation
        >>> with Ledger.create("visits.ledger") as ledger:
        ...     person = {"unit": Unit.PERSON, "relation": Relation.ADD_REMOVE}
        ...     account = ledger.open_account("patients", epsilon=1, delta=0, **person)
        ...     price = Spending(
        ...         targets=[Target("patients")], loss=Pure(Fraction(1, 2)), **person,
        ...         mechanism="example", parameters={}, request=b"how many?",
        ...     )
        ...     gate = Gate(ledger, principal="analyst")
        ...     gate.release(ChargedRelease(price, lambda: b"42"), key="monday").answer
        b'42'
    """

    def __init__(
        self, ledger: Ledger, *, principal: str, watch: Watch = _nobody_watches, pads: bool = False
    ) -> None:
        self._ledger, self._principal, self._watch, self.pads = ledger, principal, watch, pads

    def ladder(self) -> Ladder:
        """Return the ladder of work that begins now. Without padding it has no wait."""
        return Ladder() if self.pads else NO_LADDER

    def release(self, planned: ChargedRelease, *, key: str | None = None, shared: bool = False) -> Release:
        """Charge, run, store and return the answer; or return the stored answer of the same key.

        Args:
            planned: the price and the function that computes the answer.
            key: an idempotency key; None draws a random one.
            shared: whether the key is the same for all principals. Then the first one is charged, and all
                get that answer.

        Returns:
            The answer with its receipt.

        Raises:
            OverBudget: if the budget is too small; nothing is changed.
            KeyReused: if the key belongs to another request.
            InProgress: if the same request is still running.
            WorkEnded: if `run` failed, now or before under this key. The charge stays, and the reason is
                not shown.
        """
        require_unobserved()
        self._watch(ReleaseStep.PLANNED)
        try:
            chosen = _fresh_key() if key is None else key
            receipt = charging.charge(
                self._ledger, planned.spending, principal=self._principal, key=chosen, shared=shared
            )
        except charging.AlreadyAnswered as before:
            return Release(before.answer, before.receipt, is_replay=True)
        ladder = self.ladder()
        self._watch(ReleaseStep.CHARGED)
        return self._finish(receipt, planned.run, ladder)

    def _finish(self, receipt: Receipt, run: Callable[[], bytes], ladder: Ladder) -> Release:
        try:
            with ladder:
                answer = run()
                if not isinstance(answer, bytes):
                    raise BadParameter("run", "must return the bytes of the answer")
        except BaseException as error:
            charging.give_up(self._ledger, receipt)
            if isinstance(error, Exception):
                # The reason may be private: the reply never varies, and no traceback or log prints the
                # cause. The holder of the data finds it in `__context__`.
                raise WorkEnded from None
            raise
        self._watch(ReleaseStep.RAN)
        try:
            stored = charging.store_answer(self._ledger, receipt, answer)
        except BaseException as error:
            charging.give_up(self._ledger, receipt)
            if isinstance(error, Unavailable):  # its text says that nothing was changed
                why = "the answer could not be stored, so none is given. The charge stays"
                raise Unavailable(why) from error
            raise
        self._watch(ReleaseStep.STORED)
        return Release(answer, stored, is_replay=False)

    def reserve(self, spending: Spending, *, key: str | None = None) -> Work:
        """Reserve budget for work in steps.

        The same key after a crash returns the same work, to continue; after it was finished, the work with
        its answer. After it failed, WorkEnded is raised.
        """
        require_unobserved()
        chosen = _fresh_key() if key is None else key
        try:
            held = charging.reserve(self._ledger, spending, principal=self._principal, key=chosen)
        except charging.AlreadyAnswered as before:
            work = self.resume(before.receipt.position)
            work.answered = Release(before.answer, before.receipt, is_replay=True)
            return work
        return Work(self, held)

    def find(self, key: str, *, shared: bool = False) -> RequestStatus | None:
        """Return the status of an earlier request under this key, or None. It costs no budget.

        A `shared` key finds the request of any principal.
        """
        return status_of_request(self._ledger, principal=self._principal, key=key, shared=shared)

    def used_keys(self, keys: Iterable[tuple[str, bool]]) -> frozenset[tuple[str, bool]]:
        """Return those (key, shared) pairs that `find` finds. It is one look-up for all of them."""
        return used_keys(self._ledger, principal=self._principal, keys=keys)

    def resume(self, number: int) -> Work:
        """Return work that this principal reserved before."""
        return Work(self, charging.find_reservation(self._ledger, number, principal=self._principal))


class Work(charging.Reservation):
    """Long work under a reservation: charge each step before it begins, then settle.

    Without settling (an error, a crash), everything stays reserved until somebody settles it: private
    values may have decided that the work stopped.
    """

    def __init__(self, gate: Gate, held: charging.Reservation) -> None:
        super().__init__(held.ledger, held.receipt, held.is_fixed)
        self._gate, self._ladder = gate, gate.ladder()
        self.answered: Release | None = None

    def step(self, loss: Loss | None = None) -> None:
        """Charge one step before it begins. A fixed run has one step, without a loss of its own."""
        require_unobserved()
        super().step(loss)

    def fail(self) -> None:
        """End the work after a failure that private values may have caused. It counts as a failed request.

        The same key never continues it, and everything that is reserved counts as spent.
        """
        try:
            self._ladder.wait()
        finally:
            charging.give_up(self.ledger, self.receipt)
        with suppress(Unavailable, BadParameter):  # then it stays reserved, which costs the same
            self.settle(stopping_was_decided_from_released_values=False)

    def finish(self, run: Callable[[], bytes]) -> Release:
        """Run, store and return the answer of the whole work, which was made from charged steps."""
        if self.answered is not None:
            return self.answered
        if not self.charged:
            raise BadParameter("work", "no step was charged, so nothing is spent yet")
        if self.is_finished:  # no second draw: the key finds the answer
            raise WorkEnded
        self.answered = self._gate._finish(self.receipt, run, self._ladder)
        return self.answered


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedRead:
    """A read of private data, with its price and the accounts that pay.

    Args:
        gate: The gate of the ledger, for one principal.
        spending: The price, the accounts, and the request, which names the version of the data.
        key: The idempotency key: the same key again gives the stored result. None draws a fresh key.
        shared: Whether it is one key for all principals.
        version: The version of the data that is charged.
        current_version: Returns the version of the data as it is now.

    Example:
        >>> from lapwing.ledger import ChargedRead, Gate
        >>> read = ChargedRead(gate=Gate(ledger, principal="ann"), spending=price, key="monday")
        >>> read.release(lambda: 42, lambda found: str(found).encode()).answer
        b'42'
        >>> read.is_stored
        True
    """

    gate: Gate
    spending: Spending
    key: str | None = None
    shared: bool = False
    version: int = 0
    current_version: Callable[[], int] = int  # 0: data in memory does not change while it is read

    def find(self) -> RequestStatus | None:
        """Return the earlier request under this key, or None. Costs nothing."""
        return None if self.key is None else self.gate.find(self.key, shared=self.shared)

    @property
    def is_stored(self) -> bool:
        """True if a result is stored under this key."""
        status = self.find()
        return status is not None and status.state is RequestState.ANSWERED

    def release(self, read: Callable[[], T], finish: Callable[[T], bytes]) -> Release:
        """Charge, then read, then finish and store; or return what is stored under the key.

        Args:
            read: Reads the private data. It is called once, after the charge.
            finish: Makes the result that may leave, with its noise. Nothing else may leave.

        Returns:
            The stored bytes, the receipt, and whether they were stored before.

        Raises:
            OverBudget: If an account has too little left. Nothing was charged or read.
            KeyReused: If the key was used for another request.
            InProgress: If the same request is under way elsewhere.
            WorkEnded: If reading failed, or the data changed meanwhile. The charge stays.
        """

        def run() -> bytes:
            values = read()
            if self.current_version() != self.version:
                raise BadParameter("source", "changed while it was read")
            return finish(values)

        return self.gate.release(ChargedRelease(self.spending, run), key=self.key, shared=self.shared)


def targets(ledger: Ledger, data: str, blocks: Sequence[str] = ()) -> tuple[Target, ...]:
    """Return the targets of a release from a data set.

    They are, in each of its accounts, the blocks it can reach.

    Blocks can be told apart only if the account is divided by the data's own rule. In other accounts
    everyone is charged.

    Args:
        ledger: the open ledger.
        data: the name of the data set.
        blocks: the names of the blocks that the release reads; none for all.

    Returns:
        One target for each account of the data set.

    Raises:
        BadParameter: if the ledger knows no such data set.

    Example:
        >>> from lapwing.ledger import register, targets
        >>> data = register(ledger, "visits", origin="hospital", account="patients", units=["ann", "ben"])
        >>> [target.account for target in targets(ledger, "visits")]
        ['patients']
    """
    registered = find_data_set(ledger, data)
    accounts = [ledger.numbered(number) for number in registered.accounts]
    return tuple(
        Target(account.label, blocks)
        if spends_by_block(registered, account)
        else Target(account.label, everyone=account.slices is not Slices.NONE)
        for account in accounts
    )


def _fresh_key() -> str:
    return random_bytes(16).hex()
