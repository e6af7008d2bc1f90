"""The cases of `lapwing.mechanisms.sensitivity`: all neighbours of small data sets are tried.

A statistic that moves by d and gets Laplace noise for a declared distance of l at ε = 1 has a true ε of
d / l (of d² / l² for the squared L2 distance of Gaussian noise, in ρ). So a declared distance that is too
small is a violation, and its factor is the true ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult, Witness
from lapwing.core import sensitivity
from lapwing.core.losses import Relation
from lapwing.mechanisms import Sensitivity

Rows = tuple[Fraction, ...]
Statistic = Callable[[Rows], list[Fraction]]
Neighbours = Iterable[tuple[Rows, Rows]]
_BOUNDS = ((0, 1), (-3, 1), (2, 5))
_SIZES = ((3, 1), (4, 2))
QUARTER, THIRD = Fraction(1, 4), Fraction(1, 3)
# Standard deviations are irrational: they are rounded down to 1e-30, and compared with this slack.
_ROUNDING = Fraction(1, 10**25)


def sensitivity_cases() -> list[AuditCase]:
    """Return the case of all textbook sensitivities."""
    return [
        AuditCase(
            "sensitivities", Family.MECHANISM, (Sensitivity,), Fraction(1), Fraction(0), {Stage.EXACT: _run}
        )
    ]


def _run(budget: StageBudget) -> StageResult:
    checks, worst = 0, Fraction(0)
    for name, declared, statistic, neighbours in _statistics():
        budget.progress(f"exact: {name}")
        for first, second in neighbours:
            moved = [abs(a - b) for a, b in zip(statistic(first), statistic(second), strict=True)]
            l1, squared = sum(moved, Fraction(0)), sum((move * move for move in moved), Fraction(0))
            for norm, distance, allowed in (
                ("L1", l1, declared.l1),
                ("squared L2", squared, declared.l2_squared),
            ):
                checks += 1
                share = distance / allowed if allowed else Fraction(distance > 0) * 1000
                worst = max(worst, share)
                if share > 1 + _ROUNDING:
                    numbers = {"found": str(distance), "declared": str(allowed)}
                    witness = Witness(
                        f"{name}: rows {_text(first)}, and {_text(second)}",
                        f"the statistic moves farther than declared, in {norm}",
                        numbers,
                        at_least=float(share),
                    )
                    return StageResult(Stage.EXACT, checks, 1.0, float(worst), 1.0, witness=witness)
    return StageResult(
        Stage.EXACT, checks, 1.0, float(worst), 1.0,
        notes=(f"the largest distance is {float(worst):.6f} of the declared one",),
    )  # fmt: skip


def _text(rows: Rows) -> str:
    return f"({', '.join(map(str, rows))})"


def _statistics() -> Iterator[tuple[str, Sensitivity, Statistic, Neighbours]]:
    """Yield each statistic with its name, its declared sensitivity and neighbouring data."""
    add_remove, replace = Relation.ADD_REMOVE, Relation.REPLACE
    for rows, relation in product((1, 2), (add_remove, replace)):
        words = f"{relation.value}, {rows} rows"
        ones = tuple(_steps((Fraction(0), Fraction(1)), rows, relation))
        yield f"count, {words}", sensitivity.count(rows=rows), _total, ones
        bins = (Fraction(0), Fraction(1), Fraction(2))
        declared = sensitivity.histogram(relation=relation, rows=rows)
        yield f"histogram, {words}", declared, _histogram, _steps(bins, rows, relation)
        for low, high in _BOUNDS:
            declared = sensitivity.total(low=low, high=high, relation=relation, rows=rows)
            pairs = tuple(_steps(_points(low, high), rows, relation))
            yield f"total of {low} to {high}, {words}", declared, _total, pairs
            name = f"total of {low} to {high} in steps of 1/3, {words}"
            yield name, declared.in_steps(THIRD), _in_steps(_total, THIRD), pairs
            ends = (Fraction(2 * low), Fraction(2 * high))
            wide = sensitivity.total(low=ends[0], high=ends[1], relation=relation, rows=rows)
            name = f"total of {ends[0]} to {ends[1]} in steps of 2, {words}"
            yield name, wide.in_steps(2), _in_steps(_total, Fraction(2)), _steps(ends, rows, relation)
        declared = sensitivity.vector([(0, 1), (-3, 1)], relation=relation, rows=rows)
        yield f"two totals, {words}", declared, _two_totals, _steps(_points(0, 1), rows, relation)
    for (n, rows), (low, high) in product(_SIZES, _BOUNDS):
        words = f"of {n} values from {low} to {high}, {rows} replaced"
        pairs = tuple(_replaced(_points(low, high), n, rows))
        mean = sensitivity.mean(low=low, high=high, n=n, rows=rows)
        yield f"mean {words}", mean, _mean, pairs
        yield f"rounded mean {words}", mean.in_steps(QUARTER), _in_steps(_mean, QUARTER), pairs
        variance = sensitivity.variance(low=low, high=high, n=n, rows=rows)
        yield f"variance {words}", variance, _variance, pairs
        deviation = sensitivity.deviation(low=low, high=high, n=n, rows=rows)
        yield f"deviation {words}", deviation, _deviation, pairs
    yield "proportion", sensitivity.proportion(n=3, rows=1), _mean, _replaced(_points(0, 1), 3, 1)


def _points(low: int, high: int) -> Rows:
    return Fraction(low), Fraction(2 * low + high, 3), Fraction(high)


def _units(values: Sequence[Fraction], rows: int) -> list[Rows]:
    """Return all that one unit may hold: up to `rows` rows."""
    return [unit for n in range(rows + 1) for unit in combinations_with_replacement(values, n)]


def _steps(values: Sequence[Fraction], rows: int, relation: Relation) -> Iterator[tuple[Rows, Rows]]:
    """Yield all neighbours whose common part has at most one row."""
    others = _units(values, rows) if relation is Relation.REPLACE else [()]
    for common, first, second in product(_units(values, 1), _units(values, rows), others):
        yield (*common, *first), (*common, *second)


def _replaced(values: Sequence[Fraction], n: int, rows: int) -> Iterator[tuple[Rows, Rows]]:
    """Yield all data sets of n rows, and those in which some are replaced by as many."""
    changed = list(combinations_with_replacement(values, rows))
    for common in combinations_with_replacement(values, n - rows):
        for first, second in product(changed, repeat=2):
            yield (*common, *first), (*common, *second)


def _in_steps(statistic: Statistic, step: Fraction) -> Statistic:
    """Return the statistic in whole steps, rounded as a grid rounds: halves to even."""
    return lambda rows: [Fraction(round(value / step)) for value in statistic(rows)]


def _total(rows: Rows) -> list[Fraction]:
    return [sum(rows, Fraction(0))]


def _two_totals(rows: Rows) -> list[Fraction]:
    """Return the totals of values in [0, 1], and of others in [-3, 1] that fall as these rise."""
    return [sum(rows, Fraction(0)), sum((1 - 4 * row for row in rows), Fraction(0))]


def _histogram(rows: Rows) -> list[Fraction]:
    return [Fraction(rows.count(Fraction(value))) for value in range(3)]


def _mean(rows: Rows) -> list[Fraction]:
    return [sum(rows, Fraction(0)) / len(rows)]


def _variance(rows: Rows) -> list[Fraction]:
    [mean] = _mean(rows)
    return [sum(((row - mean) ** 2 for row in rows), Fraction(0)) / len(rows)]


def _deviation(rows: Rows) -> list[Fraction]:
    [squared] = _variance(rows)
    return [Fraction(math.isqrt(int(squared * 10**60)), 10**30)]
