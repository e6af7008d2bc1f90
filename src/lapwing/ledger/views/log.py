"""The history for people to read: one line an entry, with names instead of ids and prices in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.exact import whole
from lapwing.ledger.accountant.guarantee import check_words
from lapwing.ledger.accounts import EVERYONE, Slices, in_numbers
from lapwing.ledger.entry import KEPT_NAME, KEPT_VALUE, Ranges
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.stores.transaction import Row, Transaction
from lapwing.ledger.views.price_words import in_words, pair_text

SHOWN = 3  # so many blocks are named, the others counted
MOST_LINES = 10_000_000
ALL, OTHERS = "everyone", "everybody else"
_KIND_AT = 10  # every body begins {"kind":"
# The kinds of exceptions, most of them signed by the curator, as far as they tell each other apart.
_SIGNED = (b"acco", b"data", b"vers", b"reco", b"chec", b"poli")
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One entry."""

    number: int
    time: str
    kind: str
    principal: str = ""
    accounts: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()  # the first few
    block_count: int = 0
    price: str = ""  # where something is charged or held
    what: str = ""


def history(ledger: Ledger, *, last: int) -> tuple[Line, ...]:
    """The newest lines, oldest first. All are of one moment; only what they show is kept in memory."""
    if whole(last, "last", at_least=1) > MOST_LINES:
        raise BadParameter("last", f"must be at most {MOST_LINES:,}")
    sql = f"SELECT seq, body FROM entries ORDER BY seq DESC LIMIT {int(last)}"  # noqa: S608
    found = ledger.store.read(lambda tx: list(LineReader(tx).lines(tx.stream(sql))))
    return tuple(reversed(found))


def declared(tx: Transaction) -> tuple[Line, ...]:
    """Every exception that the curator signed: raised budgets, people who differ, recoveries, checks; and
    each policy that was changed after a check."""
    marks = ", ".join("?" * len(_SIGNED))
    rows = tx.rows(
        f"SELECT seq, body FROM entries WHERE substr(body, {_KIND_AT}, 4) IN ({marks}) ORDER BY seq",  # noqa: S608
        *_SIGNED,
    )
    return tuple(LineReader(tx).lines(row for row in rows if _is_exception(json.loads(bytes(row[1])))))


def _is_exception(record: Record) -> bool:
    is_one = record["kind"] in ("recovered", "check", "policy")
    return is_one or bool(record.get("raises") or record.get("differ"))


def name_of_block(label: str, slices: Slices) -> str:
    """A block as people call it, where `*` says whom it stands for."""
    if label != EVERYONE:
        return label
    return ALL if slices is Slices.NONE else OTHERS


