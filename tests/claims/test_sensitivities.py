"""Sensitivities: all neighbours of all small data sets move the statistic by no more than is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

from lapwing.core import sensitivity
from lapwing.core.losses import Relation
from lapwing.core.sensitivity import Sensitivity
from support.cases import each

Row = Fraction
Statistic = Callable[[Sequence[Row]], list[Fraction]]
ADD_REMOVE, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE
BOUNDS = [(0, 1), (-1, 1), (-3, 1), (2, 5), (-5, -2), (0, "1/3")]


def units(values: Iterable[Row], rows: int) -> list[tuple[Row, ...]]:
    """All that one unit may hold: up to `rows` rows."""
    return [u for n in range(rows + 1) for u in combinations_with_replacement(tuple(values), n)]


def steps(
    values: Sequence[Row], rows: int, relation: Relation, others: int = 2
) -> Iterator[tuple[list[Row], list[Row]]]:
    """All neighbours whose common part has up to `others` rows."""
    for common in units(values, others):
        for one in units(values, rows):
            for other in units(values, rows) if relation is REPLACE else [()]:
                yield [*common, *one], [*common, *other]


def same_size_steps(values: Sequence[Row], n: int, rows: int) -> Iterator[tuple[list[Row], list[Row]]]:
    """All data sets of n rows of which `rows` are replaced by as many."""
    for common in combinations_with_replacement(values, n - rows):
        for one, other in product(combinations_with_replacement(values, rows), repeat=2):
            yield [*common, *one], [*common, *other]


def worst(pairs: Iterable[tuple[list[Row], list[Row]]], statistic: Statistic) -> tuple[Fraction, Fraction]:
    """The greatest L1 and squared L2 distance of the statistic."""
    l1 = l2 = Fraction(0)
    for one, other in pairs:
        moved = [a - b for a, b in zip(statistic(one), statistic(other), strict=True)]
        l1, l2 = max(l1, sum(map(abs, moved), l1 * 0)), max(l2, sum((m * m for m in moved), l2 * 0))
    return l1, l2


def reaches(found: tuple[Fraction, Fraction], claimed: Sensitivity) -> None:
    assert found == (claimed.l1, claimed.l2_squared)


def points(low: int | str, high: int | str) -> list[Fraction]:
    bottom, top = Fraction(low), Fraction(high)
    return [bottom, (2 * bottom + top) / 3, top]


@each("rows", [1, 2, 5])
@each("relation", Relation)
def test_a_count_moves_by_the_rows_of_one_unit(rows: int, relation: Relation) -> None:
    meets = [Fraction(0), Fraction(1)]
    found = worst(steps(meets, rows, relation, others=1), lambda data: [sum(data, Fraction(0))])
    reaches(found, sensitivity.count(rows=rows))


@each(("low", "high"), BOUNDS)
@each("relation", Relation)
@each("rows", [1, 2, 3])
def test_a_total_moves_by_exactly_what_is_said(
    low: int | str, high: int | str, relation: Relation, rows: int
) -> None:
    found = worst(steps(points(low, high), rows, relation, others=1), lambda data: [sum(data, Fraction(0))])
    reaches(found, sensitivity.total(low=low, high=high, relation=relation, rows=rows))


@each(("low", "high"), BOUNDS)
@each(("n", "rows"), [(1, 1), (3, 1), (4, 2), (3, 3)])
def test_a_mean_moves_by_exactly_what_is_said(low: int | str, high: int | str, n: int, rows: int) -> None:
    found = worst(same_size_steps(points(low, high), n, rows), lambda data: [sum(data, Fraction(0)) / n])
    reaches(found, sensitivity.mean(low=low, high=high, n=n, rows=rows))
    assert found[0] == rows * (Fraction(high) - Fraction(low)) / n


@each(("n", "rows"), [(1, 1), (5, 1), (5, 2)])
def test_a_proportion_moves_by_rows_over_n(n: int, rows: int) -> None:
    found = worst(same_size_steps([Fraction(0), Fraction(1)], n, rows), lambda d: [sum(d, Fraction(0)) / n])
    reaches(found, sensitivity.proportion(n=n, rows=rows))


def variance(data: Sequence[Row]) -> Fraction:
    mean = sum(data, Fraction(0)) / len(data)
    return sum(((x - mean) ** 2 for x in data), Fraction(0)) / len(data)


@each(("low", "high"), BOUNDS)
@each(("n", "rows"), [(1, 1), (2, 1), (3, 1), (5, 1), (4, 2), (5, 3), (3, 3)])
def test_a_variance_moves_by_no_more_than_is_said(
    low: int | str, high: int | str, n: int, rows: int
) -> None:
    found, _ = worst(same_size_steps(points(low, high), n, rows), lambda data: [variance(data)])
    claimed = sensitivity.variance(low=low, high=high, n=n, rows=rows).l1
    assert found <= claimed
    if rows == 1:
        assert found == claimed, "for one row the claim is tight"


@each(("n", "rows"), [(1, 1), (2, 1), (3, 1), (6, 1), (4, 2), (3, 3)])
def test_a_deviation_moves_by_no_more_than_is_said(n: int, rows: int) -> None:
    claimed = sensitivity.deviation(low=0, high=1, n=n, rows=rows).l1
    greatest = 0.0
    for one, other in same_size_steps(points(0, 1), n, rows):
        greatest = max(greatest, abs(math.sqrt(variance(one)) - math.sqrt(variance(other))))
    assert greatest <= float(claimed) + 1e-12
    if rows == 1:
        assert greatest >= float(claimed) - 1e-12


@each("bins", [2, 3, 6])
@each("relation", Relation)
@each("rows", [1, 2])
def test_a_histogram_moves_by_the_same_whatever_the_number_of_bins(
    bins: int, relation: Relation, rows: int
) -> None:
    keys = [Fraction(k) for k in range(bins)]
    found = worst(
        steps(keys, rows, relation, others=1), lambda data: [Fraction(data.count(key)) for key in keys]
    )
    reaches(found, sensitivity.histogram(relation=relation, rows=rows))


@each("relation", Relation)
@each("rows", [1, 2])
def test_several_sums_over_the_same_rows_move_by_no_more_than_is_said(
    relation: Relation, rows: int
) -> None:
    bounds = [(0, 1), (-2, 1), (3, 4)]
    corners = list(product(*bounds))
    names = [Fraction(i) for i in range(len(corners))]

    def sums(data: Sequence[Row]) -> list[Fraction]:
        return [Fraction(sum(corners[int(row)][k] for row in data)) for k in range(3)]

    found = worst(steps(names, rows, relation, others=0), sums)
    claimed = sensitivity.vector(bounds, relation=relation, rows=rows)
    assert found[0] <= claimed.l1
    assert found[1] <= claimed.l2_squared
    if relation is ADD_REMOVE:
        reaches(found, claimed)


def test_fewer_rows_may_come_than_go_so_a_low_above_zero_helps_nothing() -> None:
    claimed = sensitivity.total(low=10, high=11, relation=REPLACE, rows=5)
    assert claimed.l1 == 55 > 5 * (11 - 10)


def test_a_rounded_mean_moves_by_one_step_more() -> None:
    """Means of 0.005 and 0.015 are one step of 0.01 apart, and rounded to even 0 and 2 steps."""
    reach = sensitivity.mean(low=0, high=1, n=100, rows=1).in_steps("0.01")
    assert reach.l1 == 2
    assert reach.l2_squared == 4
    assert sensitivity.total(low=0, high=1, relation=Relation.ADD_REMOVE, rows=1).in_steps("0.01").l1 == 100
