"""Facts that are read from preliminary answers: bounds of a column, the least size of a group."""

from __future__ import annotations

import math

from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter
from lapwing.sql.answering.answers import Answer
from lapwing.sql.policy.kinds import Kind, Numeric
from lapwing.sql.pricing.noise_shares import BudgetShares


def read_bounds(
    answer: Answer, shares: BudgetShares, kind: Kind, *, miss: float = 0.001
) -> tuple[float, float]:
    """Return the smallest range outside of which counts are no larger than noise.

    With probability 1 - `miss` no empty magnitude is taken for one that has rows.
    """
    assert isinstance(kind, Numeric)
    mechanism = shares.mechanism(0, 0)
    assert isinstance(mechanism, Laplace)
    magnitudes, rows = (column.values for column in answer.columns)
    threshold = float(mechanism.scale) * math.log(len(rows) / miss)
    seen = [int(code) for code, count in zip(magnitudes, rows, strict=True) if count > threshold]
    if not seen:
        raise BadParameter("epsilon", "was too small to see any values. Ask with more of it")
    low, high = min(seen), max(seen)
    bottom = 0 if low >= 0 else -(1 << -low)
    top = 0 if high <= 0 else 1 << high
    return float(bottom * kind.step), float(top * kind.step)


def least_size(answer: Answer) -> int:
    """Return a number of rows that every group with rows has, by the lower ends of the intervals."""
    low = answer.columns[-1].low
    sizes = [int(value) for value in ([] if low is None else low) if value > 0]
    if not sizes:
        raise BadParameter(
            "within", "cannot be planned: the first stage saw too few rows. Ask with epsilon"
        )
    return min(sizes)
