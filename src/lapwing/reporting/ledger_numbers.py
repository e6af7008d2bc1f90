"""The numbers of a report that come from the ledger, computed from a statement alone.

Claim    whoever has the statement that is enclosed in a report computes the same numbers, without ledger.
Because  nothing else is read here: the second accountant replays the statement's entries, and the rest is
         counted from their public bytes. Writer and checker of a report call the same function. The
         statement is checked by `check_statement` before.
Test     tests/reporting/test_ledger_numbers.py
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lapwing.core.budget import Terms
from lapwing.core.exact import float_down, float_up
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.guarantee import (
    FamilyGuarantee,
    check_words,
    others_words,
    registered_words,
)
from lapwing.ledger.accountant.registers import OpenedAccount
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.budget_history import remaining_exactly
from lapwing.ledger.entry import RawEntry, digest_of
from lapwing.ledger.request_log import PriceInWords, pair_text, price_of

_ENTRY = re.compile(rb"\[([1-9][0-9]{0,17}),(\{.*\})\]\n")
_ASKING = ("charge", "reserve")
_BATCH = 4096
Record = dict[str, Any]
_RECOVERED = "entries or the anchor were lost; the curator signed that all open blocks count as spent"


@dataclass(slots=True)
class _Sums:
    """The charges of one family of accounts, added up."""

    charges: int = 0
    answered: int = 0
    failed: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    others: int = 0
    principals: set[str] = field(default_factory=set)
    first: str | None = None
    last: str | None = None
    mechanisms: dict[tuple[str, str], tuple[int, set[str]]] = field(default_factory=dict)

    def add(self, record: Record, price: PriceInWords) -> None:
        self.charges += 1
        self.epsilon += price.epsilon or 0
        self.delta += price.delta
        self.rho += price.rho or 0
        self.others += price.epsilon is None and price.rho is None
        self.principals.add(record["by"])
        self.first = self.first or record["at"]
        self.last = record["at"]
        key = record["mechanism"], str(record["parameters"].get("noise", ""))
        count, codes = self.mechanisms.get(key, (0, set()))
        self.mechanisms[key] = count + 1, codes | {record["code"]}

    def to_json(self) -> Record:
        return {
            "charges": self.charges,
            "answered": self.answered,
            "failed": self.failed,
            "sum_of_prices": {
                "epsilon": float_up(self.epsilon),
                "delta": float_up(self.delta),
                "rho": float_up(self.rho),
                "others": self.others,
            },
            "analysts": len(self.principals),
            "first_charge": self.first,
            "last_charge": self.last,
            "mechanisms": [
                {"mechanism": name, "noise": noise, "charges": count, "code": sorted(codes)}
                for (name, noise), (count, codes) in sorted(self.mechanisms.items())
            ],
        }


def ledger_numbers(
    statement: bytes, roots: Sequence[int], *, since: int | None, by_analyst: bool
) -> Record:
    """Return the numbers of these accounts (and their raises) from a statement.

    Args:
        statement: A statement that was checked.
        roots: The numbers of the first accounts.
        since: A receipt: the number of a charge. What came after it is told apart; None for nothing.
        by_analyst: Whether to add up the charges of each analyst, under the random id of their name.

    Returns:
        Plain values. Promises are rounded up, budgets left are rounded down.

    Raises:
        BadParameter: There is no such account or receipt.
    """
    reading = _Reading(tuple(roots), since, by_analyst=by_analyst)
    reading.read(statement)
    return reading.numbers()


class _Reading:
    """One pass over a statement. Its memory grows with accounts and with charges that have no outcome."""

    def __init__(self, roots: tuple[int, ...], since: int | None, *, by_analyst: bool) -> None:
        self._roots, self._since, self._by_analyst = roots, since, by_analyst
        self._replay = Replay()
        self._opened: dict[int, tuple[int, str]] = {}  # entry and time, by account
        self._root_of: dict[int, int] = {}
        self._epsilons: dict[int, Fraction] = {}
        self._all = {root: _Sums() for root in roots}
        self._later = {root: _Sums() for root in roots}
        self._analysts: dict[str, _Sums] = {}
        self._owners: dict[int, list[_Sums]] = {}  # of each charge that has no outcome yet
        self._exceptions: list[Record] = []
        self._knows_since = False
        self._last = (0, "")
        self._count = 0

    def read(self, statement: bytes) -> None:
        batch: list[RawEntry] = []
        for line in io.BytesIO(statement):
            entry = _ENTRY.fullmatch(line)
            if entry is None:
                continue
            number, body = int(entry[1]), entry[2]
            batch.append((number, body, digest_of(body)))
            if len(batch) >= _BATCH:
                self._replay.feed(batch)
                batch.clear()
            self._add(number, json.loads(body))
        self._replay.feed(batch)
        self._replay.bring_up_to_date()

    def _add(self, number: int, record: Record) -> None:
        kind = record["kind"]
        self._count, self._last = self._count + 1, (number, record["at"])
        if kind in _ASKING:
            self._knows_since |= number == self._since
            self._charge(number, record)
        elif kind in ("answer", "failed"):
            for sums in self._owners.pop(record["charge"], ()):
                sums.answered += kind == "answer"
                sums.failed += kind == "failed"
        elif kind == "account":
            account = record["account"]
            self._opened[account] = number, record["at"]
            self._root_of[account] = account if record["raises"] is None else record["raises"]
            self._epsilons[account] = Fraction(record["epsilon"])
        what = self._exception(kind, record)
        if what:
            self._exceptions.append({"entry": number, "time": record["at"], "kind": kind, "what": what})

    def _charge(self, number: int, record: Record) -> None:
        owners: dict[int, _Sums] = {}
        for account, _, costs in record["debits"]:
            root = self._root_of.get(account, 0)
            if root not in self._all:
                continue
            price = price_of(record["loss"], costs, self._epsilons[account])
            wanted = [self._all[root]]
            if self._since is not None and number > self._since:
                wanted.append(self._later[root])
            if self._by_analyst:
                wanted.append(self._analysts.setdefault(record["by"], _Sums()))
            for sums in wanted:
                if id(sums) not in owners:  # a charge to two accounts is one request of an analyst
                    sums.add(record, price)
                    owners[id(sums)] = sums
        if owners:
            self._owners[number] = list(owners.values())

    def _exception(self, kind: str, record: Record) -> str:
        """Return a raise, a signed exception, or a change of a policy after a check, in words; else ""."""
        if kind == "account" and record["raises"] in self._all:
            pair = pair_text(Fraction(record["epsilon"]), Fraction(record["delta"]))
            return f"the curator signed a raise of account {record['raises']} by {pair}"
        if kind in ("data", "version") and record["differ"]:
            others = ", ".join(str(account) for account, _ in record["differ"])
            data = record["data"]
            return f"the curator signed that data set {data} has other people than account {others}"
        words = {
            "recovered": lambda: _RECOVERED,
            "registry": lambda: registered_words(record["registry"]),
            "others": lambda: others_words(record["ledgers"]),
        }
        if kind in words:
            return words[kind]()
        if kind in ("check", "policy") and self._root_of.get(record["account"]) in self._all:
            return check_words(is_change=kind == "policy")
        return ""

    def numbers(self) -> Record:
        families, since = self._replay.registers.families, self._since
        for root in self._roots:
            if root not in families:
                raise BadParameter("account", f"there is no account {root} in the ledger")
        if since is not None and not self._knows_since:
            raise BadParameter(
                "since", f"{since} is no receipt of this ledger. `lapwing history` lists all receipts"
            )
        kept = ("charges", "answered", "failed", "sum_of_prices")
        return {
            "entries": self._count,
            "last_entry": self._last[0],
            "last_time": self._last[1],
            "accounts": [self._family(families[root]) for root in self._roots],
            "other_accounts": len(families) - len(self._roots),
            "exceptions": self._exceptions,
            "analysts": [
                {"analyst": by, **{name: sums.to_json()[name] for name in kept}}
                for by, sums in sorted(self._analysts.items())
            ]
            if self._by_analyst
            else None,
            "since": None
            if since is None
            else {
                "receipt": since,
                "accounts": [self._later[root].to_json() for root in self._roots],
                "exceptions": [exception for exception in self._exceptions if exception["entry"] > since],
            },
        }

    def _family(self, accounts: list[OpenedAccount]) -> Record:
        promise, first = FamilyGuarantee.of(self._replay, accounts), accounts[0]
        epsilon, delta = promise.total
        return {
            "account": first.number,
            "name": first.name,
            "unit": first.unit,
            "relation": first.relation,
            "slices": first.slices,
            "rule": first.rule,
            "epsilon": float_up(epsilon),
            "delta": float_up(delta),
            "parts": [
                {
                    "account": account.number,
                    "entry": self._opened[account.number][0],
                    "time": self._opened[account.number][1],
                    "epsilon": float_up(account.epsilon),
                    "delta": float_up(account.delta),
                }
                for account in accounts
            ],
            "in_periods": [
                {"periods": count, "epsilon": float_up(e), "delta": float_up(d)}
                for count, e, d in promise.in_periods
            ],
            "left": _left(self._replay, accounts),
            **self._all[first.number].to_json(),
        }


def _left(replay: Replay, accounts: list[OpenedAccount]) -> list[Record]:
    """Return how many blocks have which largest pure ε left for a next request, the least first."""
    counts: dict[Fraction, int] = {}
    by_number = {account.number: account for account in accounts}
    taken: dict[int, list[tuple[int, ...]]] = {}
    for _, owner, state, spent, held in replay.blocks():
        if owner not in by_number or state >= MOVED:
            continue
        if state != OPEN:
            counts[Fraction(0)] = counts.get(Fraction(0), 0) + 1
            continue
        caps = by_number[owner].caps
        both = tuple([min(s + h, cap + 1) for s, h, cap in zip(spent, held, caps, strict=True)])
        taken.setdefault(owner, []).append(both)
    for owner, sums in taken.items():
        account = by_number[owner]
        lefts = remaining_exactly(Terms(account.epsilon, account.delta, account.orders), sums)
        for spent_sum in sums:
            counts[lefts[spent_sum]] = counts.get(lefts[spent_sum], 0) + 1
    return [{"epsilon": float_down(left), "blocks": blocks} for left, blocks in sorted(counts.items())]
