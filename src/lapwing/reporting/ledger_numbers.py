"""The numbers of a report that come from the ledger, computed from a statement alone.

Claim    whoever has the statement that is enclosed in a report computes the same numbers, without ledger.
Because  nothing else is read here: the second accountant replays the statement's entries, and the rest is
         counted from their public bytes. Writer and checker of a report call the same function. The
         statement is checked by `check_statement` before.
Test     tests/reporting/test_ledger_numbers.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lapwing.core.budget import Terms
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.guarantee import FamilyGuarantee, check_words
from lapwing.ledger.accountant.registers import OpenedAccount
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.budget_history import float_down, float_up, remaining_exactly
from lapwing.ledger.entry import digest_of
from lapwing.ledger.request_log import PriceInWords, pair_text, price_of

_ENTRY = re.compile(rb"\[([1-9][0-9]{0,17}),(\{.*\})\]")
_ASKING = ("charge", "reserve")
Record = dict[str, Any]


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
    numbers: set[int] = field(default_factory=set)
    times: list[str] = field(default_factory=list)
    mechanisms: dict[tuple[str, str], tuple[int, set[str]]] = field(default_factory=dict)

    def add(self, number: int, record: Record, price: PriceInWords) -> None:
        self.charges += 1
        self.epsilon += price.epsilon or 0
        self.delta += price.delta
        self.rho += price.rho or 0
        self.others += price.epsilon is None and price.rho is None
        self.principals.add(record["by"])
        self.numbers.add(number)
        self.times.append(record["at"])
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
            "first_charge": min(self.times, default=None),
            "last_charge": max(self.times, default=None),
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
    entries = list(_entries(statement))
    replay = Replay()
    replay.feed((number, body, digest_of(body)) for number, body, _ in entries)
    replay.bring_up_to_date()
    families = replay.registers.families
    for root in roots:
        if root not in families:
            raise BadParameter("account", f"there is no account {root} in the ledger")
    if since is not None:
        asked = next((record for number, _, record in entries if number == since), None)
        if asked is None or asked["kind"] not in _ASKING:
            raise BadParameter(
                "since", f"{since} is no receipt of this ledger. `lapwing history` lists all receipts"
            )
    mine = {account.number: root for root in roots for account in families[root]}
    last = entries[-1]
    return {
        "entries": len(entries),
        "last_entry": last[0],
        "last_time": last[2]["at"],
        "accounts": [_family(replay, entries, families[root]) for root in roots],
        "other_accounts": len(families) - len(roots),
        "exceptions": list(_exceptions(entries, mine, 0)),
        "analysts": _analysts(entries, mine, replay) if by_analyst else None,
        "since": None
        if since is None
        else {
            "receipt": since,
            "accounts": [
                _charges(entries, {one.number: one for one in families[root]}, since).to_json()
                for root in roots
            ],
            "exceptions": list(_exceptions(entries, mine, since)),
        },
    }


def _entries(statement: bytes) -> Iterator[tuple[int, bytes, Record]]:
    for line in statement.splitlines():
        found = _ENTRY.fullmatch(line)
        if found:
            yield int(found[1]), found[2], json.loads(found[2])


def _family(
    replay: Replay, entries: Sequence[tuple[int, bytes, Record]], accounts: list[OpenedAccount]
) -> Record:
    promise, first = FamilyGuarantee.of(replay, accounts), accounts[0]
    opened = {
        record["account"]: (number, record["at"])
        for number, _, record in entries
        if record["kind"] == "account"
    }
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
                "account": one.number,
                "entry": opened[one.number][0],
                "time": opened[one.number][1],
                "epsilon": float_up(one.epsilon),
                "delta": float_up(one.delta),
            }
            for one in accounts
        ],
        "in_periods": [
            {"periods": count, "epsilon": float_up(e), "delta": float_up(d)}
            for count, e, d in promise.in_periods
        ],
        "left": _left(replay, accounts),
        **_charges(entries, {one.number: one for one in accounts}, 0).to_json(),
    }


def _left(replay: Replay, accounts: list[OpenedAccount]) -> list[Record]:
    """Return how many blocks have which largest pure ε left for a next request, the least first."""
    found: dict[Fraction, int] = {}
    by_number = {one.number: one for one in accounts}
    taken: dict[int, list[tuple[int, ...]]] = {}
    for _, owner, state, spent, held in replay.blocks():
        if owner not in by_number or state >= MOVED:
            continue
        if state != OPEN:
            found[Fraction(0)] = found.get(Fraction(0), 0) + 1
            continue
        caps = by_number[owner].caps
        both = tuple([min(s + h, cap + 1) for s, h, cap in zip(spent, held, caps, strict=True)])
        taken.setdefault(owner, []).append(both)
    for owner, sums in taken.items():
        account = by_number[owner]
        lefts = remaining_exactly(Terms(account.epsilon, account.delta, account.orders), sums)
        for one in sums:
            found[lefts[one]] = found.get(lefts[one], 0) + 1
    return [{"epsilon": float_down(left), "blocks": blocks} for left, blocks in sorted(found.items())]


def _charges(
    entries: Sequence[tuple[int, bytes, Record]], accounts: dict[int, OpenedAccount], after: int
) -> _Sums:
    sums = _Sums()
    for number, _, record in entries:
        if number <= after:
            continue
        if record["kind"] in _ASKING:
            for account, _, costs in record["debits"]:
                if account in accounts:
                    sums.add(number, record, price_of(record["loss"], costs, accounts[account].epsilon))
                    break
        elif record["kind"] in ("answer", "failed") and record["charge"] in sums.numbers:
            sums.answered += record["kind"] == "answer"
            sums.failed += record["kind"] == "failed"
    return sums


def _analysts(
    entries: Sequence[tuple[int, bytes, Record]], mine: dict[int, int], replay: Replay
) -> list[Record]:
    accounts = {number: replay.accounts[number] for number in mine}
    ids = {
        record["by"]
        for _, _, record in entries
        if record["kind"] in _ASKING and any(debit[0] in mine for debit in record["debits"])
    }
    found = []
    for by in sorted(ids):
        own = [one for one in entries if one[2].get("by", by) == by]
        sums = _charges(own, accounts, 0).to_json()
        kept = ("charges", "answered", "failed", "sum_of_prices")
        found.append({"analyst": by, **{name: sums[name] for name in kept}})
    return found


def _exceptions(
    entries: Sequence[tuple[int, bytes, Record]], mine: dict[int, int], after: int
) -> Iterator[Record]:
    """Yield raises, signed exceptions, and changes of a policy after a check."""
    for number, _, record in entries:
        kind = record["kind"]
        if number <= after:
            continue
        what = ""
        if kind == "account" and record["raises"] is not None and record["account"] in mine:
            pair = pair_text(Fraction(record["epsilon"]), Fraction(record["delta"]))
            what = f"the curator signed a raise of account {record['raises']} by {pair}"
        elif kind in ("data", "version") and record["differ"]:
            others = ", ".join(str(account) for account, _ in record["differ"])
            what = (
                f"the curator signed that data set {record['data']} has other people than account {others}"
            )
        elif kind == "recovered":
            what = "entries or the anchor were lost; the curator signed that all open blocks count as spent"
        elif kind in ("check", "policy") and record["account"] in mine:
            what = check_words(is_change=kind == "policy")
        if what:
            yield {"entry": number, "time": record["at"], "kind": kind, "what": what}
