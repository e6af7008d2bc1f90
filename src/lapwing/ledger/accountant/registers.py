"""Accounts, blocks, data sets and reservations, as the entries declare them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.core.budget import Terms
from lapwing.core.exact import exact
from lapwing.errors import LapwingError
from lapwing.ledger.accountant import textbook
from lapwing.ledger.accountant.balance import LOST, MOVED, Balances, Costs, Findings
from lapwing.ledger.entry import Ranges, encode
from lapwing.ledger.keys import good_signature


@dataclass(slots=True)
class HeldInAccount:
    """The costs that a reservation holds in one account.

    A step changes spent and reserved costs, but not their sum, as far as filters can tell. So `used` may be
    ahead of the blocks, which are updated (`in_blocks`) when they are looked at.
    """

    account: int
    ranges: Ranges
    rows: list[slice]
    total: Costs
    caps: Costs
    used: Costs = (0,) * 8
    in_blocks: Costs = (0,) * 8

    @property
    def held(self) -> Costs:
        """The costs reserved at first. A cost above its cap is reserved as cap + 1."""
        return tuple([min(total, cap + 1) for total, cap in zip(self.total, self.caps, strict=True)])

    @property
    def moved(self) -> Costs:
        """The part of the reserved costs that steps have spent."""
        return _least(self.used, self.held)

    @property
    def is_within(self) -> bool:
        """True if no filter that the reservation needs is exceeded by the used costs."""
        return all(
            total > cap or used <= total
            for used, total, cap in zip(self.used, self.total, self.caps, strict=True)
        )


@dataclass(slots=True)
class HeldReservation:
    """One reservation."""

    number: int
    is_fixed: bool
    parts: dict[int, HeldInAccount]
    steps: int = 0
    has_ended: bool = False


@dataclass(slots=True)
class Reservations:
    """All reservations, by number."""

    balances: Balances
    findings: Findings
    by_number: dict[int, HeldReservation] = field(default_factory=dict)
    still_open: dict[int, HeldReservation] = field(default_factory=dict)

    def reserve(self, held: HeldReservation) -> None:
        """Add a reservation whose costs are already reserved in its blocks."""
        self.by_number[held.number] = self.still_open[held.number] = held

    def step(self, entry: int, number: int, charged: list[tuple[int, Costs]]) -> HeldReservation | None:
        """Move the costs of a step from reserved to spent.

        Return the reservation, or None if it is wrong.
        """
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
            part.used = tuple([before + cost for before, cost in zip(part.used, costs, strict=True)])
            if not part.is_within:
                self.findings.add(f"entry {entry}: takes more than reservation {number} holds")
        return held

    def settle(self, entry: int, number: int, *, is_spent: bool) -> None:
        """End a reservation: the rest is spent, or lapses."""
        held = self._open(entry, number)
        if held is None:
            return
        held.has_ended = True
        del self.still_open[number]
        for part in held.parts.values():
            self._update_blocks(part)
            left = _minus(part.held, part.moved)
            self.balances.change_held(part.rows, _minus((0,) * 8, left))
            if is_spent:
                self.balances.change_spent(part.rows, left)

    def lose_everything(self) -> None:
        """End all reservations after a loss: nothing of them can be used."""
        self.bring_up_to_date()
        for held in self.still_open.values():
            held.has_ended = True
        self.still_open.clear()

    def open_in(self, accounts: set[int]) -> bool:
        """Return whether a reservation is open in one of these accounts."""
        return any(not accounts.isdisjoint(held.parts) for held in self.still_open.values())

    def bring_up_to_date(self) -> None:
        """Update the blocks with the costs that steps have spent so far."""
        for held in self.still_open.values():
            for part in held.parts.values():
                self._update_blocks(part)

    def __iter__(self) -> Iterator[tuple[int, int, Ranges, bool, bool, int, Costs, Costs]]:
        """Yield one row for each reservation and account, as the database has it.

        It is number, account, ranges, is fixed, has ended, steps, total, and the costs no longer reserved.
        """
        for held in self.by_number.values():
            for account, part in held.parts.items():
                used = part.held if held.has_ended else part.moved
                yield (
                    held.number, account, part.ranges, held.is_fixed, held.has_ended, held.steps,
                    part.total, used,
                )  # fmt: skip

    def _open(self, entry: int, number: int) -> HeldReservation | None:
        held = self.by_number.get(number)
        if held is None or held.has_ended:
            why = "was never made" if held is None else "has ended"
            self.findings.add(f"entry {entry}: reservation {number} {why}")
            return None
        return held

    def _update_blocks(self, part: HeldInAccount) -> None:
        if part.used == part.in_blocks:
            return
        before = _least(part.in_blocks, part.held)
        self.balances.change_spent(part.rows, _minus(part.used, part.in_blocks))
        self.balances.change_held(part.rows, _minus(before, part.moved))
        part.in_blocks = part.used


def _minus(left: Costs, right: Costs) -> Costs:
    return tuple([a - b for a, b in zip(left, right, strict=True)])


def _least(left: Costs, right: Costs) -> Costs:
    return tuple(map(min, left, right))


@dataclass(frozen=True, slots=True)
class OpenedAccount:
    """An account as declared, and the index of its caps in the balances."""

    number: int
    root: int
    place: int
    name: str
    unit: str
    relation: str
    epsilon: Fraction
    delta: Fraction
    orders: tuple[int, ...]
    caps: Costs
    slices: str
    rule: str
    everyone: int
    raises: int | None


ONLY_ADD_REMOVE = frozenset({"Worst", "SampledGaussian"})
ADD_REMOVE = "add or remove one unit"
REMEMBERED = 50_000


class PriceChecks:
    """A cache of second opinions, and counts of the prices compared with them."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._opinions: dict[tuple[bytes, tuple[int, ...]], textbook.Opinion | None] = {}
        self.checked = self.unchecked = 0

    def count(self, *, is_checked: bool) -> None:
        """Count one more price, with or without a second opinion."""
        self.checked += is_checked
        self.unchecked += not is_checked

    def is_checked(
        self, entry: int, account: OpenedAccount, costs: Costs, loss: bytes, description: Any
    ) -> bool:
        """Return whether there is a full second opinion on this price. Errors become findings."""
        try:
            least = self._opinion(loss, description, account.orders)
        except textbook.Unreadable:
            self._findings.add(f"entry {entry}: what it was charged for is not the description of a loss")
            return False
        if least is None:
            return False
        if account.relation != ADD_REMOVE and least.kinds & ONLY_ADD_REMOVE:
            self._findings.add(f"entry {entry}: its loss holds only if neighbours {ADD_REMOVE}")
        k = textbook.first_cost_too_low(least, costs, account.caps)
        if k is not None:
            self._findings.add(f"entry {entry}: its cost number {k} is less than its loss costs at least")
        return not least.is_partial

    def _opinion(self, loss: bytes, description: Any, orders: tuple[int, ...]) -> textbook.Opinion | None:
        """Return the second opinion on a loss, cached by its text."""
        known = self._opinions
        if (loss, orders) not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[loss, orders] = textbook.opinion(description, orders)
        return known[loss, orders]


