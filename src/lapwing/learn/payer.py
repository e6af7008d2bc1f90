"""Payers: the ledger accounts that a trainer charges before it reads a row.

Claim    nothing that a trainer computes from private data leaves before it is durably charged. After a
         crash, nothing is trained again under the same charge.
Because  a trainer works inside `Payer.pay`, which is one charged read: charge, run, store.
Test     tests/learn/test_payer.py

Claim    a trainer inside a larger piece of work (a search, an attempt) trains once, at the loss that is
         part of the larger price.
Because  `PrepaidPayer` compares the loss that is asked for with the loss that was priced, and pays once.
         `StoredPayer` returns the model that is stored under the charge, and never trains.
Test     tests/learn/test_search.py
"""

from __future__ import annotations

import getpass
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, Final, Self

from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter
from lapwing.ledger import ChargedRead, Gate, Ledger, Receipt, Slices, Spending, Target, Unit


class _Whose(Enum):
    EACH_ROW = "each row is a unit of its own"


EACH_ROW: Final = _Whose.EACH_ROW  # as `units`: the caller's promise that no two rows belong to one unit


@dataclass(frozen=True, slots=True)
class PaidResult:
    """The bytes that a piece of work produced, as they are stored under its charge.

    `receipt` is None if no account was charged. `is_replay` is True if the result was stored earlier.
    """

    result: bytes
    receipt: Receipt | None
    is_replay: bool = False


class Payer(ABC):
    """An account, or several, that pay for work.

    Copies of a trainer (scikit-learn's `clone`) share one payer.
    """

    relation: Relation  # of neighbours, in the accounts
    unit: Unit | None = Unit.PERSON  # the strictest, unless a payer declares it; None: any may be protected

    def checked_units(self, units: Any) -> Any:
        """Return `units`, or None if each row is a unit of its own.

        Each row is its own unit if the account protects rows, or if the caller passed EACH_ROW.

        Raises BadParameter if `units` is missing: a charge for one row is too small for a person with many
        rows.
        """
        if units is None and self.unit not in (None, Unit.ROW):
            raise BadParameter(
                "units",
                f"must give the unit of each row (an id): a {self.unit.value} is protected. "
                "Pass units=EACH_ROW (lapwing.learn.EACH_ROW) only if no two rows belong to the same unit",
            )
        return None if units is EACH_ROW else units

    @abstractmethod
    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        """Charge the loss, run the work, and store its result before returning it.

        `run` must not release anything by other ways, and its result must be private at `loss`.

        Raises OverBudget before `run` is called, and WorkEnded if `run` fails.
        """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


@dataclass(frozen=True, eq=False)
class LedgerPayer(Payer):
    """A payer that charges accounts of a ledger.

    Args:
        gate: The gate of the ledger, for one analyst.
        targets: The accounts and blocks that are charged.
        unit: The privacy unit of the accounts.
        relation: The neighbour relation of the accounts.
        request: A description of what is trained, on which version of the data.
        key: A name under which this work is charged once: a second call returns the stored result. Use one
            key for one piece of work. None charges every call.

    Example:
        ```python
        from lapwing.learn import LedgerPayer

        payer = LedgerPayer.for_account(
            ledger, "patients", analyst="ana", request="regression on version 3"
        )
        ```
    """

    gate: Gate
    _: KW_ONLY
    targets: tuple[Target, ...]
    unit: Unit
    relation: Relation
    request: bytes
    key: str | None = None

    @classmethod
    def for_account(
        cls,
        ledger: Ledger,
        account: str,
        *,
        request: str,
        analyst: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Return a payer that charges one account, about the unit and the neighbours of that account.

        Args:
            ledger: The ledger.
            account: The name of the account, all of whose units may be in the rows.
            request: A description of what is trained, on which version of the data.
            analyst: The name of the analyst. None: the user of this computer.
            key: A name under which this work is charged once. None charges every call.

        Returns:
            The payer.

        Raises:
            BadParameter: If the ledger has no such account.

        Example:
            >>> from lapwing.learn import LedgerPayer
            >>> payer = LedgerPayer.for_account(ledger, "patients", request="stays, version 3")
        """
        opened = ledger.account(account)
        return cls(
            Gate(ledger, principal=analyst or getpass.getuser()),
            targets=(Target(account, everyone=opened.slices is not Slices.NONE),),
            unit=opened.unit,
            relation=opened.relation,
            request=request.encode(),
            key=key,
        )

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        """Charge the targets through the gate, then run the work."""
        spending = Spending(
            targets=self.targets, loss=loss, unit=self.unit, relation=self.relation,
            mechanism=mechanism, parameters=parameters, request=self.request,
        )  # fmt: skip
        read = ChargedRead(gate=self.gate, spending=spending, key=self.key)
        done = read.release(run, lambda result: result)
        return PaidResult(done.answer, done.receipt, done.is_replay)


class UnchargedPayer(Payer):
    """A payer that charges no account, so that any unit may be protected."""

    relation = Relation.ADD_REMOVE
    unit = None


class PublicData(UnchargedPayer):
    """A payer for public or synthetic data: nothing is charged. Use it only if the data is not private.

    Example:
        >>> from lapwing.learn import PublicData
        >>> PublicData().unit is None
        True
    """

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        """Run the work without a charge."""
        return PaidResult(run(), None)


class StoredPayer(UnchargedPayer):
    """A payer that returns a result that was charged and stored before. It never runs the work."""

    def __init__(self, result: bytes) -> None:
        self._result = result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        """Return the stored result."""
        return PaidResult(self._result, None, is_replay=True)


class NoPayer(UnchargedPayer):
    """A placeholder for the payer in a pickle: a copy in another process must not pay."""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        """Refuse to pay."""
        raise BadParameter(
            "payer",
            "is missing: it is left out of pickles, as for worker processes. Set a new one, or n_jobs=1",
        )


class PrepaidPayer(UnchargedPayer):
    """A payer for one piece of work whose loss is part of a larger charge. It keeps the result."""

    def __init__(self, loss: Loss) -> None:
        self._loss, self._result = loss, b""

    @property
    def result(self) -> bytes:
        """The result of the work.

        Raises BadParameter if the trainer did not train through its payer.
        """
        if not self._result:
            raise BadParameter("estimator", "must train through its payer")
        return self._result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        """Run the work once, if it asks for the loss that was priced.

        Raises BadParameter if the loss differs, or if the payer was used before.
        """
        if self._result or loss != self._loss:
            raise BadParameter("loss", "is not the one that was charged, or was used before")
        self._result = run()
        return PaidResult(self._result, None)


def require_add_remove(payer: Any) -> None:
    """Raise BadParameter unless it is a payer of accounts whose neighbours add or remove a unit."""
    if not isinstance(payer, Payer):
        raise BadParameter(
            "payer",
            "must be a Payer, such as LedgerPayer.for_account(...), or PublicData() if the data is public. "
            "Rows of a policy are paid for by it: lapwing.open(...).fit(estimator, question, epsilon=1)",
        )
    if payer.relation is not Relation.ADD_REMOVE:
        raise BadParameter("payer", "must charge accounts whose neighbours add or remove a unit")


class PickledWithoutPayer:
    """A base of estimators whose `payer` is replaced in pickles: a copy elsewhere must not pay."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if not isinstance(state.get("payer"), PublicData | None):
            state["payer"] = NoPayer()
        return state
