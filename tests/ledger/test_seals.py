"""The tree is that of RFC 6962, and its proofs prove nothing else."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.ledger import seals as module
from lapwing.ledger.seals import MerkleTree, check_inclusion, inclusion_proof


def leaf(number: int) -> bytes:
    return hashlib.sha256(b"\x00%d" % number).digest()


LEAVES = [leaf(number) for number in range(70)]


def split(size: int) -> int:
    """The largest power of two below the size."""
    k = 1
    while 2 * k < size:
        k *= 2
    return k


def naive_root(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_proof(index: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962, 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*naive_proof(index, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_proof(index - k, leaves[k:]), naive_root(leaves[:k])]


def tree_of(leaves: list[bytes]) -> MerkleTree:
    tree = MerkleTree()
    tree.extend(leaves)
    return tree


def test_the_empty_tree_has_the_root_of_nothing() -> None:
    assert MerkleTree().root.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (MerkleTree().size, MerkleTree().frontier) == (0, b"")


def test_the_root_is_that_of_the_published_example() -> None:
    # The eight inputs and the root of the reference tests of Certificate Transparency.
    inputs = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ]
    leaves = [hashlib.sha256(b"\x00" + bytes.fromhex(text)).digest() for text in inputs]
    known = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    assert tree_of(leaves).root.hex() == known


def test_every_root_up_to_70_leaves_is_that_of_the_definition() -> None:
    one_by_one = MerkleTree()
    for size in range(71):
        assert one_by_one.root == tree_of(LEAVES[:size]).root == naive_root(LEAVES[:size])
        assert one_by_one.size == size
        assert len(one_by_one.frontier) == 32 * size.bit_count()
        if size < 70:
            one_by_one.extend([LEAVES[size]])


@given(st.lists(st.integers(0, 90), max_size=6))
def test_it_does_not_matter_in_which_pieces_leaves_come(pieces: list[int]) -> None:
    before = module._AT_ONCE
    module._AT_ONCE = 16  # so that whole batches occur
    try:
        tree, total = MerkleTree(), 0
        for count in pieces:
            tree.extend(leaf(total + number) for number in range(count))
            total += count
            tree = MerkleTree.restore(tree.size, tree.frontier)
        assert tree.size == total
        assert tree.root == naive_root([leaf(number) for number in range(total)])
    finally:
        module._AT_ONCE = before


def test_large_batches_give_the_same_root() -> None:
    leaves = [leaf(number) for number in range(10_000)]
    tree = tree_of(leaves[:5])
    tree.extend(leaves[5:])
    assert tree.root == naive_root(leaves)


@pytest.mark.parametrize(
    ("size", "length"), [(1, 0), (1, 31), (1, 64), (2, 64), (3, 32), (0, 32), (-1, 32)], ids=str
)
def test_a_frontier_of_another_size_is_refused(size: int, length: int) -> None:
    with pytest.raises(BadParameter):
        MerkleTree.restore(size, bytes(length))


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), bytearray(32), "x" * 32], ids=repr)
def test_what_is_no_digest_is_not_added(bad: bytes) -> None:
    tree = tree_of(LEAVES[:3])
    with pytest.raises(BadParameter):
        tree.extend([bad])
    with pytest.raises(BadParameter):
        tree.extend([LEAVES[3], bad])
    assert (tree.size, tree.root) == (3, naive_root(LEAVES[:3]))


def test_every_proof_up_to_70_leaves_is_that_of_the_definition_and_holds() -> None:
    for size in range(1, 71):
        root = naive_root(LEAVES[:size])
        for index in range(size):
            proof = inclusion_proof(LEAVES, index, size)
            assert list(proof) == naive_proof(index, LEAVES[:size])
            assert check_inclusion(LEAVES[index], index, size, proof, root)


def test_a_proof_holds_for_no_other_index_and_no_smaller_or_larger_size_where_the_path_differs() -> None:
    for size in range(1, 18):
        root = naive_root(LEAVES[:size])
        for index in range(size):
            proof = inclusion_proof(LEAVES, index, size)
            for other in range(-1, 36):
                if other != index:
                    assert not check_inclusion(LEAVES[index], other, size, proof, root)
                if other != size and len(inclusion_proof(LEAVES, index, max(other, index + 1))) != len(
                    proof
                ):
                    assert not check_inclusion(LEAVES[index], index, other, proof, root)


@given(st.data(), st.integers(1, 70))
def test_a_forged_proof_does_not_hold(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof, root = list(inclusion_proof(LEAVES, index, size)), naive_root(LEAVES[:size])
    digests = st.one_of(st.sampled_from([*LEAVES, root, *proof]), st.binary(min_size=32, max_size=32))
    forged = data.draw(st.one_of(st.just(proof), st.lists(digests, max_size=8), st.permutations(proof)))
    leaf_ = data.draw(st.one_of(st.just(LEAVES[index]), digests))
    root_ = data.draw(st.one_of(st.just(root), digests))
    held = check_inclusion(leaf_, index, size, forged, root_)
    # A tree of one leaf is its leaf; otherwise there is one true answer.
    assert held == (
        (forged, leaf_, root_) == (proof, LEAVES[index], root)
        or (size == 1 and not forged and leaf_ == root_)
    )


def test_a_node_does_not_pass_for_a_leaf() -> None:
    """Without the size one could hand in the node above as a leaf, with a proof that is one shorter."""
    proof, root = inclusion_proof(LEAVES, 0, 8), naive_root(LEAVES[:8])
    node = naive_root(LEAVES[:2])
    assert not check_inclusion(node, 0, 8, proof[1:], root)
    body = LEAVES[0] + LEAVES[1]
    assert hashlib.sha256(b"\x00" + body).digest() != node


@pytest.mark.parametrize(
    ("index", "size", "proof"),
    [
        (0, 0, ()), (1, 1, ()), (-1, 4, (bytes(32),) * 2), (0, 4, (bytes(31),) * 2),
        (0, 4, ("a" * 32,) * 2), (True, 2, (bytes(32),)), (0.0, 1, ()), (0, 1 << 70, ()),
        (0, 1, (bytes(32),)), (0, None, ()),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_proof_is_not_believed_and_raises_nothing(
    index: int, size: int, proof: tuple[bytes]
) -> None:
    assert not check_inclusion(LEAVES[0], index, size, proof, LEAVES[0])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (-1, 3), (0, 71)], ids=str)
def test_there_is_no_proof_of_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(BadParameter):
        inclusion_proof(LEAVES, index, size)


def test_a_proof_is_made_in_one_pass_and_little_memory() -> None:
    count = 60_000
    read = 0

    def stream() -> Iterator[bytes]:
        nonlocal read
        for number in range(2 * count):
            read += 1
            yield number.to_bytes(32, "big")

    tracemalloc.start()
    proof = inclusion_proof(stream(), 12_345, count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == count
    assert peak < 2**20  # the leaves alone would be 4 MiB
    root = tree_of([number.to_bytes(32, "big") for number in range(count)]).root
    assert check_inclusion((12_345).to_bytes(32, "big"), 12_345, count, proof, root)
