"""The spread of noise: how far an answer may be from the truth, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from lapwing.core.exact import Number, ball, inside_unit, least_from, lower, precision, upper, whole

BITS = 256


def checked_confidence(value: Number) -> Fraction:
    """Return a confidence level, or raise BadParameter if it is not strictly between 0 and 1."""
    return inside_unit(value, "confidence")


def miss_of_each(confidence: Fraction, answers: int) -> Fraction:
    """Return the probability with which each of `answers` independent answers may miss its interval.

    Then all intervals hold together with this confidence. It is 1 - confidence^(1/answers), rounded down,
    and computed from 1 - confidence, which may be tiny.
    """
    count = whole(answers, "answers", at_least=1)
    if count == 1:
        return 1 - confidence
    with precision(BITS):
        return lower(-(ball(confidence - 1).log1p() / count).expm1())


def least_width(tail: Callable[[int], arb], miss: Fraction) -> int:
    """Return the least w with tail(w) = P[|noise| > w] <= miss; `tail` is called under `BITS` bits."""

    def holds(width: int) -> bool:
        with precision(BITS):  # in balls: as a rational, exp(-10^11) would have a trillion digits
            return bool(tail(width) <= ball(miss))

    return 0 if holds(0) else least_from(holds)


def score_gap(rate: Fraction, candidates: int, confidence: Number) -> Fraction:
    """Return how far below the best score an exponential choice may fall, with this confidence.

    It is ln(candidates / miss) / rate, rounded up in 1e-9.
    """
    miss = 1 - checked_confidence(confidence)
    with precision(BITS):
        log = upper(ball(whole(candidates, "candidates", at_least=1) / miss).log())
    return Fraction(math.ceil(log / rate * 10**9), 10**9)
