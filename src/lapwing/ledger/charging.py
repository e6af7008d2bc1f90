"""Charges: the only way to spend. Nothing but `lapwing.gate` may import this module.

Claim    whatever was charged on a block passes the account's filter, at every moment and for whoever
         spends at the same time; a charge is on disk before anybody hears of it; nothing gives back.
Because  one conditional UPDATE decides over all blocks at once, under a lock on their rows, with the
         charge's entry in the same transaction; sums only grow.
Test     tests/gate/test_gate.py, tests/faults/test_ledger_concurrency.py, test_ledger_crashes.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

from lapwing.errors import BadParameter, InProgress, KeyReused, Tampered, Unavailable, WorkEnded
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.entry import Costs, Ranges, checked_label, digest_of, encode, now
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.refusal import refusal
from lapwing.ledger.spending import Spending, Target
from lapwing.ledger.stores.store import Debit, DoesNotFit, KeyTaken, Posting, Transaction

TRIES = 20
Debits = tuple[Debit, ...]
Posted = tuple[int, bytes]


class Replayed(Exception):
    """The request was charged and answered before: the stored bytes and their receipt."""

    def __init__(self, answer: bytes, receipt: Receipt) -> None:
        super().__init__()
        self.answer = answer
        self.receipt = receipt


def charge(ledger: Ledger, spending: Spending, *, principal: str, key: str) -> Receipt:
    """Charge all targets durably, or none.

    Raises `OverBudget` (nothing changed). The same key again raises `Replayed` with the stored answer,
    `InProgress`, `WorkEnded`, or, for another request, `KeyReused`.
    """
    request = Request.of(ledger, spending, principal=principal, key=key, kind="charge")
    return request.settle(request.charge, request.charge_within)


class Request(NamedTuple):
    """A charge or a reservation on its way: resolved, tried, refused or done."""

    ledger: Ledger
    spending: Spending
    principal: str
    by: str
    key: bytes
    asked: str  # who does not know the key cannot guess the question from it
    kind: str

    @classmethod
    def of(cls, ledger: Ledger, spending: Spending, *, principal: str, key: str, kind: str) -> Request:
        """Check everything that can be checked before anything is written."""
        ledger.require_here()
        key = checked_label(key, "key")
        for target in spending.targets:
            _check(ledger.account(target.account), spending, target)
        by = ledger.principal(principal)
        hashed = hashlib.sha256(f"{by}\n{key}".encode()).digest()
        asked = hashlib.sha256(f"{key}\n{spending.digest}".encode()).hexdigest()
        return cls(ledger, spending, principal, by, hashed, asked, kind)

    def body(self, debits: Debits, more: str = "") -> bytes:
        """The public entry. Most of its text was written when the spending was planned."""
        debited = ",".join([_debit_text(*debit) for debit in debits])
        return (
            f'{{"kind":"{self.kind}","at":"{now()}","by":"{self.by}","key":"{self.key.hex()}",'
            f'"request":"{self.asked}","debits":[{debited}],{self.spending.public},'
            f'"code":"{_code_version()}","session":{self.ledger.store.session}{more}}}'
        ).encode("ascii")

    def charge(self, debits: Debits) -> Posted:
        """Spend, on blocks that are named."""
        body = self.body(debits)
        return self.ledger.store.charge(Posting.of(body, self.key, debits)), body

    def charge_within(self, tx: Transaction, debits: Debits) -> Posted:
        """Spend, on blocks that were looked up in this transaction."""
        body = self.body(debits)
        return tx.debit(Posting.of(body, self.key, debits)), body

    def settle(
        self, post: Callable[[Debits], Posted], post_within: Callable[[Transaction, Debits], Posted]
    ) -> Receipt:
        """Post until it is decided, and know meanwhile that this key is under way."""
        self.ledger.running.begin(self.key)
        try:
            seq, body = self._settled(post, post_within)
        except BaseException as error:
            self.ledger.running.end(self.key)
            if isinstance(error, KeyTaken):
                raise self._outcome() from None
            raise
        return Receipt(self.ledger.id, seq, self.principal, body)

    def _settled(
        self, post: Callable[[Debits], Posted], post_within: Callable[[Transaction, Debits], Posted]
    ) -> Posted:
        for _ in range(TRIES):
            try:
                if self.spending.everyone:
                    return self.ledger.store.write(lambda tx: post_within(tx, self._debits(tx)))
                return post(self._debits(None))
            except DoesNotFit:
                error = refusal(self.ledger, self.spending.targets, self.spending.loss, self._costs)
                if error is not None:
                    raise error from None
                # Otherwise it would fit by now: blocks moved to a raised account, or something lapsed.
        raise Unavailable("the accounts kept changing; nothing was charged. Ask again")

    def _debits(self, tx: Transaction | None) -> Debits:
        ledger = self.ledger
        debits = []
        for target in self.spending.targets:
            root = ledger.account(target.account)
            if target.everyone:
                assert tx is not None
                found = ledger.everyone(tx, root)
            else:
                found = ledger.current_ranges(root, target.blocks)
            for number, ranges in found:
                debits.append(Debit(number, ranges, self._costs(ledger.numbered(number))))
        debits.sort()
        return tuple(debits)

    def _costs(self, account: Account) -> Costs:
        if self.kind == "charge":
            return self.spending.costs(account)
        return account.costs_of_steps(self.spending.loss)

    def _outcome(self) -> Exception:
        """What became of the earlier request with this key."""
        found = self._look()
        if isinstance(found, InProgress):
            return found if self._is_alive() else self._look(ended=True)
        return found

    def _is_alive(self) -> bool:
        store = self.ledger.store
        [(body,)] = store.read(lambda tx: tx.rows("SELECT body FROM entries WHERE key = ?", self.key))
        session = int(json.loads(bytes(body))["session"])
        # In this process we know better than by its session: a charge of unknown outcome was never run.
        return self.key in self.ledger.running if session == store.session else store.is_alive(session)

    def _look(self, *, ended: bool = False) -> Exception:
        rows = self.ledger.store.read(
            lambda tx: tx.rows(
                "SELECT asked.seq, asked.body, asked.digest, done.body, answers.bytes "
                "FROM entries AS asked "
                "LEFT JOIN answers ON answers.charge = asked.seq "
                "LEFT JOIN entries AS done ON done.seq = answers.entry WHERE asked.key = ?",
                self.key,
            )
        )
        seq, body, digest, done, answer = rows[0]
        receipt = Receipt(self.ledger.id, seq, self.principal, bytes(body))
        if digest_of(bytes(body)) != bytes(digest) or receipt.record["key"] != self.key.hex():
            return Tampered([f"entry {seq} was changed"])
        if receipt.request != self.asked:
            return KeyReused()
        if done is None:
            return WorkEnded() if ended else InProgress()
        if answer is None:
            return WorkEnded()
        stored = hashlib.sha256(answer).hexdigest()
        if json.loads(bytes(done)).get("digest") != stored:
            return Tampered([f"the answer to charge {seq} was changed"])
        return Replayed(bytes(answer), receipt._replace(answer=stored))


@cache
def _code_version() -> str:
    return version("lapwing")


def _debit_text(account: int, ranges: Ranges, costs: Costs) -> str:
    """As `text_of` would write it, in a third of the time."""
    blocks = ",".join([f"[{first},{last}]" for first, last in ranges])
    return f"[{account},[{blocks}],[{','.join(map(str, costs))}]]"


def _check(account: Account, spending: Spending, target: Target) -> None:
    """A loss about another unit or relation must not be charged here."""
    if account.unit is not spending.unit:
        raise BadParameter("unit", f"the account protects one {account.unit.value}")
    if account.relation is not spending.relation:
        raise BadParameter("relation", f"the account's neighbours {account.relation.value}")
    if account.slices is Slices.NONE and target.blocks:
        raise BadParameter("blocks", "the account has no slices")
    if account.slices is not Slices.NONE and not target.blocks and not target.everyone:
        raise BadParameter("blocks", "the account is sliced: name blocks, or everyone")


def store_answer(ledger: Ledger, receipt: Receipt, answer: bytes) -> Receipt:
    """Store the answer of a charge, durably, before it leaves. There is one, for ever."""
    digest = hashlib.sha256(answer).hexdigest()
    body = encode(
        {"kind": "answer", "at": now(), "charge": receipt.position, "digest": digest, "size": len(answer)}
    )
    _finish(ledger, receipt, answer, body)
    return receipt._replace(answer=digest)


def store_failure(ledger: Ledger, receipt: Receipt) -> None:
    """No answer will come. The charge stays."""
    body = encode({"kind": "failed", "at": now(), "charge": receipt.position})
    _finish(ledger, receipt, None, body)


def _finish(ledger: Ledger, receipt: Receipt, answer: bytes | None, body: bytes) -> None:
    ledger.require_here()

    def work(tx: Transaction) -> None:
        entry = tx.append(body)
        tx.run(
            "INSERT INTO answers (charge, entry, bytes) VALUES (?, ?, ?)", receipt.position, entry, answer
        )

    ledger.store.write(work, alone=False)
    ledger.running.end(bytes.fromhex(receipt.record["key"]))
