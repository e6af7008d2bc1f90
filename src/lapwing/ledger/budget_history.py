"""The remaining budget of accounts and blocks: now (`overview`) and over time (`BudgetHistory`).

The remainder of a block is the largest pure ε that a next request could spend there. `Terms.largest_pure`
finds it by trying, which takes milliseconds: too long for thirty thousand blocks. Here floats find the
place, and `remaining_exactly` confirms it with the filter itself, just below and just above.

The history is rebuilt from the entries by the independent accountant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.budget import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER, DeltaShares, Terms
from lapwing.core.exact import float_down, float_up
from lapwing.core.losses import Pure
from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.forms import WIDTH
from lapwing.ledger.accountant.guarantee import Pair, total_of, worst_cases
from lapwing.ledger.accountant.registers import Registers
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.accounts import EVERYONE, Account, Block, Slices, accounts_where, look_at, sql_list
from lapwing.ledger.entry import Costs, RawEntry
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.request_log import LogLine, block_name, signed_exceptions
from lapwing.ledger.store import SignedState, Transaction

Reals = NDArray[np.float64]
HALVINGS = 60
NEARBY = 4  # ledger units


def estimate_remaining(terms: Terms, taken: NDArray[np.int64], *, halvings: int = HALVINGS) -> Reals:
    """Return the remaining pure ε for each row of sums, in floats.

    Plots need fewer halvings than ledger units do.
    """
    caps = np.array(terms.caps, np.int64)
    room = (caps - taken) / EPSILON_UNIT
    best = np.where(taken[:, DELTA] <= caps[DELTA], np.maximum(room[:, EPSILON], 0), 0)  # by the pair
    for k, order in enumerate(terms.orders, FIRST_ORDER):
        best = np.maximum(best, _pure_within(order, room[:, k], halvings))
    return np.where(taken[:, DELTA0] <= caps[DELTA0], best, 0.0)


def _pure_within(order: int, room: Reals, halvings: int) -> Reals:
    """Return the largest ε whose Rényi divergence at this order is at most `room`; 0 without room."""
    low = np.maximum(room, 0)  # no divergence exceeds ε
    # It is at least ε - ln 2 / (order - 1).
    high = low + np.log(2) / (order - 1)
    for _ in range(halvings):
        middle = (low + high) / 2
        fits = _divergence(order, middle) <= room
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(room >= 0, low, 0.0)


def _divergence(order: int, epsilon: Reals) -> Reals:
    """Return the Rényi divergence of randomized response, which is the worst of all pure ε mechanisms."""
    less = np.log1p(np.exp(-(2 * order - 1) * epsilon)) - np.log1p(np.exp(-epsilon))
    return epsilon + less / (order - 1)


def remaining_exactly(terms: Terms, sums: Iterable[Costs]) -> dict[Costs, Fraction]:
    """Return `Terms.largest_pure` of all these sums, each computed once."""
    different = list(dict.fromkeys(sums))
    if not different:
        return {}
    guesses = estimate_remaining(terms, np.array(different, np.int64))
    return {
        taken: _confirmed(terms, taken, int(guess * EPSILON_UNIT))
        for taken, guess in zip(different, guesses.tolist(), strict=True)
    }


def _confirmed(terms: Terms, taken: Costs, guess: int) -> Fraction:
    def fits(units: int) -> bool:
        return terms.after(taken, terms.price(Pure(Fraction(units, EPSILON_UNIT)))) is not None

    units = max(guess, 0)
    for _ in range(NEARBY):
        if fits(units + 1):
            units += 1
        elif units and not fits(units):
            units -= 1
        else:
            return Fraction(units, EPSILON_UNIT)
    return terms.largest_pure(taken)


NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class BlockRemainder:
    """The remaining budget of one block."""

    label: str
    account: int
    is_open: bool  # otherwise it was lost, and counts as spent
    epsilon: Fraction  # the largest pure ε that a next question could spend
    delta: Fraction  # the largest probability of failure that it may have
    epsilon_after_lapse: Fraction  # the same ε, if all that is held lapsed
    epsilon_at_first: Fraction  # the same ε, when nothing was spent
    delta_at_first: Fraction  # the same δ, when nothing was spent: a share of the account's


@dataclass(frozen=True, slots=True)
class FamilyOverview:
    """An account and its raises. They protect the same people, so their (ε, δ) add up."""

    label: str
    unit: str
    relation: str
    slices: str
    rule: str
    accounts: tuple[tuple[int, Fraction, Fraction], ...]  # number, ε, δ; the first, then each raise
    blocks: tuple[BlockRemainder, ...]
    reservations: tuple[int, ...]  # those that are open
    part_of: str = ""  # the account that is charged with everything that this one is
    is_used: bool = True

    @property
    def adds(self) -> bool:
        """True if its losses add to those of other accounts."""
        return self.is_used and not self.part_of

    @property
    def in_periods(self) -> tuple[tuple[int, Fraction, Fraction], ...]:
        """The (count, ε, δ) of a person in several periods, if units are sliced by periods."""
        periods = sum(block.label != EVERYONE for block in self.blocks)
        return worst_cases(self.total, periods) if self.slices == Slices.PERIODS.value else ()

    @property
    def total(self) -> Pair:
        """The lifetime guarantee for one unit: the sum if the account was raised."""
        return total_of(self.accounts)

    @property
    def set_aside(self) -> DeltaShares:
        """The shares into which δ is divided."""
        return DeltaShares.of(self.total[1])


@dataclass(frozen=True, slots=True)
class DataSetOverview:
    """A data set, and all accounts that its releases are charged to."""

    label: str
    version: int
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerOverview:
    """The remainders of all accounts, and every exception that the curator signed."""

    ledger: str
    families: tuple[FamilyOverview, ...]
    not_shown: tuple[str, ...]  # other accounts whose losses add, and which may hold the same people
    data_sets: tuple[DataSetOverview, ...]
    declared: tuple[LogLine, ...]


def overview(ledger: Ledger, account: str | None = None) -> LedgerOverview:
    """Return the remaining budget of all accounts, or of one, as of one snapshot.

    After a part comes the account that it is a part of: that one says what the people lose, and the least
    that is left in both is what a next question can spend.
    """
    wanted = None if account is None else ledger.account(account).number

    def work(tx: Transaction) -> LedgerOverview:
        families: dict[int, list[Account]] = {}
        for opened in accounts_where(tx):
            families.setdefault(opened.root, []).append(opened)
        labels = {root: accounts[0].label for root, accounts in families.items()}
        charged = _charged(tx, ledger) if len(families) > 1 else None
        shown = []
        roots = list(families) if wanted is None else _with_wholes(wanted, charged)
        for root in roots:
            shown.append(_family(tx, families[root]))
            if charged is not None:
                part, is_used = charged.part_of(root), root in charged.together
                shown[-1] = replace(shown[-1], part_of=labels[part] if part else "", is_used=is_used)
        others = [
            label
            for root, label in labels.items()
            if root not in roots
            and charged is not None
            and root in charged.together
            and charged.part_of(root) is None
        ]
        data_sets, declared = _data_sets(tx, labels, wanted), signed_exceptions(tx)
        return LedgerOverview(ledger.id, tuple(shown), tuple(others), data_sets, declared)

    return ledger.store.read(work)


def _with_wholes(root: int, charged: Registers | None) -> list[int]:
    """Return a family, the one that it is a part of, and so on: each of them is earlier."""
    roots = [root]
    while charged is not None and (whole := charged.part_of(roots[-1])) is not None:
        roots.append(whole)
    return roots


def adding_accounts(ledger: Ledger) -> list[str]:
    """Return the names of the accounts whose losses add: all that are used and no part of another one."""
    registers = ledger.store.read(lambda tx: _charged(tx, ledger))
    roots = [account for account in ledger.accounts() if account.raises is None]
    used = [account for account in roots if account.number in registers.together]
    return [account.label for account in used if registers.part_of(account.number) is None]


def _charged(tx: Transaction, ledger: Ledger) -> Registers:
    """Return what the second accountant knows of accounts that were charged together."""
    state = SignedState.read(tx, ledger.keys.signing.public) or SignedState()
    state.replay.feed(tx.history(state.replay.last))
    return state.replay.registers


def _data_sets(tx: Transaction, labels: dict[int, str], wanted: int | None) -> tuple[DataSetOverview, ...]:
    rows = tx.rows("SELECT label, version, accounts FROM datasets ORDER BY data")
    known = [(label, version, json.loads(roots)) for label, version, roots in rows]
    return tuple(
        DataSetOverview(label, version, tuple([labels[root] for root in roots]))
        for label, version, roots in known
        if wanted is None or wanted in roots
    )


def _family(tx: Transaction, accounts: list[Account]) -> FamilyOverview:
    first = accounts[0]
    owners = {account.number: account for account in accounts}
    numbers = sql_list([account.number for account in accounts])
    held = tx.rows(
        "SELECT DISTINCT reservation FROM reservations "  # noqa: S608 (whole numbers of ours)
        f"WHERE ended = 0 AND account IN ({numbers}) ORDER BY reservation"
    )
    blocks = [block for _, block in look_at(tx.rows, owners.__getitem__, first)]
    return FamilyOverview(
        label=first.label,
        unit=first.unit.value,
        relation=first.relation.value,
        slices=first.slices.value,
        rule=first.rule,
        accounts=tuple(
            [(account.number, account.terms.epsilon, account.terms.delta) for account in accounts]
        ),
        blocks=_left(accounts, blocks),
        reservations=tuple([int(row[0]) for row in held]),
    )


def _left(accounts: list[Account], blocks: list[Block]) -> tuple[BlockRemainder, ...]:
    """Return the remainders, in the order of `blocks`."""
    remainders: dict[int, BlockRemainder] = {}
    for account in accounts:
        terms, number = account.terms, account.number
        mine = [block for block in blocks if block.account == number]
        sums = [costs for block in mine for costs in (block.spent, block.taken(terms))]
        lefts = remaining_exactly(terms, [terms.nothing_spent, *sums])
        at_first = lefts[terms.nothing_spent], terms.largest_delta(terms.nothing_spent)
        for block in mine:
            taken, left = block.taken(terms), (NOTHING, NOTHING, NOTHING)
            if block.is_open:
                left = lefts[taken], terms.largest_delta(taken), lefts[block.spent]
            remainders[block.number] = BlockRemainder(block.label, number, block.is_open, *left, *at_first)
    return tuple([remainders[block.number] for block in blocks])


Watch = Callable[[int], None]
MOST_MOMENTS = 400  # a picture has hardly more columns
FEWEST_MOMENTS = 40
MOST_NUMBERS = 1 << 22  # moments times blocks
HISTORY_HALVINGS = 20  # to a millionth
AT_ONCE = 1 << 14
_TIME = re.compile(rb'"at":"([^"]*)"')
# An event that makes the remainder jump is drawn at its own time, however long the history is.
_EVENT = re.compile(rb'\{"kind":"(?:account|recovered)"')


@dataclass(frozen=True, slots=True)
class BudgetGrant:
    """An (ε, δ) that was granted: when the account was opened, or when it was raised."""

    time: datetime
    epsilon: Fraction
    delta: Fraction
    at_first: float  # the largest pure ε that fits while nothing is spent


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """The remaining budget of each block of an account and its raises, over time."""

    label: str
    times: tuple[datetime, ...]  # never falling; at least one
    blocks: tuple[str, ...]
    left: NDArray[np.float64]  # a row per time, a column per block; NaN before the block was opened
    grants: tuple[BudgetGrant, ...]
    recovered: tuple[datetime, ...]

    @classmethod
    def of(cls, ledger: Ledger, label: str, *, watch: Watch = lambda _: None) -> BudgetHistory:
        """Return the history until now. A long history is sampled as often as a plot can show."""
        root = ledger.account(label)
        return ledger.store.read(lambda tx: _Reader(tx, root, watch).read())


class _Reader:
    """A reader that feeds the accountant, and looks at the blocks of one family from time to time."""

    def __init__(self, tx: Transaction, root: Account, watch: Watch) -> None:
        self._tx, self._root, self._watch = tx, root, watch
        self._accounts = {
            account.number: account for account in accounts_where(tx, "root = ?", root.number)
        }
        self._replay = Replay()
        self._terms: dict[int, Terms] = {}
        # By the accountant's row of a block: its column, which it keeps when it moves; -1 until it has one.
        self._columns = np.zeros(0, np.intp)
        # By column: account, state and sums, as last seen.
        self._seen = np.zeros((0, 2 + WIDTH), np.int64)
        self._left = np.zeros(0)
        self._rows: list[tuple[datetime, NDArray[np.float64]]] = []
        self._grants: list[BudgetGrant] = []
        self._recovered: list[datetime] = []

    def read(self) -> BudgetHistory:
        waiting: list[RawEntry] = []
        now = looked = datetime.min.replace(tzinfo=UTC)
        step = self._step()
        for count, (seq, body, digest) in enumerate(self._tx.history()):
            text = bytes(body)
            is_event = _EVENT.match(text) is not None
            time = max(now, _time_of(text))  # clocks may be set back; history is not
            if is_event or time - looked >= step:
                self._feed(waiting)
                self._look(now)
                looked = now
            now = time
            waiting.append((seq, text, bytes(digest)))
            if is_event:
                self._feed(waiting)
                self._record_event(now, json.loads(text))
                self._look(now)
            elif len(waiting) >= AT_ONCE:
                self._feed(waiting)
                self._watch(count)
        self._feed(waiting)
        self._look(now, always=True)
        return self._result()

    def _step(self) -> timedelta:
        """Return the time between two looks; 0 if every entry can be shown."""
        [(entries, first, last)] = self._tx.rows("SELECT count(*), min(seq), max(seq) FROM entries")
        [(blocks,)] = self._tx.rows("SELECT count(*) FROM blocks WHERE root = ?", self._root.number)
        moments = min(max(MOST_NUMBERS // blocks, FEWEST_MOMENTS), MOST_MOMENTS)
        if entries <= moments:
            return timedelta(0)
        start, end = (
            _time_of(bytes(self._tx.rows("SELECT body FROM entries WHERE seq = ?", seq)[0][0]))
            for seq in (first, last)
        )
        return max((end - start) / int(moments), timedelta(microseconds=1))

    def _feed(self, waiting: list[RawEntry]) -> None:
        self._replay.feed(waiting)
        waiting.clear()

    def _record_event(self, now: datetime, record: dict[str, Any]) -> None:
        if record["kind"] == "recovered":
            self._recovered.extend([now] if self._grants else [])
            return
        account = self._accounts.get(record["account"])
        if account is None:
            return  # of another family
        self._terms[account.number] = account.terms
        self._grants.append(grant_of(account.terms, now))
        moved = np.array(record.get("moved", ()), np.int64).reshape(-1, 2)
        balances = self._replay.balances
        self._make_room()
        self._columns[balances.row(account.everyone)] = 0
        self._columns[balances.find(moved[:, 1])] = self._columns[balances.find(moved[:, 0])]

    def _make_room(self) -> None:
        more = self._replay.balances.numbers.count - len(self._columns)
        self._columns = np.append(self._columns, np.full(more, -1, np.intp))

    def _look(self, now: datetime, *, always: bool = False) -> None:
        """Record the remaining budget, if any of it has changed."""
        if not self._terms:
            return
        self._replay.blocks()  # which brings the books up to date
        balances = self._replay.balances
        terms = {self._replay.accounts[number].place: each for number, each in self._terms.items()}
        rows = np.flatnonzero(np.isin(balances.owners.rows, list(terms)) & (balances.states.rows < MOVED))
        columns = self._columns_of(rows)
        left = np.append(self._left, np.full(len(rows) - len(self._left), np.nan))
        seen = np.zeros((len(rows), self._seen.shape[1]), np.int64)
        seen[columns, 0], seen[columns, 1] = balances.owners.rows[rows], balances.states.rows[rows]
        seen[columns, 2:] = balances.taken(rows)
        known = len(self._seen)
        changed = np.append(np.any(seen[:known] != self._seen, axis=1), np.ones(len(rows) - known, bool))
        for place, each in terms.items():
            some = np.flatnonzero(changed & (seen[:, 0] == place))
            estimates = estimate_remaining(each, seen[some, 2:], halvings=HISTORY_HALVINGS)
            left[some] = np.where(seen[some, 1] == OPEN, estimates, 0.0)
        self._left, self._seen = left, seen
        if always or changed.any():
            self._rows.append((now, left))

    def _columns_of(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        self._make_room()
        fresh = rows[self._columns[rows] < 0]
        self._columns[fresh] = np.arange(len(rows) - len(fresh), len(rows))
        return self._columns[rows]

    def _result(self) -> BudgetHistory:
        table = np.full((len(self._rows), len(self._left)), np.nan)
        for k, (_, left) in enumerate(self._rows):
            table[k, : len(left)] = left
        slices = self._root.slices
        names = [""] * len(self._left)
        labels = self._tx.rows("SELECT block, label FROM blocks WHERE root = ?", self._root.number)
        places = self._replay.balances.find(np.array([number for number, _ in labels], np.int64))
        for column, (_, label) in zip(self._columns[places], labels, strict=True):
            names[column] = block_name(label, slices)
        times, grants = tuple([time for time, _ in self._rows]), tuple(self._grants)
        return BudgetHistory(self._root.label, times, tuple(names), table, grants, tuple(self._recovered))


def grant_of(terms: Terms, time: datetime) -> BudgetGrant:
    """Return the grant of an account that was opened or raised with these terms."""
    nothing = np.array([terms.nothing_spent], np.int64)
    [at_first] = estimate_remaining(terms, nothing, halvings=HISTORY_HALVINGS)
    return BudgetGrant(time, terms.epsilon, terms.delta, float(at_first))


def _time_of(body: bytes) -> datetime:
    match = _TIME.search(body)
    assert match is not None  # the ledger was checked when it was opened
    return datetime.fromisoformat(match[1].decode("ascii"))


# The overview as plain values, for JSON


def overview_json(overview: LedgerOverview) -> dict[str, Any]:
    """Return plain values with stable names. Promises are rounded up, budgets left are rounded down."""
    accounts = sum(family.adds for family in overview.families) + len(overview.not_shown)
    return {
        "ledger": overview.ledger,
        "accounts": [_family_json(family) for family in overview.families],
        "accounts_not_shown": list(overview.not_shown),
        "losses_add": accounts > 1,
        "data_sets": [
            {"name": data.label, "version": data.version, "accounts": list(data.accounts)}
            for data in overview.data_sets
        ],
        "signed_by_curator": [
            {
                "entry": line.number,
                "time": line.time,
                "kind": line.kind,
                "accounts": list(line.accounts),
                "what": line.what,
            }
            for line in overview.declared
            if line.kind != "policy"
        ],
        "changed_after_check": [
            {"entry": line.number, "time": line.time, "accounts": list(line.accounts)}
            for line in overview.declared
            if line.kind == "policy"
        ],
    }


def _family_json(family: FamilyOverview) -> dict[str, Any]:
    epsilon, delta = family.total
    return {
        "account": family.label,
        "unit": family.unit,
        "relation": family.relation,
        "slices": family.slices,
        "rule": family.rule,
        "epsilon": float_up(epsilon),
        "delta": float_up(delta),
        "delta_set_aside": {
            "answers_that_may_fail": float_up(family.set_aside.failures),
            "runs_priced_as_one": float_up(family.set_aside.whole_runs),
            "renyi_filters": float_up(family.set_aside.filters),
        },
        "is_raised": len(family.accounts) > 1,
        "parts": _pairs("number", family.accounts),
        "worst_cases": _pairs("periods", family.in_periods),
        "open_reservations": list(family.reservations),
        "blocks": [
            {
                "block": block.label,
                "part": block.account,
                "is_open": block.is_open,
                "epsilon_left": float_down(block.epsilon),
                "delta_left": float_down(block.delta),
                "epsilon_left_after_lapse": float_down(block.epsilon_after_lapse),
                "epsilon_at_first": float_down(block.epsilon_at_first),
                "delta_at_first": float_down(block.delta_at_first),
            }
            for block in family.blocks
        ],
    }


def _pairs(name: str, several: Iterable[tuple[int, Fraction, Fraction]]) -> list[dict[str, float]]:
    return [{name: number, "epsilon": float_up(e), "delta": float_up(d)} for number, e, d in several]
