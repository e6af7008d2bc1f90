"""Openings: accounts and data sets that are written with the first charge that fits, or not at all.

Claim    a question that is planned or refused opens no account and registers no data set.
Because  what a first charge needs is only planned here, in memory. The charge writes it in its own
         transaction, before the debit. If the debit does not fit, the transaction writes nothing.
Test     tests/ledger/test_openings.py, tests/sql/test_policy_ledger_openings.py

A planned account has a number below 0, which no entry may show. It gets its own number when it opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from lapwing.ledger.accounts import EVERYONE, Account, Block, accounts_where, insert_blocks, new_account
from lapwing.ledger.entry import CommittedName
from lapwing.ledger.schema import OPEN
from lapwing.ledger.store import Transaction

MOST_BLOCKS_TO_AN_ENTRY = 10_000


class ChangedMeanwhile(Exception):
    """Other data or accounts came since a first charge was planned."""


class OpenedMeanwhile(Exception):
    """Another process opened a planned account, or registered planned data, first."""


def open_blocks(
    tx: Transaction, family: Sequence[Account], labels: Sequence[str], at: str | None = None
) -> None:
    """Open blocks of a family of accounts, in entries of a bounded size."""
    for start in range(0, len(labels), MOST_BLOCKS_TO_AN_ENTRY):
        insert_blocks(tx, family, labels[start : start + MOST_BLOCKS_TO_AN_ENTRY], at)


@dataclass(frozen=True, slots=True)
class PlannedAccount:
    """An account that opens with its first charge, with its blocks.

    `tell` is called with the notice of the account once it is open.
    """

    draft: Account
    blocks: tuple[str, ...]
    tell: Callable[[str], None]

    def open(self, tx: Transaction, at: str | None = None) -> Account:
        """Write the account and its blocks. `at` is the time of the entries, if rows were read before."""
        if accounts_where(tx, "label = ? AND raises IS NULL", self.draft.label):
            raise OpenedMeanwhile
        account = new_account(tx, self.draft, at)
        if self.blocks:
            open_blocks(tx, [account], self.blocks, at)
        return account

    def untouched(self, labels: Sequence[str]) -> list[tuple[Account, Block]]:
        """Return the named blocks as they will open; without names, all of them and `*`."""
        draft, nothing, wanted = self.draft, self.draft.terms.nothing_spent, set(labels)
        names = [name for name in (EVERYONE, *self.blocks) if not wanted or name in wanted]
        named = [CommittedName(name, b"", "") for name in names]
        return [(draft, Block(0, draft.number, name, OPEN, nothing, nothing)) for name in named]


@dataclass(frozen=True, slots=True)
class PlannedData:
    """A data set that is registered with its first charge.

    `write` registers it in a transaction under its own account and the accounts of the same people. It
    raises `OpenedMeanwhile` if a data set of this name is known by then, and `ChangedMeanwhile` if other
    accounts than the planned ones know its people. `is_known` tells whether another process registered it
    first, and raises `ChangedMeanwhile` if that did it in another way.
    """

    own: str  # the name of its account
    at: str  # from before its rows were read
    write: Callable[[Transaction, Account], None]
    is_known: Callable[[], bool]


@dataclass(slots=True)
class Openings:
    """The planned accounts and data sets of an open ledger, by name."""

    accounts: dict[str, PlannedAccount] = field(default_factory=dict)
    data: dict[str, PlannedData] = field(default_factory=dict)
    _last: int = 0

    def plan(self, draft: Account, blocks: Iterable[str], tell: Callable[[str], None]) -> Account:
        """Plan an account, under a number below 0."""
        self._last -= 1
        draft = replace(draft, number=self._last, root=self._last)
        self.accounts[draft.label] = PlannedAccount(draft, tuple(blocks), tell)
        return draft

    def find(self, root: Account) -> PlannedAccount | None:
        """Return the planned account of which this is the draft; None if it is open."""
        return self.accounts.get(root.label) if root.number < 0 else None

    def concern(self, labels: Sequence[str]) -> bool:
        """Return whether a charge to these accounts would open an account or register a data set."""
        return any(label in self.accounts for label in labels) or any(
            planned.own in labels for planned in self.data.values()
        )

    def write(
        self, tx: Transaction, labels: Sequence[str], known: Callable[[str], Account]
    ) -> dict[str, Account]:
        """Write all that a charge to these accounts needs, and return the accounts that were opened."""
        needed = [planned for label, planned in self.accounts.items() if label in labels]
        registered = [data for data in self.data.values() if data.own in labels]
        at = min((data.at for data in registered), default=None)
        opened = {planned.draft.label: planned.open(tx, at) for planned in needed}
        for data in registered:
            data.write(tx, opened.get(data.own) or known(data.own))
        return opened

    def done(self, labels: Sequence[str]) -> list[PlannedAccount]:
        """Forget what is open by now, and return the planned accounts that were forgotten."""
        self.forget_data(labels)
        return [self.accounts.pop(label) for label in labels if label in self.accounts]

    def forget_data(self, labels: Sequence[str]) -> None:
        """Forget the planned data sets of these accounts."""
        for name, data in tuple(self.data.items()):
            if data.own in labels:
                self.data.pop(name, None)
