"""Prices, and what is left of budgets: values with numbers. Their texts are for people."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


class DecimalFraction(Fraction):
    """A rational number that prints as a decimal number of up to twelve digits. It computes exactly.

    Results of arithmetic are plain fractions.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"{float(self):.12g}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[type[DecimalFraction], tuple[int, int]]:
        return DecimalFraction, (self.numerator, self.denominator)


def short(number: float) -> str:
    """Return a number with three digits, and 1e-6 rather than 1e-06."""
    return f"{number:.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of a release.

    Args:
        epsilon: Its ε. It is exact, and prints as a decimal number.
        delta: Its δ. 0 if nothing needs it.

    Example:
        >>> plan.cost.epsilon
        0.5
        >>> print(plan.cost)
        ε 0.5
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", DecimalFraction(self.epsilon))
        object.__setattr__(self, "delta", DecimalFraction(self.delta))

    def __str__(self) -> str:
        delta = f", δ {short(float(self.delta))}" if self.delta else ""
        return f"ε {float(self.epsilon):.6g}{delta}"


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """The rest of a budget for life, in the block where it is least.

    Args:
        epsilon: The largest ε that one more answer without δ may cost. Several answers may cost more
            together: see the guide on ledgers.
        of: The ε of the budget.
        delta: The largest δ that one more answer may have, if its ε fits.
        quota: What is left of the analyst's quota; None if the analyst has none.

    Example:
        >>> left = dataset.left()
        >>> left.epsilon
        2.5
        >>> print(left)
        ε 2.5 of 3
    """

    epsilon: Fraction
    of: Fraction
    delta: Fraction
    quota: BudgetLeft | None = None

    def __post_init__(self) -> None:
        for name in ("epsilon", "of", "delta"):
            object.__setattr__(self, name, DecimalFraction(getattr(self, name)))

    def __str__(self) -> str:
        data = f"ε {float(self.epsilon):.6g} of {float(self.of):g}"
        if self.quota is None:
            return data
        return f"{self.quota} of the analyst's quota, {data} of the data's budget"
