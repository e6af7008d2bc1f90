"""What two answers may differ by at worst, of one honest report: a law of a few pieces.

Proofs are in docs/arguments/shuffle.md. A law that is wider in the convex order is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.exact import exp_up
from lapwing.survey.randomizers.two_level import ODDS

Recipe = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages that one answer sends `one` times, and the other `other` times, as often as the blanket.

    `mass` is how often an honest report of anybody's comes from here in the blanket.
    """

    one: Fraction
    other: Fraction
    mass: Fraction


Law = tuple[Piece, ...]


def general(epsilon0: Fraction) -> Law:
    """Of any ε₀-private randomizer: two pieces of mass 1 / (e^ε₀ + 1)."""
    ratio = exp_up(epsilon0)
    return _opposite(ratio, 1 / (ratio + 1))


def _opposite(ratio: Fraction, mass: Fraction) -> Law:
    return Piece(ratio, Fraction(1), mass), Piece(Fraction(1), ratio, mass)


def two_level(favoured: int, inside: int, all_messages: int, overlap: int) -> Law | None:
    """Of a two-level randomizer whose sets A(v) share at least `overlap` messages with one another.

    None where messages inside are the rare ones: then the pieces would be others.
    """
    rare = Fraction(ODDS - favoured, ODDS * (all_messages - inside))  # of one message outside
    ratio = Fraction(favoured, ODDS * inside) / rare
    if ratio < 1:
        return None
    return (
        *_opposite(ratio, rare * (inside - overlap)),
        Piece(ratio, ratio, rare * overlap),
        Piece(Fraction(1), Fraction(1), rare * (all_messages - 2 * inside + overlap)),
    )


def mixture(parts: Sequence[Recipe]) -> Law | None:
    """One of the recipes at random, all alike, and which one is seen."""
    return _mixed([(Fraction(1, len(parts)), law_of(part)) for part in parts]) if parts else None


def _mixed(laws: Iterable[tuple[Fraction, Law | None]]) -> Law | None:
    """None where the law of a part is not known."""
    pieces: list[Piece] = []
    for share, law in laws:
        if law is None:
            return None
        pieces += [Piece(p.one, p.other, share * p.mass) for p in law]
    return tuple(pieces)


def law_of(recipe: Recipe) -> Law | None:
    """The worst pieces of a randomizer, or None where only the general law is known.

    Several bits and unary messages are such: their pieces are many, and the general law is near.
    """
    known = _KNOWN.get(recipe["kind"])
    return None if known is None else known(recipe)


def _choice(recipe: Recipe) -> Law | None:
    return two_level(recipe["favoured"], 1, recipe["options"], 0)


def _subset(recipe: Recipe) -> Law | None:
    k, d = recipe["options"], recipe["chosen"]
    shared = math.comb(k - 2, d - 2) if d > 1 else 0
    return two_level(recipe["favoured"], math.comb(k - 1, d - 1), math.comb(k, d), shared)


def _hadamard(recipe: Recipe) -> Law | None:
    size = 1 << recipe["bits"]
    return two_level(recipe["favoured"], size // 2, size, size // 4)


def _projective(recipe: Recipe) -> Law | None:
    q, t = recipe["prime"], recipe["dimension"]
    every, orthogonal, to_both = ((q**i - 1) // (q - 1) for i in (t, t - 1, t - 2))
    return two_level(recipe["favoured"], orthogonal, every, to_both)


def _window(recipe: Recipe) -> Law | None:
    width, reach, none = recipe["width"], recipe["steps"] * recipe["stride"], recipe["none"]
    shared = 0 if none else max(0, width - reach)
    return two_level(recipe["favoured"], width, reach + width + none * width, shared)


def _duchi(recipe: Recipe) -> Law | None:
    """Random rounding to an end, then a choice: a mixture of answers reveals no more than they do."""
    return two_level(recipe["favoured"], 1, 2 + recipe["none"], 0)


def _hybrid(recipe: Recipe) -> Law | None:
    share = Fraction(recipe["odds"], ODDS)
    return _mixed([(share, _window(recipe["window"])), (1 - share, _duchi(recipe["duchi"]))])


def _prefixes(recipe: Recipe) -> Law | None:
    return mixture(recipe["inner"])


_KNOWN: dict[str, Callable[[Recipe], Law | None]] = {
    "choice": _choice,
    "subset": _subset,
    "hadamard": _hadamard,
    "projective": _projective,
    "window": _window,
    "duchi": _duchi,
    "hybrid": _hybrid,
    "prefixes": _prefixes,
}
