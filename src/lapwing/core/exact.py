"""Exact numbers: rationals as input, rigorous balls and safely rounded rationals as output.

A *ball* is an interval with a rigorous radius (`flint.arb`). A *real* is a number known to any
precision: a function that takes a precision in bits and returns a ball that contains the number.
Everything that decides about privacy is a `Fraction`, or a real that is rounded in the direction that
the function's name says (`log_up`, `round_down`).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from numbers import Rational
from typing import Any, TypeVar

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.prices import short as short  # noqa: PLC0414 (the short form of all numbers here)

Number = int | float | str | Fraction | Decimal
Real = Callable[[int], arb]
F = TypeVar("F", float, NDArray[np.float64])

_DIGITS_AT_MOST = 4000
_EXPONENT_AT_MOST = 4000


class _PrecisionLock:
    """The lock around the precision. A forked child gets a new one: nobody would release the old one."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()


_precision_lock = _PrecisionLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute balls with `bits` bits inside the `with` block.

    The setting belongs to the whole process, so other threads wait until the block ends.
    """
    with _precision_lock.lock:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


WRITE_A_NUMBER = 'Write digits, and a point for decimals, as in "0.5"'


def exact(value: Number, name: str = "value") -> Fraction:
    """Return the rational that a person means by `value`: 0.1 is one tenth, not the nearest float.

    Raises BadParameter, under the given name, if `value` is not a finite number of reasonable length.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Rational):
        raise BadParameter(name, "must be a number (int, float, Fraction, Decimal or decimal text)")
    if isinstance(value, Rational):
        # A Fraction may hold numpy integers, which overflow silently; Python's do not.
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float) and not math.isfinite(value):
        raise BadParameter(name, "must be finite")
    text = repr(value) if isinstance(value, float) else str(value)
    if len(text) > _DIGITS_AT_MOST:
        raise BadParameter(name, "has too many digits")
    try:
        if "_" in text or not text.isascii():  # Python reads 1_0 as 10, and the digits of every script
            raise ValueError
        # A short text can stand for a number with a billion digits: 1e999999999.
        exponent = int(text.lower().partition("e")[2] or 0)
        number = Fraction(text) if abs(exponent) <= _EXPONENT_AT_MOST else None
    except (ValueError, ZeroDivisionError):
        now = f". {WRITE_A_NUMBER}" if isinstance(value, str) else ""
        raise BadParameter(name, f"is not a finite number{now}") from None
    if number is None:
        raise BadParameter(name, "is too large or too small to be meant")
    return number


def positive(value: Number, name: str) -> Fraction:
    """Return `value` as an exact rational, or raise BadParameter if it is not above 0."""
    number = exact(value, name)
    if number <= 0:
        raise BadParameter(name, "must be above 0")
    return number


def inside_unit(value: Number, name: str) -> Fraction:
    """Return `value` as an exact rational, or raise BadParameter if it is not strictly between 0 and 1."""
    number = exact(value, name)
    if not 0 < number < 1:
        raise BadParameter(name, "must lie strictly between 0 and 1")
    return number


def whole(value: int | Fraction, name: str, *, at_least: int = 0) -> int:
    """Return `value` as a Python integer, or raise BadParameter if it is not whole or below `at_least`."""
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value.numerator)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadParameter(name, "must be a whole number")
    if value < at_least:
        raise BadParameter(name, f"must be at least {at_least}")
    return int(value)


def set_fields(record: object, **checked: object) -> None:
    """Set fields of a frozen dataclass to checked values, during its `__post_init__`.

    Numbers are Python integers and rationals. So nothing that is computed from the fields later can
    overflow, even if the caller gave numpy integers or floats.
    """
    for name, value in checked.items():
        object.__setattr__(record, name, value)


