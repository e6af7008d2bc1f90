"""Charges and reservations: the only code that moves budgets. Only `lapwing.ledger.gate` may import it.

Claim    all charges on a block pass the account's filter, at every moment and with any number of
         concurrent charges. A charge is on disk before anybody hears of it. Nothing is given back.
Because  one conditional UPDATE decides over all blocks at once, under a lock on their rows, with the
         charge's entry in the same transaction; sums only grow.
Test     tests/ledger/test_gate.py, tests/faults/test_ledger_concurrency.py, test_ledger_crashes.py

A reservation holds budget for long work, whose steps are charged as they begin.

Claim    a reservation never lets more be spent than the filters admitted when it was made, and a part
         that lapses was never spent on anything.
Because  reserved costs count for all other charges as if they were spent. A step moves costs from
         reserved to spent, within the reservation. The rest lapses only if the decision to stop used
         released values alone: then stopping reveals nothing new. A run priced as a whole is spent whole
         at its first step, because its price holds for all of its steps together or not at all.
Test     tests/ledger/test_charging_reservation.py

Claim    no entry's time depends on private rows.
Because  entries that follow work on rows (`answer`, `failed`, `step`, `settle`) repeat the time of their
         charge, which was taken before.
Test     tests/ledger/test_charging_times.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib.metadata import version

from lapwing.config.values import checked_label
from lapwing.core.fixed_run import FixedRun
from lapwing.core.loss_records import describe, losses_within, only_add_remove
from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, Unavailable, WorkEnded
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.entry import (
    Costs,
    Ranges,
    Receipt,
    digest_of,
    encode,
    now,
    request_digest,
    text_of,
    time_in,
)
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.openings import ChangedMeanwhile, OpenedMeanwhile
from lapwing.ledger.request_status import RequestState, hashed_key, status_under_key
from lapwing.ledger.schema import CEILING, COSTS, OPEN, columns, holds, left_after
from lapwing.ledger.spending import Spending, Target, refusal
from lapwing.ledger.store import Debit, DoesNotFit, KeyTaken, Posting, Row, Transaction

TRIES = 20
_UNSLICED = Slices.NONE  # to look up a member of an Enum is a call of Python, too
_new = tuple.__new__  # of named tuples, without a call of Python: see `SqliteStore._commit`
Debits = tuple[Debit, ...]
Posted = tuple[int, bytes]


class AlreadyAnswered(Exception):
    """The request was charged and answered before. It carries the stored answer and its receipt."""

    def __init__(self, answer: bytes, receipt: Receipt) -> None:
        super().__init__()
        self.answer, self.receipt = answer, receipt


def charge(
    ledger: Ledger, spending: Spending, *, principal: str, key: str, shared: bool = False
) -> Receipt:
    """Charge all targets durably, or none. A `shared` key is the same for all principals.

    Raises `OverBudget` (nothing changed). The same key again raises `AlreadyAnswered` with the stored
    answer, `InProgress`, `WorkEnded`, or, for another request, `KeyReused`.
    """
    request = ChargeRequest(ledger, spending, principal=principal, key=key, kind="charge", shared=shared)
    return request.settle()


class ChargeRequest:
    """A charge or a reservation while it is being posted.

    Making one does all checks that are possible before anything is written.
    """

    def __init__(
        self, ledger: Ledger, spending: Spending, *, principal: str, key: str, kind: str, shared: bool
    ) -> None:
        ledger.require_here()
        self.ledger, self.spending, self.principal, self.kind = ledger, spending, principal, kind
        self.shared, self.named = shared, checked_label(key, "key")
        self.roots: list[tuple[Account, Target]] = []  # the accounts as first opened, or as planned
        self.labels = [target.account for target in spending.targets]
        for target in spending.targets:
            account = ledger.account(target.account)
            # A loss about another unit or relation must not be charged here.
            if account.unit is not spending.unit:
                raise BadParameter("unit", f"the account protects one {account.unit.value}")
            if account.relation is not spending.relation:
                raise BadParameter("relation", f"the account's neighbours {account.relation.value}")
            if account.slices is not _UNSLICED:
                if not target.blocks and not target.everyone:
                    raise BadParameter("blocks", "the account is sliced: name blocks, or everyone")
            elif target.blocks:
                raise BadParameter("blocks", "the account has no slices")
            self.roots.append((account, target))
        self.by = ledger.principal(principal)
        self.key = hashed_key("" if shared else self.by, self.named)  # as it stands in the ledger
        self.asked = request_digest(self.named, spending.digest)
        self.price: Callable[[Account], Costs] = spending.costs
        if kind != "charge":
            self.price = partial(Account.costs_of_steps, loss=spending.loss)

    def body(self, debits: Debits, more: str = "") -> bytes:
        """Return the public entry. Most of its text was written when the release was planned."""
        debited = ""
        for number, ranges, costs in debits:
            # As `text_of` would write it, in a fifth of the time.
            blocks = f"[[{ranges[0][0]},{ranges[0][1]}]]" if len(ranges) == 1 else text_of(ranges)
            debited += f"{',' if debited else ''}[{number},{blocks},{_costs_text(costs)}]"
        return (
            f'{{"kind":"{self.kind}","at":"{now()}","by":"{self.by}","key":"{self.key.hex()}",'
            f'"request":"{self.asked}","debits":[{debited}],{self.spending.public},'
            f'"code":"{_code_version()}","session":{self.ledger.store.session}{more}}}'
        ).encode("ascii")

    def _charge_within(self, tx: Transaction, debits: Debits) -> Posted:
        body = self.body(debits)
        seq = tx.debit(Posting.of(body, self.key, debits))
        if self.spending.keeps_request:
            asked = self.spending.asked
            tx.run("INSERT INTO requests (charge, key, asked) VALUES (?, ?, ?)", seq, self.named, asked)
        return seq, body

    def settle(self, post: Callable[[Transaction, Debits], Posted] | None = None) -> Receipt:
        """Post the request until it is decided. Meanwhile its key counts as running in this process.

        `post` posts debits that were looked up in its transaction. Without it the request is a charge.
        """
        ledger, key = self.ledger, self.key
        ledger.running.begin(key)
        try:
            opens = ledger.openings.concern(self.labels) and self._still_opens()
            if post is not None and not self.spending.everyone and not opens:
                self._debits(None)  # found and priced before the write lock is taken; both are cached
            if post is None and (opens or self.spending.everyone or self.spending.keeps_request):
                post = self._charge_within
            for _ in range(TRIES):
                try:
                    if post is not None:
                        seq, body = self._settle_within(post)
                    else:
                        debits = self._debits(None)
                        body = self.body(debits)
                        seq = ledger.store.charge(_new(Posting, (body, digest_of(body), key, debits)))
                    return _new(Receipt, (ledger.id, seq, self.principal, body, None))
                except DoesNotFit:
                    error = refusal(ledger, self.spending.targets, self.spending.loss, self.price)
                    if error is not None:
                        raise error from None
                    # Otherwise it would fit by now: blocks moved to a raised account, or something lapsed.
                except OpenedMeanwhile:
                    self._still_opens()
            raise Unavailable("the accounts kept changing; nothing was charged. Ask again")
        except BaseException as error:
            self._leave(error)
            raise

    def _leave(self, error: BaseException) -> None:
        """End a request that was not charged, and raise the error that the caller is told."""
        self.ledger.running.end(self.key)
        if isinstance(error, ChangedMeanwhile):
            self.ledger.openings.forget_data(self.labels)  # it is planned anew when asked again
            raise Unavailable(
                "other data or accounts came meanwhile. Nothing was charged: ask again"
            ) from None
        if isinstance(error, KeyTaken):
            raise self._outcome() from None

    def _settle_within(self, post: Callable[[Transaction, Debits], Posted]) -> Posted:
        ledger = self.ledger
        if not ledger.openings.concern(self.labels):
            return ledger.store.write(lambda tx: post(tx, self._debits(tx)))
        error = refusal(ledger, self.spending.targets, self.spending.loss, self.price)
        if error is not None:  # before anything is written
            raise KeyTaken if ledger.store.rows(_BY_KEY, self.key) else error
        opened: dict[str, Account] = {}

        def work(tx: Transaction) -> Posted:
            opened.clear()
            opened.update(ledger.openings.write(tx, self.labels, ledger.account))
            return post(tx, self._debits(tx, opened))

        posted = ledger.store.write(work)
        ledger.note_opened(self.labels, opened)
        return posted

    def _still_opens(self) -> bool:
        """Look for what other processes have opened. Return whether something is still planned."""
        self.ledger.forget_planned(self.labels)
        self.roots = [(self.ledger.account(root.label), target) for root, target in self.roots]
        return self.ledger.openings.concern(self.labels)

    def _debits(self, tx: Transaction | None, opened: Mapping[str, Account] | None = None) -> Debits:
        ledger = self.ledger
        debits = []
        for root, target in self.roots:
            if root.number < 0:  # planned
                new = opened.get(root.label) if opened else None
                if new is None or tx is None:
                    raise OpenedMeanwhile
                ranges = ledger.everyone(tx, new) if target.everyone else None
                for number, blocks in ranges or ledger.find_ranges(tx.rows, new, target.blocks):
                    debits.append(_new(Debit, (number, blocks, self.price(new))))
                continue
            if target.everyone:
                assert tx is not None
                current = ledger.everyone(tx, root)
            else:
                current = ledger.current_ranges(root, target.blocks)
            for number, blocks in current:
                account = root if number == root.number else ledger.numbered(number)
                debits.append(_new(Debit, (number, blocks, self.price(account))))
        debits.sort()
        return tuple(debits)

    def _outcome(self) -> Exception:
        """Return the exception that reports the outcome of the earlier request with this key."""
        status = status_under_key(self.ledger, self.key, None if self.shared else self.principal)
        assert status is not None, "entries only grow"
        if status.receipt.request != self.asked:
            return KeyReused()
        if status.state is RequestState.ANSWERED:
            return AlreadyAnswered(status.answer, status.receipt)
        return InProgress() if status.state is RequestState.OPEN else WorkEnded()


@cache
def _code_version() -> str:
    return version("lapwing")


@lru_cache(maxsize=4096)
def _costs_text(costs: Costs) -> str:
    return text_of(costs)


def store_answer(ledger: Ledger, receipt: Receipt, answer: bytes) -> Receipt:
    """Store the answer of a charge durably, before it is returned. A charge has one answer for ever."""
    digest = sha256(answer).hexdigest()
    said = {"charge": receipt.position, "digest": digest, "size": len(answer)}
    body = encode({"kind": "answer", "at": receipt.time, **said})
    ledger.require_here()
    ledger.store.write(lambda tx: _store(tx, receipt.position, answer, body), alone=False)
    ledger.running.end(_key(receipt))
    if ledger.running.unrecorded_failures():
        with suppress(Unavailable):
            _record_failures(ledger)
    return receipt._replace(answer=digest)


def give_up(ledger: Ledger, receipt: Receipt) -> None:
    """Record that a charge has no answer: its work failed, or its answer could not be stored.

    The charge stays. If this cannot be recorded now, this process reports it at once to requests with the
    same key; other processes learn it with the next stored answer, or when this process ends.
    """
    ledger.running.give_up(_key(receipt), receipt.position)
    with suppress(Unavailable):
        _record_failures(ledger)


def _record_failures(ledger: Ledger) -> None:
    for position in ledger.running.unrecorded_failures():

        def work(tx: Transaction, position: int = position) -> None:
            # A commit of unknown outcome may have stored the answer after all.
            if not tx.rows("SELECT 1 FROM answers WHERE charge = ?", position):
                [(charge,)] = tx.rows("SELECT body FROM entries WHERE seq = ?", position)
                at = time_in(bytes(charge))
                _store(tx, position, None, encode({"kind": "failed", "at": at, "charge": position}))

        ledger.store.write(work, alone=False)
        ledger.running.recorded(position)


def _store(tx: Transaction, position: int, answer: bytes | None, body: bytes) -> None:
    entry = tx.append(body)
    tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (?, ?, ?)", position, entry, answer)


def _key(receipt: Receipt) -> bytes:
    return bytes.fromhex(receipt.record["key"])


_BY_KEY = "SELECT 1 FROM entries WHERE key = ?"
_HOLD = ", ".join(f"held_{k} = held_{k} + ?" for k in COSTS)
_FITS = holds(lambda k: f"left_{k} - held_{k} >= ?")
_FULL = " OR ".join(f"held_{k} > {CEILING}" for k in COSTS)  # one more might not fit 64 bits
_RESERVED = (
    f"SELECT account, ranges, ended, steps, {columns('total')}, {columns('used')} FROM reservations "  # noqa: S608
    "WHERE reservation = ? ORDER BY account"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """The costs that a reservation holds in one account."""

    account: Account
    ranges: Ranges
    total: Costs
    used: Costs

    def move(self, costs: Costs) -> Costs | None:
        """Return the reserved costs that a step uses, or None if the reservation has not enough left.

        If the reservation itself exceeded a filter, it did not rely on that filter, so a step may exceed it
        too.
        """
        taken = []
        caps = self.account.terms.caps
        for cost, total, used, cap in zip(costs, self.total, self.used, caps, strict=True):
            if total <= cap and used + cost > total:
                return None
            taken.append(min(cost, total - used))
        return tuple(taken)

    @property
    def left(self) -> Costs:
        return tuple([total - used for total, used in zip(self.total, self.used, strict=True)])


@dataclass(eq=False, repr=False)  # a log that prints it shows no principal
class Reservation:
    """Budget that is reserved for one task.

    It survives a crash: `find_reservation` finds it by its number.
    """

    ledger: Ledger
    receipt: Receipt
    is_fixed: bool

    @property
    def number(self) -> int:
        """The position of the reservation in the ledger, by which it is found again."""
        return self.receipt.position

    def step(self, loss: Loss | None = None) -> None:
        """Charge one step before it begins. A fixed run is spent whole by its one step, without a loss."""
        if (loss is None) != self.is_fixed:
            raise BadParameter(
                "loss", "a fixed run has one step without a loss of its own; others need one"
            )
        if loss is not None and not isinstance(loss, Loss):
            raise BadParameter("loss", "must be a loss")
        adds_or_removes = loss is not None and only_add_remove(loss)
        self.ledger.require_here()

        def work(tx: Transaction) -> None:
            charged: list[list[object]] = []
            for part in _parts(tx, self):
                if adds_or_removes and part.account.relation is not Relation.ADD_REMOVE:
                    raise BadParameter("loss", "holds only if neighbours add or remove a unit")
                costs = part.total if loss is None else part.account.costs(loss)
                if loss is None and any(part.used):
                    raise BadParameter(
                        "loss", "the fixed run was spent by its first step: nothing more to charge"
                    )
                moved = part.move(costs)
                if moved is None:
                    raise OverBudget(
                        "this step", "less of the reservation", "Settle it, and reserve again."
                    )
                _move(tx, self.number, part, spent=costs, moved=moved)
                charged.append([part.account.number, costs])
            tx.run("UPDATE reservations SET steps = steps + 1 WHERE reservation = ?", self.number)
            body = {"kind": "step", "at": self.receipt.time, "reservation": self.number, "costs": charged}
            tx.append(encode(body | {"loss": None if loss is None else describe(loss)}))

        self.ledger.store.write(work)

    def _rows(self) -> list[Row]:
        return self.ledger.store.rows(_RESERVED, self.number)

    @property
    def charged(self) -> int:
        """The number of steps that were charged, by this process and by earlier ones."""
        _, _, _, steps, *_ = self._rows()[0]
        return int(steps)

    def are_charged(self, losses: Sequence[Loss]) -> bool:
        """Return whether exactly these losses were charged: their number, and their sum in each account."""
        width = len(COSTS)
        for number, _, _, steps, *sums in self._rows():
            account = self.ledger.numbered(number)
            costs = [sum(column) for column in zip(*map(account.costs, losses), strict=True)] or [0] * width
            most = zip(costs, sums[:width], strict=True)
            if steps != len(losses) or [min(cost, total) for cost, total in most] != list(sums[width:]):
                return False
        return True

    @property
    def is_settled(self) -> bool:
        """True if the work was settled."""
        return any(ended for _, _, ended, *_ in self._rows())

    @property
    def is_finished(self) -> bool:
        """True if the work was finished, with or without an answer."""
        recorded, ledger = "SELECT 1 FROM answers WHERE charge = ?", self.ledger
        failed = self.number in ledger.running.unrecorded_failures()
        return failed or bool(ledger.store.rows(recorded, self.number))

    def leave(self) -> None:
        """Stop here for now, after an interruption. The same key continues the work."""
        self.ledger.running.end(_key(self.receipt))

    def settle(self, *, stopping_was_decided_from_released_values: bool) -> None:
        """End the work. The rest lapses only if no private value decided to stop here; else it is spent."""
        lapses = stopping_was_decided_from_released_values
        if not isinstance(lapses, bool):
            raise BadParameter("stopping_was_decided_from_released_values", "must be True or False")
        self.ledger.require_here()

        def work(tx: Transaction) -> None:
            for part in _parts(tx, self):
                nothing = (0,) * len(COSTS)
                _move(tx, self.number, part, spent=nothing if lapses else part.left, moved=part.left)
            tx.run("UPDATE reservations SET ended = 1 WHERE reservation = ?", self.number)
            body = {
                "kind": "settle", "at": self.receipt.time, "reservation": self.number, "spent": not lapses
            }  # fmt: skip
            tx.append(encode(body))

        self.ledger.store.write(work)


def reserve(ledger: Ledger, spending: Spending, *, principal: str, key: str) -> Reservation:
    """Reserve a loss on all targets. Nothing is spent yet. It raises as `charge` does."""
    request = ChargeRequest(ledger, spending, principal=principal, key=key, kind="reserve", shared=False)
    fixed = any(isinstance(part, FixedRun) for part in losses_within(spending.loss))

    def post(tx: Transaction, debits: Debits) -> Posted:
        if tx.rows(_BY_KEY, request.key):
            raise KeyTaken
        tx.lock(
            [block for debit in debits for first, last in debit.ranges for block in range(first, last + 1)]
        )
        for debit in debits:
            _hold(tx, debit)
        body = request.body(debits, f',"fixed":{str(fixed).lower()}')
        number = tx.append(body, request.key)
        marks = ", ".join("?" * (6 + 2 * len(COSTS)))
        names = f"reservation, account, ranges, fixed, ended, steps, {columns('total')}, {columns('used')}"
        nothing = (0,) * len(COSTS)
        for debit in debits:
            tx.run(
                f"INSERT INTO reservations ({names}) VALUES ({marks})",  # noqa: S608
                number, debit.account, json.dumps(debit.ranges), int(fixed), 0, 0, *debit.costs, *nothing,
            )  # fmt: skip
        return number, body

    try:
        receipt = request.settle(post)
    except WorkEnded:  # the process that made it is gone, or left it, and it is still held
        [(number,)] = ledger.store.rows("SELECT seq FROM entries WHERE key = ?", request.key)
        reservation = find_reservation(ledger, number, principal=principal)
        if reservation.is_finished:  # its work failed: it is never begun again
            raise
        return reservation
    return Reservation(ledger, receipt, fixed)


def _change_blocks(
    tx: Transaction, sql: str, ranges: Ranges, before: tuple[int, ...], after: tuple[int, ...] = ()
) -> bool:
    """Change the blocks of all ranges, with parameters around each. Return whether all were changed."""
    changed = sum(tx.run(sql, *before, first, last, *after) for first, last in ranges)
    return changed == sum(last - first + 1 for first, last in ranges)


def _hold(tx: Transaction, debit: Debit) -> None:
    # `holds` names the sums in the order δ₀, ε, δ and orders, each once: that is the order of costs.
    sql = (
        f"UPDATE budgets SET {_HOLD} WHERE block BETWEEN ? AND ? AND account = ? AND state = {OPEN} "  # noqa: S608
        f"AND NOT ({_FULL}) AND {_FITS}"
    )
    if _change_blocks(tx, sql, debit.ranges, debit.costs, (debit.account, *debit.costs)):
        return
    for first, last in debit.ranges:
        if tx.rows(f"SELECT 1 FROM budgets WHERE block BETWEEN ? AND ? AND ({_FULL})", first, last):  # noqa: S608
            raise Unavailable("too many reservations are open at once. Nothing is held; settle some first")
    raise DoesNotFit


def find_reservation(ledger: Ledger, number: int, *, principal: str) -> Reservation:
    """Return an earlier reservation of this principal."""
    rows = ledger.store.rows(
        "SELECT body, fixed FROM entries JOIN reservations ON reservation = seq WHERE seq = ? LIMIT 1",
        number,
    )
    if not rows or json.loads(bytes(rows[0][0]))["by"] != ledger.principal(principal):
        raise BadParameter("reservation", "this principal has none of this number")
    return Reservation(ledger, Receipt(ledger.id, number, principal, bytes(rows[0][0])), bool(rows[0][1]))


def _parts(tx: Transaction, reservation: Reservation) -> Sequence[_Part]:
    rows = tx.rows(_RESERVED, reservation.number)
    if not rows or any(ended for _, _, ended, *_ in rows):
        raise BadParameter("reservation", "has ended")
    width, numbered = len(COSTS), reservation.ledger.numbered
    parts = [
        _Part(numbered(account), json.loads(ranges), tuple(sums[:width]), tuple(sums[width:]))
        for account, ranges, _, _, *sums in rows
    ]
    tx.lock(sorted(b for part in parts for first, last in part.ranges for b in range(first, last + 1)))
    return parts


def _move(tx: Transaction, number: int, part: _Part, *, spent: Costs, moved: Costs) -> None:
    """Subtract `moved` from the reserved costs, and add `spent` to the spent costs."""
    used = ", ".join(f"used_{k} = used_{k} + ?" for k in COSTS)
    tx.run(
        f"UPDATE reservations SET {used} WHERE reservation = ? AND account = ?",  # noqa: S608
        *moved, number, part.account.number,
    )  # fmt: skip
    sums = ", ".join(f"held_{k} = held_{k} - ?, left_{k} = {left_after('?', k)}" for k in COSTS)
    costs = tuple([value for k in COSTS for value in (moved[k], spent[k], spent[k])])
    sql = f"UPDATE budgets SET {sums} WHERE block BETWEEN ? AND ? AND state = {OPEN}"  # noqa: S608
    if not _change_blocks(tx, sql, part.ranges, costs):
        raise BadParameter(
            "reservation", "its budget was lost when the ledger was recovered: nothing is reserved"
        )
