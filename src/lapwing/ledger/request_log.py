"""The log for people to read: lines of entries and requests, with names instead of ids and prices in words.

A price is an ε and a δ if it has them; otherwise the kind of its bound is named. The words of a request are
in its stored answer, or beside a request without an answer, if the requesting code put them there; a
function of that code reads them. Public entries hold none of these words.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from lapwing.core import losses
from lapwing.core.budget import DELTA, DELTA_UNIT, EPSILON, EPSILON_UNIT
from lapwing.core.exact import short_up, whole
from lapwing.core.loss_records import from_description
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.guarantee import check_words, others_words, registered_words
from lapwing.ledger.accounts import EVERYONE, Slices, sql_list
from lapwing.ledger.entry import KEPT_NAME, KEPT_VALUE, Costs, Ranges, Receipt, request_of, text_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.request_status import is_running
from lapwing.ledger.store import Row, Transaction

NAMED = 3  # parts of a sum that are named; the others are counted
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PriceInWords:
    """A price in words, and the numbers in it that can be added: ε with δ, or ρ."""

    words: str
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None


def price_of(loss: dict[str, Any], costs: Costs, epsilon: Fraction) -> PriceInWords:
    """Return the price of a described loss, rounded up, in words and numbers.

    `costs` are the charged costs, in an account of this ε.
    """
    text = text_of(loss)
    if '"FixedRun"' not in text:
        return _price_of_text(text)
    # Such a run is slow to price again. Its costs say ε and δ, unless they only say "too much".
    if costs[EPSILON] > epsilon * EPSILON_UNIT:
        return PriceInWords("a fixed run, by its Rényi bound")
    pair = Fraction(costs[EPSILON], EPSILON_UNIT), Fraction(costs[DELTA], DELTA_UNIT)
    return PriceInWords(f"{pair_text(*pair)} as one run", *pair)


def price_in_words(loss: dict[str, Any], costs: Costs, epsilon: Fraction) -> str:
    """Return the price of a described loss in words (see `price_of`)."""
    return price_of(loss, costs, epsilon).words


@lru_cache(maxsize=4096)
def _price_of_text(text: str) -> PriceInWords:
    try:
        loss = from_description(json.loads(text))
    except BadParameter:
        return PriceInWords("of a kind unknown here")
    if loss.pure is not None:
        return PriceInWords(_of(loss), loss.pure, loss.delta0)
    return PriceInWords(_of(loss), rho=_rho(loss), delta=loss.delta0)


def _of(loss: Loss) -> str:
    if loss.pure is not None:
        return pair_text(loss.pure, loss.delta0)
    rho = _rho(loss)
    if rho is not None:
        return f"ρ {short_up(rho)} (zCDP)"
    match loss:
        case losses.SampledGaussian(rate, noise):
            return f"Rényi of Gaussian σ {short_up(noise.sigma)} on a sample of {short_up(100 * rate)} %"
        case losses.Repeated(each, count):
            return f"{count:,} × {_of(each)}"
        case losses.SequentialComposition(parts) | losses.ParallelComposition(parts):
            words = [_of(part) for part in parts[:NAMED]]
            if len(parts) > NAMED:
                words.append(f"{len(parts) - NAMED} more")
            added = isinstance(loss, losses.SequentialComposition)
            return " + ".join(words) if added else f"the worst of {', '.join(words)}"
    return "by its Rényi bound"


def _rho(loss: Loss) -> Fraction | None:
    match loss:
        case losses.Concentrated(rho):
            return rho
        case losses.GaussianNoise():
            return loss.concentrated.rho
        case losses.Repeated(each, count):
            once = _rho(each)
            return None if once is None else count * once
        case losses.SequentialComposition(parts) | losses.ParallelComposition(parts):
            known = [rho for rho in map(_rho, parts) if rho is not None]
            if len(known) == len(parts) and known:
                added = isinstance(loss, losses.SequentialComposition)
                return sum(known, Fraction(0)) if added else max(known)
    return None


def pair_text(epsilon: Fraction, delta: Fraction) -> str:
    """Return ε, and δ if it is not 0, rounded up."""
    return f"ε {short_up(epsilon)}" + (f", δ {short_up(delta)}" if delta else "")


SHOWN = 3  # blocks that are named; the others are counted
MOST_LINES = 10_000_000
ALL, OTHERS = "everyone", "everybody else"
_KIND_AT = 10  # every body begins {"kind":"
# The first letters of the kinds that can be exceptions, most of them signed by the curator.
_SIGNED = (b"acco", b"data", b"vers", b"reco", b"chec", b"poli", b"regi", b"othe")
Record = dict[str, Any]
# Kinds of entries that are read as another kind is.
_SAME_FORM = {"reserve": "charge", "version": "data", "policy": "check"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of the log."""

    number: int
    time: str
    kind: str
    principal: str = ""
    accounts: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()  # the first few
    block_count: int = 0
    price: str = ""  # where something is charged or held
    what: str = ""


