"""Seals: signed roots of the tree over all entries so far, each naming the one before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from lapwing.ledger.anchors import Head
from lapwing.ledger.keys import SigningKey, good_signature
from lapwing.ledger.proofs.tree import Tree

NOTHING_BEFORE = bytes(32)


def digest_of_seal(
    ledger_id: bytes, *, number: int, last: int, size: int, root: bytes, previous: bytes
) -> bytes:
    """What is signed: the whole history up to `last`, and the seal before."""
    numbers = b"".join(value.to_bytes(8, "big") for value in (number, last, size))
    return hashlib.sha256(b"lapwing seal\x00" + ledger_id + numbers + root + previous).digest()


@dataclass(frozen=True, slots=True)
class Seal:
    """All entries up to number `last` are the leaves of a tree of `size` leaves with this root."""

    number: int
    last: int
    size: int
    root: bytes
    frontier: bytes
    previous: bytes
    digest: bytes
    signature: bytes

    @classmethod
    def after(
        cls, before: Seal | None, leaves: Sequence[tuple[int, bytes]], ledger_id: bytes, signing: SigningKey
    ) -> Seal:
        """The seal that adds (number, digest) leaves to those of the seal before."""
        tree = Tree.restore(before.size, before.frontier) if before else Tree()
        tree.extend([digest for _, digest in leaves])
        number = before.number + 1 if before else 1
        previous = before.digest if before else NOTHING_BEFORE
        last = leaves[-1][0]
        digest = digest_of_seal(
            ledger_id, number=number, last=last, size=tree.size, root=tree.root, previous=previous
        )
        return cls(
            number, last, tree.size, tree.root, tree.frontier, previous, digest, signing.sign(digest)
        )

    @property
    def head(self) -> Head:
        """What anchors keep of it."""
        return Head(self.number, self.last, self.size, self.root, self.previous, self.signature)

    def is_signed_by(self, public: bytes, ledger_id: bytes) -> bool:
        """Whether digest and signature belong to its content."""
        digest = digest_of_seal(
            ledger_id,
            number=self.number,
            last=self.last,
            size=self.size,
            root=self.root,
            previous=self.previous,
        )
        return digest == self.digest and good_signature(public, digest, self.signature)
