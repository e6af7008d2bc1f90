"""The coins with which a device randomizes an answer (`Randomizer.randomize`).

Claim    `Randomizer.randomize` sends every message with exactly the probability that it states.
Because  all randomness is "true with probability T / 2^48" and "uniform below N", both exact: whole
         numbers, drawn again where a number is too large. Nothing is rounded.
Test     tests/survey/test_randomize.py::test_every_branch_together_is_exactly_the_stated_law

The browser does the same in survey/pages/randomize.js, draw by draw. tests/survey/vectors.json fixes for
both which random bytes lead to which message. So the order of the draws in the `draw` methods of
survey/randomizers is part of the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lapwing.core.noise import random_bytes

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
