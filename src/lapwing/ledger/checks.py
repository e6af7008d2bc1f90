"""Checks: that the curator has seen exact counts of the data, and whether the policy was changed after it.

Claim    a statement shows every check, and every policy that was used after it and is not the one checked.
Because  the curator signs an entry before any row is read for a check, and whoever opens a checked account
         compares what the policy declares with the digests that are in its entries. No entry holds a count.
Test     tests/ledger/test_checks.py, tests/query/test_check.py
"""

from __future__ import annotations

from lapwing.errors import BadParameter
from lapwing.ledger.accountant.replay import Check
from lapwing.ledger.entry import encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger


def require_curator(ledger: Ledger, curator: CuratorKey) -> None:
    """Refuse a key that is not the curator's."""
    if curator.public != ledger.curator:
        raise BadParameter("curator", "is not the key of this ledger's curator")


def note_check(ledger: Ledger, account: str, policy: str, curator: CuratorKey) -> None:
    """Write that the curator looks at exact counts, under a policy with this digest."""
    require_curator(ledger, curator)
    number = ledger.account(account).number
    body = {"kind": "check", "at": now(), "account": number, "policy": policy, "signature": None}
    body["signature"] = curator.sign(encode(body)).hex()
    _append(ledger, number, policy, encode(body), is_change=False)


def note_policy(ledger: Ledger, account: str, policy: str) -> None:
    """Write that a policy is used that no check of the account has seen, if there was a check."""
    number = ledger.account(account).number
    known = {check.policy for check in ledger.checks if check.account == number}
    if known and policy not in known:
        body = encode({"kind": "policy", "at": now(), "account": number, "policy": policy})
        _append(ledger, number, policy, body, is_change=True)


def _append(ledger: Ledger, number: int, policy: str, body: bytes, *, is_change: bool) -> None:
    ledger.require_here()
    entry = ledger.store.write(lambda tx: tx.append(body))
    ledger.checks.append(Check(entry, number, policy, is_change))
