"""How far off an answer may be, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from lapwing.core.exact import Number, ball, exact, lower, precision, upper, whole
from lapwing.errors import BadParameter

BITS = 256


def checked_confidence(value: Number) -> Fraction:
    """A confidence level strictly between 0 and 1."""
    level = exact(value, "confidence")
    if not 0 < level < 1:
        raise BadParameter("confidence", "must lie strictly between 0 and 1")
    return level


def miss_of_each(confidence: Fraction, answers: int) -> Fraction:
    """How often each of `answers` independent answers may miss, if all are to hold together.

    1 - confidence^(1/answers), rounded down; from 1 - confidence, which may be tiny.
    """
    count = whole(answers, "answers", at_least=1)
    if count == 1:
        return 1 - confidence
    with precision(BITS):
        return lower(-(ball(confidence - 1).log1p() / count).expm1())


def least_width(tail: Callable[[int], arb], miss: Fraction) -> int:
    """The least w with tail(w) = P[|noise| > w] <= miss: doubling, then halving."""

    def holds(width: int) -> bool:
        with precision(BITS):  # in balls: as a rational, exp(-10^11) would have a trillion digits
            return bool(tail(width) <= ball(miss))

    if holds(0):
        return 0
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def score_gap(rate: Fraction, candidates: int, confidence: Number) -> Fraction:
    """ln(candidates / miss) / rate, rounded up: how far below the best an exponential choice falls."""
    miss = 1 - checked_confidence(confidence)
    with precision(BITS):
        log = upper(ball(whole(candidates, "candidates", at_least=1) / miss).log())
    return Fraction(math.ceil(log / rate * 10**9), 10**9)
