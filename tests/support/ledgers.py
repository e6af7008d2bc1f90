"""Ledgers for tests, in either database, and short ways to spend from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.core.losses import Loss, Pure, Relation
from lapwing.ledger import Account, CuratorKey, Ledger, Slices, Unit
from lapwing.ledger.gate import ChargedRelease, Gate, Release
from lapwing.ledger.spending import Spending, Target
from support import postgres

SQLITE, POSTGRES = "sqlite", "postgres"


@dataclass(frozen=True, slots=True)
class Home:
    """Where a test's ledger lies."""

    where: str
    keys: Path
    anchor: Path
    curator_path: Path
    opened: list[Ledger] = field(default_factory=list)

    @classmethod
    def of(cls, database: str, folder: Path) -> Home:
        """A place where there is no ledger yet."""
        path = folder / "visits.ledger"
        where = str(path) if database == SQLITE else postgres.fresh_url()
        return cls(where, Path(f"{path}.keys"), Path(f"{path}.anchor"), Path(f"{path}.curator"))

    def create(self) -> Ledger:
        """A new ledger."""
        ledger = Ledger.create(self.where, curator=self.curator_path, keys=self.keys, anchor=self.anchor)
        self.opened.append(ledger)
        return ledger

    def open(self) -> Ledger:
        """The ledger again."""
        ledger = Ledger.open(self.where, keys=self.keys, anchor=self.anchor)
        self.opened.append(ledger)
        return ledger

    @property
    def curator(self) -> CuratorKey:
        """The curator's key."""
        return CuratorKey.load(self.curator_path)

    def close(self) -> None:
        """Let go of everything that is still open."""
        for ledger in self.opened:
            if ledger.is_here:
                ledger.close()


def open_account(ledger: Ledger, label: str = "visits", **terms: Any) -> Account:
    """An account about persons, with ε 1 and δ 1e-6 unless told otherwise."""
    chosen: dict[str, Any] = {
        "epsilon": 1,
        "delta": "1e-6",
        "unit": Unit.PERSON,
        "relation": Relation.ADD_REMOVE,
        **terms,
    }
    return ledger.open_account(label, **chosen)


def open_sliced(ledger: Ledger, blocks: int, label: str = "visits", **terms: Any) -> Account:
    """An account with blocks b0, b1, ..."""
    account = open_account(ledger, label, slices=Slices.UNITS, rule="month of the first visit", **terms)
    ledger.open_blocks(label, [f"b{k}" for k in range(blocks)])
    return account


def spending(
    loss: Loss | str | Fraction = "0.1",
    *targets: Target,
    request: bytes = b"how many?",
    **more: Any,
) -> Spending:
    """What a release of this loss (or pure ε) costs."""
    chosen: dict[str, Any] = {
        "unit": Unit.PERSON,
        "relation": Relation.ADD_REMOVE,
        "mechanism": "laplace",
        "parameters": {},
        **more,
    }
    return Spending(
        targets=targets or (Target("visits"),),
        loss=loss if isinstance(loss, Loss) else Pure(Fraction(loss)),
        request=request,
        **chosen,
    )


def release(
    ledger: Ledger,
    loss: Loss | str | Fraction = "0.1",
    *targets: Target,
    key: str | None = None,
    answer: bytes = b"42",
    principal: str = "analyst",
    **more: Any,
) -> Release:
    """One release through the gate."""
    plan = ChargedRelease(spending(loss, *targets, **more), lambda: answer)
    return Gate(ledger, principal=principal).release(plan, key=key)
