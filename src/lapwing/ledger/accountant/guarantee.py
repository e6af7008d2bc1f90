"""The guarantee that a history gives to the people in it, in words. It follows from the entries alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lapwing.core.conversions import probability_up
from lapwing.core.exact import ball, least_from, precision, short_up
from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.registers import OpenedAccount
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import CuratorCheck

PERIODS = (1, 2, 3, 12)
BITS = 256
Pair = tuple[Fraction, Fraction]


def guarantee_in_periods(epsilon: Fraction, delta: Fraction, count: int) -> Pair:
    """Return (ε, δ) for a person in `count` periods, rounded up, with δ at most 1.

    For b units it is (bε, δ (e^{bε} − 1) / (e^ε − 1)).
    """
    if not delta or count == 1:
        return count * epsilon, delta
    with precision(BITS):
        e = ball(epsilon)
        return count * epsilon, probability_up(ball(delta) * (count * e).expm1() / e.expm1())


def total_of(accounts: Iterable[tuple[int, Fraction, Fraction]]) -> Pair:
    """Return the sums of ε and of δ of accounts, which are (number, ε, δ)."""
    _, epsilons, deltas = zip(*accounts, strict=True)
    return sum(epsilons, Fraction(0)), sum(deltas, Fraction(0))


def worst_cases(total: Pair, periods: int) -> tuple[tuple[int, Fraction, Fraction], ...]:
    """Return (count, ε, δ) for a person in `count` periods: in a few, and in all of them."""
    counts = sorted({*PERIODS, max(periods, 1)})
    return tuple([(count, *guarantee_in_periods(*total, count)) for count in counts])


def periods_until_no_guarantee(epsilon: Fraction, delta: Fraction) -> int | None:
    """Return the number of periods from which on nothing is guaranteed, because δ reaches 1; or None."""
    if not delta:
        return None
    return least_from(lambda count: guarantee_in_periods(epsilon, delta, count)[1] >= 1)


def guarantee_in_periods_text(epsilon: Fraction, delta: Fraction) -> str:
    """Explain what (ε, δ) for a person in one period means for a person in several periods."""
    end = periods_until_no_guarantee(epsilon, delta)
    few = [count for count in PERIODS[1:] if end is None or count < end]
    each = "; ".join(f"in {count} {_pair(*guarantee_in_periods(epsilon, delta, count))}" for count in few)
    words = (
        "This protects a person in one period. A person with rows in k periods has only the weaker promise "
        f"(kε, δ·(e^(kε) − 1)/(e^ε − 1)){each and ': '}{each}."
    )
    return words if end is None else f"{words} Nothing is promised from k = {end} on."


@dataclass(frozen=True, slots=True)
class FamilyGuarantee:
    """The guarantee of an account and its raises: they protect the same people, and their losses add up."""

    root: int
    unit: str
    relation: str
    slices: str
    accounts: tuple[tuple[int, Fraction, Fraction], ...]
    open_blocks: int
    lost_blocks: int
    part_of: int | None = None  # the account that is charged with everything that this one is
    is_used: bool = True

    @property
    def adds(self) -> bool:
        """True if its losses add to those of other accounts."""
        return self.is_used and self.part_of is None

    @classmethod
    def of(cls, replay: Replay, accounts: list[OpenedAccount]) -> FamilyGuarantee:
        """Return the guarantee of a family of accounts."""
        books = replay.balances
        mine = np.isin(books.owners.rows, [account.place for account in accounts])
        states = books.states.rows[mine & (books.states.rows < MOVED)]
        opened = int((states == OPEN).sum())
        first, lost = accounts[0], len(states) - opened
        budgets = tuple([(account.number, account.epsilon, account.delta) for account in accounts])
        registers, root = replay.registers, first.number
        return cls(
            root, first.unit, first.relation, first.slices, budgets, opened, lost,
            registers.part_of(root), root in registers.together,
        )  # fmt: skip

    @property
    def in_periods(self) -> tuple[tuple[int, Fraction, Fraction], ...]:
        """The (count, ε, δ) of a person in several periods, if units are sliced by periods."""
        periods = self.open_blocks + self.lost_blocks - 1  # `*` is no period
        return worst_cases(self.total, periods) if self.slices == "periods" else ()

    @property
    def total(self) -> Pair:
        """The (ε, δ) of all accounts together, for one unit."""
        return total_of(self.accounts)

    def lines(self) -> Iterator[str]:
        """Yield the guarantee as lines for people to read."""
        yield f"account {self.root}: protects one {self.unit}; neighbours {self.relation}"
        yield f"  {_pair(*self.total)} for life, whatever was asked"
        if len(self.accounts) > 1:
            each = "; ".join(f"account {number} {_pair(e, d)}" for number, e, d in self.accounts)
            yield f"  raised, so this is the sum of: {each}"
        if self.part_of is not None:
            yield f"  a part of account {self.part_of}, which all its charges went to as well: nothing adds"
        elif not self.is_used:
            yield "  nothing was ever charged to it: so far it adds nothing"
        lost = f", {self.lost_blocks} lost and closed" if self.lost_blocks else ""
        yield f"  {self.open_blocks} open block{'' if self.open_blocks == 1 else 's'}{lost}"
        for count, epsilon, delta in self.in_periods:
            yield f"  somebody in {count} period{'s' if count > 1 else ''}: {_pair(epsilon, delta)}"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantees of all families, and every exception that the curator signed."""

    families: tuple[FamilyGuarantee, ...]
    differ: tuple[tuple[int, int, int], ...]  # entry, data set, account
    recovered: tuple[tuple[int, int | None], ...]  # entry, number of the lost one
    checks: tuple[CuratorCheck, ...] = ()
    registered: tuple[tuple[int, str], ...] = ()  # entry, registry
    others: tuple[tuple[int, str], ...] = ()  # entry, ledger

    @classmethod
    def of(cls, replay: Replay) -> Guarantee:
        """Return the guarantee of the entries read so far."""
        registers = replay.registers
        families = tuple([FamilyGuarantee.of(replay, accounts) for accounts in registers.families.values()])
        signed = tuple(replay.registered), tuple(replay.others)
        return cls(
            families, tuple(registers.differ), tuple(replay.recovered), tuple(replay.checks), *signed
        )

    def lines(self) -> Iterator[str]:
        """Yield the guarantee as lines for people to read."""
        for family in self.families:
            yield from family.lines()
        if sum(family.adds for family in self.families) > 1:
            yield "somebody who is in several of these accounts: their losses add up"
        for entry, data, account in self.differ:
            others = f"the people of data set {data} are not those of account {account}"
            yield f"entry {entry}: the curator signed that {others}"
        for entry, lost in self.recovered:
            what = "entries" if lost is None else f"entries up to {lost}"
            yield f"entry {entry}: {what} were lost; the curator signed that all open blocks count as spent"
        for entry, registry in self.registered:
            yield f"entry {entry}: {registered_words(registry)}"
        for entry, ledger in self.others:
            yield f"entry {entry}: {others_words([ledger])}"
        for check in self.checks:
            yield f"entry {check.entry}: account {check.account}: {check_words(is_change=check.is_change)}"