class LineReader:
    """Makes lines of entries. What ids and numbers stand for is looked up once."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._accounts: dict[int, str] = {}
        self._epsilons: dict[int, Fraction] = {}
        for number, label, epsilon in tx.rows("SELECT account, label, epsilon FROM accounts"):
            self._accounts[number], self._epsilons[number] = label, Fraction(epsilon)
        self._data: dict[int, str] = dict(tx.rows("SELECT data, label FROM datasets"))
        self._principals: dict[str, str] = {}
        self._blocks: dict[int, str] = {}

    def epsilon_of(self, account: int) -> Fraction:
        """The ε of an account, for life."""
        return self._epsilons[account]

    def lines(self, rows: Iterable[Row]) -> Iterator[Line]:
        """A line for each (number, body)."""
        for seq, body in rows:
            record = json.loads(bytes(body))
            kind = record["kind"]
            yield _KINDS[kind](self, Line(seq, record["at"], kind), record)

    def genesis(self, line: Line, record: Record) -> Line:
        return replace(line, what=f"the ledger {record['ledger']} begins")

    def account(self, line: Line, record: Record) -> Line:
        terms = pair_text(Fraction(record["epsilon"]), Fraction(record["delta"]))
        if record["raises"] is None:
            what = f"opened with {terms} for life, for one {record['unit']}"
        else:
            what = f"raised by {terms}, signed by the curator"
        return replace(line, accounts=self._labels([record["account"]]), what=what)

    def blocks(self, line: Line, record: Record) -> Line:
        first, count = record["first"], len(record["names"])
        named = self._named([[first, first + count - 1]])
        return replace(
            line, accounts=self._labels([record["account"]]), blocks=named, block_count=count, what="opened"
        )

    def charge(self, line: Line, record: Record) -> Line:
        debits = record["debits"]
        ranges = [pair for _, some, _ in debits for pair in some]
        named = [one for one in record["parameters"].items() if one != (KEPT_NAME, KEPT_VALUE)]
        parameters = ", ".join(f"{name} {value}" for name, value in named)
        what = record["mechanism"] + (f" ({parameters})" if parameters else "")
        if line.kind == "reserve":
            what = f"held for {what}"
        account, _, costs = debits[0]
        return replace(
            line,
            principal=self._principal(record["by"]),
            accounts=self._labels([number for number, _, _ in debits]),
            blocks=self._named(ranges),
            block_count=sum(last - first + 1 for first, last in ranges),
            price=in_words(record["loss"], costs, self._epsilons[account]),
            what=what,
        )

    def step(self, line: Line, record: Record) -> Line:
        account, costs = record["costs"][0]
        loss = record["loss"]
        return replace(
            line,
            accounts=self._labels([number for number, _ in record["costs"]]),
            price="the whole run" if loss is None else in_words(loss, costs, self._epsilons[account]),
            what=f"step of reservation {record['reservation']}",
        )

    def settle(self, line: Line, record: Record) -> Line:
        rest = "is spent" if record["spent"] else "lapses"
        return replace(line, what=f"reservation {record['reservation']} ends; what is left of it {rest}")

    def answer(self, line: Line, record: Record) -> Line:
        return replace(line, what=f"answer to {record['charge']}, {record['size']:,} bytes")

    def failed(self, line: Line, record: Record) -> Line:
        return replace(line, what=f"no answer to {record['charge']} will come; the charge stays")

    def data(self, line: Line, record: Record) -> Line:
        what = f'data "{self._data[record["data"]]}", version {record["version"]}'
        others = self._labels([number for number, _ in record["differ"]])
        if others:
            named = " and ".join(f'"{label}"' for label in others)
            what += f"; the curator signed that its people are not those of {named}"
        return replace(line, accounts=self._labels(record["accounts"]), what=what)

    def recovered(self, line: Line, record: Record) -> Line:
        lost = record["lost"]
        gone = "the anchor was lost" if lost is None else f"entries up to {lost[0]} were lost"
        return replace(line, what=f"{gone}; the curator signed that all that was open counts as spent")

    def check(self, line: Line, record: Record) -> Line:
        what = check_words(is_change=line.kind == "policy")
        return replace(line, accounts=self._labels([record["account"]]), what=what)

    # Looking up

    def _labels(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Accounts by name; raised ones have the name of the first."""
        return tuple(dict.fromkeys(self._accounts[number] for number in numbers))

    def _principal(self, name: str) -> str:
        if name not in self._principals:
            self._principals[name] = self._tx.rows("SELECT label FROM principals WHERE name = ?", name)[0][
                0
            ]
        return self._principals[name]

    def _named(self, ranges: Ranges) -> tuple[str, ...]:
        """The first few blocks by name."""
        numbers: list[int] = []
        for first, last in ranges[:SHOWN]:
            numbers.extend(range(first, min(last, first + SHOWN) + 1))
        numbers = numbers[:SHOWN]
        missing = [number for number in numbers if number not in self._blocks]
        if missing:
            found = self._tx.rows(
                "SELECT block, blocks.label, slices FROM blocks "  # noqa: S608 (whole numbers of ours)
                f"JOIN accounts ON accounts.account = blocks.account WHERE block IN ({in_numbers(missing)})"
            )
            self._blocks.update(
                (number, name_of_block(label, Slices(kind))) for number, label, kind in found
            )
        return tuple(self._blocks[number] for number in numbers)


_KINDS: dict[str, Callable[[LineReader, Line, Record], Line]] = {
    "genesis": LineReader.genesis,
    "account": LineReader.account,
    "blocks": LineReader.blocks,
    "charge": LineReader.charge,
    "reserve": LineReader.charge,
    "step": LineReader.step,
    "settle": LineReader.settle,
    "answer": LineReader.answer,
    "failed": LineReader.failed,
    "data": LineReader.data,
    "version": LineReader.data,
    "recovered": LineReader.recovered,
    "check": LineReader.check,
    "policy": LineReader.check,
}
