"""Who pays for training: the accounts that a trainer charges before it reads a row.

Claim    nothing that a trainer made of private data leaves before it is durably charged, and after a crash
         nothing is trained again under the same charge.
Because  a trainer does its work inside `Purse.pay`, which is a release of the gate: charge, run, store.
Test     tests/learn/test_purse.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Self

from lapwing.errors import BadParameter
from lapwing.gate import Gate, Plan, Spending, Target
from lapwing.ledger import Receipt, Unit
from lapwing.privacy import Loss, Relation


class _Whose(Enum):
    EACH_ROW = "every row is another unit's"


EACH_ROW: Final = _Whose.EACH_ROW  # given as `units`, a promise of the caller: no two rows are of one unit


@dataclass(frozen=True, slots=True)
class Paid:
    """What was made, as it is stored under its charge."""

    result: bytes
    receipt: Receipt | None
    is_replay: bool = False


class Purse(ABC):
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
                "Write units=EACH_ROW (lapwing.learn.purse) only if no two rows are of the same one",
            )
        return None if units is EACH_ROW else units

    @abstractmethod
    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> Paid:
        """Charge the loss, then run. The result is stored before it is returned.

        Raises `OverBudget` before `run` is called; `WorkEnded` if it fails. `run` must not release
        anything by other ways, and its result must be private at `loss`.
        """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


class LedgerPurse(Purse):
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
    ) -> Paid:
        spending = Spending(
            targets=self._targets,
            loss=loss,
            unit=self._unit,
            relation=self._relation,
            mechanism=mechanism,
            parameters=parameters,
            request=self._request,
        )
        done = self._gate.release(Plan(spending, run), key=self._key)
        return Paid(done.answer, done.receipt, done.is_replay)


class Uncharged(Purse):
    """Charges no account by itself, so that any unit may be protected."""

    @property
    def relation(self) -> Relation:
        return Relation.ADD_REMOVE

    @property
    def unit(self) -> None:
        return None


class PublicData(Uncharged):
    """Nobody pays: the data is public, or made up. Say so only where it is true."""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> Paid:
        return Paid(run(), None)


class Stored(Uncharged):
    """Gives what was made and paid before, and makes nothing."""

    def __init__(self, result: bytes) -> None:
        self._result = result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> Paid:
        return Paid(self._result, None, is_replay=True)


class NoPurse(Uncharged):
    """What is in a pickle instead of a purse: a copy elsewhere must not pay."""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> Paid:
        raise BadParameter(
            "purse",
            "was left behind when this was pickled, as for worker processes: set a new one, or n_jobs=1",
        )
