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
from typing import Any, Self

from lapwing.gate import Gate, Plan, Spending, Target
from lapwing.ledger import Receipt, Unit
from lapwing.privacy import Loss, Relation


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


class PublicData(Purse):
    """Nobody pays: the data is public, or made up. Say so only where it is true."""

    @property
    def relation(self) -> Relation:
        return Relation.ADD_REMOVE

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> Paid:
        return Paid(run(), None)
