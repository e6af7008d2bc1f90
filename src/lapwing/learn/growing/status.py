"""What a stream has: its blocks, what is left of each, and which are retired."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.gate import Target
from lapwing.learn.growing.sharing import Share
from lapwing.ledger import Ledger
from lapwing.ledger.entry import Costs
from lapwing.ledger.views.left import delta_left, exactly
from lapwing.privacy import Terms

RETIRED_BELOW = Fraction(1, 1000)  # of the block's ε


def blocks_text(count: int) -> str:
    """So many blocks, in words."""
    return f"{count:,} block{'' if count == 1 else 's'}"


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
    is_untouched: bool  # nothing was charged or is held there, in any of the accounts

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
    several: str = ""  # what it means for somebody who is several units, in words

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
            "several_periods": self.several,
            "blocks": [
                {
                    "block": block.label,
                    "epsilon": float(block.epsilon),
                    "epsilon_left": float_down(block.left),
                    "delta_left": float_down(block.delta_left),
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
    return tuple(BlockStatus(label, *now, False, Fraction(1), True) for label in labels)


def float_down(value: Fraction) -> float:
    """The nearest float that is not above."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def blocks_left(
    ledger: Ledger,
    targets: Sequence[Target],
    labels: Sequence[str],
    *,
    arrived: Collection[str],
    unlocked: Mapping[str, Fraction],
    share: Share | None = None,
) -> tuple[BlockStatus, ...]:
    """What is left of blocks: in each the least of all accounts. In a share, nothing is opened."""
    least: dict[str, tuple[Fraction, Fraction, Fraction, bool]] = {}

    def note(label: str, now: tuple[Fraction, Fraction, Fraction, bool]) -> None:
        before = least.get(label, now)
        least[label] = (
            min(before[0], now[0]), min(before[1], now[1]), min(before[2], now[2]), before[3] and now[3],
        )  # fmt: skip

    if share is not None:
        terms, taken = share.terms, share.taken
        anew = terms.epsilon, terms.largest_pure(taken), delta_left(terms, taken), not any(taken)
        for label in labels:
            if label not in share.blocks:
                note(label, anew)
        here = share.target(labels)
        targets = targets if here is None else (*targets, here)
    for target in targets:
        found = ledger.look_at(ledger.account(target.account), target.blocks)
        sums: dict[Terms, set[Costs]] = {}
        for account, block in found:
            sums.setdefault(account.terms, set()).add(block.taken(account.terms))
        left = {terms: exactly(terms, several) for terms, several in sums.items()}
        for account, block in found:
            taken = block.taken(account.terms)
            epsilon = left[account.terms][taken] if block.is_open else Fraction(0)
            now = account.terms.epsilon, epsilon, delta_left(account.terms, taken), not any(taken)
            for label in [block.label] if target.blocks else labels:
                note(label, now)
    nothing = (Fraction(0), Fraction(0), Fraction(0), False)
    return tuple(
        BlockStatus(label, *found[:3], label in arrived, unlocked.get(label, Fraction(1)), found[3])
        for label, found in ((label, least.get(label, nothing)) for label in labels)
    )
