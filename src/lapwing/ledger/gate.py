"""The gate: plan, charge, run, store, receipt. The only code that spends.

Claim    no answer leaves that was not durably charged first, and none leaves that is not stored: asked
         again with the same key, the same bytes come.
Because  a plan's price is fixed before its data is read; the charge is on disk before `run` is called;
         the answer is on disk before `release` returns; what crashed in between stays charged and is
         never run again under the same key.
Test     tests/gate/test_gate.py, tests/faults/test_ledger_crashes.py (every point of `ReleaseStep`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from lapwing.core.losses import Loss
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Unavailable, WorkEnded
from lapwing.ledger import Ledger, Receipt, Slices, charging, data_sets
from lapwing.ledger import charging as holding
from lapwing.ledger.charging import AlreadyAnswered
from lapwing.ledger.request_status import RequestState, RequestStatus, status_of_request
from lapwing.ledger.spending import Spending, Target

__all__ = [
    "RequestStatus",
    "Gate",
    "ChargedRelease",
    "ReleaseStep",
    "Release",
    "Spending",
    "RequestState",
    "Target",
    "Work",
    "targets",
]


class ReleaseStep(Enum):
    """The steps of a release, in order. A crash at any of them is tested."""

    PLANNED = "planned"
    CHARGED = "charged"
    RAN = "ran"
    STORED = "stored"


Watch = Callable[[ReleaseStep], None]


def _nobody_watches(_: ReleaseStep) -> None:
    """Progress bars and crash tests watch."""


@dataclass(frozen=True, slots=True)
class ChargedRelease:
    """A release that could be made: its price, and what would be run once it is paid.

    `run` gives the bytes of the answer. It must release nothing by other ways, and fail without
    telling why.
    """

    spending: Spending
    run: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Release:
    """An answer that was paid for, and its receipt."""

    answer: bytes
    receipt: Receipt
    is_replay: bool


class Gate:
    """The door through which one principal spends."""

    def __init__(self, ledger: Ledger, *, principal: str, watch: Watch = _nobody_watches) -> None:
        self._ledger = ledger
        self._principal = principal
        self._watch = watch

    def release(self, plan: ChargedRelease, *, key: str | None = None, shared: bool = False) -> Release:
        """Charge, run, store and return; or, for a key that was answered before, return that.

        A `shared` key is one for all principals: who comes first is charged, and all get that answer.
        Raises `OverBudget` and changes nothing, or `KeyReused`, `InProgress`. If `run` fails, now or
        before under this key, `WorkEnded`: the charge stays, and nobody is told why.
        """
        self._watch(ReleaseStep.PLANNED)
        try:
            receipt = charging.charge(
                self._ledger,
                plan.spending,
                principal=self._principal,
                key=_fresh_key() if key is None else key,
                shared=shared,
            )
        except AlreadyAnswered as before:
            return Release(before.answer, before.receipt, is_replay=True)
        self._watch(ReleaseStep.CHARGED)
        return self._finish(receipt, plan.run)

    def _finish(self, receipt: Receipt, run: Callable[[], bytes]) -> Release:
        try:
            answer = run()
            if not isinstance(answer, bytes):
                raise BadParameter("run", "must give the bytes of an answer")
        except BaseException as error:
            charging.give_up(self._ledger, receipt)
            if isinstance(error, Exception):
                # Why it failed may be private: the reply never varies, and no traceback or log prints the
                # cause. Whoever holds the data finds it in `__context__`.
                raise WorkEnded from None
            raise
        self._watch(ReleaseStep.RAN)
        try:
            stored = charging.store_answer(self._ledger, receipt, answer)
        except BaseException as error:
            charging.give_up(self._ledger, receipt)
            if isinstance(error, Unavailable):  # which says that nothing was changed, and means the answer
                raise Unavailable(
                    "the answer could not be stored, so none is given. The charge stays"
                ) from error
            raise
        self._watch(ReleaseStep.STORED)
        return Release(answer, stored, is_replay=False)

    def reserve(self, spending: Spending, *, key: str | None = None) -> Work:
        """Hold the budget for work in steps.

        The same key after a crash gives the same work, to go on with; after it was finished, the work
        with its answer.
        """
        chosen = _fresh_key() if key is None else key
        try:
            held = holding.reserve(self._ledger, spending, principal=self._principal, key=chosen)
        except AlreadyAnswered as before:
            held = holding.find_reservation(
                self._ledger, before.receipt.position, principal=self._principal
            )
            return Work(self, held, Release(before.answer, before.receipt, is_replay=True))
        return Work(self, held)

    def find(self, key: str, *, shared: bool = False) -> RequestStatus | None:
        """What became of an earlier request under this key, of this principal, or of anybody if the key is
        `shared`. It costs nothing."""
        return status_of_request(self._ledger, principal=self._principal, key=key, shared=shared)

    def resume(self, number: int) -> Work:
        """Work that was reserved before, by this principal."""
        return Work(self, holding.find_reservation(self._ledger, number, principal=self._principal))


class Work:
    """Long work under a reservation: charge each step before it begins, then settle.

    Left without settling (an error, a crash), everything stays held until somebody settles it: that
    work stopped may itself have been decided by private values.
    """

    def __init__(self, gate: Gate, held: holding.Reservation, answered: Release | None = None) -> None:
        self._gate = gate
        self._held = held
        self.answered = answered

    @property
    def number(self) -> int:
        """Under which it can be resumed."""
        return self._held.number

    @property
    def receipt(self) -> Receipt:
        """The receipt of the reservation."""
        return self._held.receipt

    def step(self, loss: Loss | None = None) -> None:
        """Charge one step, before it begins. A fixed run has one, without a loss of its own."""
        holding.charge_step(self._held, loss)

    def settle(self, *, stopping_was_decided_from_released_values: bool) -> None:
        """End it. What is left lapses only if nothing private decided to stop here."""
        holding.settle_reservation(
            self._held,
            stopping_was_decided_from_released_values=stopping_was_decided_from_released_values,
        )

    def finish(self, run: Callable[[], bytes]) -> Release:
        """Store and return the answer of the whole, made from steps that were charged."""
        if self.answered is not None:
            return self.answered
        if not holding.has_charged_step(self._held):
            raise BadParameter("work", "no step was charged: what is held is not spent")
        if holding.is_finished(self._held):  # no second draw: whoever wants the answer has the key
            raise WorkEnded
        self.answered = self._gate._finish(self._held.receipt, run)
        return self.answered


def targets(ledger: Ledger, data: str, blocks: Sequence[str] = ()) -> tuple[Target, ...]:
    """Whom a release from a data set is charged to: in each of its accounts, the blocks that it can reach.

    Only where the account is sliced by the data's own rule can blocks be told apart; elsewhere everyone
    is charged.
    """
    found = data_sets.find_data_set(ledger, data)
    accounts = [ledger.numbered(number) for number in found.accounts]
    return tuple(
        Target(account.label, blocks)
        if data_sets.spends_by_block(found, account)
        else Target(account.label, everyone=account.slices is not Slices.NONE)
        for account in accounts
    )


def _fresh_key() -> str:
    return random_bytes(16).hex()
