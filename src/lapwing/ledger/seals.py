"""Seals: signed roots of a Merkle tree over all entries so far, each naming the seal before.

The Merkle tree only grows: it has one root for the whole history, and short proofs that an entry is in it.
Its form is that of RFC 6962 and RFC 9162, so that other tools can check it. A leaf is already a digest,
sha256(0x00 + body); a node above is sha256(0x01 + left + right). The first byte keeps leaves and nodes
apart: no body can pass for a node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lapwing.core.exact import whole
from lapwing.errors import BadParameter
from lapwing.ledger.anchors import Head
from lapwing.ledger.keys import SigningKey, good_signature

DIGEST_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

_NODE = b"\x01"
_AT_ONCE = 1 << 12
_sha256 = hashlib.sha256


class MerkleTree:
    """A growing Merkle tree, stored as the roots of its full subtrees (peaks), largest first.

    There is one peak for each binary one of the size, so the tree of a million leaves is at most 20
    digests. Threads must not share a tree.
    """

    __slots__ = ("_peaks", "_size")

    def __init__(self) -> None:
        self._size = 0
        self._peaks: list[bytes] = []

    @classmethod
    def restore(cls, size: int, frontier: bytes) -> MerkleTree:
        """Return the tree of this size and frontier. Only its root can show whether they are true."""
        tree = cls()
        tree._size = whole(size, "size")
        if not isinstance(frontier, bytes) or len(frontier) != DIGEST_BYTES * tree._size.bit_count():
            raise BadParameter("frontier", "must be one digest for each binary one of the size")
        starts = range(0, len(frontier), DIGEST_BYTES)
        tree._peaks = [frontier[start : start + DIGEST_BYTES] for start in starts]
        return tree

    @classmethod
    def at_seal(cls, seal: Seal | None) -> MerkleTree:
        """Return the tree that a seal signs; an empty tree without a seal."""
        return cls() if seal is None else cls.restore(seal.size, seal.frontier)

    @property
    def size(self) -> int:
        """The number of leaves."""
        return self._size

    @property
    def frontier(self) -> bytes:
        """The concatenated peaks, from which `restore` continues."""
        return b"".join(self._peaks)

    @property
    def root(self) -> bytes:
        """The digest of all leaves in their order."""
        if not self._peaks:
            return EMPTY_ROOT
        *lefts, root = self._peaks
        for left in reversed(lefts):
            root = _node(left, root)
        return root

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaves. If one is no digest, the leaves from its batch on are not added."""
        waiting = iter(leaves)
        # Batches begin at multiples of their length, so each full one is a subtree of its own.
        while batch := list(islice(waiting, _AT_ONCE - self._size % _AT_ONCE)):
            _require_digests(batch)
            if len(batch) == _AT_ONCE:
                height = 0
                while len(batch) > 1:
                    pair = iter(batch)
                    batch = [
                        _sha256(_NODE + left + right).digest()
                        for left, right in zip(pair, pair, strict=True)
                    ]
                    height += 1
                self._add(batch[0], height)
            else:
                for leaf in batch:
                    self._add(leaf, 0)

    def _add(self, peak: bytes, height: int) -> None:
        """Append a full subtree of 2^height leaves. The size is a multiple of 2^height."""
        before = self._size >> height
        while before & 1:
            peak = _node(self._peaks.pop(), peak)
            before >>= 1
        self._peaks.append(peak)
        self._size += 1 << height


def inclusion_proof(leaves: Iterable[bytes], index: int, size: int) -> tuple[bytes, ...]:
    """Return the proof, from the leaf upwards, that leaf `index` is among the first `size` leaves.

    The leaves are read once and not kept.
    """
    size = whole(size, "size", at_least=1)
    index = whole(index, "index")
    if index >= size:
        raise BadParameter("index", "must be below the size")
    beside = list(_beside(index, size))
    reading = iter(leaves)
    roots: dict[int, bytes] = {}
    # The subtrees beside the path and the leaf itself cover everything once: read them from left to right.
    for start, length in sorted([*beside, (index, 1)]):
        subtree = MerkleTree()
        subtree.extend(islice(reading, length))
        if subtree.size != length:
            raise BadParameter("leaves", "are fewer than the size")
        roots[start] = subtree.root
    return tuple(roots[start] for start, _ in reversed(beside))


def check_inclusion(leaf: bytes, index: int, size: int, proof: Iterable[bytes], root: bytes) -> bool:
    """Return whether the proof shows that `leaf` is number `index` of the `size` leaves under `root`.

    This is the algorithm of RFC 9162, 2.1.3.2. Malformed input returns False. Size and root must come from
    one signed seal: a proof fits several sizes if the path to its leaf is the same in them.
    """
    steps = tuple(proof)
    if not all(isinstance(node, bytes) and len(node) == DIGEST_BYTES for node in (leaf, root, *steps)):
        return False
    if type(index) is not int or type(size) is not int or not 0 <= index < size:
        return False
    here, last, digest = index, size - 1, leaf
    for beside in steps:
        if not last:
            return False
        if here & 1 or here == last:
            digest = _node(beside, digest)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            digest = _node(digest, beside)
        here, last = here >> 1, last >> 1
    return not last and digest == root


def _node(left: bytes, right: bytes) -> bytes:
    return _sha256(_NODE + left + right).digest()


def _beside(index: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each subtree beside the path to a leaf, from the root downwards."""
    start = 0
    while size > 1:
        left = 1 << (size - 1).bit_length() - 1  # the largest power of two below the size
        if index < start + left:
            yield start + left, size - left
            size = left
        else:
            yield start, left
            start, size = start + left, size - left


def _require_digests(leaves: list[bytes]) -> None:
    if set(map(len, leaves)) != {DIGEST_BYTES} or set(map(type, leaves)) != {bytes}:
        raise BadParameter("leaves", f"must be digests of {DIGEST_BYTES} bytes")


NOTHING_BEFORE = bytes(32)


def digest_of_seal(ledger_id: bytes, sealed: Seal | Head) -> bytes:
    """Return the digest that a seal signs. It covers all entries up to `last` and the seal before."""
    numbers = b"".join(value.to_bytes(8, "big") for value in (sealed.number, sealed.last, sealed.size))
    content = ledger_id + numbers + sealed.root + sealed.previous
    return hashlib.sha256(b"lapwing seal\x00" + content).digest()


@dataclass(frozen=True, slots=True)
class Seal:
    """A signed record that all entries up to number `last` are the `size` leaves under this root."""

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
        """Return the seal that adds (number, digest) leaves to those of the seal before."""
        tree = MerkleTree.at_seal(before)
        tree.extend([digest for _, digest in leaves])
        number = before.number + 1 if before else 1
        previous = before.digest if before else NOTHING_BEFORE
        unsigned = cls(number, leaves[-1][0], tree.size, tree.root, tree.frontier, previous, b"", b"")
        digest = digest_of_seal(ledger_id, unsigned)
        return replace(unsigned, digest=digest, signature=signing.sign(digest))

    @property
    def head(self) -> Head:
        """The part of the seal that anchors keep."""
        return Head(self.number, self.last, self.size, self.root, self.previous, self.signature)

    def is_signed_by(self, public: bytes, ledger_id: bytes) -> bool:
        """Return whether digest and signature belong to the content."""
        digest = digest_of_seal(ledger_id, self)
        return digest == self.digest and good_signature(public, digest, self.signature)