@dataclass(frozen=True, slots=True)
class RegisteredData:
    """A data set in its newest version."""

    number: int
    name: str
    origin: str
    rule: str
    accounts: tuple[int, ...]
    version: int


@dataclass(slots=True)
class Registers:
    """All declarations. Each is checked against those before."""

    balances: Balances
    reservations: Reservations
    findings: Findings
    ledger: str = ""
    curator: bytes = b""
    accounts: dict[int, OpenedAccount] = field(default_factory=dict)
    families: dict[int, list[OpenedAccount]] = field(default_factory=dict)
    everyones: set[int] = field(default_factory=set)  # their block numbers
    datasets: dict[int, RegisteredData] = field(default_factory=dict)
    differ: list[tuple[int, int, int]] = field(default_factory=list)  # entry, data set, account
    names: set[bytes] = field(default_factory=set)  # ids of principals, accounts, data sets and origins
    together: dict[int, frozenset[int]] = field(default_factory=dict)  # families in all charges of a family

    def charged_together(self, roots: frozenset[int]) -> None:
        """Note that one charge or reservation went to these families, and to no other."""
        for root in roots:
            with_it = self.together.get(root)
            self.together[root] = roots - {root} if with_it is None else with_it & roots

    def charged_alone(self) -> None:
        """Note that lost entries may have charged every family alone."""
        self.together.update(dict.fromkeys(self.families, frozenset[int]()))

    def part_of(self, root: int) -> int | None:
        """Return an earlier family that was charged with everything that this one was; None if none was.

        Claim    the losses of such a family add nothing to those of the other.
        Because  the other's filters admitted all the same releases, under the same unit and relation. A
                 quota is such a family, and so is a pipeline's share.
        Test     tests/ledger/accountant/test_guarantee.py
        """
        first = self.families[root][0]
        for other in sorted(self.together.get(root, ())):
            whole = self.families[other][0]
            if other < root and (whole.unit, whole.relation) == (first.unit, first.relation):
                return other
        return None

    def _find(self, seq: int, what: str) -> None:
        self.findings.add(f"entry {seq}: {what}")

    # Accounts

    def account(self, seq: int, record: dict[str, Any]) -> None:
        """Add an account. Before a raise, all earlier charges must have been added."""
        number, root = record["account"], record["raises"]
        if number in self.accounts:
            self._find(seq, f"account {number} was opened before")
            return
        caps = self._caps(seq, record)
        if caps is None:
            return
        if (record["unit"] == "person and period") != (record["slices"] == "periods"):
            self._find(seq, "slices by time protect a person and period, and nothing else does")
        if record["slices"] == "units" and record["relation"] == "replace one unit":
            self._find(seq, "slices by the unit's data do not hold where that is replaced")
        opened = OpenedAccount(
            number=number,
            root=number if root is None else root,
            place=self.balances.add_account(number, caps),
            name=record["name"],
            unit=record["unit"],
            relation=record["relation"],
            epsilon=exact(record["epsilon"]),
            delta=exact(record["delta"]),
            orders=tuple(record["orders"]),
            caps=caps,
            slices=record["slices"],
            rule=record["rule"],
            everyone=record["everyone"],
            raises=root,
        )
        moved: list[list[int]] = []
        if root is None:
            if record["signature"] is not None:
                self._find(seq, "an account that raises none needs no signature")
        elif self._may_raise(seq, opened, record):
            moved = self._moved(seq, opened, record["moved"])
        else:
            return
        self._open(seq, opened, moved)
        self.keep(opened)

    def keep(self, opened: OpenedAccount) -> None:
        """Store an account."""
        self.accounts[opened.number] = opened
        self.families.setdefault(opened.root, []).append(opened)
        self.everyones.add(opened.everyone)
        self.names.add(opened.name.encode())

    def _caps(self, seq: int, record: dict[str, Any]) -> Costs | None:
        caps = tuple(record["caps"])
        try:
            terms = Terms(exact(record["epsilon"]), exact(record["delta"]), tuple(record["orders"]))
        except LapwingError:
            self._find(seq, "its ε, δ or orders are not acceptable")
            return None
        if caps != terms.caps:
            self._find(seq, "its caps are not those of its ε and δ")
        k = textbook.first_wrong_cap(terms.epsilon, terms.delta, terms.orders, caps)
        if k is not None:
            self._find(seq, f"its cap number {k} does not follow from its ε and δ")
        return caps

    def _may_raise(self, seq: int, opened: OpenedAccount, record: dict[str, Any]) -> bool:
        family = self.families.get(opened.root)
        if family is None:
            self._find(seq, f"raises account {opened.root}, which is not the first of a family")
            return False
        signature = bytes.fromhex(record["signature"] or "")
        if not good_signature(self.curator, encode(record | {"signature": None}), signature):
            self._find(seq, "a raise must be signed by the curator, and was not")
        first = family[0]
        for what in ("name", "unit", "relation", "slices", "rule"):
            if getattr(opened, what) != getattr(first, what):
                self._find(seq, f"a raise cannot change the {what} of account {first.number}")
        if self.reservations.open_in({account.number for account in family}):
            self._find(seq, "raises an account in which something is held")
        return True

    def _moved(self, seq: int, opened: OpenedAccount, moved: list[list[int]]) -> list[list[int]]:
        """Check that all current blocks of the family move, and close them."""
        family = self.families[opened.root]
        balances = self.balances
        places = [account.place for account in family]
        current = np.flatnonzero(np.isin(balances.owners.rows, places) & (balances.states.rows < MOVED))
        named = ~np.isin(balances.numbers.rows[current], [account.everyone for account in family])
        old = np.sort(np.array([pair[0] for pair in moved], np.int64))
        if not np.array_equal(old, balances.numbers.rows[current[named]]):
            self._find(seq, "does not move exactly the current blocks of its family")
        balances.mark(current, MOVED)
        return moved

    def _open(self, seq: int, opened: OpenedAccount, moved: list[list[int]]) -> None:
        """Open the block of everyone, and the blocks that moved here."""
        numbers = np.array([opened.everyone, *(new for _, new in moved)], np.int64)
        rows = self.balances.find(np.array([old for old, _ in moved], np.int64))
        ids = np.zeros((len(numbers), 16), np.uint8)
        if len(rows):
            ids[1:] = self.balances.ids.rows[rows]
        order = np.argsort(numbers, kind="stable")
        numbers, ids = numbers[order], ids[order]
        if not self.balances.is_fresh(int(numbers[0])) or (np.diff(numbers) <= 0).any():
            self._find(seq, "opens blocks under numbers that are not fresh")
            return
        self.balances.open(numbers, opened.place, ids)

    # Blocks

    def blocks(self, seq: int, record: dict[str, Any]) -> None:
        """Open blocks of an account. They begin with the costs charged to everyone in it."""
        opened, first, names = self.accounts.get(record["account"]), record["first"], record["names"]
        if opened is None or opened.slices == "none":
            self._find(seq, f"account {record['account']} has no blocks to open")
            return
        self._may_open(seq, opened)
        if not self.balances.is_fresh(first):
            self._find(seq, "opens blocks under numbers that are not fresh")
            return
        everyone = self.balances.row(opened.everyone)
        ids = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, 16)
        rows = self.balances.open(np.arange(first, first + len(names)), opened.place, ids)
        self.balances.start_as(rows, everyone)

    def _may_open(self, seq: int, opened: OpenedAccount) -> None:
        newest = self.families[opened.root][-1]
        everyone = self.balances.row(newest.everyone)
        if self.reservations.still_open:
            self.reservations.bring_up_to_date()
        if any(self.balances.held(everyone)):
            self._find(seq, "opens blocks while something is held for everyone")
        if self.balances.states.rows[everyone] == LOST:
            self._find(seq, "opens blocks in an account that was lost")
        if opened is newest:
            return
        # A raised family may open further blocks in its first account, as long as nothing was charged to
        # everyone in a raised one.
        raised = [self.balances.row(account.everyone) for account in self.families[opened.root][1:]]
        if opened.number != opened.root or any(any(self.balances.spent(row)) for row in raised):
            self._find(seq, f"opens blocks in account {opened.number}, which was raised")

    def named_twice(self) -> list[int]:
        """Return the numbers of current blocks that have the id of another block."""
        rows = np.flatnonzero((self.balances.states.rows < MOVED) & self.balances.ids.rows.any(axis=1))
        halves = np.ascontiguousarray(self.balances.ids.rows[rows]).view(np.uint64).reshape(-1, 2)
        ordered = np.sort(halves[:, 0])
        if (ordered[1:] != ordered[:-1]).all():
            return []
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        same = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
        return [int(number) for number in self.balances.numbers.rows[rows[order[1:][same]]]]

    # Data sets

    def data(self, seq: int, record: dict[str, Any]) -> None:
        """Add a data set in its first version."""
        if record["data"] in self.datasets or record["version"] != 1:
            self._find(seq, f"data set {record['data']} was registered before, or not as version 1")
            return
        self.names.update((record["name"].encode(), record["origin"].encode()))
        self._keep(seq, record, record["name"], record["origin"], record["rule"])

    def version(self, seq: int, record: dict[str, Any]) -> None:
        """Add a further version of a data set. It has the next number, and keeps all its accounts."""
        before = self.datasets.get(record["data"])
        if before is None or record.get("name", before.name) != before.name:
            self._find(seq, f"data set {record['data']} is not known under this name")
            return
        if record["version"] != before.version + 1:
            self._find(seq, f"version {record['version']} does not follow version {before.version}")
        if not set(before.accounts) <= set(record["accounts"]):
            self._find(seq, "a data set cannot leave an account")
        self._keep(seq, record, before.name, before.origin, before.rule)

    def _keep(self, seq: int, record: dict[str, Any], name: str, origin: str, rule: str) -> None:
        accounts, same = record["accounts"], record["same_rule"]
        if not accounts or len(set(accounts)) != len(accounts) or len(same) != len(accounts):
            self._find(seq, "does not name its accounts once each")
        for root, is_same in zip(accounts, same, strict=False):
            family = self.families.get(root)
            if family is None:
                self._find(seq, f"account {root} is not the first of a family")
            elif is_same and family[0].slices == "none":
                self._find(seq, f"account {root} has no slices to charge")
            elif is_same != (family[0].slices != "none" and family[0].rule == rule):
                self._find(seq, f"does not say rightly whether it is sliced as account {root} is")
        for account, signature in record["differ"]:
            said = {"ledger": self.ledger, "data": name, "account": account, "people": "differ"}
            if not good_signature(self.curator, encode(said), bytes.fromhex(signature)):
                self._find(seq, "that people differ must be signed by the curator, and was not")
            if account not in self.families:
                self._find(seq, f"account {account} is not the first of a family")
            self.differ.append((seq, record["data"], account))
        self.datasets[record["data"]] = RegisteredData(
            record["data"], name, origin, rule, tuple(accounts), record["version"]
        )
