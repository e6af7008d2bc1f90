"""Numbers of a request as decimal text: 0.1 is one tenth, and never a binary fraction."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter

Number = int | float | str | Fraction | Decimal
_MOST_DIGITS = 30


def decimal_text(value: Any, name: str) -> str:
    """Return a number as decimal text. Text stays as it is: the server reads it.

    Raises:
        BadParameter: If it is no finite number, or has no decimal form of few digits, such as 1/3.
    """
    if isinstance(value, str):
        return value.strip()
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | Decimal):
        raise BadParameter(name, "must be a number (int, float, Fraction, Decimal or decimal text)")
    if isinstance(value, Fraction):
        return _of_fraction(value, name)
    try:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            raise ValueError
    except ValueError:
        raise BadParameter(name, "must be finite") from None
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise BadParameter(name, "is too large or too small to be meant")
    return format(number, "f")


def _of_fraction(value: Fraction, name: str) -> str:
    for digits in range(_MOST_DIGITS + 1):
        scaled = value * 10**digits
        if scaled.denominator == 1:
            return format(Decimal(scaled.numerator).scaleb(-digits), "f")
    raise BadParameter(
        name,
        f"{value} has no decimal form of {_MOST_DIGITS} digits. Round it down, to spend less",
    )
