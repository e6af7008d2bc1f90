"""The second accountant: it rebuilds everything from the bodies of entries, and trusts nothing.

Claim    a history without findings is one in which no block was ever charged beyond its caps, every cap
         follows from the promised (ε, δ), every price is at least what the textbook says, and the curator
         signed every exception.
Because  sums, decisions, caps and prices are computed here a second time, by other code.
Test     tests/ledger/accountant/test_replay.py

Its state at one moment can be kept as bytes (`state_bytes`), from which a replay continues (`replay_from`).
They hold everything that decides whether a later entry is right: accounts, what each block has spent and
reserved, open reservations, and data sets. They do not hold the outcomes of single charges: those are
looked up in the entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np

from lapwing.ledger.accountant import forms
from lapwing.ledger.accountant.balance import Balances, BlockRow, Costs, Findings, GrowingArray, find_sorted
from lapwing.ledger.accountant.forms import MalformedEntry, costs_of, is_ending, is_object, parsed, read
from lapwing.ledger.accountant.registers import (
    REMEMBERED,
    HeldInAccount,
    HeldReservation,
    OpenedAccount,
    PriceChecks,
    RegisteredData,
    Registers,
    Reservations,
)
from lapwing.ledger.entry import CuratorCheck, Ranges, RawEntry, encode
from lapwing.ledger.keys import good_signature

NOTHING, ANSWERED, FAILED = 0, 1, 2


class Outcomes:
    """All charges and reservations, with their keys and at most one outcome each. Millions fit in memory.

    Callers fill `pending_charges`, `pending_keys` (hex, or None) and `pending_outcomes` (entry, charge,
    outcome); `flush` processes them. Of charges up to number `begin_after` only the outcomes that came
    later are known; they are in `later_outcomes`.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._charges, self._outcomes = GrowingArray(np.int64), GrowingArray(np.uint8)
        self._entries = GrowingArray(np.int64)  # in which the outcome stands
        self._keys, self._owners = GrowingArray(np.uint64, 4), GrowingArray(np.int64)
        self.pending_charges: list[int] = []
        self.pending_keys: list[bytes | None] = []
        self.pending_outcomes: list[tuple[int, int, int]] = []
        self.begin_after = 0
        self.later_outcomes: list[tuple[int, int, int]] = []

    def flush(self) -> None:
        """Process everything that is pending."""
        charges, keys = self.pending_charges, self.pending_keys
        if charges:
            numbers = np.array(charges, np.int64)
            self._charges.extend(numbers, len(numbers))
            self._outcomes.extend(NOTHING, len(numbers))
            self._entries.extend(0, len(numbers))
            if None in keys:
                numbers = numbers[[key is not None for key in keys]]
            hashed = bytes.fromhex(b"".join([key for key in keys if key is not None]).decode())
            self._keys.extend(np.frombuffer(hashed, np.uint64).reshape(-1, 4), len(numbers))
            self._owners.extend(numbers, len(numbers))
            charges.clear()
            keys.clear()
        if self.begin_after:
            pending, after = self.pending_outcomes, self.begin_after
            self.later_outcomes += [given for given in pending if given[1] <= after]
            pending[:] = [given for given in pending if given[1] > after]  # in place: others append to it
        if self.pending_outcomes:
            self._flush_outcomes()
            self.pending_outcomes.clear()

    def _flush_outcomes(self) -> None:
        given = np.array(self.pending_outcomes, np.int64)
        rows = find_sorted(self._charges.rows, given[:, 1])
        good = (rows >= 0) & (given[:, 1] < given[:, 0])
        ordered = np.sort(rows)  # np.unique imports masked arrays: longer than all the rest
        is_once = bool((ordered[1:] != ordered[:-1]).all())
        if good.all() and is_once and not self._outcomes.rows[rows].any():
            self._outcomes.rows[rows] = given[:, 2]
            self._entries.rows[rows] = given[:, 0]
            return
        for (entry, charge, outcome), row, is_known in zip(self.pending_outcomes, rows, good, strict=True):
            if not is_known:
                self._findings.add(f"entry {entry}: is about charge {charge}, which is none before it")
            elif self._outcomes.rows[row]:
                self._findings.add(f"entry {entry}: charge {charge} had an outcome before")
            else:
                self._outcomes.rows[row] = outcome
                self._entries.rows[row] = entry

    def keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield each charge that has a key, with the key, after `flush`."""
        for owner, key in zip(self._owners.rows.tolist(), self._keys.rows, strict=True):
            yield owner, key.tobytes()

    def ended_charges(self) -> Iterator[tuple[int, int, bool]]:
        """Yield each charge that has an outcome, with its entry and whether it failed, after `flush`."""
        rows = np.flatnonzero(self._outcomes.rows)
        failed = self._outcomes.rows[rows] == FAILED
        columns = (self._charges.rows[rows], self._entries.rows[rows], failed)
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def used_twice(self) -> list[tuple[int, int]]:
        """Return (first entry, other entry) of each key that several entries have, after `flush`."""
        keys = self._keys.rows
        ordered = np.sort(keys[:, 0])
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(twice):
            return []
        seen: dict[bytes, int] = {}
        pairs: list[tuple[int, int]] = []
        for row in np.flatnonzero(np.isin(keys[:, 0], twice)):
            entry = int(self._owners.rows[row])
            first = seen.setdefault(keys[row].tobytes(), entry)
            if first != entry:
                pairs.append((first, entry))
        return pairs


BATCH = 1 << 14
NARROW = 64  # so few blocks are listed one by one
FAST_UP_TO = 4096  # bytes; in a longer body written by a forger, a pattern could search for ever
_charge, _answer, _price = forms.CHARGE.fullmatch, forms.ANSWER.fullmatch, forms.PRICE.fullmatch


class Replay:
    """A replay of the history: `feed` it all entries in order; `finish` returns the findings.

    No entry makes it raise.
    """

    def __init__(self) -> None:
        self._findings = Findings()
        self.balances = Balances(self._findings)
        self.reservations = Reservations(self.balances, self._findings)
        self.registers = Registers(self.balances, self.reservations, self._findings)
        self.accounts = self.registers.accounts  # by number
        self.outcomes = Outcomes(self._findings)
        self.prices = PriceChecks(self._findings)
        self.entries = 0
        self.last = 0
        self.ledger, self.key, self.curator = "", b"", b""
        self.recovered: list[tuple[int, int | None]] = []  # entry, and the number of the lost one
        self.checks: list[CuratorCheck] = []  # and policies that were used after them
        self.registry = ""  # the id of the registry that knows the ledger, if it names one
        self.registered: list[tuple[int, str]] = []  # entry, and the registry that the curator signed
        self.others: list[tuple[int, str]] = []  # entry, and a ledger whose people are others, as signed
        # By account and text: the place of a price, and whether it has a second opinion.
        self._texts: dict[tuple[bytes, bytes], tuple[int, bool]] = {}
        self._priced: dict[tuple[int, bytes, Costs], tuple[int, bool]] = {}
        self._parameters: set[bytes] = set()
        self._endings: set[bytes] = set()
        self._kinds: dict[str, Callable[[int, dict[str, Any]], None]] = {
            "genesis": self._genesis, "account": self._account, "blocks": self._blocks,
            "charge": self._charged, "reserve": self._reserved, "step": self._stepped,
            "settle": self._settled, "answer": self._ended, "failed": self._ended,
            "data": self.registers.data, "version": self.registers.version, "recovered": self._recovered,
            "check": self._checked, "policy": self._checked, "registry": self._registered,
            "others": self._others,
        }  # fmt: skip

    def feed(self, entries: Iterable[RawEntry]) -> None:
        """Read further entries: (number, body, digest)."""
        balances, outcomes, names = self.balances, self.outcomes, self.registers.names
        known, parameters_seen, endings_seen = self._texts, self._parameters, self._endings
        add_block, add_price = balances.pending_blocks.append, balances.pending_prices.append
        add_entry = balances.pending_entries.append
        add_charge, add_key = outcomes.pending_charges.append, outcomes.pending_keys.append
        checked, charges, digits = 0, 0, forms.HEX_DIGITS
        for seq, body, digest in entries:
            self.entries += 1
            if sha256(b"\x00" + body).digest() != digest:
                self._find(seq, "its bytes are not those of its digest")
            if seq <= self.last:
                self._find(seq, "does not come after the entry before it")
            self.last = seq
            match = _charge(body) if len(body) <= FAST_UP_TO else None
            if match is None:
                self._other(seq, body)
                continue
            by, key, request, account, first_text, last_text, text, parameters, ending = match.groups()
            price = known.get((account, text)) or self._price(seq, account, text)
            first = int(first_text)
            count = 1 if first_text == last_text else int(last_text) - first + 1
            if (
                price is None
                or (by + key + request).translate(None, digits)
                or not 0 < count <= NARROW
                or not (parameters in parameters_seen or _learn(parameters_seen, parameters, is_object))
                or not (ending in endings_seen or _learn(endings_seen, ending, is_ending))
            ):
                self._other(seq, body)
                continue
            names.add(by)
            add_charge(seq)
            add_key(key)
            checked += price[1]
            charges += 1
            if count == 1:
                add_block(first)
                add_price(price[0])
                add_entry(seq)
            else:
                self._add_blocks(seq, first, count, price[0])
            if len(balances.pending_blocks) >= BATCH:
                self._flush()
        self.prices.checked += checked
        self.prices.unchecked += charges - checked

    def finish(self) -> tuple[str, ...]:
        """Return everything that is wrong with the entries read so far."""
        self.bring_up_to_date()
        late = Findings(list(self._findings.texts), self._findings.count)
        if not self.ledger:
            late.add("the first entry does not say whose ledger it is")
        for first, other in self.outcomes.used_twice():
            late.add(f"entry {other}: its key was used by entry {first} before")
        for number in self.registers.named_twice():
            late.add(f"block {number} has the name of another block")
        return late.all()

    def bring_up_to_date(self) -> None:
        """Update sums, reservations and outcomes with everything that was read."""
        self._flush()
        self.reservations.bring_up_to_date()

    # What a database must agree with

    def blocks(self) -> Iterator[BlockRow]:
        """Return an iterator over all blocks by rising number.

        Each is number, account, state, spent (at most cap + 1) and reserved.
        """
        self.bring_up_to_date()
        return iter(self.balances)

    @property
    def lost_up_to(self) -> int:
        """The number of the last entry that was declared lost; 0 if there is none."""
        return max((lost for _, lost in self.recovered if lost), default=0)

    # One kind after the other

    def _find(self, seq: int, what: str) -> None:
        self._findings.add(f"entry {seq}: {what}")

    def _flush(self) -> None:
        self.balances.flush()
        self.outcomes.flush()
        if max(self.balances.prices, len(self._texts)) > REMEMBERED:
            self.balances.forget_prices()
            self._texts.clear()
            self._priced.clear()

    def _other(self, seq: int, body: bytes) -> None:
        match = _answer(body)
        if match is not None:
            self.outcomes.pending_outcomes.append((seq, int(match[1]), ANSWERED))
            return
        try:
            record = read(body)
            self._kinds[record["kind"]](seq, record)
        except MalformedEntry as malformed:
            self._find(seq, str(malformed))
        except Exception as error:  # a forged entry must be a finding, not a crash
            self._find(seq, f"cannot be followed ({type(error).__name__})")

    def _genesis(self, seq: int, record: dict[str, Any]) -> None:
        if self.entries != 1:
            self._find(seq, "a history begins once, with its first entry")
            return
        self.ledger = self.registers.ledger = record["ledger"]
        self.key, self.curator = bytes.fromhex(record["key"]), bytes.fromhex(record["curator"])
        self.registers.curator = self.curator
        self.registry = record.get("registry", "")

    def _account(self, seq: int, record: dict[str, Any]) -> None:
        if record["raises"] is not None:
            self._flush()
        self.registers.account(seq, record)

    def _blocks(self, seq: int, record: dict[str, Any]) -> None:
        if self.balances.are_pending(self.registers.everyones):
            self._flush()
        self.registers.blocks(seq, record)

    def _price(self, seq: int, account_text: bytes, text: bytes) -> tuple[int, bool] | None:
        """Return a new price of a charge; None if the whole charge must be parsed."""
        match = _price(text)
        account = self.accounts.get(int(account_text))
        costs = costs_of(match[1]) if match else None
        if match is None or account is None or costs is None:
            return None
        try:
            price = self._price_of(seq, account, costs, match[2], parsed(match[2]))
        except Exception:  # parsing the whole entry reports what is wrong
            return None
        self._texts[account_text, text] = price
        self.registers.charged_together(frozenset([account.root]))
        return price

    def _price_of(
        self, seq: int, account: OpenedAccount, costs: Costs, loss: bytes, description: Any
    ) -> tuple[int, bool]:
        """Return the index of a price and whether it has a second opinion."""
        known = self._priced.get((account.number, loss, costs))
        if known is not None:
            return known
        is_checked = self.prices.is_checked(seq, account, costs, loss, description)
        price = self.balances.add_price(account.place, costs), is_checked
        self._priced[account.number, loss, costs] = price
        return price

    def _begin_charge(self, seq: int, record: dict[str, Any]) -> list[tuple[OpenedAccount, Ranges, Costs]]:
        """Note a charge or reservation, and return its debits to known accounts."""
        self.registers.names.add(record["by"].encode())
        self.outcomes.pending_charges.append(seq)
        self.outcomes.pending_keys.append(record["key"] and record["key"].encode())
        debits = []
        for number, ranges, costs in record["debits"]:
            account = self.accounts.get(number)
            if account is None:
                self._find(seq, f"account {number} was never opened")
            else:
                debits.append((account, ranges, tuple(costs)))
        self.registers.charged_together(frozenset([account.root for account, _, _ in debits]))
        return debits

    def _charged(self, seq: int, record: dict[str, Any]) -> None:
        loss = encode(record["loss"])
        balances = self.balances
        for account, ranges, costs in self._begin_charge(seq, record):
            price, is_checked = self._price_of(seq, account, costs, loss, record["loss"])
            self.prices.count(is_checked=is_checked)
            for first, last in ranges:
                if last - first < NARROW:
                    self._add_blocks(seq, first, last - first + 1, price)
                else:
                    balances.flush()
                    balances.debit(seq, first, last, account.place, costs, hold=False)
        if len(balances.pending_blocks) >= BATCH:
            self._flush()

    def _add_blocks(self, seq: int, first: int, count: int, price: int) -> None:
        self.balances.pending_blocks.extend(range(first, first + count))
        self.balances.pending_prices.extend([price] * count)
        self.balances.pending_entries.extend([seq] * count)

    def _reserved(self, seq: int, record: dict[str, Any]) -> None:
        self.balances.flush()
        loss, parts = encode(record["loss"]), {}
        for account, ranges, costs in self._begin_charge(seq, record):
            is_checked = self.prices.is_checked(seq, account, costs, loss, record["loss"])
            self.prices.count(is_checked=is_checked)
            if account.number in parts:
                self._find(seq, f"holds twice in account {account.number}")
                continue
            part = HeldInAccount(account.number, ranges, [], costs, account.caps)
            for first, last in ranges:
                part.rows.append(self.balances.debit(seq, first, last, account.place, part.held, hold=True))
            parts[account.number] = part
        if b'"loss":"FixedRun"' in loss and not record["fixed"]:
            self._find(seq, "a run that is priced as a whole must be fixed")
        self.reservations.reserve(HeldReservation(seq, record["fixed"], parts))

    def _stepped(self, seq: int, record: dict[str, Any]) -> None:
        charged = [(number, tuple(costs)) for number, costs in record["costs"]]
        held = self.reservations.step(seq, record["reservation"], charged)
        if held is None or (held.is_fixed and record["loss"] is None):
            return  # a fixed run was priced when it was reserved
        if held.is_fixed or record["loss"] is None:
            self._find(seq, "a step says what it is charged for, unless its run is fixed")
            return
        loss = encode(record["loss"])
        for number, costs in charged:
            is_checked = self.prices.is_checked(seq, self.accounts[number], costs, loss, record["loss"])
            self.prices.count(is_checked=is_checked)

    def _settled(self, seq: int, record: dict[str, Any]) -> None:
        self.balances.flush()
        self.reservations.settle(seq, record["reservation"], is_spent=record["spent"])

    def _ended(self, seq: int, record: dict[str, Any]) -> None:
        outcome = ANSWERED if record["kind"] == "answer" else FAILED
        self.outcomes.pending_outcomes.append((seq, record["charge"], outcome))

    def _recovered(self, seq: int, record: dict[str, Any]) -> None:
        self._flush()
        self._require_signed(seq, record)
        self.reservations.lose_everything()
        self.balances.lose_everything()
        self.registers.charged_alone()
        self.recovered.append((seq, record["lost"] and record["lost"][0]))

    def _require_signed(self, seq: int, record: dict[str, Any]) -> None:
        signature = bytes.fromhex(record["signature"])
        if not good_signature(self.curator, encode(record | {"signature": None}), signature):
            self._find(seq, "was not signed by the curator")

    def _registered(self, seq: int, record: dict[str, Any]) -> None:
        self._require_signed(seq, record)
        self.registry = record["registry"]
        self.registered.append((seq, self.registry))

    def _others(self, seq: int, record: dict[str, Any]) -> None:
        self._require_signed(seq, record)
        self.others += [(seq, ledger) for ledger in record["ledgers"]]

    @property
    def other_ledgers(self) -> set[str]:
        """The ids of the ledgers whose people are others, as the curator signed."""
        return {ledger for _, ledger in self.others}

    def _checked(self, seq: int, record: dict[str, Any]) -> None:
        """Note a check, or a policy that was used after one. The curator signs checks."""
        account, is_change = record["account"], record["kind"] == "policy"
        if not is_change:
            self._require_signed(seq, record)
        if account not in self.accounts:
            self._find(seq, f"account {account} was never opened")
        self.checks.append(CuratorCheck(seq, account, record["policy"], is_change))


def _learn(seen: set[bytes], text: bytes, is_good: Callable[[bytes], bool]) -> bool:
    """Return whether a text is good. Good texts are cached for a while."""
    if not is_good(text):
        return False
    if len(seen) >= REMEMBERED:
        seen.clear()
    seen.add(text)
    return True


STATE_FORMAT = 2
# Blocks, or reservations: writing many with every seal would cost more than replaying them.
LARGEST_STATE = 2000


class OtherStateFormat(Exception):
    """The bytes were written by another version, so everything is replayed. Internal."""


def state_bytes(replay: Replay) -> bytes | None:
    """Return the state after all entries that a replay has read; None if it is too large to be kept."""
    replay.bring_up_to_date()
    held = replay.reservations.still_open
    if max(replay.balances.numbers.count, len(held)) > LARGEST_STATE:
        return None
    return encode(
        {
            "format": STATE_FORMAT,
            "ledger": replay.ledger,
            "key": replay.key.hex(),
            "curator": replay.curator.hex(),
            "entries": replay.entries,
            "last": replay.last,
            "recovered": replay.recovered,
            "accounts": [
                [
                    opened.number, opened.root, opened.name, opened.unit, opened.relation,
                    str(opened.epsilon), str(opened.delta), opened.orders, opened.caps,
                    opened.slices, opened.rule, opened.everyone, opened.raises,
                ]
                for opened in replay.accounts.values()
            ],
            "blocks": replay.balances.packed(),
            "held": [
                [
                    reservation.number, reservation.is_fixed, reservation.steps,
                    [
                        [part.account, part.ranges, part.total, part.used]
                        for part in reservation.parts.values()
                    ],
                ]
                for reservation in held.values()
            ],
            "data": [
                [data.number, data.name, data.origin, data.rule, data.accounts, data.version]
                for data in replay.registers.datasets.values()
            ],
            "together": [[root, sorted(others)] for root, others in replay.registers.together.items()],
            # Where there are any.
            **({"checks": replay.checks} if replay.checks else {}),
            **({"registry": replay.registry} if replay.registry else {}),
            **({"registered": replay.registered} if replay.registered else {}),
            **({"others": replay.others} if replay.others else {}),
        }
    )  # fmt: skip


def replay_from(books: bytes) -> Replay:
    """Return a replay that continues from `state_bytes`. The bytes must be authentic."""
    said = json.loads(books)
    if said["format"] != STATE_FORMAT:
        raise OtherStateFormat
    replay = Replay()
    balances, registers = replay.balances, replay.registers
    replay.ledger = registers.ledger = said["ledger"]
    replay.key, replay.curator = bytes.fromhex(said["key"]), bytes.fromhex(said["curator"])
    registers.curator = replay.curator
    replay.entries, replay.last = said["entries"], said["last"]
    replay.recovered = [(entry, lost) for entry, lost in said["recovered"]]
    replay.checks = [CuratorCheck(*values) for values in said.get("checks", ())]
    replay.registry = said.get("registry", "")
    replay.registered = [(entry, registry) for entry, registry in said.get("registered", ())]
    replay.others = [(entry, ledger) for entry, ledger in said.get("others", ())]
    replay.outcomes.begin_after = replay.last
    for number, root, name, unit, relation, epsilon, delta, orders, caps, *rest in said["accounts"]:
        place = balances.add_account(number, caps)
        registers.keep(
            OpenedAccount(
                number, root, place, name, unit, relation, Fraction(epsilon), Fraction(delta),
                tuple(orders), tuple(caps), *rest,
            )
        )  # fmt: skip
    balances.unpack(said["blocks"])
    for number, is_fixed, steps, parts in said["held"]:
        held = HeldReservation(number, is_fixed, {}, steps)
        for account, ranges, total, used in parts:
            rows = [balances.rows_between(first, last) for first, last in ranges]
            part = HeldInAccount(account, ranges, rows, tuple(total), registers.accounts[account].caps)
            part.used = part.in_blocks = tuple(used)
            held.parts[account] = part
        replay.reservations.reserve(held)
    registers.together = {root: frozenset(others) for root, others in said["together"]}
    for number, name, origin, rule, accounts, version in said["data"]:
        registers.datasets[number] = RegisteredData(number, name, origin, rule, tuple(accounts), version)
    return replay
