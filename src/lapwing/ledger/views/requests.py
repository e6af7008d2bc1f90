"""What was asked: one line for every charge and reservation, with who, when, the price and what came of it.

A request's words lie in its stored answer, or in what was kept of a request without one, if whoever made
it put them there: they are read by those who know how. Public entries hold none of them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import whole
from lapwing.ledger.earlier import is_alive
from lapwing.ledger.entry import request_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.stores.transaction import Transaction
from lapwing.ledger.views.log import MOST_LINES, Line, LineReader
from lapwing.ledger.views.price_words import Price, price_of

LONGEST_WORDS = 1 << 19  # bytes of an answer in which the words of its request are looked for
ANSWERED, FAILED, OPEN, HELD = "answered", "failed", "under way", "reserved"
Watch = Callable[[int, int], None]  # how many are done, of how many
WordsOf = Callable[[bytes], str | None]
_TELL_EVERY = 1000
_COUNT = (
    "SELECT count(*), min(seq) FROM "
    "(SELECT seq FROM entries WHERE key IS NOT NULL ORDER BY seq DESC {}) AS k"
)
_ALL = (
    "SELECT asked.seq, asked.body, asked.key, answers.entry, "  # noqa: S608 (a whole number of ours)
    f"substr(answers.bytes, 1, {LONGEST_WORDS}), requests.key, requests.asked FROM entries AS asked "
    "LEFT JOIN answers ON answers.charge = asked.seq "
    "LEFT JOIN requests ON requests.charge = asked.seq AND answers.bytes IS NULL "
    "WHERE asked.key IS NOT NULL AND asked.seq >= {} ORDER BY asked.seq"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that was charged, or for which budget was held."""

    line: Line  # its entry: the number is the receipt
    state: str
    price: Price
    question: str | None  # in the words of who asked; None: they are not stored

    @property
    def what(self) -> str:
        """The question, or else the mechanism and its public settings."""
        return self.line.what if self.question is None else self.question


def each_request(
    ledger: Ledger,
    tell: Callable[[Asked], None],
    *,
    words_of: WordsOf,
    last: int | None = None,
    account: str | None = None,
    watch: Watch = lambda _, __: None,
) -> None:
    """Tell every request of one moment, oldest first; the `last` ones, or those charged to one account."""
    if last is not None and whole(last, "last", at_least=1) > MOST_LINES:
        raise BadParameter("last", f"must be at most {MOST_LINES:,}")
    limit = "" if last is None or account is not None else f"LIMIT {int(last)}"
    newest: deque[Asked] = deque(maxlen=last)  # of one account, where only the last are wanted

    def work(tx: Transaction) -> None:
        count, first = tx.rows(_COUNT.format(limit))[0]
        for done, one in enumerate(_requests(ledger, tx, int(first or 0), words_of), 1):
            if done % _TELL_EVERY == 0:
                watch(done, int(count))
            if account is None or account in one.line.accounts:
                (tell if account is None or last is None else newest.append)(one)

    ledger.store.read(work)
    for one in newest:
        tell(one)


def _requests(ledger: Ledger, tx: Transaction, first: int, words_of: WordsOf) -> Iterator[Asked]:
    reader = LineReader(tx)
    for seq, body, key, done, answer, named, kept in tx.stream(_ALL.format(first)):
        record = json.loads(bytes(body))
        [line] = reader.lines([(seq, body)])
        account, _, costs = record["debits"][0]
        price = price_of(record["loss"], costs, reader.epsilon_of(account))
        words = answer if kept is None else request_of(named, bytes(kept), record)
        question = None if words is None else words_of(bytes(words))
        if answer is not None:
            state = ANSWERED
        elif done is not None:
            state = FAILED
        elif is_alive(ledger, bytes(key), Receipt(ledger.id, seq, "", bytes(body))):
            state = OPEN
        else:
            state = FAILED if line.kind == "charge" else HELD
        yield Asked(line, state, price, question)


@dataclass(frozen=True, slots=True)
class Total:
    """What one principal asked for, in all. Prices are only added up: accounts lost no more than that."""

    principal: str
    requests: int = 0
    answered: int = 0
    failed: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    others: int = 0  # whose price is neither

    def with_one(self, one: Asked) -> Total:
        """Add a request."""
        price = one.price
        return replace(
            self,
            requests=self.requests + 1,
            answered=self.answered + (one.state == ANSWERED),
            failed=self.failed + (one.state == FAILED),
            epsilon=self.epsilon + (price.epsilon or 0),
            delta=self.delta + price.delta,
            rho=self.rho + (price.rho or 0),
            others=self.others + (price.epsilon is None and price.rho is None),
        )


class Totals:
    """Adds requests up by principal."""

    def __init__(self) -> None:
        self._found: dict[str, Total] = {}

    def add(self, one: Asked) -> None:
        """One request more."""
        name = one.line.principal
        self._found[name] = self._found.get(name, Total(name)).with_one(one)

    @property
    def totals(self) -> list[Total]:
        """By name."""
        return sorted(self._found.values(), key=lambda one: one.principal)
