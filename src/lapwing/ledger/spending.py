"""Charges: the only way to spend. Nothing but `lapwing.gate` may import this module.

Claim    whatever was charged on a block passes the account's filter, at every moment and for whoever
         spends at the same time; a charge is on disk before anybody hears of it; nothing gives back.
Because  one conditional UPDATE decides over all blocks at once, under a lock on their rows, with the
         charge's entry in the same transaction; sums only grow.
Test     tests/ledger/test_spending.py, tests/faults/test_ledger_concurrency.py, test_ledger_crashes.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.metadata import version

from lapwing.errors import BadParameter, InProgress, KeyReused, Tampered, Unavailable, WorkEnded
from lapwing.ledger.accounts import Account, Slices, Unit
from lapwing.ledger.entry import Costs, checked_label, digest_of, encode, now, ranges_of, text_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.refusal import refusal
from lapwing.ledger.store import Debit, DoesNotFit, KeyTaken, Posting, Transaction
from lapwing.privacy import Loss, Relation, SampledGaussian, Worst
from lapwing.privacy.describe import describe, parts

REQUEST_AT_MOST = 1 << 20
PARAMETERS_AT_MOST = 1 << 14
TRIES = 20


@dataclass(frozen=True, slots=True)
class Target:
    """Blocks of one account, by name. An account without slices has none to name.

    `everyone` charges all blocks, and those that will be opened later: for data whose units are not
    sliced by the account's rule.
    """

    account: str
    blocks: Sequence[str] = ()
    everyone: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", checked_label(self.account, "account"))
        if isinstance(self.blocks, str):
            raise BadParameter("blocks", "must be several names, not one text")
        object.__setattr__(self, "blocks", tuple([checked_label(name, "block") for name in self.blocks]))
        if self.everyone and self.blocks:
            raise BadParameter("blocks", "everyone is charged in all blocks: name none")
        if len(set(self.blocks)) < len(self.blocks):
            raise BadParameter("blocks", "must name each block once")


@dataclass(frozen=True, slots=True)
class Spending:
    """What a release would cost, and whom: fixed before data is read."""

    targets: Sequence[Target]
    loss: Loss
    unit: Unit
    relation: Relation
    mechanism: str
    parameters: Mapping[str, str | int]
    request: bytes
    digest: str = field(init=False)  # the same for the same request only: what, of whom, at which price
    public: str = field(init=False, repr=False)  # how it stands in an entry
    everyone: bool = field(init=False, repr=False)  # whether some target is everyone

    def __post_init__(self) -> None:
        self._check_targets()
        checked_label(self.mechanism, "mechanism")
        if not isinstance(self.loss, Loss):
            raise BadParameter("loss", "must be a loss")
        if self.relation is not Relation.ADD_REMOVE and _only_add_remove(self.loss):
            raise BadParameter("loss", "holds only where neighbours add or remove a unit")
        if not isinstance(self.request, bytes) or len(self.request) > REQUEST_AT_MOST:
            raise BadParameter("request", "must be at most 1 MiB of bytes")
        for name, value in self.parameters.items():
            if not isinstance(name, str) or not isinstance(value, str | int):
                raise BadParameter("parameters", "must be texts and whole numbers by name")
        parameters = text_of(dict(self.parameters))
        if len(parameters) > PARAMETERS_AT_MOST:
            raise BadParameter("parameters", "must be at most 16 KiB")
        public = (
            f'"loss":{_described(self.loss)},"mechanism":{text_of(self.mechanism)},'
            f'"parameters":{parameters},"code":"{_code_version()}"'
        )
        whom = [[target.account, list(target.blocks), target.everyone] for target in self.targets]
        asked = text_of([whom, self.unit.value, self.relation.value, public])
        digest = hashlib.sha256(asked.encode("ascii") + b"\n" + self.request).hexdigest()
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "everyone", any(target.everyone for target in self.targets))
        object.__setattr__(self, "digest", digest)

    def _check_targets(self) -> None:
        object.__setattr__(self, "targets", tuple(self.targets))
        if not self.targets or not all(isinstance(target, Target) for target in self.targets):
            raise BadParameter("targets", "must name at least one account")
        if len({target.account for target in self.targets}) < len(self.targets):
            raise BadParameter("targets", "must name each account once")
        if not isinstance(self.unit, Unit) or not isinstance(self.relation, Relation):
            raise BadParameter("relation", "must be a Relation, and the unit a Unit")


class Replayed(Exception):
    """The request was charged and answered before: the stored bytes and their receipt."""

    def __init__(self, answer: bytes, receipt: Receipt) -> None:
        super().__init__()
        self.answer = answer
        self.receipt = receipt


@lru_cache(maxsize=4096)
def _only_add_remove(loss: Loss) -> bool:
    return any(isinstance(part, Worst | SampledGaussian) for part in parts(loss))


@lru_cache(maxsize=4096)
def _described(loss: Loss) -> str:
    return text_of(describe(loss))


@cache
def _code_version() -> str:
    return version("lapwing")


def charge(ledger: Ledger, spending: Spending, *, principal: str, key: str) -> Receipt:
    """Charge all targets durably, or none.

    Raises `OverBudget` (nothing changed). The same key again raises `Replayed` with the stored answer,
    `InProgress`, `WorkEnded`, or, for another request, `KeyReused`.
    """
    request = Request.of(ledger, spending, principal=principal, key=key, kind="charge")

    def post(debits: tuple[Debit, ...]) -> tuple[int, bytes]:
        body = request.body(debits)
        return ledger.store.charge(Posting.of(body, request.key, debits)), body

    def post_within(tx: Transaction, debits: tuple[Debit, ...]) -> tuple[int, bytes]:
        body = request.body(debits)
        return tx.debit(Posting.of(body, request.key, debits)), body

    return request.settle(post, post_within)


@dataclass(frozen=True, slots=True)
class Request:
    """A charge or a reservation on its way: resolved, tried, refused or done."""

    ledger: Ledger
    spending: Spending
    principal: str
    by: str
    key: bytes
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
        return cls(ledger, spending, principal, by, hashed, kind)

    def body(self, debits: tuple[Debit, ...], more: str = "") -> bytes:
        """The public entry. Most of its text was written when the spending was planned."""
        costs = text_of([[debit.account, debit.ranges, debit.costs] for debit in debits])
        return (
            f'{{"kind":"{self.kind}","at":"{now()}","by":"{self.by}","key":"{self.key.hex()}",'
            f'"request":"{self.spending.digest}","debits":{costs},{self.spending.public},'
            f'"session":{self.ledger.store.session}{more}}}'
        ).encode("ascii")

    def settle(
        self,
        post: Callable[[tuple[Debit, ...]], tuple[int, bytes]],
        post_within: Callable[[Transaction, tuple[Debit, ...]], tuple[int, bytes]],
    ) -> Receipt:
        """Post until it is decided: blocks may move to a raised account while we look."""
        for _ in range(TRIES):
            try:
                if self.spending.everyone:
                    seq, body = self.ledger.store.write(lambda tx: post_within(tx, self._debits(tx)))
                else:
                    seq, body = post(self._debits(None))
            except KeyTaken:
                raise self._outcome() from None
            except DoesNotFit:
                error = refusal(self.ledger, self.spending.targets, self.spending.loss)
                if error is not None:
                    raise error from None
                continue
            return Receipt(self.ledger.id, seq, self.principal, body)
        raise Unavailable("the accounts kept changing; nothing was charged. Ask again")

    def _debits(self, tx: Transaction | None) -> tuple[Debit, ...]:
        if len(self.spending.targets) == 1 and len(self.spending.targets[0].blocks) <= 1 and tx is None:
            return (self._single_debit(),)
        debits: dict[int, list[int]] = {}
        for target in self.spending.targets:
            root = self.ledger.account(target.account)
            if target.everyone:
                assert tx is not None
                found = self.ledger.everyone(tx, root)
            else:
                found = self.ledger.current_blocks(root, target.blocks)
            for account, block in found:
                debits.setdefault(account, []).append(block)
        return tuple(
            Debit(number, ranges_of(blocks), self._costs(self.ledger.numbered(number)))
            for number, blocks in sorted(debits.items())
        )

    def _single_debit(self) -> Debit:
        """One block, as most charges have."""
        [target] = self.spending.targets
        [(account, block)] = self.ledger.current_blocks(self.ledger.account(target.account), target.blocks)
        return Debit(account, [[block, block]], self._costs(self.ledger.numbered(account)))

    def _costs(self, account: Account) -> Costs:
        loss = self.spending.loss
        return account.costs(loss) if self.kind == "charge" else account.costs_of_steps(loss)

    def _outcome(self) -> Exception:
        """What became of the earlier request with this key."""
        found = self._look()
        if isinstance(found, InProgress):
            return found if self._is_alive() else self._look(ended=True)
        return found

    def _is_alive(self) -> bool:
        [(body,)] = self.ledger.store.read(
            lambda tx: tx.rows("SELECT body FROM entries WHERE key = ?", self.key)
        )
        return self.ledger.store.is_alive(int(json.loads(bytes(body))["session"]))

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
        if receipt.request != self.spending.digest:
            return KeyReused()
        if done is None:
            return WorkEnded() if ended else InProgress()
        if answer is None:
            return WorkEnded()
        stored = hashlib.sha256(answer).hexdigest()
        if json.loads(bytes(done)).get("digest") != stored:
            return Tampered([f"the answer to charge {seq} was changed"])
        return Replayed(bytes(answer), replace(receipt, answer=stored))


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
    _finish(ledger, receipt.position, answer, body)
    return replace(receipt, answer=digest)


def store_failure(ledger: Ledger, receipt: Receipt) -> None:
    """No answer will come. The charge stays."""
    _finish(
        ledger, receipt.position, None, encode({"kind": "failed", "at": now(), "charge": receipt.position})
    )


def _finish(ledger: Ledger, charge: int, answer: bytes | None, body: bytes) -> None:
    ledger.require_here()

    def work(tx: Transaction) -> None:
        entry = tx.append(body)
        tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (?, ?, ?)", charge, entry, answer)

    ledger.store.write(work, alone=False)
