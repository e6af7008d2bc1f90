"""What a stream has: its blocks, what is left of each, and which are retired."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.gate import Target
from lapwing.ledger import Ledger
from lapwing.ledger.entry import Costs
from lapwing.ledger.views.left import delta_left, exactly
from lapwing.privacy import Terms

RETIRED_BELOW = Fraction(1, 1000)  # of the block's ε


@dataclass(frozen=True, slots=True)
class BlockStatus:
    """A block: the pure ε and the δ that a next release could cost there, in all accounts that pay.

    `unlocked` is the share of its budget that may be used by now. A retired block's budget is gone.
    """

    label: str
    epsilon: Fraction
    left: Fraction
    delta_left: Fraction
    has_arrived: bool
    unlocked: Fraction

    @property
    def is_retired(self) -> bool:
        """Whether (nearly) nothing is left: it is skipped for ever."""
        return self.left < self.epsilon * RETIRED_BELOW


@dataclass(frozen=True, slots=True)
class Status:
    """A stream as it is now. All of it is public."""

    name: str
    unit: str
    version: int | None  # None: nothing was taken in yet
    sharing: str
    blocks: tuple[BlockStatus, ...]

    @property
    def retired(self) -> tuple[BlockStatus, ...]:
        """Those whose budget is gone."""
        return tuple(block for block in self.blocks if block.is_retired)

    @property
    def usable(self) -> tuple[BlockStatus, ...]:
        """Those that have come in and have budget."""
        return tuple(block for block in self.blocks if block.has_arrived and not block.is_retired)

    def to_json(self) -> dict[str, Any]:
        """As plain values. What is left is rounded down."""
        return {
            "stream": self.name,
            "protects": self.unit,
            "version": self.version,
            "sharing": self.sharing,
            "blocks": [
                {
                    "block": block.label,
                    "epsilon": float(block.epsilon),
                    "epsilon_left": float(block.left),
                    "delta_left": float(block.delta_left),
                    "has_arrived": block.has_arrived,
                    "unlocked": float(block.unlocked),
                    "is_retired": block.is_retired,
                }
                for block in self.blocks
            ],
        }


def untouched(epsilon: Fraction, delta: Fraction, labels: Sequence[str]) -> tuple[BlockStatus, ...]:
    """Declared blocks before anything was taken in or spent."""
    terms = Terms.of(epsilon, delta)
    now = terms.epsilon, terms.largest_pure(terms.nothing_spent), delta_left(terms, terms.nothing_spent)
    return tuple(BlockStatus(label, *now, has_arrived=False, unlocked=Fraction(1)) for label in labels)


def blocks_left(
    ledger: Ledger,
    targets: Sequence[Target],
    labels: Sequence[str],
    *,
    arrived: Collection[str],
    unlocked: Mapping[str, Fraction],
) -> tuple[BlockStatus, ...]:
    """What is left of blocks: in each the least of all accounts."""
    least: dict[str, tuple[Fraction, Fraction, Fraction]] = {}
    for target in targets:
        found = ledger.look_at(ledger.account(target.account), target.blocks)
        sums: dict[Terms, set[Costs]] = {}
        for account, block in found:
            sums.setdefault(account.terms, set()).add(block.taken(account.terms))
        left = {terms: exactly(terms, several) for terms, several in sums.items()}
        for account, block in found:
            taken = block.taken(account.terms)
            epsilon = left[account.terms][taken] if block.is_open else Fraction(0)
            now = account.terms.epsilon, epsilon, delta_left(account.terms, taken)
            for label in [block.label] if target.blocks else labels:
                before = least.get(label, now)
                least[label] = min(before[0], now[0]), min(before[1], now[1]), min(before[2], now[2])
    nothing = (Fraction(0), Fraction(0), Fraction(0))
    return tuple(
        BlockStatus(label, *least.get(label, nothing), label in arrived, unlocked.get(label, Fraction(1)))
        for label in labels
    )