def log_lines(ledger: Ledger, *, last: int) -> tuple[LogLine, ...]:
    """Return the newest lines, oldest first, of one snapshot."""
    sql = f"SELECT seq, body FROM entries ORDER BY seq DESC LIMIT {_checked_last(last)}"  # noqa: S608
    lines = ledger.store.read(lambda tx: list(LogReader(tx).lines(tx.stream(sql))))
    return tuple(reversed(lines))


def _checked_last(last: int) -> int:
    if whole(last, "last", at_least=1) > MOST_LINES:
        raise BadParameter("last", f"must be at most {MOST_LINES:,}")
    return int(last)


def signed_exceptions(tx: Transaction) -> tuple[LogLine, ...]:
    """Return the lines of all exceptions: raises, different people, recoveries, checks, changed policies.

    The curator signed all of them except changes of a policy after a check.
    """
    marks = ", ".join("?" * len(_SIGNED))
    rows = tx.rows(
        f"SELECT seq, body FROM entries WHERE substr(body, {_KIND_AT}, 4) IN ({marks}) ORDER BY seq",  # noqa: S608
        *_SIGNED,
    )
    return tuple(LogReader(tx).lines(row for row in rows if _is_exception(json.loads(bytes(row[1])))))


def _is_exception(record: Record) -> bool:
    is_one = record["kind"] in ("recovered", "check", "policy", "registry", "others")
    return is_one or bool(record.get("raises") or record.get("differ"))


def block_name(label: str, slices: Slices) -> str:
    """Return a block's name for people. `*` is named after the units that it stands for."""
    if label != EVERYONE:
        return label
    return ALL if slices is Slices.NONE else OTHERS


