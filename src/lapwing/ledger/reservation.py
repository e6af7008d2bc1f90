"""Reservations: a cap for long work whose steps are charged as they begin.

Claim    a reservation never lets more be spent than the filters admitted when it was made, and what
         lapses was never spent on anything.
Because  what is held counts for everybody else as if it were spent. A step moves costs from held to
         spent, within the reservation. What is left lapses only if stopping was decided from released
         values alone: then that it stopped tells nothing new. A run priced as a whole is spent whole at
         its first step, since its price holds for all of its steps together or not at all.
Test     tests/ledger/test_reservation.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lapwing.errors import BadParameter, OverBudget, Unavailable, WorkEnded
from lapwing.ledger.charging import Request
from lapwing.ledger.entry import Costs, Ranges, encode, now
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.spending import Spending, only_add_remove
from lapwing.ledger.stores.schema import CEILING, COSTS, OPEN, columns, holds, left_after
from lapwing.ledger.stores.transaction import Debit, DoesNotFit, KeyTaken, Row, Transaction
from lapwing.privacy import FixedRun, Loss, Relation
from lapwing.privacy.describe import describe, parts

_HOLD = ", ".join(f"held_{k} = held_{k} + ?" for k in COSTS)
_FITS = holds(lambda k: f"left_{k} - held_{k} >= ?")
_FULL = " OR ".join(f"held_{k} > {CEILING}" for k in COSTS)  # one more might not fit 64 bits


@dataclass(frozen=True, slots=True)
class Reservation:
    """Budget that is held for one piece of work. It survives a crash: `find` it by its number."""

    ledger: Ledger
    receipt: Receipt
    is_fixed: bool

    @property
    def number(self) -> int:
        """Its position in the ledger."""
        return self.receipt.position


@dataclass(frozen=True, slots=True)
class _Part:
    """What is held in one account."""

    account: int
    ranges: Ranges
    total: Costs
    used: Costs
    caps: Costs

    def move(self, costs: Costs) -> Costs | None:
        """What a step takes of it, or None if it is more than was reserved.

        Where the reservation itself exceeded a filter it did not rely on it, so a step may, too.
        """
        taken = []
        for cost, total, used, cap in zip(costs, self.total, self.used, self.caps, strict=True):
            if total <= cap and used + cost > total:
                return None
            taken.append(min(cost, total - used))
        return tuple(taken)

    @property
    def left(self) -> Costs:
        return tuple([total - used for total, used in zip(self.total, self.used, strict=True)])


def reserve(ledger: Ledger, spending: Spending, *, principal: str, key: str) -> Reservation:
    """Hold a loss on all targets, or raise as `spending.charge` does. Nothing is spent yet."""
    request = Request.of(ledger, spending, principal=principal, key=key, kind="reserve")
    fixed = any(isinstance(part, FixedRun) for part in parts(spending.loss))

    def post_within(tx: Transaction, debits: tuple[Debit, ...]) -> tuple[int, bytes]:
        if tx.rows("SELECT 1 FROM entries WHERE key = ?", request.key):
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
        receipt = request.settle(
            lambda debits: ledger.store.write(lambda tx: post_within(tx, debits)), post_within
        )
    except WorkEnded:  # the process that made it is gone, and it is still held
        [(number,)] = ledger.store.read(
            lambda tx: tx.rows("SELECT seq FROM entries WHERE key = ?", request.key)
        )
        return find(ledger, number, principal=principal)
    return Reservation(ledger, receipt, fixed)


def _hold(tx: Transaction, debit: Debit) -> None:
    wanted = sum(last - first + 1 for first, last in debit.ranges)
    # `holds` names the sums in the order δ₀, ε, δ and orders, each once: that is the order of costs.
    held = sum(
        tx.run(
            f"UPDATE budgets SET {_HOLD} WHERE block BETWEEN ? AND ? AND account = ? AND state = {OPEN} "  # noqa: S608
            f"AND NOT ({_FULL}) AND {_FITS}",
            *debit.costs, first, last, debit.account, *debit.costs,
        )
        for first, last in debit.ranges
    )  # fmt: skip
    if held == wanted:
        return
    for first, last in debit.ranges:
        if tx.rows(f"SELECT 1 FROM budgets WHERE block BETWEEN ? AND ? AND ({_FULL})", first, last):  # noqa: S608
            raise Unavailable("too many reservations are open at once. Nothing is held; settle some first")
    raise DoesNotFit


def find(ledger: Ledger, number: int, *, principal: str) -> Reservation:
    """A reservation that was made before, by the principal who made it."""
    rows = ledger.store.read(
        lambda tx: tx.rows(
            "SELECT body, fixed FROM entries JOIN reservations ON reservation = seq WHERE seq = ? LIMIT 1",
            number,
        )
    )
    if not rows or json.loads(bytes(rows[0][0]))["by"] != ledger.principal(principal):
        raise BadParameter("reservation", "there is none of this number for this principal")
    return Reservation(ledger, Receipt(ledger.id, number, principal, bytes(rows[0][0])), bool(rows[0][1]))


def step(reservation: Reservation, loss: Loss | None = None) -> int:
    """Charge one step before it begins; its position. A fixed run is spent whole by its first step."""
    if (loss is None) != reservation.is_fixed:
        raise BadParameter("loss", "a fixed run has one step without a loss of its own; others need one")
    if loss is not None and not isinstance(loss, Loss):
        raise BadParameter("loss", "must be a loss")
    adds_or_removes = loss is not None and only_add_remove(loss)
    ledger = reservation.ledger
    ledger.require_here()

    def work(tx: Transaction) -> int:
        charged: list[list[object]] = []
        for part in _parts(tx, reservation):
            account = ledger.numbered(part.account)
            if adds_or_removes and account.relation is not Relation.ADD_REMOVE:
                raise BadParameter("loss", "holds only where neighbours add or remove a unit")
            costs = part.total if loss is None else account.costs(loss)
            if loss is None and any(part.used):
                raise BadParameter(
                    "loss", "the fixed run was spent by its first step: nothing more to charge"
                )
            moved = part.move(costs)
            if moved is None:
                raise OverBudget("this step", "less of the reservation", "Settle it, and reserve again.")
            _move(tx, reservation.number, part, spent=costs, moved=moved)
            charged.append([part.account, costs])
        tx.run("UPDATE reservations SET steps = steps + 1 WHERE reservation = ?", reservation.number)
        body = {
            "kind": "step",
            "at": now(),
            "reservation": reservation.number,
            "costs": charged,
            "loss": None if loss is None else describe(loss),
        }
        return tx.append(encode(body))

    return ledger.store.write(work)


def has_begun(reservation: Reservation) -> bool:
    """Whether some step was charged."""
    sql = "SELECT 1 FROM reservations WHERE reservation = ? AND steps > 0 LIMIT 1"
    return bool(reservation.ledger.store.read(lambda tx: tx.rows(sql, reservation.number)))


def is_answered(reservation: Reservation) -> bool:
    """Whether its work was finished, with an answer or without."""
    sql, ledger = "SELECT 1 FROM answers WHERE charge = ?", reservation.ledger
    return reservation.number in ledger.running.given_up() or bool(
        ledger.store.read(lambda tx: tx.rows(sql, reservation.number))
    )


def settle(reservation: Reservation, *, stopping_was_decided_from_released_values: bool) -> None:
    """End a reservation. What is left lapses, or, if private values decided to stop, is spent."""
    lapses = stopping_was_decided_from_released_values
    if not isinstance(lapses, bool):
        raise BadParameter("stopping_was_decided_from_released_values", "must be True or False")
    ledger = reservation.ledger
    ledger.require_here()

    def work(tx: Transaction) -> None:
        for part in _parts(tx, reservation):
            nothing = (0,) * len(COSTS)
            _move(tx, reservation.number, part, spent=nothing if lapses else part.left, moved=part.left)
        tx.run("UPDATE reservations SET ended = 1 WHERE reservation = ?", reservation.number)
        tx.append(
            encode({"kind": "settle", "at": now(), "reservation": reservation.number, "spent": not lapses})
        )

    ledger.store.write(work)


def _parts(tx: Transaction, reservation: Reservation) -> Sequence[_Part]:
    rows: list[Row] = tx.rows(
        f"SELECT account, ranges, ended, {columns('total')}, {columns('used')} FROM reservations "  # noqa: S608
        "WHERE reservation = ? ORDER BY account",
        reservation.number,
    )
    if not rows or any(ended for _, _, ended, *_ in rows):
        raise BadParameter("reservation", "has ended")
    width = len(COSTS)
    found = [
        _Part(
            account,
            json.loads(ranges),
            tuple(sums[:width]),
            tuple(sums[width:]),
            reservation.ledger.numbered(account).terms.caps,
        )
        for account, ranges, _, *sums in rows
    ]
    tx.lock(sorted(b for part in found for first, last in part.ranges for b in range(first, last + 1)))
    return found


def _move(tx: Transaction, number: int, part: _Part, *, spent: Costs, moved: Costs) -> None:
    """Take `moved` out of what is held, and add `spent` to what is spent."""
    used = ", ".join(f"used_{k} = used_{k} + ?" for k in COSTS)
    tx.run(
        f"UPDATE reservations SET {used} WHERE reservation = ? AND account = ?",  # noqa: S608
        *moved, number, part.account,
    )  # fmt: skip
    sums = ", ".join(f"held_{k} = held_{k} - ?, left_{k} = {left_after('?', k)}" for k in COSTS)
    parameters = [value for k in COSTS for value in (moved[k], spent[k], spent[k])]
    changed = sum(
        tx.run(
            f"UPDATE budgets SET {sums} WHERE block BETWEEN ? AND ? AND state = {OPEN}",  # noqa: S608
            *parameters, first, last,
        )
        for first, last in part.ranges
    )  # fmt: skip
    if changed != sum(last - first + 1 for first, last in part.ranges):
        raise BadParameter("reservation", "its budget was lost, and the ledger recovered: nothing is held")
