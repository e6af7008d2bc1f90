"""An offline judge: do the clients' diaries and the ledger's entries tell the same story?

It knows nothing of the ledger's code but the form of entries and the prices of losses: sums and filters are
added up here again, with unbounded whole numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from lapwing.core.budget import Terms
from lapwing.core.loss_records import from_description
from lapwing.core.losses import Loss, Repeated
from lapwing.ledger import Ledger

Costs = tuple[int, ...]
NOTHING: Costs = (0,) * 8
NEVER = 1 << 80


def holds(sums: Sequence[int], caps: Sequence[int]) -> bool:
    """The filter."""
    fits = [total <= cap for total, cap in zip(sums, caps, strict=True)]
    return fits[0] and ((fits[1] and fits[2]) or any(fits[3:]))


def plus(one: Sequence[int], other: Sequence[int]) -> Costs:
    return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass(slots=True)
class Ask:
    """What a client asked, and what it was told: `cut` if its diary ends there."""

    what: str
    asked: dict[str, Any]
    begun: int
    outcome: str = "cut"
    told: dict[str, Any] = field(default_factory=dict)
    over: int = NEVER

    @property
    def of(self) -> tuple[str, str, str]:
        return self.asked["by"], self.asked["key"], self.asked["request"]

    @property
    def is_open(self) -> bool:
        """Whether the client never heard what became of it. Some errors say that nothing did."""
        undone = "othing was ch" in self.told.get("why", "")
        return self.outcome == "cut" or (self.outcome == "unknown" and not undone)

    @property
    def is_first(self) -> bool:
        """Whether it was this one that was charged and answered."""
        return self.outcome == "done" and not self.told.get("replay")


def read_diary(path: Path) -> list[Ask]:
    """The asks of a diary. A last line without its end was never finished."""
    asks: dict[int, Ask] = {}
    text = path.read_bytes()
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        record = json.loads(line)
        number, at = record.pop("number"), record.pop("time")
        if "outcome" in record:
            ask = asks[number]
            ask.outcome, ask.told, ask.over = record.pop("outcome"), record, at
        else:
            asks[number] = Ask(record.pop("what"), record, at)
    return list(asks.values())


@dataclass(slots=True)
class Held:
    """A reservation as the entries tell it."""

    debits: list[tuple[int, list[int], Costs]]
    used: dict[int, Costs]
    begun: int
    lapsed: int = NEVER  # when somebody heard that it lapsed
    has_ended: bool = False
    is_spent: bool = False

    def spent(self, account: int, total: Costs) -> Costs:
        return plus(self.used[account], self.left(account, total)) if self.is_spent else self.used[account]

    def left(self, account: int, total: Costs) -> Costs:
        return tuple(max(t - u, 0) for t, u in zip(total, self.used[account], strict=True))


@dataclass
class Story:
    """What the entries say."""

    terms: dict[int, Terms] = field(default_factory=dict)
    account_of: dict[int, int] = field(default_factory=dict)  # of each block
    everyone: dict[int, int] = field(default_factory=dict)
    opened: dict[int, tuple[int, Costs]] = field(default_factory=dict)  # block: entry, sums it began with
    charges: dict[tuple[str, str, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    by_key: dict[tuple[str, str], int] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)
    answers: dict[int, str | None] = field(default_factory=dict)


class Judge:
    """Compares diaries with one ledger."""

    def __init__(self, ledger: Ledger, diaries: Iterable[Path]) -> None:
        self.wrong: list[str] = []
        self.asks = [ask for path in diaries for ask in read_diary(path)]
        self._is_troubled = any(ask.outcome == "unknown" for ask in self.asks)
        self._ledger = ledger
        self.entries: list[tuple[int, dict[str, Any]]] = [
            (seq, json.loads(bytes(body)))
            for seq, body in _rows(ledger, "SELECT seq, body FROM entries ORDER BY seq")
        ]
        self._keys = {
            hashlib.sha256(f"{name}\n{key}".encode()).hexdigest(): (label, key)
            for name, label in _rows(ledger, "SELECT name, label FROM principals")
            for key in {ask.asked["key"] for ask in self.asks if ask.asked.get("by") == label}
        }
        self._labels = {
            (account, label): block
            for block, account, label in _rows(ledger, "SELECT block, account, label FROM blocks")
        }
        self._accounts = {account.label: account for account in ledger.accounts()}
        self.spent: dict[int, Costs] = {}
        self.held: dict[int, Costs] = {}
        self.story = Story()
        self._begun: dict[tuple[str, str, str], int] = {}
        for ask in self.asks:
            if "key" in ask.asked:
                self._begun[ask.of] = min(ask.begun, self._begun.get(ask.of, ask.begun))

    def judge(self) -> list[str]:
        """Everything that is wrong; nothing if all is well."""
        for seq, record in self.entries:
            self._replay(seq, record)
        self._compare_sums()
        for ask in self.asks:
            if ask.what in ("charge", "reserve"):
                self._compare_ask(ask)
            elif ask.outcome == "done":
                self._compare_other(ask)
            elif ask.outcome == "not possible" and ask.what != "open":
                self.wrong.append(f"{ask.what} of {ask.asked}: {ask.told}")
        self._compare_entries()
        self._compare_steps()
        self._compare_order()
        for ask in self.asks:
            if ask.outcome == "refused" and ask.what in ("charge", "reserve"):
                self._compare_refusal(ask)
        return self.wrong

    # The entries, one by one

    def _replay(self, seq: int, record: dict[str, Any]) -> None:
        match record["kind"]:
            case "account":
                self._replay_account(seq, record)
            case "blocks":
                self._replay_blocks(seq, record)
            case "charge" | "reserve":
                self._replay_charge(seq, record)
            case "step":
                for account, costs in record["costs"]:
                    self._step(seq, self.story.held[record["reservation"]], account, tuple(costs))
            case "settle":
                self._settle(seq, self.story.held[record["reservation"]], spent=record["spent"])
            case "answer" | "failed":
                if record["charge"] in self.story.answers:
                    self.wrong.append(f"entry {seq}: a second outcome of {record['charge']}")
                self.story.answers[record["charge"]] = record.get("digest")

    def _replay_account(self, seq: int, record: dict[str, Any]) -> None:
        number, block = record["account"], record["everyone"]
        terms = Terms.of(Fraction(record["epsilon"]), Fraction(record["delta"]))
        if list(terms.caps) != record["caps"]:
            self.wrong.append(f"entry {seq}: other caps than its ε and δ give")
        self.story.terms[number], self.story.everyone[number] = terms, block
        self._open(seq, number, block, NOTHING)

    def _replay_blocks(self, seq: int, record: dict[str, Any]) -> None:
        account, first = record["account"], record["first"]
        everyone = self.story.everyone[account]
        if any(self.held[everyone]):
            self.wrong.append(f"entry {seq}: opens blocks while something is held for everyone")
        for block in range(first, first + len(record["names"])):
            self._open(seq, account, block, self.spent[everyone])

    def _open(self, seq: int, account: int, block: int, sums: Costs) -> None:
        self.story.account_of[block] = account
        self.story.opened[block] = (seq, sums)
        self.spent[block], self.held[block] = sums, NOTHING

    def _replay_charge(self, seq: int, record: dict[str, Any]) -> None:
        key = self._keys.get(record["key"])
        if key is None:
            self.wrong.append(f"entry {seq}: nobody asked for it")
            return
        if key in self.story.by_key:
            self.wrong.append(f"entry {seq}: {key} was charged twice")
        self.story.by_key[key] = seq
        self.story.charges[(*key, record["parameters"]["asked"])] = (seq, record)
        debits = [(account, _blocks(ranges), tuple(costs)) for account, ranges, costs in record["debits"]]
        for account, blocks, costs in debits:
            for block in blocks:
                if record["kind"] == "charge":
                    self.spent[block] = plus(self.spent[block], costs)
                else:
                    self.held[block] = plus(self.held[block], costs)
                self._require_within(seq, account, block)
        if record["kind"] == "reserve":
            begun = self._begun.get((*key, record["parameters"]["asked"]), 0)
            self.story.held[seq] = Held(debits, {account: NOTHING for account, _, _ in debits}, begun)

    def _require_within(self, seq: int, account: int, block: int) -> None:
        if self.story.account_of[block] != account:
            self.wrong.append(f"entry {seq}: block {block} is in another account")
        if not holds(plus(self.spent[block], self.held[block]), self.story.terms[account].caps):
            self.wrong.append(f"entry {seq}: block {block} is above its cap")

    def _step(self, seq: int, held: Held, account: int, costs: Costs) -> None:
        if held.has_ended:
            self.wrong.append(f"entry {seq}: a step after the end")
        [(blocks, total)] = [(blocks, total) for number, blocks, total in held.debits if number == account]
        left = held.left(account, total)
        caps = self.story.terms[account].caps
        for cost, rest, all_, cap in zip(costs, left, total, caps, strict=True):
            if cost > rest and all_ <= cap:
                self.wrong.append(f"entry {seq}: a step above its reservation")
        moved = tuple(min(cost, rest) for cost, rest in zip(costs, left, strict=True))
        held.used[account] = plus(held.used[account], costs)
        for block in blocks:
            self.held[block] = plus(self.held[block], [-cost for cost in moved])
            self.spent[block] = plus(self.spent[block], costs)
            self._require_within(seq, account, block)

    def _settle(self, seq: int, held: Held, *, spent: bool) -> None:
        if held.has_ended:
            self.wrong.append(f"entry {seq}: settled twice")
        held.has_ended, held.is_spent = True, spent
        for account, blocks, total in held.debits:
            left = held.left(account, total)
            for block in blocks:
                self.held[block] = plus(self.held[block], [-cost for cost in left])
                if spent:
                    self.spent[block] = plus(self.spent[block], left)
                self._require_within(seq, account, block)

    # The tables

    def _compare_sums(self) -> None:
        for label, account in self._accounts.items():
            for block in self._ledger.blocks(label):
                caps = account.terms.caps
                mine = [
                    min(total, cap + 1) for total, cap in zip(self.spent[block.number], caps, strict=True)
                ]
                if (tuple(mine), self.held[block.number]) != (block.spent, block.held):
                    self.wrong.append(f"block {block.number} has other sums than its entries give")

    # The diaries

    def _compare_ask(self, ask: Ask) -> None:
        """What was told about a charge against what the ledger has of it."""
        why = self._difference(ask, *self.story.charges.get(ask.of, (None, {})))
        if why:
            self.wrong.append(f"{ask.of[:2]}, {ask.outcome}: {why}")

    def _difference(self, ask: Ask, seq: int | None, _: dict[str, Any]) -> str:
        by, key, _request = ask.of
        answer = self.story.answers.get(seq or 0)
        said = ask.told.get("answer")
        is_reused = seq is None and (by, key) in self.story.by_key
        no_answer = seq in self.story.answers and answer is None
        match ask.outcome:
            case "done":
                wrong = {
                    "acknowledged, and not in the ledger": seq is None or seq != ask.told["position"],
                    "another answer than the one that is stored": said and answer != _digest(said),
                }
            case "reused":
                wrong = {"but the key was not used for something else": not is_reused}
            case "failed" | "ended" | "in progress":
                wrong = {"but nothing was charged": seq is None}
                if not self._is_troubled:  # or a session may seem over, and a failure be kept by nobody
                    wrong["but there is an answer"] = ask.outcome == "ended" and answer is not None
                    wrong["but it is not written down"] = ask.outcome == "failed" and not no_answer
            case _:  # who was refused or does not know: an entry needs somebody who was not refused
                wrong = {str(ask.told): ask.outcome == "not possible"}
        return ", ".join(why for why, is_so in wrong.items() if is_so)

    def _compare_other(self, ask: Ask) -> None:
        match ask.what:
            case "step" | "settle":
                found = [
                    seq
                    for seq, record in self.entries
                    if record["kind"] == ask.what and record["reservation"] == ask.asked["reservation"]
                ]
                if not found:
                    self.wrong.append(f"{ask.what} of {ask.asked}: acknowledged, and not in the ledger")
                if ask.what == "settle" and ask.asked["lapses"]:
                    self.story.held[ask.asked["reservation"]].lapsed = ask.over
            case "open":
                if all((number, ask.asked["block"]) not in self._labels for number in self.story.terms):
                    self.wrong.append(f"block {ask.asked['block']}: opened, and not in the ledger")

    def _compare_entries(self) -> None:
        """Each charge has one origin, and everybody else who heard of it heard the same."""
        told: dict[tuple[str, str, str], list[Ask]] = defaultdict(list)
        for ask in self.asks:
            if "key" in ask.asked:
                told[ask.of].append(ask)
        for of, (seq, _) in self.story.charges.items():
            origins = [ask for ask in told[of] if ask.outcome == "failed" or ask.is_first]
            if len(origins) > 1:
                self.wrong.append(f"entry {seq}: was run {len(origins)} times")
            if not origins and not any(ask.is_open for ask in told[of]):
                self.wrong.append(f"entry {seq}: everybody who asked for it was refused")
            if len({ask.told["answer"] for ask in told[of] if "answer" in ask.told}) > 1:
                self.wrong.append(f"entry {seq}: different answers for the same key")

    def _compare_steps(self) -> None:
        """As many steps as were acknowledged, and perhaps those of which nobody knows."""
        surplus = Counter(record["reservation"] for _, record in self.entries if record["kind"] == "step")
        steps = [ask for ask in self.asks if ask.what == "step"]
        surplus.subtract(ask.asked["reservation"] for ask in steps if ask.outcome == "done")
        unknown = Counter(ask.asked["reservation"] for ask in steps if ask.is_open)
        for number, more in surplus.items():
            if not 0 <= more <= unknown[number]:
                self.wrong.append(f"reservation {number}: {more} steps more than were acknowledged")

    def _compare_order(self) -> None:
        """What was acknowledged before something else was asked comes before it."""
        spans = sorted(
            (ask.over, ask.begun, ask.told["position"])
            for ask in self.asks
            if ask.is_first and "position" in ask.told
        )
        by_begin = sorted((begun, position) for _, begun, position in spans)
        latest, at = 0, 0
        for begun, position in by_begin:
            while at < len(spans) and spans[at][0] < begun:
                latest, at = max(latest, spans[at][2]), at + 1
            if position < latest:
                self.wrong.append(f"entry {position}: begun after {latest} was acknowledged")

    def _compare_refusal(self, ask: Ask) -> None:
        """Refused though it fits the most that can have been taken while it was decided?"""
        loss = from_description(ask.asked["loss"])
        for label, names, everyone in ask.asked["targets"]:
            account = self._accounts[label]
            terms, root = account.terms, account.number
            costs = _costs(terms, loss, ask.what == "reserve")
            wanted = [self._labels[root, name] for name in names] or [account.everyone]
            if everyone:
                wanted = [block for block, number in self.story.account_of.items() if number == root]
            for block in wanted:
                if not holds(plus(self._most(block, ask), costs), terms.caps):
                    return
        self.wrong.append(f"{ask.of[:2]} was refused although it fits: {ask.asked['targets']}")

    def _most(self, block: int, ask: Ask) -> Costs:
        """The most that can have been taken from a block at some moment of this ask."""
        since, began_with = self.story.opened[block]
        total = began_with
        for of, (seq, record) in self.story.charges.items():
            if seq < since or self._begun[of] > ask.over:
                continue
            for account, ranges, costs in record["debits"]:
                if any(first <= block <= last for first, last in ranges):
                    held = self.story.held.get(seq)
                    if held is not None and held.lapsed < ask.begun:
                        total = plus(total, held.used[account])
                    else:
                        total = plus(total, costs)
        return total

    # What is left, for one who comes last

    def taken(self, label: str) -> Iterator[tuple[str, Costs]]:
        """Each block of an account by name, and what is taken there."""
        account = self._accounts[label]
        for block in self._ledger.blocks(label):
            taken = plus(self.spent[block.number], self.held[block.number])
            yield (
                block.label,
                tuple(min(t, cap + 1) for t, cap in zip(taken, account.terms.caps, strict=True)),
            )


def _rows(ledger: Ledger, sql: str) -> list[tuple[Any, ...]]:
    return ledger.store.read(lambda tx: tx.rows(sql))


def _blocks(ranges: Sequence[Sequence[int]]) -> list[int]:
    return [block for first, last in ranges for block in range(first, last + 1)]


def _digest(answer: str) -> str:
    return hashlib.sha256(bytes.fromhex(answer)).hexdigest()


@lru_cache(maxsize=1024)
def _costs(terms: Terms, loss: Loss, is_reserved: bool) -> Costs:
    """A reservation pays for each of its steps, rounded up."""
    if is_reserved and isinstance(loss, Repeated):
        return tuple(loss.count * cost for cost in terms.price(loss.loss).costs)
    return terms.price(loss).costs
