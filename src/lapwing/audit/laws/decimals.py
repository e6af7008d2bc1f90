"""Arithmetic with 60 digits, for exact laws.

Decimal numbers of the standard library. They share no code with the balls that price losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from flint import arb

from lapwing.errors import BadParameter

Law = Mapping[Any, Decimal]
Rational = Fraction | int

# Far below every difference that is looked for, far above what 60 digits lose.
SLACK = Decimal("1e-25")
# The most probability that a law may leave out. It counts as δ.
LARGEST_TAIL = Decimal("1e-30")
CONTEXT = Context(prec=60, Emin=-(10**9), Emax=10**9)
_NARROW_BITS = 120


P = ParamSpec("P")
R = TypeVar("R")


def precise(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it computes with 60 digits."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with localcontext(CONTEXT):
            return function(*args, **kwargs)

    return wrapped


@precise
def dec(value: Rational) -> Decimal:
    """Return a rational with 60 digits."""
    fraction = Fraction(value)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@precise
def exp(value: Rational) -> Decimal:
    """Return e to the power of a rational, with 60 digits."""
    return dec(value).exp()


@precise
def ln(value: Rational) -> Decimal:
    """Return the natural logarithm of a rational, with 60 digits."""
    return dec(value).ln()


def middle(ball: arb) -> Decimal:
    """Return the middle of a narrow ball. Raise BadParameter if the ball is wide."""
    if not ball.rel_accuracy_bits() > _NARROW_BITS:
        raise BadParameter("ball", f"must be known to more than {_NARROW_BITS} bits")
    return Decimal(ball.str(60, radius=False))
