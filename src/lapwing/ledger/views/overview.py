"""What is left: per account and block, with everything that must be known to read it rightly.

All of it is of one moment. Looking is free: it charges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from lapwing.ledger.accountant.guarantee import PERIODS, Pair, in_several
from lapwing.ledger.accounts import (
    ACCOUNT_COLUMNS,
    BLOCK_COLUMNS,
    CURRENT_BLOCKS,
    EVERYONE,
    Account,
    Block,
    Slices,
    account_of,
    block_of,
    in_numbers,
)
from lapwing.ledger.entry import Costs
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.stores.transaction import Transaction
from lapwing.ledger.views.left import delta_left, exactly
from lapwing.ledger.views.log import Line, declared
from lapwing.privacy.portfolio import SHARE_DELTA0, SHARE_ORDERS, SHARE_PAIR

NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class BlockLeft:
    """What one block has left."""

    label: str
    account: int
    is_open: bool  # otherwise it was lost, and counts as spent
    epsilon: Fraction  # the largest pure ε that a next question could spend
    delta: Fraction  # the largest probability of failure that it may have
    epsilon_after_lapse: Fraction  # the same ε, if all that is held lapsed
    epsilon_at_first: Fraction  # the same ε, when nothing was spent
    delta_at_first: Fraction  # the same δ, when nothing was spent: a share of the account's


@dataclass(frozen=True, slots=True)
class Family:
    """An account and those that raised it. They protect the same people, so their (ε, δ) add up."""

    label: str
    unit: str
    relation: str
    slices: str
    rule: str
    accounts: tuple[tuple[int, Fraction, Fraction], ...]  # number, ε, δ; the first, then each raise
    blocks: tuple[BlockLeft, ...]
    reservations: tuple[int, ...]  # those that are open
    in_periods: tuple[tuple[int, Fraction, Fraction], ...]  # for somebody in so many periods

    @property
    def total(self) -> Pair:
        """The promise to one unit, for life: the sum where the account was raised."""
        return (
            sum((epsilon for _, epsilon, _ in self.accounts), NOTHING),
            sum((delta for _, _, delta in self.accounts), NOTHING),
        )

    @property
    def set_aside(self) -> SetAside:
        """What δ is for."""
        return SetAside.of(self.total[1])


@dataclass(frozen=True, slots=True)
class SetAside:
    """How δ is divided from the beginning, for life: setting it aside spends nothing of it."""

    failures: Fraction  # for answers that may fail to keep their ε: those with keys that are not declared
    whole_runs: Fraction  # for runs that are priced as one (ε, δ)
    filters: Fraction  # for the Rényi filters, by which many answers cost less than the sum of their prices

    @classmethod
    def of(cls, delta: Fraction) -> SetAside:
        """Of an account's δ."""
        return cls(delta * SHARE_DELTA0, delta * SHARE_PAIR, delta * sum(SHARE_ORDERS))


@dataclass(frozen=True, slots=True)
class Registered:
    """A data set, and the accounts that its releases are charged to, all of them."""

    label: str
    version: int
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """All that is left, and every exception that the curator signed."""

    ledger: str
    families: tuple[Family, ...]
    not_shown: tuple[str, ...]  # other accounts, which somebody may be in, too
    data_sets: tuple[Registered, ...]
    declared: tuple[Line, ...]


def overview(ledger: Ledger, account: str | None = None) -> Overview:
    """What is left in all accounts, or in one."""
    wanted = None if account is None else ledger.account(account).number

    def work(tx: Transaction) -> Overview:
        families: dict[int, list[Account]] = {}
        for row in tx.rows(f"SELECT {ACCOUNT_COLUMNS} FROM accounts ORDER BY account"):  # noqa: S608
            found = account_of(row)
            families.setdefault(found.root, []).append(found)
        labels = {root: accounts[0].label for root, accounts in families.items()}
        return Overview(
            ledger=ledger.id,
            families=tuple(
                [_family(tx, accounts) for root, accounts in families.items() if wanted in (None, root)]
            ),
            not_shown=tuple([label for root, label in labels.items() if wanted not in (None, root)]),
            data_sets=_data_sets(tx, labels, wanted),
            declared=declared(tx),
        )

    return ledger.store.read(work)


def _data_sets(tx: Transaction, labels: dict[int, str], wanted: int | None) -> tuple[Registered, ...]:
    rows = [
        (label, version, json.loads(accounts))
        for label, version, accounts in tx.rows(
            "SELECT label, version, accounts FROM datasets ORDER BY data"
        )
    ]
    return tuple(
        Registered(label, version, tuple([labels[root] for root in roots]))
        for label, version, roots in rows
        if wanted is None or wanted in roots
    )


def _family(tx: Transaction, accounts: list[Account]) -> Family:
    first = accounts[0]
    rows = tx.rows(f"SELECT {BLOCK_COLUMNS} FROM {CURRENT_BLOCKS} ORDER BY block", first.number)  # noqa: S608
    owners = {account.number: account for account in accounts}
    numbers = in_numbers([account.number for account in accounts])
    held = tx.rows(
        "SELECT DISTINCT reservation FROM reservations "  # noqa: S608 (whole numbers of ours)
        f"WHERE ended = 0 AND account IN ({numbers}) ORDER BY reservation"
    )
    blocks = [block_of(row, owners[row[1]]) for row in rows]
    family = Family(
        label=first.label,
        unit=first.unit.value,
        relation=first.relation.value,
        slices=first.slices.value,
        rule=first.rule,
        accounts=tuple([(one.number, one.terms.epsilon, one.terms.delta) for one in accounts]),
        blocks=_left(accounts, blocks),
        reservations=tuple([int(row[0]) for row in held]),
        in_periods=(),
    )
    if first.slices is not Slices.PERIODS:
        return family
    periods = max(sum(block.label != EVERYONE for block in blocks), 1)
    worst = tuple([(count, *in_several(*family.total, count)) for count in sorted({*PERIODS, periods})])
    return replace(family, in_periods=worst)


def _left(accounts: list[Account], blocks: list[Block]) -> tuple[BlockLeft, ...]:
    """In the order of `blocks`."""
    found: dict[int, BlockLeft] = {}
    for account in accounts:
        terms, mine = account.terms, [block for block in blocks if block.account == account.number]
        lefts = exactly(terms, _sums(account, mine))
        for block in mine:
            taken = block.taken(terms)
            found[block.number] = BlockLeft(
                label=block.label,
                account=account.number,
                is_open=block.is_open,
                epsilon=lefts[taken] if block.is_open else NOTHING,
                delta=delta_left(terms, taken) if block.is_open else NOTHING,
                epsilon_after_lapse=lefts[block.spent] if block.is_open else NOTHING,
                epsilon_at_first=lefts[terms.nothing_spent],
                delta_at_first=delta_left(terms, terms.nothing_spent),
            )
    return tuple([found[block.number] for block in blocks])


def _sums(account: Account, blocks: Iterable[Block]) -> Iterable[Costs]:
    yield account.terms.nothing_spent
    for block in blocks:
        yield block.spent
        yield block.taken(account.terms)
