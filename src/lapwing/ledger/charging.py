"""Charges: the only way to spend. Nothing but `lapwing.gate` may import this module.

Claim    whatever was charged on a block passes the account's filter, at every moment and for whoever
         spends at the same time; a charge is on disk before anybody hears of it; nothing gives back.
Because  one conditional UPDATE decides over all blocks at once, under a lock on their rows, with the
         charge's entry in the same transaction; sums only grow.
Test     tests/gate/test_gate.py, tests/faults/test_ledger_concurrency.py, test_ledger_crashes.py
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib.metadata import version

from lapwing.errors import BadParameter, InProgress, KeyReused, Unavailable, WorkEnded
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.earlier import State, found_under, hashed_key
from lapwing.ledger.entry import Costs, checked_label, digest_of, encode, now, request_digest, text_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.refusal import refusal
from lapwing.ledger.spending import Spending, Target
from lapwing.ledger.stores.transaction import Debit, DoesNotFit, KeyTaken, Posting, Transaction

TRIES = 20
_UNSLICED = Slices.NONE  # to look up a member of an Enum is a call of Python, too
_new = tuple.__new__  # of named tuples, without a call of Python: see `SqliteStore._commit`
Debits = tuple[Debit, ...]
Posted = tuple[int, bytes]


class Replayed(Exception):
    """The request was charged and answered before: the stored bytes and their receipt."""

    def __init__(self, answer: bytes, receipt: Receipt) -> None:
        super().__init__()
        self.answer = answer
        self.receipt = receipt


def charge(
    ledger: Ledger, spending: Spending, *, principal: str, key: str, shared: bool = False
) -> Receipt:
    """Charge all targets durably, or none. A `shared` key is the same for all principals.

    Raises `OverBudget` (nothing changed). The same key again raises `Replayed` with the stored answer,
    `InProgress`, `WorkEnded`, or, for another request, `KeyReused`.
    """
    request = Request.of(ledger, spending, principal=principal, key=key, kind="charge", shared=shared)
    return request.settle()


@dataclass(slots=True, init=False)
class Request:
    """A charge or a reservation on its way: resolved, tried, refused or done."""

    ledger: Ledger
    spending: Spending
    principal: str
    shared: bool
    by: str
    named: str  # the key
    key: bytes  # as it stands in the ledger
    asked: str
    kind: str
    roots: list[tuple[Account, Target]]  # the accounts as first opened
    price: Callable[[Account], Costs]

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        spending: Spending,
        *,
        principal: str,
        key: str,
        kind: str,
        shared: bool = False,
    ) -> Request:
        """Check everything that can be checked before anything is written."""
        if not ledger.is_here:
            ledger.require_here()
        self = cls()
        self.ledger, self.spending, self.principal, self.kind = ledger, spending, principal, kind
        self.shared, key = shared, checked_label(key, "key")
        self.roots = []
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
        self.by = by = ledger.principal(principal)
        self.key = hashed_key("" if shared else by, key)
        self.named, self.asked = key, request_digest(key, spending.digest)
        is_charge = kind == "charge"
        self.price = spending.costs if is_charge else partial(Account.costs_of_steps, loss=spending.loss)
        return self

    def body(self, debits: Debits, more: str = "") -> bytes:
        """The public entry. Most of its text was written when the spending was planned."""
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

    def settle(
        self,
        post: Callable[[Debits], Posted] | None = None,
        post_within: Callable[[Transaction, Debits], Posted] | None = None,
    ) -> Receipt:
        """Post until it is decided, and know meanwhile that this key is under way.

        `post_within` posts blocks that were looked up in its transaction, `post` those that are named.
        Without them it is a charge.
        """
        ledger, key = self.ledger, self.key
        ledger.running.begin(key)
        try:
            for _ in range(TRIES):
                try:
                    if self.spending.everyone:
                        seq, body = self._settle_within(post_within or self._charge_within)
                    elif post:
                        seq, body = post(self._debits(None))
                    elif self.spending.keeps_request:
                        seq, body = self._settle_within(self._charge_within)
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
            raise Unavailable("the accounts kept changing; nothing was charged. Ask again")
        except BaseException as error:
            ledger.running.end(key)
            if isinstance(error, KeyTaken):
                raise self._outcome() from None
            raise

    def _settle_within(self, post_within: Callable[[Transaction, Debits], Posted]) -> Posted:
        return self.ledger.store.write(lambda tx: post_within(tx, self._debits(tx)))

    def _debits(self, tx: Transaction | None) -> Debits:
        ledger = self.ledger
        debits = []
        for root, target in self.roots:
            if target.everyone:
                assert tx is not None
                found = ledger.everyone(tx, root)
            else:
                found = ledger.current_ranges(root, target.blocks)
            for number, ranges in found:
                account = root if number == root.number else ledger.numbered(number)
                debits.append(_new(Debit, (number, ranges, self.price(account))))
        debits.sort()
        return tuple(debits)

    def _outcome(self) -> Exception:
        """What became of the earlier request with this key."""
        found = found_under(self.ledger, self.key, None if self.shared else self.principal)
        assert found is not None, "entries only grow"
        if found.receipt.request != self.asked:
            return KeyReused()
        if found.state is State.ANSWERED:
            return Replayed(found.answer, found.receipt)
        return InProgress() if found.state is State.OPEN else WorkEnded()


@cache
def _code_version() -> str:
    return version("lapwing")


@lru_cache(maxsize=4096)
def _costs_text(costs: Costs) -> str:
    return text_of(costs)


def store_answer(ledger: Ledger, receipt: Receipt, answer: bytes) -> Receipt:
    """Store the answer of a charge, durably, before it leaves. There is one, for ever."""
    digest = sha256(answer).hexdigest()
    body = encode(
        {"kind": "answer", "at": now(), "charge": receipt.position, "digest": digest, "size": len(answer)}
    )
    ledger.require_here()
    ledger.store.write(lambda tx: _store(tx, receipt.position, answer, body), alone=False)
    ledger.running.end(_key(receipt))
    if ledger.running.given_up():
        with suppress(Unavailable):
            _record_failures(ledger)
    return receipt._replace(answer=digest)


def give_up(ledger: Ledger, receipt: Receipt) -> None:
    """No answer will come, and the charge stays: its work failed, or its answer could not be stored.

    Where that cannot be stored either, this process says so at once to whoever asks with the key, and
    others learn it with the next answer that is stored, or when this process ends.
    """
    ledger.running.give_up(_key(receipt), receipt.position)
    with suppress(Unavailable):
        _record_failures(ledger)


def _record_failures(ledger: Ledger) -> None:
    for position in ledger.running.given_up():
        body = encode({"kind": "failed", "at": now(), "charge": position})

        def work(tx: Transaction, position: int = position, body: bytes = body) -> None:
            # A commit of unknown outcome may have stored the answer after all.
            if not tx.rows("SELECT 1 FROM answers WHERE charge = ?", position):
                _store(tx, position, None, body)

        ledger.store.write(work, alone=False)
        ledger.running.recorded(position)


def _store(tx: Transaction, position: int, answer: bytes | None, body: bytes) -> None:
    entry = tx.append(body)
    tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (?, ?, ?)", position, entry, answer)


def _key(receipt: Receipt) -> bytes:
    return bytes.fromhex(receipt.record["key"])
