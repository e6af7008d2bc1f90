"""A ledger as plain sums: no database, no bound on numbers, and a filter of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lapwing.core.budget import Terms
from lapwing.core.losses import Loss
from lapwing.ledger.gate import Work

Sums = list[int]


@dataclass(eq=False)
class Slot:
    """What one block has spent and holds, without any bound."""

    terms: Terms
    spent: Sums = field(default_factory=lambda: [0] * 8)
    held: Sums = field(default_factory=lambda: [0] * 8)

    def admits(self, costs: Sequence[int]) -> bool:
        totals = plus(plus(self.spent, self.held), costs)
        fits = [total <= cap for total, cap in zip(totals, self.terms.caps, strict=True)]
        return fits[0] and ((fits[1] and fits[2]) or any(fits[3:]))

    def seen(self) -> tuple[Terms, tuple[int, ...], tuple[int, ...]]:
        spent = tuple(min(s, cap + 1) for s, cap in zip(self.spent, self.terms.caps, strict=True))
        return self.terms, spent, tuple(self.held)


@dataclass(eq=False)
class Family:
    """An account and what it was raised by."""

    everyone: list[Slot]
    blocks: dict[str, Slot] = field(default_factory=dict)

    def open(self, labels: list[str]) -> None:
        has_begun = any(any(slot.spent) for slot in self.everyone[1:])  # to spend from a raised account
        source = self.everyone[-1 if has_begun else 0]
        for label in labels:
            self.blocks[label] = Slot(source.terms, list(source.spent))

    def raised(self, terms: Terms) -> None:
        self.everyone.append(Slot(terms))
        self.blocks = {label: Slot(terms) for label in self.blocks}

    def current(self) -> dict[str, Slot]:
        return {"*": self.everyone[-1], **self.blocks}


def price(terms: Terms, loss: Loss) -> Sums:
    return list(terms.price(loss).costs)


def clipped(terms: Terms, costs: Sequence[int]) -> Sums:
    return [min(cost, cap + 1) for cost, cap in zip(costs, terms.caps, strict=True)]


def plus(one: Sums, other: Sequence[int], sign: int = 1) -> Sums:
    return [a + sign * b for a, b in zip(one, other, strict=True)]


@dataclass(eq=False)
class Part:
    """What a reservation holds in the blocks of one account."""

    terms: Terms
    slots: list[Slot]
    total: Sums
    used: Sums = field(default_factory=lambda: [0] * 8)

    def move(self, *, spent: Sequence[int], out: Sequence[int]) -> None:
        self.used = plus(self.used, out)
        for slot in self.slots:
            slot.held, slot.spent = plus(slot.held, out, -1), plus(slot.spent, spent)


@dataclass(eq=False)
class Held:
    """A reservation that is open."""

    work: Work
    each: Loss
    parts: list[Part]

    def step(self) -> bool:
        moves = []
        for part in self.parts:
            costs = clipped(part.terms, price(part.terms, self.each))
            for used, cost, total, cap in zip(part.used, costs, part.total, part.terms.caps, strict=True):
                if total <= cap and used + cost > total:
                    return False
            left = plus(part.total, part.used, -1)
            out = [min(cost, there) for cost, there in zip(costs, left, strict=True)]
            moves.append((part, costs, out))
        for part, costs, out in moves:
            part.move(spent=costs, out=out)
        return True

    def settle(self, *, lapses: bool) -> None:
        for part in self.parts:
            left = plus(part.total, part.used, -1)
            part.move(spent=[0] * 8 if lapses else left, out=left)
