"""Randomize one answer on a device: a randomizer and an answer in, one message out.

Claim    `randomize` sends every message with exactly the probability that the randomizer states.
Because  all randomness is "true with probability T / 2^48" and "uniform below N", both exact: whole
         numbers, drawn again where a number is too large. Nothing is rounded.
Test     tests/survey/test_randomize.py::test_every_branch_together_is_exactly_the_stated_law

The browser does the same in survey/pages/randomize.js, draw by draw. tests/survey/vectors.json fixes for
both which random bytes lead to which message. So the order of the draws here is part of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue
from lapwing.survey.randomizers import (
    BitwiseResponse,
    DuchiResponse,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)
from lapwing.survey.randomizers.masks import MaskMessages
from lapwing.survey.randomizers.projective import numbers_of, vectors_of

_ODDS_BYTES = 6


class CoinSource(Protocol):
    """The two kinds of random draws that every randomizer is made of."""

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


def randomize(randomizer: Randomizer, answer: int, source: CoinSource) -> bytes:
    """Draw the message for an answer. All messages of a randomizer have one size.

    Raises `BadValue` if the answer is not a possible one.
    """
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < randomizer.inputs:
        raise BadValue("an answer must be a whole number that this question knows")
    sent = _KINDS[type(randomizer)](randomizer, answer, source)
    return sent if isinstance(sent, bytes) else sent.to_bytes(randomizer.size, "big")


def _mask(randomizer: MaskMessages, chosen: int) -> bytes:
    return chosen.to_bytes(randomizer.size, "little")  # option j is bit j % 8 of byte j // 8


def _choice(randomizer: KaryResponse, answer: int, source: CoinSource) -> int:
    return _one_of(randomizer.options, randomizer.favoured, answer, source)


def _one_of(options: int, favoured: int, answer: int, source: CoinSource) -> int:
    if source.odds(favoured):
        return answer
    other = source.below(options - 1)
    return other + (other >= answer)


def _subset(randomizer: SubsetSelection, answer: int, source: CoinSource) -> bytes:
    is_true = source.odds(randomizer.favoured)
    wanted, others = randomizer.chosen - is_true, randomizer.options - 1
    taken: set[int] = set()
    for last in range(others - wanted, others):  # Floyd: every set of `wanted` others is equally likely
        drawn = source.below(last + 1)
        taken.add(last if drawn in taken else drawn)
    bits = sum(1 << (other + (other >= answer)) for other in taken)
    return _mask(randomizer, bits | (is_true << answer))


def _hadamard(randomizer: HadamardResponse, answer: int, source: CoinSource) -> int:
    odd = not source.odds(randomizer.favoured)
    row = answer + 1
    drawn = source.below(1 << randomizer.bits)
    # One bit more or less changes the parity.
    return drawn ^ (row & -row) if (drawn & row).bit_count() % 2 != odd else drawn


def _projective(randomizer: ProjectiveResponse, answer: int, source: CoinSource) -> int:
    orthogonal = source.odds(randomizer.favoured)
    q, t = randomizer.prime, randomizer.dimension
    [point] = vectors_of(np.array([answer]), q, t).tolist()
    last = max(j for j in range(t) if point[j])
    inverse = pow(point[last], -1, q)
    while True:
        vector = [source.below(q) for _ in range(t)]
        if orthogonal:
            rest = sum(point[j] * vector[j] for j in range(last))
            vector[last] = -rest * inverse % q
        if any(vector) and (not sum(map(int.__mul__, point, vector)) % q) == orthogonal:
            return int(numbers_of(np.array([vector]), q)[0])


def _bits(randomizer: BitwiseResponse, answer: int, source: CoinSource) -> bytes:
    sent = 0
    for option in range(randomizer.options):
        is_true = source.odds(randomizer.favoured)
        sent |= ((answer >> option & 1) ^ (not is_true)) << option
    return _mask(randomizer, sent)


def _unary(randomizer: UnaryEncoding, answer: int, source: CoinSource) -> bytes:
    sent = 0
    for option in range(randomizer.options):
        sent |= source.odds(randomizer.one if option == answer else randomizer.zero) << option
    return _mask(randomizer, sent)


def _window(randomizer: WindowResponse, answer: int, source: CoinSource) -> int:
    width, none = randomizer.width, answer > randomizer.steps
    start = randomizer.numbers if none else answer * randomizer.stride
    if source.odds(randomizer.favoured):
        return start + source.below(width)
    outside = source.below(randomizer.messages - width)
    return outside + width * (outside >= start)


def _duchi(randomizer: DuchiResponse, answer: int, source: CoinSource) -> int:
    steps = randomizer.steps
    end = 2 if answer > steps else int(source.below(steps) < answer)
    return _one_of(randomizer.messages, randomizer.favoured, end, source)


def _hybrid(randomizer: HybridResponse, answer: int, source: CoinSource) -> bytes:
    wide = source.odds(randomizer.odds)
    inner = randomize(randomizer.window if wide else randomizer.duchi, answer, source)
    return (bytes([wide]) + inner).ljust(randomizer.size, b"\0")


def _prefixes(randomizer: PrefixResponse, answer: int, source: CoinSource) -> bytes:
    level = source.below(len(randomizer.levels))
    [prefix] = randomizer.part_answers(np.array([answer]), level).tolist()
    inner = randomize(randomizer.inner[level], prefix, source)
    return (bytes([level]) + inner).ljust(randomizer.size, b"\0")


_KINDS: Mapping[type[Randomizer], Callable[[Any, int, CoinSource], int | bytes]] = {
    KaryResponse: _choice, SubsetSelection: _subset, HadamardResponse: _hadamard,
    ProjectiveResponse: _projective, BitwiseResponse: _bits, UnaryEncoding: _unary, WindowResponse: _window,
    DuchiResponse: _duchi, HybridResponse: _hybrid, PrefixResponse: _prefixes,
}  # fmt: skip
