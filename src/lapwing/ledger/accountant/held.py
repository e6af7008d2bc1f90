"""Reservations as the second accountant sees them: what is held, what was moved to spent, what lapsed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lapwing.ledger.accountant.balance import Balances, Costs, Findings
from lapwing.ledger.entry import Ranges


@dataclass(slots=True)
class Part:
    """What is held in one account.

    Steps leave spent and held together as they are, as far as filters can tell; so `used` runs ahead
    of the blocks, which are brought up to date (`booked`) when somebody looks at them.
    """

    account: int
    ranges: Ranges
    rows: list[slice]
    total: Costs
    caps: Costs
    used: Costs = (0,) * 8
    booked: Costs = (0,) * 8

    @property
    def held(self) -> Costs:
        """What was held at first: what exceeds a filter anyway is held as its cap + 1."""
        return tuple([min(total, cap + 1) for total, cap in zip(self.total, self.caps, strict=True)])

    @property
    def moved(self) -> Costs:
        """What of the held costs the steps took."""
        return _least(self.used, self.held)

    def after(self, costs: Costs) -> Costs | None:
        """What is used after a step; None if that is more than a filter that was relied on holds."""
        used = tuple([before + cost for before, cost in zip(self.used, costs, strict=True)])
        within = [
            total > cap or sum_ <= total
            for sum_, total, cap in zip(used, self.total, self.caps, strict=True)
        ]
        return used if all(within) else None


@dataclass(slots=True)
class Held:
    """One reservation."""

    number: int
    is_fixed: bool
    parts: dict[int, Part]
    steps: int = 0
    has_ended: bool = False


@dataclass(slots=True)
class Reservations:
    """All of them, by number."""

    balances: Balances
    findings: Findings
    by_number: dict[int, Held] = field(default_factory=dict)
    still_open: dict[int, Held] = field(default_factory=dict)

    def reserve(self, held: Held) -> None:
        """A new one; its blocks hold its costs already."""
        self.by_number[held.number] = self.still_open[held.number] = held

    def step(self, entry: int, number: int, charged: list[tuple[int, Costs]]) -> Held | None:
        """Move costs from held to spent."""
        held = self._open(entry, number)
        if held is None:
            return None
        if sorted(account for account, _ in charged) != sorted(held.parts):
            self.findings.add(f"entry {entry}: charges other accounts than its reservation holds")
            return None
        if held.is_fixed and held.steps:
            self.findings.add(
                f"entry {entry}: the fixed run of reservation {number} had its one step before"
            )
        held.steps += 1
        for account, costs in charged:
            part = held.parts[account]
            if held.is_fixed and costs != part.total:
                self.findings.add(f"entry {entry}: a fixed run must be spent whole, and was not")
            if part.after(costs) is None:
                self.findings.add(f"entry {entry}: takes more than reservation {number} holds")
            part.used = tuple([before + cost for before, cost in zip(part.used, costs, strict=True)])
        return held

    def settle(self, entry: int, number: int, *, is_spent: bool) -> None:
        """End a reservation: what is left is spent, or lapses."""
        held = self._open(entry, number)
        if held is None:
            return
        held.has_ended = True
        del self.still_open[number]
        for part in held.parts.values():
            self._book(part)
            left = _minus(part.held, part.moved)
            self.balances.change_held(part.rows, _minus((0,) * 8, left))
            if is_spent:
                self.balances.change_spent(part.rows, left)

    def lose_everything(self) -> None:
        """After a loss, whatever was held is beyond use."""
        self.bring_up_to_date()
        for held in self.still_open.values():
            held.has_ended = True
        self.still_open.clear()

    def open_in(self, accounts: set[int]) -> bool:
        """Whether something is held in one of these accounts."""
        return any(not accounts.isdisjoint(held.parts) for held in self.still_open.values())

    def bring_up_to_date(self) -> None:
        """Let the blocks show what steps have spent so far."""
        for held in self.still_open.values():
            for part in held.parts.values():
                self._book(part)

    def __iter__(self) -> Iterator[tuple[int, int, Ranges, bool, bool, int, Costs, Costs]]:
        """Number, account, ranges, whether fixed, whether ended, steps, total, what is no longer held."""
        for held in self.by_number.values():
            for account, part in held.parts.items():
                used = part.held if held.has_ended else part.moved
                yield (
                    held.number, account, part.ranges, held.is_fixed, held.has_ended, held.steps,
                    part.total, used,
                )  # fmt: skip

    def _open(self, entry: int, number: int) -> Held | None:
        held = self.by_number.get(number)
        if held is None or held.has_ended:
            why = "was never made" if held is None else "has ended"
            self.findings.add(f"entry {entry}: reservation {number} {why}")
            return None
        return held

    def _book(self, part: Part) -> None:
        if part.used == part.booked:
            return
        before = _least(part.booked, part.held)
        self.balances.change_spent(part.rows, _minus(part.used, part.booked))
        self.balances.change_held(part.rows, _minus(before, part.moved))
        part.booked = part.used


def _minus(one: Costs, other: Costs) -> Costs:
    return tuple([a - b for a, b in zip(one, other, strict=True)])


def _least(one: Costs, other: Costs) -> Costs:
    return tuple(map(min, one, other))