def registered_words(registry: str) -> str:
    """Return the meaning of an entry about another registry, for people to read."""
    return f"the curator signed that the ledger goes on in registry {registry}, which did not know it"


def others_words(ledgers: Iterable[str]) -> str:
    """Return the meaning of an entry about ids that other ledgers know, for people to read."""
    return f"the curator signed that the people are not those of ledger {', '.join(ledgers)}"


def check_words(*, is_change: bool) -> str:
    """Return the meaning of an entry about a check, for people to read."""
    if is_change:
        return "the policy was changed after a check; what that showed may be in it, and is not covered"
    return "the curator signed to have seen exact counts of the data (`lapwing check`)"


@dataclass(frozen=True, slots=True)
class StatementReport:
    """The result of checking a history, a statement or a proof."""

    ledger: str
    key: str
    entries: int
    findings: tuple[str, ...]
    prices_checked: int = 0
    prices_unchecked: int = 0
    head: Head | None = None
    guarantee: Guarantee | None = None

    @classmethod
    def of(
        cls, replay: Replay, ledger: str, key: str, findings: tuple[str, ...], head: Head | None = None
    ) -> StatementReport:
        """Return the report of a history that was replayed."""
        prices = replay.prices
        guarantee = Guarantee.of(replay)
        return cls(ledger, key, replay.entries, findings, prices.checked, prices.unchecked, head, guarantee)


def _pair(epsilon: Fraction, delta: Fraction) -> str:
    return f"(ε {short_up(epsilon)}, δ {short_up(delta)})"
