"""Chances and odds in words, for surveys, `explain` and the command line.

An uncertain event is never shown as certain. A bound is rounded to the safe side.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from itertools import count
from math import ceil, floor

EVEN = Fraction(1, 2)


def posterior(prior: Fraction, ratio: Fraction) -> Fraction:
    """Return the belief after an event that is `ratio` times as likely if the belief is true."""
    return ratio * prior / (ratio * prior + 1 - prior)


def posterior_text(ratio: Fraction) -> str:
    """Return how likely one of two equally likely things can become, rounded up and below 100 %.

    What is seen is at most `ratio` times as likely with one of them as with the other.
    """
    for digits in count(1):
        parts = ceil(posterior(EVEN, ratio) * 100 * 10**digits)
        if parts < 100 * 10**digits:
            break
    whole, rest = divmod(parts, 10**digits)
    return f"{whole}.{rest:0{digits}} %"


def percent(chance: Fraction) -> str:
    """Return a chance as a percentage with at most one decimal: 75 %, or less than 0.1 %."""
    tenths = round(chance * 1000)
    if tenths == 0 and chance:
        return "less than 0.1 %"
    if tenths == 1000 and chance != 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %" if tenths % 10 else f"{tenths // 10} %"


def chance_text(chance: Fraction) -> str:
    """Return a chance as 73.1 %, or 1 in 512."""
    if chance < Fraction(1, 100):
        return f"1 in {floor(1 / chance + EVEN):,}" if chance else "none"
    tenths = floor(chance * 1000 + EVEN)
    if tenths >= 1000 and chance < 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %"


def percent_up(share: float) -> str:
    """Return a share in per cent, rounded up, with enough digits to tell it from 0 % and 100 %."""
    return _percent(share, ROUND_CEILING)


def percent_down(share: float) -> str:
    """Return a share in per cent, rounded down, with enough digits to tell it from 0 % and 100 %."""
    return _percent(share, ROUND_FLOOR)


def _percent(share: float, rounding: str) -> str:
    per_cent = Decimal(repr(share)) * 100
    gap = min(abs(per_cent), abs(100 - per_cent)) or Decimal(1)
    digits = min(max(1 - gap.adjusted(), 1), 8)
    text = f"{per_cent.quantize(Decimal(1).scaleb(-digits), rounding):,f}"
    return f"{text.rstrip('0').rstrip('.')} %"


def odds_up(value: Fraction) -> str:
    """Return at least three digits of odds, rounded up."""
    with localcontext(prec=60, rounding=ROUND_CEILING):
        number = Decimal(value.numerator) / Decimal(value.denominator)
        last = number.adjusted() - 2
        if last > 6:
            digits = number.quantize(Decimal(1).scaleb(last))
            return f"{digits:.2e}".replace("e+", "e")
        return f"{number.quantize(Decimal(1).scaleb(min(last, 0))):,f}"
