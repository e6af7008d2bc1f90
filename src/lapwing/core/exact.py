"""Exact numbers: rationals in, rigorous balls and safely rounded rationals out.

A *ball* is an interval with a rigorous radius (`flint.arb`). A *real* is a number known to any
precision: a function from a precision in bits to a ball that contains it. Everything that decides
about privacy is a `Fraction`, or a real that is rounded in a direction which its name says.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Rational

import numpy as np
from flint import arb, ctx, fmpq

from lapwing.errors import BadParameter

Number = int | float | str | Fraction | Decimal
Real = Callable[[int], arb]

_DIGITS_AT_MOST = 4000
_EXPONENT_AT_MOST = 4000


class _PrecisionLock:
    """The lock around the precision. A forked child gets a new one: the old may be held for ever."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()


_precision_lock = _PrecisionLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute balls with `bits` bits. The setting is one per process, hence the lock."""
    with _precision_lock.lock:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def exact(value: Number, name: str = "value") -> Fraction:
    """The rational that a person means by `value`: 0.1 is one tenth, not the float near it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Rational):
        raise BadParameter(name, "must be a number (int, float, Fraction, Decimal or decimal text)")
    if isinstance(value, Rational):
        # A Fraction may hold numpy integers, which wrap round; plain ones do not.
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float) and not math.isfinite(value):
        raise BadParameter(name, "must be finite")
    text = repr(value) if isinstance(value, float) else str(value)
    if len(text) > _DIGITS_AT_MOST:
        raise BadParameter(name, "has too many digits")
    try:
        # A short text can name a number with a billion digits: 1e999999999.
        exponent = int(text.lower().partition("e")[2] or 0)
        number = Fraction(text) if abs(exponent) <= _EXPONENT_AT_MOST else None
    except (ValueError, ZeroDivisionError):
        raise BadParameter(name, "is not a finite number") from None
    if number is None:
        raise BadParameter(name, "is too large or too small to be meant")
    return number


def positive(value: Number, name: str) -> Fraction:
    """`value` as an exact rational above zero."""
    number = exact(value, name)
    if number <= 0:
        raise BadParameter(name, "must be above 0")
    return number


def whole(value: int | Fraction, name: str, *, at_least: int = 0) -> int:
    """`value` as a Python integer that is at least `at_least`. A rational must be whole already."""
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value.numerator)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadParameter(name, "must be a whole number")
    if value < at_least:
        raise BadParameter(name, f"must be at least {at_least}")
    return int(value)


def set_fields(record: object, **checked: int | Fraction | None) -> None:
    """Store checked numbers in a frozen record, as plain integers and rationals.

    Whatever was given (a numpy integer, a float), nothing that is computed from them can wrap round.
    """
    for name, value in checked.items():
        object.__setattr__(record, name, value)


def ball(value: Fraction | int) -> arb:
    """The ball around a rational, at the current precision."""
    if isinstance(value, int):
        return arb(value)
    return arb(fmpq(value.numerator, value.denominator))


def exp_of(exponent: Fraction) -> Real:
    """The real exp(exponent)."""

    def at(bits: int) -> arb:
        with precision(bits):
            return ball(exponent).exp()

    return at


def _dyadic(point: arb) -> Fraction:
    mantissa, power = point.man_exp()
    m, e = int(mantissa), int(power)
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)


def lower(value: arb) -> Fraction:
    """A rational at or below everything in the ball (finite balls only)."""
    return _dyadic(value.lower())


def upper(value: arb) -> Fraction:
    """A rational at or above everything in the ball (finite balls only)."""
    return _dyadic(value.upper())


def round_up(value: arb | Fraction | int, unit: int) -> int:
    """The least whole number of 1/unit that is at or above `value`."""
    top = upper(value) if isinstance(value, arb) else value
    return -(-top.numerator * unit // top.denominator)


def round_down(value: arb | Fraction | int, unit: int) -> int:
    """The greatest whole number of 1/unit that is at or below `value`."""
    bottom = lower(value) if isinstance(value, arb) else value
    return bottom.numerator * unit // bottom.denominator


def log_up(value: Fraction | int) -> Fraction:
    """ln(value), rounded up at the 90th bit or later."""
    with precision(128):
        return upper(ball(value).log())


def exp_up(value: Fraction | int) -> Fraction:
    """exp(value), rounded up at the 90th significant bit or later."""
    with precision(128):
        return upper(ball(value).exp())


def sqrt_up(value: Fraction | int) -> Fraction:
    """sqrt(value), rounded up at the 90th bit or later; exact for squares of rationals."""
    fraction = Fraction(value)
    roots = math.isqrt(fraction.numerator), math.isqrt(fraction.denominator)
    if roots[0] ** 2 == fraction.numerator and roots[1] ** 2 == fraction.denominator:
        return Fraction(*roots)
    with precision(128):
        return upper(ball(value).sqrt())