def least_where(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Find the least whole number above `low` where `holds` is true, by bisection.

    `holds(high)` must be true and is not evaluated. `holds` must stay true once it is.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_from(holds: Callable[[int], bool], start: int = 1) -> int:
    """Find the least whole number from 1 on where `holds` is true, by doubling from `start` and bisection.

    `holds` must stay true once it is, and become true somewhere.
    """
    low, high = 0, start
    while not holds(high):
        low, high = high, 2 * high
    return least_where(holds, low, high)


def least_near(holds: Callable[[int], bool], guess: int) -> int:
    """Find the least whole number from 1 on where `holds` is true. A good guess makes it quick.

    `holds` must stay true once it is, and become true somewhere.
    """
    near, step = max(guess, 1), 1
    if not holds(near):
        while not holds(near + step):
            near, step = near + step, 2 * step
        return least_where(holds, near, near + step)
    while near > step and holds(near - step):
        near, step = near - step, 2 * step
    return least_where(holds, max(near - step, 0), near)


def narrow(
    holds: Callable[[Fraction], bool], low: Fraction, high: Fraction, relative: Fraction
) -> tuple[Fraction, Fraction]:
    """Halve [low, high] until it is shorter than high · relative; `holds` is false at low, true at high."""
    while high - low > high * relative:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def halve(holds: Callable[[F], Any], low: F, high: F, *, times: int) -> tuple[F, F]:
    """Halve [low, high] so many times, or many such intervals at once, in floats.

    `holds` is false at low, true at high, and stays true once it is. For arrays it returns an array: one
    truth for each interval.
    """
    for _ in range(times):
        middle = (low + high) / 2
        kept = holds(middle)
        if isinstance(kept, np.ndarray):
            low, high = np.where(kept, low, middle), np.where(kept, middle, high)  # type: ignore[assignment]
        else:
            low, high = (low, middle) if kept else (middle, high)
    return low, high


def ball(value: Fraction | int) -> arb:
    """Return the ball around a rational, at the current precision."""
    if isinstance(value, int):
        return arb(value)
    return arb(fmpq(value.numerator, value.denominator))


def real(compute: Callable[[], arb], *, guard: int = 0) -> Real:
    """Return the real that `compute` approximates; it is called with `guard` more bits than asked for."""

    def at(bits: int) -> arb:
        with precision(bits + guard):
            return compute()

    return at


def exp_of(exponent: Fraction) -> Real:
    """Return the real exp(exponent)."""
    return real(lambda: ball(exponent).exp())


def _dyadic(point: arb) -> Fraction:
    m, e = map(int, point.man_exp())
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)


def lower(value: arb) -> Fraction:
    """Return a rational at or below every point of a finite ball."""
    return _dyadic(value.lower())


def upper(value: arb) -> Fraction:
    """Return a rational at or above every point of a finite ball."""
    return _dyadic(value.upper())


def round_up(value: arb | Fraction | int, unit: int) -> int:
    """Return the least n such that n / unit is at or above `value`."""
    top = upper(value) if isinstance(value, arb) else value
    return -(-top.numerator * unit // top.denominator)


def round_down(value: arb | Fraction | int, unit: int) -> int:
    """Return the greatest n such that n / unit is at or below `value`."""
    bottom = lower(value) if isinstance(value, arb) else value
    return bottom.numerator * unit // bottom.denominator


def log_up(value: Fraction | int) -> Fraction:
    """Return ln(value), rounded up at the 90th bit or later."""
    with precision(128):
        return upper(ball(value).log())


def exp_up(value: Fraction | int) -> Fraction:
    """Return exp(value), rounded up at the 90th significant bit or later."""
    with precision(128):
        return upper(ball(value).exp())


def sqrt_up(value: Fraction | int) -> Fraction:
    """Return sqrt(value), rounded up at the 90th bit or later; exact for squares of rationals."""
    fraction = Fraction(value)
    roots = math.isqrt(fraction.numerator), math.isqrt(fraction.denominator)
    if roots[0] ** 2 == fraction.numerator and roots[1] ** 2 == fraction.denominator:
        return Fraction(*roots)
    with precision(128):
        return upper(ball(value).sqrt())


def float_up(value: Fraction) -> float:
    """Return the least float whose text is not below the value."""
    near = float(value)
    return near if Fraction(repr(near)) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """Return the greatest float whose text is not above the value."""
    near = float(value)  # people read its text, so the text is compared
    return near if Fraction(repr(near)) <= value else math.nextafter(near, 0.0)


def short_up(value: Fraction, digits: int = 6) -> str:
    """Return a value that is not negative as a decimal with that many digits, rounded up."""
    return _short(value, digits, ROUND_CEILING)


def short_down(value: Fraction, digits: int = 4) -> str:
    """Return a value that is not negative as a decimal with that many digits, rounded down."""
    return _short(value, digits, ROUND_FLOOR)


def grouped(number: float, digits: int = 6) -> str:
    """Return a number with that many digits and thousands separated: 29,960 rather than 2.996e+04."""
    if not math.isfinite(number) or not 1e-4 <= abs(number) < 1e15:
        return short(number) if number else "0"
    return f"{Decimal(f'{number:.{digits}g}'):,f}"


_WITHOUT_EXPONENT = range(-4, 7)  # powers of ten


def _short(value: Fraction, digits: int, rounding: str) -> str:
    if not value:
        return "0"
    with localcontext(prec=digits, rounding=rounding):
        number = (Decimal(value.numerator) / Decimal(value.denominator)).normalize()
    power = number.adjusted()
    return f"{number:f}" if power in _WITHOUT_EXPONENT else f"{number.scaleb(-power):f}e{power}"
