from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from time import perf_counter

import numpy as np
import pytest
from mpyc import thresha
from mpyc.finfields import GF

from lapwing.errors import BadParameter
from lapwing.parties.protocols.secret_sharing import (
    FIELD,
    Elements,
    Field,
    FreshCoins,
    ProtocolCoins,
)


class GivenCoins(ProtocolCoins):
    """One after another from a list."""

    def __init__(self, drawn: Sequence[int]) -> None:
        self._drawn = list(drawn)

    def elements(self, modulus: int, count: int) -> Elements:
        assert modulus > max(self._drawn, default=0)
        drawn, self._drawn = self._drawn[:count], self._drawn[count:]
        return np.array(drawn, dtype=np.uint64)

    def secret(self) -> bytes:
        raise AssertionError


def one(number: int) -> Elements:
    return np.array([number], dtype=np.uint64)


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("secret", [0, 1, 4])
def test_all_additive_pieces_but_one_are_uniform(members: int, secret: int) -> None:
    field = Field(5)
    dealt = [
        [int(p[0]) for p in field.additive_pieces(one(secret), members, GivenCoins(drawn))]
        for drawn in product(range(5), repeat=members - 1)
    ]
    assert all(sum(pieces) % 5 == secret for pieces in dealt)
    for some in combinations(range(members), members - 1):
        seen = Counter(tuple(pieces[i] for i in some) for pieces in dealt)
        assert len(seen) == 5 ** (members - 1)
        assert set(seen.values()) == {1}


@pytest.mark.parametrize(("threshold", "members"), [(1, 3), (2, 3), (3, 3), (2, 4), (3, 4)])
@pytest.mark.parametrize("secret", [0, 3])
def test_fewer_shamir_pieces_than_the_threshold_are_uniform(
    threshold: int, members: int, secret: int
) -> None:
    field = Field(5)
    dealt = [
        field.shamir_pieces(one(secret), threshold=threshold, members=members, coins=GivenCoins(drawn))
        for drawn in product(range(5), repeat=threshold - 1)
    ]
    for some in combinations(range(members), threshold - 1):
        seen = Counter(tuple(int(pieces[i][0]) for i in some) for pieces in dealt)
        assert len(seen) == 5 ** (threshold - 1)
        assert set(seen.values()) == {1}
    for pieces, some in product(dealt, combinations(range(members), threshold)):
        assert field.reconstruct({i: pieces[i] for i in some}, threshold=threshold).tolist() == [secret]


@pytest.mark.parametrize(("threshold", "members"), [(1, 1), (2, 3), (5, 10), (15, 30)])
def test_pieces_are_those_of_mpyc_and_recombine_with_either(threshold: int, members: int) -> None:
    field, theirs = Field(FIELD), GF(FIELD)
    secret = FreshCoins().elements(FIELD, 20)
    ours = field.shamir_pieces(secret, threshold=threshold, members=members, coins=FreshCoins())
    some = list(range(members))[-threshold:]
    points = [(i + 1, [int(n) for n in ours[i]]) for i in some]
    assert [int(n) % FIELD for n in thresha.recombine(theirs, points)] == secret.tolist()
    split = thresha.random_split(theirs, [theirs(int(n)) for n in secret], threshold - 1, members)
    pieces = {i: np.array([int(n) for n in split[i]], dtype=np.uint64) for i in some}
    assert field.reconstruct(pieces, threshold=threshold).tolist() == secret.tolist()


def test_pieces_of_sums_are_sums_of_pieces() -> None:
    field = Field(FIELD)
    secrets = [FreshCoins().elements(FIELD, 5) for _ in range(3)]
    dealt = [field.shamir_pieces(s, threshold=2, members=3, coins=FreshCoins()) for s in secrets]
    sums = {i: field.total([pieces[i] for pieces in dealt], 5) for i in range(3)}
    assert field.reconstruct(sums, threshold=2).tolist() == field.total(secrets, 5).tolist()


def test_a_piece_off_the_polynomial_is_found_and_named_where_that_can_be() -> None:
    field = Field(FIELD)
    secret = FreshCoins().elements(FIELD, 4)
    dealt = field.shamir_pieces(secret, threshold=2, members=5, coins=FreshCoins())
    pieces = dict(enumerate(dealt))
    assert field.inconsistent_members(pieces, threshold=2) == ()
    for liar in range(5):
        wrong = pieces | {liar: field.add(pieces[liar], np.array([0, 0, 1, 0], dtype=np.uint64))}
        assert field.inconsistent_members(wrong, threshold=2) == (liar,)
        three = {i: wrong[i] for i in (liar, (liar + 1) % 5, (liar + 2) % 5)}
        assert field.inconsistent_members(three, threshold=2) == tuple(sorted(three)), "any of them may be"
        two = {i: wrong[i] for i in (liar, (liar + 1) % 5)}
        assert field.inconsistent_members(two, threshold=2) == (), "nothing to compare with"


@pytest.mark.parametrize(("threshold", "members", "modulus"), [(0, 3, FIELD), (4, 3, FIELD), (2, 5, 5)])
def test_impossible_sharings_are_refused(threshold: int, members: int, modulus: int) -> None:
    with pytest.raises(BadParameter):
        Field(modulus).shamir_pieces(one(1), threshold=threshold, members=members, coins=FreshCoins())


def test_too_few_pieces_do_not_recombine() -> None:
    with pytest.raises(BadParameter):
        Field(FIELD).reconstruct({0: one(1)}, threshold=2)


@pytest.mark.slow
def test_sharing_is_faster_than_mpycs() -> None:
    """10,000 numbers among 3: about 20 times faster; four times leaves room for a busy machine."""
    field, theirs = Field(FIELD), GF(FIELD)
    secret = FreshCoins().elements(FIELD, 10_000)
    plain = [int(n) for n in secret]

    def seconds(work: object) -> float:
        assert callable(work)
        times = []
        for _ in range(5):
            begun = perf_counter()
            work()
            times.append(perf_counter() - begun)
        return sorted(times)[2]

    ours = seconds(lambda: field.shamir_pieces(secret, threshold=2, members=3, coins=FreshCoins()))
    assert 4 * ours < seconds(lambda: thresha.random_split(theirs, plain, 1, 3))