class LogReader:
    """A reader that turns entries into lines. It looks up each id and number once."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._accounts: dict[int, str] = {}
        self.epsilons: dict[int, Fraction] = {}  # for life, by account
        for number, label, epsilon in tx.rows("SELECT account, label, epsilon FROM accounts"):
            self._accounts[number], self.epsilons[number] = label, Fraction(epsilon)
        self._data: dict[int, str] = dict(tx.rows("SELECT data, label FROM datasets"))
        self._principals: dict[str, str] = {}
        self._blocks: dict[int, str] = {}

    def lines(self, rows: Iterable[Row]) -> Iterator[LogLine]:
        """Yield a line for each (number, body)."""
        for seq, body in rows:
            record = json.loads(bytes(body))
            kind = record["kind"]
            read = getattr(self, f"_read_{_SAME_FORM.get(kind, kind)}")
            yield read(LogLine(seq, record["at"], kind), record)

    def _read_genesis(self, line: LogLine, record: Record) -> LogLine:
        return replace(line, what=f"the ledger {record['ledger']} begins")

    def _read_account(self, line: LogLine, record: Record) -> LogLine:
        terms = pair_text(Fraction(record["epsilon"]), Fraction(record["delta"]))
        if record["raises"] is None:
            what = f"opened with {terms} for life, for one {record['unit']}"
        else:
            what = f"raised by {terms}, signed by the curator"
        return replace(line, accounts=self._labels([record["account"]]), what=what)

    def _read_blocks(self, line: LogLine, record: Record) -> LogLine:
        first, count = record["first"], len(record["names"])
        named, accounts = self._named([[first, first + count - 1]]), self._labels([record["account"]])
        return replace(line, accounts=accounts, blocks=named, block_count=count, what="opened")

    def _read_charge(self, line: LogLine, record: Record) -> LogLine:
        debits = record["debits"]
        ranges = [pair for _, some, _ in debits for pair in some]
        named = [item for item in record["parameters"].items() if item != (KEPT_NAME, KEPT_VALUE)]
        parameters = ", ".join(f"{name} {_shortened(value)}" for name, value in named)
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
            price=price_in_words(record["loss"], costs, self.epsilons[account]),
            what=what,
        )

    def _read_step(self, line: LogLine, record: Record) -> LogLine:
        account, costs = record["costs"][0]
        loss = record["loss"]
        return replace(
            line,
            accounts=self._labels([number for number, _ in record["costs"]]),
            price="the whole run" if loss is None else price_in_words(loss, costs, self.epsilons[account]),
            what=f"step of reservation {record['reservation']}",
        )

    def _read_settle(self, line: LogLine, record: Record) -> LogLine:
        rest = "is spent" if record["spent"] else "lapses"
        return replace(line, what=f"reservation {record['reservation']} ends; what is left of it {rest}")

    def _read_answer(self, line: LogLine, record: Record) -> LogLine:
        return replace(line, what=f"answer to {record['charge']}, {record['size']:,} bytes")

    def _read_failed(self, line: LogLine, record: Record) -> LogLine:
        return replace(line, what=f"no answer to {record['charge']} will come; the charge stays")

    def _read_data(self, line: LogLine, record: Record) -> LogLine:
        what = f'data "{self._data[record["data"]]}", version {record["version"]}'
        others = self._labels([number for number, _ in record["differ"]])
        if others:
            named = " and ".join(f'"{label}"' for label in others)
            what += f"; the curator signed that its people are not those of {named}"
        return replace(line, accounts=self._labels(record["accounts"]), what=what)

    def _read_recovered(self, line: LogLine, record: Record) -> LogLine:
        lost = record["lost"]
        gone = "the anchor was lost" if lost is None else f"entries up to {lost[0]} were lost"
        return replace(line, what=f"{gone}; the curator signed that all that was open counts as spent")

    def _read_registry(self, line: LogLine, record: Record) -> LogLine:
        return replace(line, what=registered_words(record["registry"]))

    def _read_others(self, line: LogLine, record: Record) -> LogLine:
        return replace(line, what=others_words(record["ledgers"]))

    def _read_check(self, line: LogLine, record: Record) -> LogLine:
        what = check_words(is_change=line.kind == "policy")
        return replace(line, accounts=self._labels([record["account"]]), what=what)

    # Looking up

    def _labels(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Return the names of accounts. A raise has the name of the first account."""
        return tuple(dict.fromkeys(self._accounts[number] for number in numbers))

    def _principal(self, name: str) -> str:
        if name not in self._principals:
            [(label,)] = self._tx.rows("SELECT label FROM principals WHERE name = ?", name)
            self._principals[name] = label
        return self._principals[name]

    def _named(self, ranges: Ranges) -> tuple[str, ...]:
        """Return the names of the first few blocks."""
        numbers: list[int] = []
        for first, last in ranges[:SHOWN]:
            numbers.extend(range(first, min(last, first + SHOWN) + 1))
        numbers = numbers[:SHOWN]
        missing = [number for number in numbers if number not in self._blocks]
        if missing:
            rows = self._tx.rows(
                "SELECT block, blocks.label, slices FROM blocks "  # noqa: S608 (whole numbers of ours)
                f"JOIN accounts ON accounts.account = blocks.account WHERE block IN ({sql_list(missing)})"
            )
            self._blocks.update((number, block_name(label, Slices(kind))) for number, label, kind in rows)
        return tuple(self._blocks[number] for number in numbers)


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
class LoggedRequest:
    """One request that was charged, or for which budget was reserved."""

    line: LogLine  # its entry: the number is the receipt
    state: str
    price: PriceInWords
    question: str | None  # as the analyst wrote it; None if it is not stored

    @property
    def what(self) -> str:
        """The question, or else the mechanism and its public settings."""
        return self.line.what if self.question is None else self.question


