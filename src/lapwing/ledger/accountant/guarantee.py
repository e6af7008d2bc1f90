"""What a history promises to the people in it, in words. It follows from the entries and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from lapwing.core.conversions import probability_up
from lapwing.core.exact import ball, precision
from lapwing.errors import Tampered
from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.registers import OpenedAccount
from lapwing.ledger.accountant.replay import CuratorCheck, Replay
from lapwing.ledger.anchors import Head

PERIODS = (1, 2, 3, 12)
DIGITS = 6
BITS = 256
Pair = tuple[Fraction, Fraction]


def guarantee_in_periods(epsilon: Fraction, delta: Fraction, count: int) -> Pair:
    """(ε, δ) of somebody who is b units: (bε, δ (e^{bε} − 1) / (e^ε − 1)), rounded up, δ at most 1."""
    if not delta or count == 1:
        return count * epsilon, delta
    with precision(BITS):
        e = ball(epsilon)
        return count * epsilon, probability_up(ball(delta) * (count * e).expm1() / e.expm1())


def periods_until_no_guarantee(epsilon: Fraction, delta: Fraction) -> int | None:
    """From how many units on (ε, δ) promises nothing to who is all of them: δ reaches 1. None: never."""
    if not delta:
        return None
    low, high = 0, 1
    while guarantee_in_periods(epsilon, delta, high)[1] < 1:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if guarantee_in_periods(epsilon, delta, middle)[1] < 1 else (low, middle)
    return high


def guarantee_in_periods_text(epsilon: Fraction, delta: Fraction) -> str:
    """What (ε, δ) for a person in one period means for somebody who is in several of them, in words."""
    end = periods_until_no_guarantee(epsilon, delta)
    counts = [count for count in PERIODS[1:] if end is None or count < end]
    each = "; ".join(
        f"in {count} {_pair(*guarantee_in_periods(epsilon, delta, count))}" for count in counts
    )
    words = (
        "Protected is a person in one period. Who has rows in k of them is protected by "
        f"(kε, δ·(e^(kε) − 1)/(e^ε − 1)) only{each and ': '}{each}."
    )
    return words if end is None else f"{words} Nothing is promised from k = {end} on."


def text_up(value: Fraction) -> str:
    """A short decimal at or above the value."""
    if not value:
        return "0"
    exponent = math.floor(_log10(value)) - DIGITS + 1
    scale = Fraction(10) ** exponent
    digits = math.ceil(value / scale)
    if digits >= 10**DIGITS:  # one digit more after rounding
        digits, exponent = -(-digits // 10), exponent + 1
    if -12 <= exponent <= 0:
        return f"{digits / 10**-exponent:.{-exponent}f}".rstrip("0").rstrip(".")
    whole, part = divmod(digits, 10 ** (DIGITS - 1))
    return f"{whole}.{part:0{DIGITS - 1}d}".rstrip("0").rstrip(".") + f"e{exponent + DIGITS - 1}"


def _log10(value: Fraction) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)


@dataclass(frozen=True, slots=True)
class FamilyGuarantee:
    """An account and those that raised it: they protect the same people, and their losses add up."""

    root: int
    unit: str
    relation: str
    slices: str
    accounts: tuple[tuple[int, Fraction, Fraction], ...]
    open_blocks: int
    lost_blocks: int
    in_periods: tuple[tuple[int, Fraction, Fraction], ...]

    @classmethod
    def of(cls, replay: Replay, accounts: list[OpenedAccount]) -> FamilyGuarantee:
        """A family as the accountant knows it."""
        books = replay.balances
        mine = np.isin(books.owners.rows, [account.place for account in accounts])
        states = books.states.rows[mine & (books.states.rows < MOVED)]
        opened = int((states == OPEN).sum())
        first = accounts[0]
        family = cls(
            root=first.number,
            unit=first.unit,
            relation=first.relation,
            slices=first.slices,
            accounts=tuple([(account.number, account.epsilon, account.delta) for account in accounts]),
            open_blocks=opened,
            lost_blocks=len(states) - opened,
            in_periods=(),
        )
        if first.slices != "periods":
            return family
        counts = sorted({*PERIODS, max(len(states) - 1, 1)})  # the block of everyone is no period
        found = tuple([(count, *guarantee_in_periods(*family.total, count)) for count in counts])
        return replace(family, in_periods=found)

    @property
    def total(self) -> Pair:
        """(ε, δ) of all accounts together, for one unit."""
        return sum(e for _, e, _ in self.accounts) + Fraction(0), sum(
            d for _, _, d in self.accounts
        ) + Fraction(0)

    def lines(self) -> Iterator[str]:
        """Its promise, for people to read."""
        yield f"account {self.root}: protects one {self.unit}; neighbours {self.relation}"
        yield f"  {_pair(*self.total)} for life, whatever was asked"
        if len(self.accounts) > 1:
            each = "; ".join(f"account {number} {_pair(e, d)}" for number, e, d in self.accounts)
            yield f"  raised, so this is the sum of: {each}"
        lost = f", {self.lost_blocks} lost and closed" if self.lost_blocks else ""
        yield f"  {self.open_blocks} open block{'' if self.open_blocks == 1 else 's'}{lost}"
        for count, epsilon, delta in self.in_periods:
            yield f"  somebody in {count} period{'s' if count > 1 else ''}: {_pair(epsilon, delta)}"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """All families, and every exception that the curator signed."""

    families: tuple[FamilyGuarantee, ...]
    differ: tuple[tuple[int, int, int], ...]  # entry, data set, account
    recovered: tuple[tuple[int, int | None], ...]  # entry, number of the lost one
    checks: tuple[CuratorCheck, ...] = ()

    @classmethod
    def of(cls, replay: Replay) -> Guarantee:
        """What the entries read so far promise."""
        registers = replay.registers
        families = tuple([FamilyGuarantee.of(replay, accounts) for accounts in registers.families.values()])
        return cls(families, tuple(registers.differ), tuple(replay.recovered), tuple(replay.checks))

    def lines(self) -> Iterator[str]:
        """The promises, for people to read."""
        for family in self.families:
            yield from family.lines()
        if len(self.families) > 1:
            yield "somebody who is in several of these accounts: their losses add up"
        for entry, data, account in self.differ:
            others = f"the people of data set {data} are not those of account {account}"
            yield f"entry {entry}: the curator signed that {others}"
        for entry, lost in self.recovered:
            what = "entries" if lost is None else f"entries up to {lost}"
            yield f"entry {entry}: {what} were lost; the curator signed that all open blocks count as spent"
        for check in self.checks:
            yield f"entry {check.entry}: account {check.account}: {check_words(is_change=check.is_change)}"


def check_words(*, is_change: bool) -> str:
    """What an entry about a check says, for people to read."""
    if is_change:
        return "the policy was changed after a check; what that showed may be in it, and is not covered"
    return "the curator signed to have seen exact counts of the data (`lapwing check`)"


@dataclass(frozen=True, slots=True)
class StatementReport:
    """What a check of a history, a statement or a proof came to."""

    ledger: str
    key: str
    entries: int
    findings: tuple[str, ...]
    prices_checked: int = 0
    prices_unchecked: int = 0
    head: Head | None = None
    guarantee: Guarantee | None = None

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def summary(self) -> str:
        """The promises, or what is wrong, for people to read."""
        if self.findings:
            return "\n".join(("This is not to be believed:", *self.findings))
        lines = [f"ledger {self.ledger}, signed by {self.key}: {self.entries:,} entries"]
        if self.guarantee is not None:
            lines.extend(self.guarantee.lines())
            lines.append(f"{self.prices_checked:,} prices compared with a second opinion")
        if self.prices_unchecked:
            lines.append(f"{self.prices_unchecked:,} prices have no second opinion here")
        return "\n".join(lines)

    def require_good(self) -> StatementReport:
        """Itself, or `Tampered` with what is wrong."""
        if self.findings:
            raise Tampered(self.findings)
        return self


def _pair(epsilon: Fraction, delta: Fraction) -> str:
    return f"(ε {text_up(epsilon)}, δ {text_up(delta)})"
