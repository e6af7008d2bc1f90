"""Randomize one answer on a device: a recipe and an answer in, one message out.

Claim    `randomize` sends every message with exactly the probability that the recipe's randomizer states.
Because  all randomness is "true with probability T / 2^48" and "uniform below N", both exact: whole
         numbers, drawn again where a number is too large. Nothing is rounded.
Test     tests/survey/test_randomize.py::test_every_branch_together_is_exactly_the_stated_law

The browser does the same in survey/pages/throw.js, draw by draw. tests/survey/vectors.json fixes for both
which random bytes lead to which message. So the order of the draws here is part of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue

ODDS = 1 << 48
_ODDS_BYTES = 6
_LETTER_BITS = 5

Recipe = Mapping[str, Any]


class CoinSource(Protocol):
    """The two kinds of random draws that every recipe is made of."""

    def odds(self, of: int) -> bool:
        """Return True with probability of / 2^48."""

    def below(self, bound: int) -> int:
        """Draw 0 .. bound - 1, all equally likely."""


class ByteCoins:
    """Exact draws from a function that gives uniform random bytes."""

    def __init__(self, take: Callable[[int], bytes] = random_bytes) -> None:
        self._take = take

    def odds(self, of: int) -> bool:
        """Return True with probability of / 2^48: six bytes, as one number, are below `of`."""
        return int.from_bytes(self._take(_ODDS_BYTES), "big") < of

    def below(self, bound: int) -> int:
        """Draw 0 .. bound - 1, all equally likely. A number that is too large is drawn again."""
        bits = (bound - 1).bit_length()
        if not bits:
            return 0
        while True:
            drawn = int.from_bytes(self._take(-(-bits // 8)), "big") & ((1 << bits) - 1)
            if drawn < bound:
                return drawn


def randomize(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    """Draw the message for an answer. All messages of a recipe have one size.

    Raises `BadValue` if the answer is not a possible one.
    """
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < answer_count(recipe):
        raise BadValue("an answer must be a whole number that this question knows")
    return _KINDS[recipe["kind"]](recipe, answer, source)


def answer_count(recipe: Recipe) -> int:
    """Return the number of possible answers of a recipe."""
    kind = recipe["kind"]
    if kind == "bits":
        return 1 << int(recipe["options"])
    if kind in ("window", "duchi"):
        return int(recipe["steps"]) + 1 + int(recipe["none"])
    if kind == "hybrid":
        return answer_count(recipe["window"])
    if kind == "prefixes":
        return 1 << _LETTER_BITS * int(recipe["letters"])
    return int(recipe["options"])


def message_count(recipe: Recipe) -> int:
    """Return the number of possible messages, for the kinds that send the number of a message."""
    kind = recipe["kind"]
    if kind == "hadamard":
        return 1 << int(recipe["bits"])
    if kind == "projective":
        q, t = int(recipe["prime"]), int(recipe["dimension"])
        return int((q**t - 1) // (q - 1))
    if kind == "window":
        width = int(recipe["width"])
        return int(recipe["steps"]) * int(recipe["stride"]) + width * (1 + int(recipe["none"]))
    if kind == "duchi":
        return 2 + int(recipe["none"])
    return int(recipe["options"])


def message_size(recipe: Recipe) -> int:
    """Return the bytes of every message of a recipe."""
    kind = recipe["kind"]
    if kind in ("subset", "bits", "unary"):
        return -(-int(recipe["options"]) // 8)
    if kind == "hybrid":
        return 1 + max(message_size(recipe["window"]), message_size(recipe["duchi"]))
    if kind == "prefixes":
        return 1 + max(message_size(inner) for inner in recipe["inner"])
    return max(1, -(-(message_count(recipe) - 1).bit_length() // 8))


def _number(recipe: Recipe, message: int) -> bytes:
    return message.to_bytes(message_size(recipe), "big")


def _mask(recipe: Recipe, chosen: int) -> bytes:
    return chosen.to_bytes(message_size(recipe), "little")  # option j is bit j % 8 of byte j // 8


def _choice(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    return _number(recipe, _one_of(recipe["options"], recipe["favoured"], answer, source))


def _one_of(options: int, favoured: int, answer: int, source: CoinSource) -> int:
    if source.odds(favoured):
        return answer
    other = source.below(options - 1)
    return other + (other >= answer)


def _subset(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    is_true = source.odds(recipe["favoured"])
    wanted, others = recipe["chosen"] - is_true, recipe["options"] - 1
    taken: set[int] = set()
    for last in range(others - wanted, others):  # Floyd: every set of `wanted` others is equally likely
        drawn = source.below(last + 1)
        taken.add(last if drawn in taken else drawn)
    bits = sum(1 << (other + (other >= answer)) for other in taken)
    return _mask(recipe, bits | (is_true << answer))


def _hadamard(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    odd = not source.odds(recipe["favoured"])
    row = answer + 1
    drawn = source.below(1 << recipe["bits"])
    if (drawn & row).bit_count() % 2 != odd:
        drawn ^= row & -row  # one bit more or less changes the parity
    return _number(recipe, drawn)


def _point(q: int, t: int, number: int) -> list[int]:
    """Return the vector of a point, numbered as in randomizers/projective.py."""
    after = max(m for m in range(t) if (q**m - 1) // (q - 1) <= number)
    rest = number - (q**after - 1) // (q - 1)
    return [0] * (t - 1 - after) + [1] + [rest // q**place % q for place in reversed(range(after))]


def _numbered(q: int, vector: list[int]) -> int:
    """Return the number of the point through a vector that is not 0."""
    lead = next(j for j, x in enumerate(vector) if x)
    scale, number = pow(vector[lead], -1, q), 0
    for x in vector[lead + 1 :]:
        number = number * q + x * scale % q
    return int((q ** (len(vector) - 1 - lead) - 1) // (q - 1)) + number


def _projective(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    orthogonal = source.odds(recipe["favoured"])
    q, t = recipe["prime"], recipe["dimension"]
    point = _point(q, t, answer)
    last = max(j for j in range(t) if point[j])
    inverse = pow(point[last], -1, q)
    while True:
        vector = [source.below(q) for _ in range(t)]
        if orthogonal:
            rest = sum(point[j] * vector[j] for j in range(last))
            vector[last] = -rest * inverse % q
        if any(vector) and (not sum(map(int.__mul__, point, vector)) % q) == orthogonal:
            return _number(recipe, _numbered(q, vector))


def _bits(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    sent = 0
    for option in range(recipe["options"]):
        is_true = source.odds(recipe["favoured"])
        sent |= ((answer >> option & 1) ^ (not is_true)) << option
    return _mask(recipe, sent)


def _unary(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    sent = 0
    for option in range(recipe["options"]):
        sent |= source.odds(recipe["one"] if option == answer else recipe["zero"]) << option
    return _mask(recipe, sent)


def _window(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    width = recipe["width"]
    none = answer > recipe["steps"]
    start = message_count(recipe) - width if none else answer * recipe["stride"]
    if source.odds(recipe["favoured"]):
        return _number(recipe, start + source.below(width))
    outside = source.below(message_count(recipe) - width)
    return _number(recipe, outside + width * (outside >= start))


def _duchi(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    steps = recipe["steps"]
    end = 2 if answer > steps else int(source.below(steps) < answer)
    return _number(recipe, _one_of(message_count(recipe), recipe["favoured"], end, source))


def _hybrid(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    wide = source.odds(recipe["odds"])
    inner = randomize(recipe["window" if wide else "duchi"], answer, source)
    return (bytes([wide]) + inner).ljust(message_size(recipe), b"\0")


def _prefixes(recipe: Recipe, answer: int, source: CoinSource) -> bytes:
    level = source.below(len(recipe["levels"]))
    kept = recipe["letters"] - recipe["levels"][level]
    inner = randomize(recipe["inner"][level], answer >> _LETTER_BITS * kept, source)
    return (bytes([level]) + inner).ljust(message_size(recipe), b"\0")


_KINDS: Mapping[str, Callable[[Recipe, int, CoinSource], bytes]] = {
    "choice": _choice, "subset": _subset, "hadamard": _hadamard, "projective": _projective, "bits": _bits,
    "unary": _unary, "window": _window, "duchi": _duchi, "hybrid": _hybrid, "prefixes": _prefixes,
}  # fmt: skip
