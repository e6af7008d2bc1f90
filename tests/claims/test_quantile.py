"""Quantile: every grid point within e^ε on all neighbouring small data sets."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from lapwing.audit.forced_draws import ForcedDraws
from lapwing.audit.laws import SLACK, Law, dec, log_ratio, middle
from lapwing.core import order_statistics
from lapwing.core.losses import Relation
from lapwing.core.order_statistics import Quantile
from support.cases import each
from support.exact_laws import quantile, renyi
from support.laws import chi_square, follows
from support.slowly import slow
from support.streams import SeededStream

FIRST, LAST = 0, 3
GRID = range(FIRST, LAST + 1)
FRACTIONS = [Fraction(0), Fraction(1, 2), Fraction(1, 3), Fraction(9, 10), Fraction(1)]
Data = tuple[int, ...]


def data_sets(most: int) -> list[Data]:
    """All data sets on the grid and just outside of it, with up to `most` rows."""
    sides = (FIRST - 1, *GRID)
    return [d for n in range(most + 1) for d in combinations_with_replacement(sides, n)]


def neighbours(one: Data, other: Data, relation: Relation, rows: int) -> bool:
    """Whether one unit with at most `rows` rows makes the difference."""
    gone, new = Counter(one) - Counter(other), Counter(other) - Counter(one)
    if relation is Relation.REPLACE:
        return gone.total() <= rows and new.total() <= rows
    return not (gone and new) and gone.total() + new.total() <= rows


@each("relation", Relation)
@each("rows", [1, 2])
@each("fraction", FRACTIONS)
def test_every_answer_is_within_the_claimed_ratio(
    fraction: Fraction, rows: int, relation: Relation
) -> None:
    epsilon = Fraction(3, 2)
    mechanism = Quantile.for_epsilon(
        epsilon, fraction=fraction, first=FIRST, last=LAST, relation=relation, rows=rows
    )
    assert mechanism.loss.pure == epsilon
    rate = epsilon / (2 * mechanism.sensitivity)
    laws: dict[Data, Law] = {d: quantile(d, fraction, FIRST, LAST, rate) for d in data_sets(3)}
    pairs = [(a, b) for a, b in product(laws, repeat=2) if a < b and neighbours(a, b, relation, rows)]
    assert pairs
    for one, other in pairs:
        assert log_ratio(laws[one], laws[other]) <= dec(epsilon) + SLACK
    claimed = middle(mechanism.loss.renyi(Fraction(2)))
    for one, other in pairs[:: max(1, len(pairs) // 60)]:
        assert renyi(laws[one], laws[other], 2) <= claimed + SLACK


@each("relation", Relation)
@each("fraction", FRACTIONS)
def test_the_sensitivity_of_the_score_is_exactly_the_most_it_moves(
    fraction: Fraction, relation: Relation
) -> None:
    mechanism = Quantile.for_epsilon(
        1, fraction=fraction, first=FIRST, last=LAST, relation=relation, rows=1
    )
    worst = Fraction(0)
    for one, other in product(data_sets(3), repeat=2):
        if neighbours(one, other, relation, 1):
            for y in GRID:
                worst = max(worst, abs(score(one, y, fraction) - score(other, y, fraction)))
    assert worst == mechanism.sensitivity


def score(data: Data, y: int, fraction: Fraction) -> Fraction:
    """Minus the distance from the wanted rank to the ranks that y holds."""
    inside = [min(max(x, FIRST), LAST) for x in data]
    wanted = (1 - fraction) * len(inside)
    above, not_below = sum(x > y for x in inside), sum(x >= y for x in inside)
    return -max(above - wanted, wanted - not_below, Fraction(0))


@each("epsilon", [Fraction(1), Fraction(3, 10), Fraction(4)])
@each("fraction", [Fraction(9, 10), Fraction(1, 2), Fraction(0)])
@each("values", [[], [1], [0, 0, 2, 7, 7, 7, 12], [-5, 99, 3]])
def test_every_path_of_the_sampler_together_is_exactly_the_law(
    values: list[int], fraction: Fraction, epsilon: Fraction
) -> None:
    """A rate that is off by a part in 10^20 shows: nothing is drawn."""
    draws = ForcedDraws()
    copy = draws.in_copy(order_statistics)
    mechanism = copy.Quantile.for_epsilon(
        epsilon, fraction=fraction, first=0, last=12, relation=Relation.ADD_REMOVE, rows=2
    )
    found = draws.law(lambda: mechanism.sample(values))
    law = quantile(values, fraction, 0, 12, epsilon / (4 * max(fraction, 1 - fraction)))
    assert set(found) <= set(law)
    for y, p in law.items():
        assert abs(found.get(y, dec(0)) - p) < SLACK


@pytest.mark.parametrize(
    "values",
    [
        slow([]),
        slow([1]),
        [0, 0, 2, 7, 7, 7, 12] * 3,
        slow([-5, 99, 3]),
    ],
)
@pytest.mark.parametrize("fraction", [Fraction(9, 10), slow(Fraction(1, 2))])
def test_the_sampler_follows_the_law_that_was_compared(
    values: list[int], fraction: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(67))
    mechanism = Quantile.for_epsilon(
        1, fraction=fraction, first=0, last=12, relation=Relation.ADD_REMOVE, rows=2
    )
    drawn = np.array([mechanism.sample(values) for _ in range(12_000)])
    rate = 1 / (4 * max(fraction, 1 - fraction))
    law = quantile(values, fraction, 0, 12, rate)
    follows(drawn, [law[y] for y in range(13)])
    if len(values) > 3:  # so many draws tell this law from one whose rate is 15 % off
        wrong = quantile(values, fraction, 0, 12, rate * Fraction(20, 23))
        statistic, bound = chi_square(drawn, [wrong[y] for y in range(13)])
        assert statistic > bound