def each_request(
    ledger: Ledger,
    tell: Callable[[LoggedRequest], None],
    *,
    words_of: WordsOf,
    last: int | None = None,
    account: str | None = None,
    watch: Watch = lambda _, __: None,
) -> None:
    """Call `tell` with every request of one snapshot, oldest first.

    Args:
        ledger: the open ledger.
        tell: called with each request.
        words_of: returns the words of a request from its stored bytes, or None.
        last: only that many of the newest requests; None means all.
        account: only requests charged to this account; None means all.
        watch: told how many requests were read, and of how many.
    """
    most = None if last is None else _checked_last(last)
    limit = "" if most is None or account is not None else f"LIMIT {most}"
    newest: deque[LoggedRequest] = deque(maxlen=most)  # of one account, where only the last are wanted

    def work(tx: Transaction) -> None:
        count, first = tx.rows(_COUNT.format(limit))[0]
        for done, logged in enumerate(_requests(ledger, tx, int(first or 0), words_of), 1):
            if done % _TELL_EVERY == 0:
                watch(done, int(count))
            if account is None or account in logged.line.accounts:
                (tell if account is None or most is None else newest.append)(logged)

    ledger.store.read(work)
    for logged in newest:
        tell(logged)


def _requests(ledger: Ledger, tx: Transaction, first: int, words_of: WordsOf) -> Iterator[LoggedRequest]:
    reader = LogReader(tx)
    for seq, body, key, done, answer, named, kept in tx.stream(_ALL.format(first)):
        record = json.loads(bytes(body))
        [line] = reader.lines([(seq, body)])
        account, _, costs = record["debits"][0]
        price = price_of(record["loss"], costs, reader.epsilons[account])
        words = answer if kept is None else request_of(named, bytes(kept), record)
        question = None if words is None else words_of(bytes(words))
        if answer is not None:
            state = ANSWERED
        elif done is not None:
            state = FAILED
        elif is_running(ledger, bytes(key), Receipt(ledger.id, seq, "", bytes(body))):
            state = OPEN
        else:
            state = FAILED if line.kind == "charge" else HELD
        yield LoggedRequest(line, state, price, question)


@dataclass(frozen=True, slots=True)
class PrincipalTotal:
    """The sum of one principal's requests. The prices are added: accounts lost no more than that."""

    principal: str
    requests: int = 0
    answered: int = 0
    failed: int = 0
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    others: int = 0  # requests with a price of another form

    def with_request(self, logged: LoggedRequest) -> PrincipalTotal:
        """Return the total with one more request."""
        price = logged.price
        return replace(
            self,
            requests=self.requests + 1,
            answered=self.answered + (logged.state == ANSWERED),
            failed=self.failed + (logged.state == FAILED),
            epsilon=self.epsilon + (price.epsilon or 0),
            delta=self.delta + price.delta,
            rho=self.rho + (price.rho or 0),
            others=self.others + (price.epsilon is None and price.rho is None),
        )


class PrincipalTotals:
    """The sums of requests by principal."""

    def __init__(self) -> None:
        self._found: dict[str, PrincipalTotal] = {}

    def add(self, logged: LoggedRequest) -> None:
        """Add a request."""
        name = logged.line.principal
        self._found[name] = self._found.get(name, PrincipalTotal(name)).with_request(logged)

    @property
    def totals(self) -> list[PrincipalTotal]:
        """All totals, sorted by principal."""
        return sorted(self._found.values(), key=lambda total: total.principal)


def _shortened(value: str | int) -> str:
    """Return the value of a parameter for people: the beginning of a digest is enough to compare it."""
    text = str(value)
    return f"{text[:12]}…" if _DIGEST.fullmatch(text) else text
