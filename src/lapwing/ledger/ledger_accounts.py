"""The accounts of an open ledger: opening them and their blocks, raising budgets, and the curator's checks.

Checks: the curator looked at exact counts of the data.

Claim    a statement shows every check, and every later policy that differs from the checked one.
Because  the curator signs an entry before any row is read for a check. When a checked account is used,
         the digest of the policy is compared with the digests in its entries. No entry holds a count.
Test     tests/ledger/test_ledger_checks.py, tests/sql/test_cell_check.py
"""

from __future__ import annotations

from collections.abc import Iterable

from lapwing.config.values import checked_label
from lapwing.core.budget import Terms
from lapwing.core.exact import Number
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.replay import CuratorCheck
from lapwing.ledger.accounts import (
    EVERYONE,
    Account,
    Slices,
    Unit,
    insert_blocks,
    new_account,
    raised_account,
)
from lapwing.ledger.entry import CommittedName, encode, encode_signed, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.lookup import LedgerLookup
from lapwing.ledger.running_requests import RunningRequests
from lapwing.ledger.store import Store, Transaction

MOST_BLOCKS_TO_AN_ENTRY = 10_000


class LedgerAccounts(LedgerLookup):
    """The part of an open ledger that changes accounts and blocks. It does not charge."""

    def __init__(
        self,
        store: Store,
        keys: LedgerKeys,
        ledger_id: str,
        curator: bytes,
        checks: Iterable[CuratorCheck] = (),
    ) -> None:
        super().__init__(store)
        self.keys = keys
        self.id = ledger_id
        self.curator = curator
        self.checks = list(checks)
        self.running = RunningRequests()

    def open_account(
        self,
        label: str,
        *,
        epsilon: Number,
        delta: Number,
        unit: Unit,
        relation: Relation,
        slices: Slices = Slices.NONE,
        rule: str = "",
    ) -> Account:
        """Open an account. It can never be changed.

        Args:
            label: the name of the account.
            epsilon: the lifetime budget ε of one unit.
            delta: the lifetime budget δ of one unit.
            unit: the privacy unit.
            relation: how neighbouring data sets differ.
            slices: how units are divided into blocks, if they are.
            rule: the rule that puts a unit into a block, in words; empty without slices.

        Returns:
            The new account.

        Raises:
            BadParameter: if the name is taken, or unit, relation and slices do not fit together.
        """
        label = checked_label(label, "account")
        for given, kind in ((unit, Unit), (relation, Relation), (slices, Slices)):
            if not isinstance(given, kind):
                raise BadParameter(kind.__name__.lower(), f"must be a {kind.__name__}")
        if slices is not Slices.NONE:
            rule = checked_label(rule, "rule")
        elif rule:
            raise BadParameter("rule", "an account without slices has no rule")
        if (unit is Unit.PERSON_AND_PERIOD) != (slices is Slices.PERIODS):
            raise BadParameter("unit", "must be PERSON_AND_PERIOD for slices by period, and only for them")
        if slices is Slices.UNITS and relation is Relation.REPLACE:
            raise BadParameter(
                "slices", "by the unit's data are impossible if neighbours replace a unit: use identities"
            )
        terms = Terms.of(epsilon, delta)

        def work(tx: Transaction) -> Account:
            if tx.rows("SELECT 1 FROM accounts WHERE label = ? AND raises IS NULL", label):
                raise BadParameter(
                    "account",
                    f'there is one of the name "{label}", and budgets never change. Use it as it is; the '
                    "curator can raise it: `lapwing ledger raise`",
                )
            return new_account(
                tx, CommittedName.new(label), terms, unit=unit, relation=relation, slices=slices, rule=rule
            )

        self.require_here()
        return self.remember(self.store.write(work))

    def open_blocks(self, label: str, names: Iterable[str]) -> None:
        """Open blocks, each with the whole budget less the charges to everyone."""
        account = self.account(label)
        if account.slices is Slices.NONE:
            raise BadParameter("blocks", "the account has no slices")
        if isinstance(names, str):
            raise BadParameter("blocks", "must be several names, not one text")
        labels = [checked_label(name, "block") for name in names]
        if EVERYONE in labels or len(set(labels)) < len(labels):
            raise BadParameter("blocks", 'must be different names other than "*"')
        self.require_here()

        def work(tx: Transaction) -> None:
            family = self.family(tx, account)
            for start in range(0, len(labels), MOST_BLOCKS_TO_AN_ENTRY):
                insert_blocks(tx, family, labels[start : start + MOST_BLOCKS_TO_AN_ENTRY])

        self.store.write(work)

    def raise_budget(self, label: str, *, epsilon: Number, delta: Number, curator: CuratorKey) -> Account:
        """Open a second account of (ε, δ) over the same data. Every statement then shows the sum."""
        root = self.account(label)
        terms = Terms.of(epsilon, delta)
        self.require_curator(curator)
        self.require_here()
        account = self.store.write(lambda tx: raised_account(tx, self.family(tx, root), terms, curator))
        self.forget_blocks(root)
        return self.remember(account)

    # Decisions of the curator

    def require_curator(self, curator: CuratorKey) -> None:
        """Raise BadParameter unless the key is that of this ledger's curator."""
        if curator.public != self.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")

    def record_check(self, label: str, policy: str, curator: CuratorKey) -> None:
        """Write an entry that the curator looks at exact counts of an account's data.

        `policy` is the digest of the policy at that time.
        """
        self.require_curator(curator)
        account = self.account(label).number
        body = {"kind": "check", "at": now(), "account": account, "policy": policy, "signature": None}
        self._append_check(account, policy, encode_signed(body, curator.sign), is_change=False)

    def record_policy(self, label: str, policy: str) -> None:
        """Write an entry if an account with checks is used under a policy that no check has seen."""
        account = self.account(label).number
        known = {check.policy for check in self.checks if check.account == account}
        if known and policy not in known:
            body = encode({"kind": "policy", "at": now(), "account": account, "policy": policy})
            self._append_check(account, policy, body, is_change=True)

    def _append_check(self, account: int, policy: str, body: bytes, *, is_change: bool) -> None:
        self.require_here()
        entry = self.store.write(lambda tx: tx.append(body))
        self.checks.append(CuratorCheck(entry, account, policy, is_change))
