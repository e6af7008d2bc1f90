"""Plain zCDP accounting, to compare with."""

from __future__ import annotations

from fractions import Fraction

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import narrow


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """Return ρ of any ε-private mechanism: ε² / 2."""
    return epsilon * epsilon / 2


def zcdp_cap(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the greatest ρ that `zcdp_to_epsilon` still maps to at most ε at δ, to a relative 2^-40."""
    low, high = Fraction(0), epsilon
    while zcdp_to_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    return narrow(lambda rho: zcdp_to_epsilon(rho, delta) > epsilon, low, high, Fraction(1, 1 << 40))[0]
