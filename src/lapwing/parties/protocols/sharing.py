"""Secret sharing: a vector becomes pieces, of which too few tell nothing.

Claim    additive: any pieces but one are independent and uniform, whatever the secret.
         Shamir with threshold k: any k - 1 pieces are independent and uniform, whatever the secret;
         any k pieces give it back; pieces of sums are sums of pieces.
Because  additive: all but the last are drawn, and which one is called last does not matter.
         Shamir: pieces are values at 1, 2, ... of a polynomial of degree k - 1 with the secret at 0; for
         each secret just one such polynomial goes through any k - 1 given values (Lagrange).
Test     parties/protocols/test_sharing.py, by enumeration and against MPyC
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from lapwing.errors import BadParameter
from lapwing.parties.protocols.coins import Coins, Elements
from lapwing.parties.protocols.field import Field


def additive_pieces(field: Field, secret: Elements, pieces: int, coins: Coins) -> list[Elements]:
    """Vectors that add up to the secret."""
    length = len(secret)
    drawn = coins.elements(field.modulus, (pieces - 1) * length).reshape(pieces - 1, length)
    return [field.subtract(secret, field.total(drawn, length)), *drawn]


def shamir_pieces(
    field: Field, secret: Elements, *, threshold: int, members: int, coins: Coins
) -> list[Elements]:
    """One piece for each member: the values at 1 .. members of a polynomial of degree threshold - 1."""
    if not 1 <= threshold <= members < field.modulus:
        raise BadParameter("threshold", "must be 1 to the number of members, which is below the modulus")
    length = len(secret)
    drawn = coins.elements(field.modulus, (threshold - 1) * length).reshape(threshold - 1, length)
    pieces = []
    for point in range(1, members + 1):
        value = np.zeros(length, dtype=np.uint64)
        for coefficient in drawn:
            value = field.multiply(field.add(value, coefficient), point)
        pieces.append(field.add(value, secret))
    return pieces


@lru_cache(maxsize=4096)
def lagrange(field: Field, members: tuple[int, ...], at: int) -> tuple[int, ...]:
    """The weights of the members' pieces in the value at `at` of the polynomial through them."""
    weights = []
    for i in members:
        above = below = 1
        for j in members:
            if j != i:
                above = above * (at - (j + 1)) % field.modulus
                below = below * (i - j) % field.modulus
        weights.append(above * field.inverse(below) % field.modulus)
    return tuple(weights)


def recombine(field: Field, pieces: Mapping[int, Elements], *, threshold: int) -> Elements:
    """The secret, from the first `threshold` pieces by the number of their member."""
    first = _first(pieces, threshold)
    return field.combine(lagrange(field, first, 0), [pieces[i] for i in first])


def off_the_polynomial(field: Field, pieces: Mapping[int, Elements], *, threshold: int) -> tuple[int, ...]:
    """Members whose pieces cannot all be right: nobody, the one that spoils it, or all who may have."""
    if _agree(field, pieces, threshold):
        return ()
    for one in sorted(pieces):
        rest = {i: piece for i, piece in pieces.items() if i != one}
        if len(rest) > threshold and _agree(field, rest, threshold):
            return (one,)
    return tuple(sorted(pieces))


def _agree(field: Field, pieces: Mapping[int, Elements], threshold: int) -> bool:
    first = _first(pieces, threshold)
    base = [pieces[i] for i in first]
    return all(
        np.array_equal(field.combine(lagrange(field, first, i + 1), base), pieces[i])
        for i in sorted(pieces)
        if i not in first
    )


def _first(pieces: Mapping[int, Elements], threshold: int) -> tuple[int, ...]:
    first: Sequence[int] = sorted(pieces)[:threshold]
    if len(first) < threshold:
        raise BadParameter("pieces", f"must be at least {threshold}")
    return tuple(first)
