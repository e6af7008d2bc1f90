"""Who pays for training: the accounts that a trainer charges before it reads a row.

Claim    nothing that a trainer made of private data leaves before it is durably charged, and after a crash
         nothing is trained again under the same charge.
Because  a trainer does its work inside `Purse.pay`, which is a release of the gate: charge, run, store.
Test     tests/learn/test_purse.py

The purse of work that is part of an attempt that was charged.

The purse of trainers inside a search: what they ask for was charged as a part of the whole.

Claim    a trainer inside a search trains once, at the loss that was part of the search's price.
Because  `PrepaidPayer` compares what is asked with what was priced, and pays one time; `purse.Stored` gives the
         model that lies under the search's charge, and never trains.
Test     tests/learn/selection/test_search.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from lapwing.core.loss_records import describe
from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter
from lapwing.ledger import Receipt, Unit
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Spending, Target


class _Whose(Enum):
    EACH_ROW = "every row is another unit's"


EACH_ROW: Final = _Whose.EACH_ROW  # given as `units`, a promise of the caller: no two rows are of one unit


@dataclass(frozen=True, slots=True)
class PaidResult:
    """What was made, as it is stored under its charge."""

    result: bytes
    receipt: Receipt | None
    is_replay: bool = False


class Payer(ABC):
    """Pays for work. Copies of a trainer (scikit-learn's `clone`) pay from the same one."""

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """What neighbours are, where this pays."""

    @property
    def unit(self) -> Unit | None:
        """What is protected, where this pays; None where it may be anything."""
        return Unit.PERSON  # the strictest, for purses that do not say

    def whose(self, units: Any) -> Any:
        """`units` as given, or None where each row is one: because the account, or the caller, says so.

        Raises `BadParameter` where nobody does: a charge for one row would be too small for a person.
        """
        if units is None and self.unit not in (None, Unit.ROW):
            raise BadParameter(
                "units",
                f"must say whose row each is, in whole numbers: what is protected is a {self.unit.value}. "
                "Write units=EACH_ROW (lapwing.learn.payer) only if no two rows are of the same one",
            )
        return None if units is EACH_ROW else units

    @abstractmethod
    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        """Charge the loss, then run. The result is stored before it is returned.

        Raises `OverBudget` before `run` is called; `WorkEnded` if it fails. `run` must not release
        anything by other ways, and its result must be private at `loss`.
        """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


class LedgerPayer(Payer):
    """Pays from accounts of a ledger.

    `request` says what is trained, of which version of the data. With a `key`, the same work is paid once:
    asked again, it gives the stored result. A key stands for one piece of work.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        targets: tuple[Target, ...],
        unit: Unit,
        relation: Relation,
        request: bytes,
        key: str | None = None,
    ) -> None:
        self._gate, self._targets, self._unit = gate, targets, unit
        self._relation, self._request, self._key = relation, request, key

    @property
    def relation(self) -> Relation:
        return self._relation

    @property
    def unit(self) -> Unit:
        return self._unit

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        spending = Spending(
            targets=self._targets,
            loss=loss,
            unit=self._unit,
            relation=self._relation,
            mechanism=mechanism,
            parameters=parameters,
            request=self._request,
        )
        done = self._gate.release(ChargedRelease(spending, run), key=self._key)
        return PaidResult(done.answer, done.receipt, done.is_replay)


class UnchargedPayer(Payer):
    """Charges no account by itself, so that any unit may be protected."""

    @property
    def relation(self) -> Relation:
        return Relation.ADD_REMOVE

    @property
    def unit(self) -> None:
        return None


class PublicData(UnchargedPayer):
    """Nobody pays: the data is public, or made up. Say so only where it is true."""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        return PaidResult(run(), None)


class StoredPayer(UnchargedPayer):
    """Gives what was made and paid before, and makes nothing."""

    def __init__(self, result: bytes) -> None:
        self._result = result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        return PaidResult(self._result, None, is_replay=True)


class NoPayer(UnchargedPayer):
    """What is in a pickle instead of a purse: a copy elsewhere must not pay."""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        raise BadParameter(
            "purse",
            "was left behind when this was pickled, as for worker processes: set a new one, or n_jobs=1",
        )


class AttemptPayer(UnchargedPayer):
    """Pays for nothing by itself: its work is part of one that was charged, at the price it knows."""

    def __init__(self, price: Loss) -> None:
        self._price: Loss | None = price
        self.result = b""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        if loss != self._price:
            raise BadParameter("loss", "is not the one that was charged, or was used before")
        self._price = None
        self.result = run()
        return PaidResult(self.result, None)


class PrepaidPayer(UnchargedPayer):
    """Pays one training at one loss, and keeps its result for the search."""

    def __init__(self, loss: Loss) -> None:
        self._priced = describe(loss)
        self._result: bytes | None = None

    @property
    def result(self) -> bytes:
        """The stored model."""
        if self._result is None:
            raise BadParameter("estimator", "must train through its purse")
        return self._result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> PaidResult:
        if self._result is not None or describe(loss) != self._priced:
            raise BadParameter("estimator", "asked for more than its price, which is part of the search's")
        self._result = run()
        return PaidResult(self._result, None)
