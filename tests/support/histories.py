"""Valid histories of a ledger, written entry by entry without a ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from lapwing.core.budget import Terms
from lapwing.core.loss_records import describe
from lapwing.core.losses import LaplaceNoise, Loss
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import CommittedName, commitment, digest_of, encode
from lapwing.ledger.keys import SigningKey
from lapwing.ledger.seals import NOTHING_BEFORE, MerkleTree, digest_of_seal

AT = "2026-11-15T12:00:00.123456Z"
ADD_REMOVE = "add or remove one unit"
COUNT = LaplaceNoise(Fraction(10), 1)


def name(label: str) -> CommittedName:
    """The same name every time."""
    salt = hashlib.sha256(f"salt {label}".encode()).digest()
    return CommittedName(label, salt, commitment(label, salt))


class History:
    """Bodies in order, under keys that never change. Nothing is checked: tests write wrong ones as well."""

    def __init__(self, seed: bytes = b"ledger", *, begin: bool = True) -> None:
        self.signing = SigningKey(hashlib.sha256(seed).digest())
        self.curator = SigningKey(hashlib.sha256(seed + b" curator").digest())
        self.curator_key = self.curator.public
        self.ledger_id = hashlib.sha256(seed).digest()[:16]
        self.records: list[dict[str, Any]] = []
        self.labels: dict[str, CommittedName] = {}
        self.terms: dict[int, Terms] = {}
        self.next_block = 1
        self._keys = 0
        if begin:
            self.add(
                "genesis", ledger=self.ledger_id.hex(), key=self.signing.public.hex(),
                curator=self.curator.public.hex(), format=1,
            )  # fmt: skip

    # Entries. Each returns its number.

    def add(self, kind: str, **fields: Any) -> int:
        self.records.append({"kind": kind, "at": AT, **fields})
        return len(self.records)

    def id(self, label: str) -> str:
        found = self.labels.setdefault(label, name(label))
        return found.id

    def account(
        self, number: int = 1, *, epsilon: str = "1", delta: str = "1/1000000", slices: str = "units",
        unit: str = "person", relation: str = ADD_REMOVE, raises: int | None = None,
        moved: Sequence[Sequence[int]] = (), label: str = "",
    ) -> int:  # fmt: skip
        terms = Terms.of(Fraction(epsilon), Fraction(delta))
        self.terms[number] = terms
        root = number if raises is None else raises
        fields: dict[str, Any] = {
            "account": number, "name": self.id(label or f"account {root}"), "unit": unit,
            "relation": relation,
            "epsilon": str(terms.epsilon), "delta": str(terms.delta), "orders": terms.orders,
            "caps": terms.caps, "slices": slices, "rule": "by region" if slices != "none" else "",
            "everyone": self.next_block, "raises": raises, "signature": None,
        }  # fmt: skip
        self.next_block += 1 + len(moved)
        if raises is not None:
            fields["moved"] = [list(pair) for pair in moved]
        seq = self.add("account", **fields)
        if raises is not None:
            self.sign(seq)
        return seq

    def sign(self, seq: int) -> None:
        """Let the curator sign an entry."""
        record = self.records[seq - 1]
        record["signature"] = None
        record["signature"] = self.curator.sign(encode(record)).hex()

    def blocks(self, *labels: str, account: int = 1) -> int:
        first = self.next_block
        self.next_block += len(labels)
        return self.add("blocks", account=account, first=first, names=[self.id(label) for label in labels])

    def costs(self, loss: Loss, account: int = 1) -> list[int]:
        terms = self.terms[account]
        return [min(cost, cap + 1) for cost, cap in zip(terms.price(loss).costs, terms.caps, strict=True)]

    def charge(
        self,
        *debits: tuple[int, Sequence[Sequence[int]]],
        loss: Loss = COUNT,
        kind: str = "charge",
        **more: Any,
    ) -> int:
        self._keys += 1
        digest = hashlib.sha256(str(self._keys).encode()).hexdigest()
        fields = {
            "by": self.id("an analyst"), "key": digest, "request": digest,
            "debits": [
                [account, [list(r) for r in ranges], self.costs(loss, account)]
                for account, ranges in debits
            ],
            "loss": describe(loss), "mechanism": "Laplace", "parameters": {"scale": "10"}, "code": "0.1.0",
            "session": 1 << 61,
        }  # fmt: skip
        return self.add(kind, **fields, **more)

    def reserve(self, *debits: tuple[int, Sequence[Sequence[int]]], loss: Loss, fixed: bool = False) -> int:
        return self.charge(*debits, loss=loss, kind="reserve", fixed=fixed)

    def step(self, reservation: int, loss: Loss | None, *accounts: int) -> int:
        debits = self.records[reservation - 1]["debits"]
        if loss is None:
            costs = [[account, total] for account, _, total in debits]
        else:
            costs = [[account, self.costs(loss, account)] for account in accounts or [d[0] for d in debits]]
        return self.add(
            "step", reservation=reservation, costs=costs, loss=None if loss is None else describe(loss)
        )

    def settle(self, reservation: int, *, spent: bool = False) -> int:
        return self.add("settle", reservation=reservation, spent=spent)

    def answer(self, charge: int) -> int:
        return self.add("answer", charge=charge, digest=hashlib.sha256(b"42").hexdigest(), size=2)

    def failed(self, charge: int) -> int:
        return self.add("failed", charge=charge)

    def data(self, number: int, *accounts: int, version: int = 1, differ: Sequence[int] = ()) -> int:
        label = self.id(f"data {number}")
        signed = []
        for account in differ:
            said = {"ledger": self.ledger_id.hex(), "data": label, "account": account, "people": "differ"}
            signed.append([account, self.curator.sign(encode(said)).hex()])
        fields = {
            "data": number, "name": label, "accounts": list(accounts),
            "same_rule": [False] * len(accounts), "version": version, "differ": signed,
        }  # fmt: skip
        if version == 1:
            return self.add("data", **fields, origin=self.id("an origin"), rule="")
        return self.add("version", **fields)

    def recovered(self, lost: int | None = None) -> int:
        seq = self.add(
            "recovered",
            lost=None if lost is None else [lost, hashlib.sha256(b"").hexdigest()],
            signature=None,
        )
        self.sign(seq)
        return seq

    # What readers take

    @property
    def bodies(self) -> list[bytes]:
        return [encode(record) for record in self.records]

    def entries(self) -> list[tuple[int, bytes, bytes]]:
        return [(seq, body, digest_of(body)) for seq, body in enumerate(self.bodies, 1)]

    # What a statement is made from

    @property
    def key(self) -> bytes:
        return self.signing.public

    def heads(self, every: int = 4) -> list[Head]:
        """Seals after every few entries, and after the last."""
        entries = self.entries()
        heads: list[Head] = []
        tree, previous = MerkleTree(), NOTHING_BEFORE
        for seq, _, digest in entries:
            tree.extend([digest])
            if seq % every and seq != entries[-1][0]:
                continue
            head = Head(len(heads) + 1, seq, tree.size, tree.root, previous, bytes(64))
            previous = digest_of_seal(self.ledger_id, head)
            heads.append(replace(head, signature=self.signing.sign(previous)))
        return heads

    def names(self) -> list[CommittedName]:
        return list(self.labels.values())


def long_history() -> History:
    """One of everything."""
    history = History()
    history.account(1)  # everyone is block 1
    history.blocks("north", "south", "west")  # 2, 3, 4
    history.account(2, slices="none", epsilon="2", delta="0", label="another")  # 5
    history.data(1, 1)
    charge = history.charge((1, [[2, 2]]))
    history.answer(charge)
    history.charge((1, [[2, 4]]), (2, [[5, 5]]))
    failed = history.charge((1, [[1, 2], [4, 4]]))
    history.failed(failed)
    held = history.reserve((1, [[2, 3]]), loss=LaplaceNoise(Fraction(5), 2))
    history.step(held, COUNT)
    history.step(held, COUNT)
    history.settle(held)
    whole = history.reserve((1, [[3, 3]]), (2, [[5, 5]]), loss=COUNT, fixed=True)
    history.step(whole, None)
    history.settle(whole, spent=True)
    history.data(1, 1, 2, version=2, differ=[2])
    history.account(3, raises=1, moved=[[2, 7], [3, 8], [4, 9]])  # everyone is block 6
    history.charge((3, [[7, 8]]))
    history.blocks("east")  # 10, in the first account, since everyone spent nothing since
    history.charge((1, [[10, 10]]))
    return history
