"""Averages of a pair of sums: one mechanism, one loss, half the noise, only where nothing else shares."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.sql.answering.estimates import estimate
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.pricing.accuracy import shares_for_width, spread
from lapwing.sql.pricing.noise_shares import BudgetShares, deviation, divide_budget
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery, NoisyAggregate, NoisySum, NoisySumPair
from lapwing.sql.question.expression import Expression
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.exact_numbers import ExactGrouping
from support.clinic import asked, clinic_catalog
from support.evaluated import evaluated
from support.noisy_questions import declared
from support.private_tables import policy_of, table_of, whole
from support.reached import reaching
from support.streams import SeededStream

CATALOG = clinic_catalog()  # five rows of a person; stay is 0 to 60 and may be missing
STAYS, ROWS = 60, 5
HALF = Fraction(1, 2)


def average(*, groups: int = 1) -> BoundQuery:
    """AVG(stay), over so many declared groups."""
    found = asked("SELECT AVG(stay) AS a FROM visits", CATALOG)
    return found if groups == 1 else replace(found, keys=(declared(groups),), sets=((0,),))


def apart(question: BoundQuery) -> BoundQuery:
    """The same with a total around the middle and a count, each with a noise of its own."""
    reach = STAYS // 2 * ROWS
    total = NoisySum("total", ((1, 0), (-STAYS // 2, 1)), reach, reach**2, HALF)
    return replace(question, parts=(total, NoisySum("known", ((1, 1),), ROWS, ROWS**2, HALF)))


@pytest.mark.parametrize(
    ("sql", "pairs", "parts"),
    [
        ("SELECT AVG(stay) FROM visits", 1, 1),
        ("SELECT AVG(stay), 2 * AVG(stay) AS b FROM visits HAVING AVG(stay) > 3 ORDER BY AVG(stay)", 1, 1),
        ("SELECT ward, AVG(stay), COUNT(*) FROM visits GROUP BY ward", 1, 2),  # all rows, not the known
        ("SELECT AVG(stay), SUM(stay), MEDIAN(stay) FROM visits", 1, 2),  # from 0, not from the middle
        ("SELECT AVG(stay), AVG(cost), AVG(urgent) FROM visits", 3, 3),
        ("SELECT SUM(cost), AVG(stay), VARIANCE(cost), AVG(urgent) FROM visits", 2, 6),
        ("SELECT AVG(stay), COUNT(stay) FROM visits", 0, 2),
        ("SELECT AVG(stay) FROM visits HAVING COUNT(stay) > 5", 0, 2),
        ("SELECT AVG(stay) FROM visits ORDER BY 1 + COUNT(stay)", 0, 2),
        ("SELECT AVG(stay), VARIANCE(stay) FROM visits", 0, 3),
        ("SELECT AVG(urgent), SUM(urgent) FROM visits", 0, 2),  # the middle of 0 and 1 is 0: one total
        ("SELECT AVG(COALESCE(stay, 0)), COUNT(*) FROM visits", 0, 2),
        ("SELECT AVG(COALESCE(stay, 0)), AVG(COALESCE(cost, 0)) FROM visits", 0, 3),
        ("SELECT AVG(5) FROM visits", 0, 2),
    ],
)
def test_pairs_are_made_where_nothing_else_needs_the_total_or_the_count(
    sql: str, pairs: int, parts: int
) -> None:
    found = asked(sql, CATALOG)
    assert len(found.parts) == parts
    assert sum(isinstance(part, NoisySumPair) for part in found.parts) == pairs
    names = [one.function for one in found.statistics]
    assert names.count("avg_of_pair") == pairs
    for one in found.statistics:
        kinds = [isinstance(found.parts[place], NoisySumPair) for place in one.parts]
        assert kinds == ([True] if one.function == "avg_of_pair" else [False] * len(kinds))


def of_row(function: str, expression: Expression | None, row: dict[str, int | None]) -> int:
    if expression is None:
        return 1
    value = evaluated(expression, row)
    return int(value is not None) if function == "count" else int(value or 0)


@pytest.mark.parametrize("sql", ["stay", "stay - 40", "stay > 20", "5 * stay + 7", "-stay"])
def test_a_row_moves_a_pair_by_exactly_the_range_wherever_its_value_lies(sql: str) -> None:
    found = asked(f"SELECT AVG({sql}) FROM visits", CATALOG)
    (pair,) = found.parts
    assert isinstance(pair, NoisySumPair)
    assert (pair.l1 % ROWS, pair.l2_squared) == (0, pair.l1**2)
    for stay in (*range(STAYS + 1), None):
        sums = [of_row(one.function, one.expression, {"stay": stay}) for one in found.sums]
        above, below = (sum(f * sums[place] for f, place in one) for one in pair.numbers)
        assert min(above, below) >= 0
        assert ROWS * (above + below) == (pair.l1 if stay is not None else 0)
        assert ROWS**2 * (above**2 + below**2) <= pair.l2_squared


@pytest.mark.parametrize("epsilon", ["1/3", "1", "2"])
def test_a_pair_is_paid_for_once(epsilon: str) -> None:
    shares = divide_budget(average(), epsilon=epsilon, delta=0, noise="laplace")
    (added,) = shares.added
    assert added.mechanism == Laplace.for_epsilon(epsilon, l1=ROWS * STAYS)
    assert shares.loss == added.mechanism.loss
    assert shares.loss.pure == Fraction(epsilon)
    assert replace(shares, added=shares.added * 2).loss.pure == 2 * Fraction(epsilon)


def test_both_numbers_of_all_groups_reach_one_mechanism_together() -> None:
    values = np.array([[10, 110], [20, 220], [30, 330]])
    for kind in ("laplace", "gaussian"):
        shares = divide_budget(average(groups=3), epsilon=1, delta="1e-6", noise=kind)
        with reaching() as reached:
            (found,) = add_noise(shares, [ExactGrouping(values)])
        assert [one.values for one in reached] == [[10, 20, 30, 110, 220, 330]]
        assert [len(part) for part in found.parts] == [6]
    (added,) = shares.added
    assert isinstance(added.mechanism, Gaussian)
    assert added.mechanism.dimension == 6
    assert added.mechanism.l2_squared == (ROWS * STAYS) ** 2


def variance_of_pivot(shares: BudgetShares, theta: float) -> float:
    """Of the noise of Σ (x - θ)."""
    squares = [deviation(added.mechanism) ** 2 for added in shares.added]
    if len(squares) == 2:
        return squares[0] + (theta - STAYS / 2) ** 2 * squares[1]
    return squares[0] * ((1 - theta / STAYS) ** 2 + (theta / STAYS) ** 2)


@pytest.mark.parametrize(("kind", "times"), [("laplace", 0.5), ("gaussian", 1.0)])
def test_the_noise_has_half_the_variance_wherever_the_mean_lies(kind: str, times: float) -> None:
    one, other = (
        divide_budget(asked_, epsilon=1, delta="1e-6", noise=kind)
        for asked_ in (average(), apart(average()))
    )
    for theta in (0, 1, 15, 30, 44.4, 60):
        assert variance_of_pivot(one, theta) == pytest.approx(
            times * variance_of_pivot(other, theta), rel=1e-3
        )


@pytest.mark.parametrize("theta", [0, 12, 30, 60])
def test_drawn_noise_has_the_variance_that_is_claimed(theta: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of two Laplace noises has kurtosis at most 6: of 400,000 squares the mean is off by a standard
    0.36 %; 2 % is above five of them."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(91))
    groups = 400_000
    shares = divide_budget(average(groups=groups), epsilon=1, delta=0, noise="laplace")
    values = np.tile([1000 * theta, 1000 * (STAYS - theta)], (groups, 1))
    (found,) = add_noise(shares, [ExactGrouping(values)])
    above, below = np.split(found.parts[0].astype(np.float64), 2)
    pivot = ((STAYS - theta) * above - theta * below) / STAYS
    assert float(np.mean(pivot**2)) == pytest.approx(variance_of_pivot(shares, theta), rel=0.02)


def test_an_undeclared_key_takes_no_more_from_a_pair_than_from_two_parts() -> None:
    hidden = asked("SELECT name, AVG(stay) AS a FROM visits GROUP BY name", CATALOG)
    for found in (hidden, apart(hidden)):
        shares = divide_budget(found, epsilon=1, delta="1e-6", noise="laplace")
        assert shares.selected[0].mechanism.epsilon == Fraction(1, 3)
        assert shares.loss.pure == 1


def answered(values: list[tuple[int, int]], *, sampling: bool = False) -> list[tuple[float, float, float]]:
    """Value, low and high, if these are the noisy pairs."""
    shares = divide_budget(average(groups=len(values)), epsilon=1, delta=0, noise="laplace")
    noisy = NoisyGrouping((np.array(values).T.ravel(),), {}, None, len(values))
    (column,) = estimate(shares, [noisy], confidence="0.95", sampling=sampling).columns
    assert column.low is not None
    assert column.high is not None
    return list(zip(column.values.tolist(), column.low.tolist(), column.high.tolist(), strict=True))


def test_an_average_without_rows_is_the_middle_and_never_leaves_the_bounds() -> None:
    pairs = [(40_000, 20_000), (500, -500), (-900, 100), (90_000, -400), (-400, 90_000)]
    found = answered(pairs)
    assert [value for value, _, _ in found] == [40, 30, 30, 60, 0]
    assert all(0 <= low <= value <= high <= 60 for value, low, high in found)
    assert found[1][1:] == (0, 60)


def test_the_planned_spread_holds_every_interval_of_a_large_group() -> None:
    n = 100_000
    shares = divide_budget(average(), epsilon=1, delta=0, noise="laplace")
    (planned,) = spread(average(), shares, "0.95", n=n).values()
    (formula,) = spread(average(), shares, "0.95").values()
    half = ROWS * STAYS * math.log(20) + 0.5
    assert planned.half == pytest.approx(half / n, rel=1e-6)
    assert formula.formula == f"{half:.4g} / n"
    widths = []
    for theta in (1, 10, 30, 50, 59):
        ((value, low, high),) = answered([(theta * n, (STAYS - theta) * n)])
        assert value == theta
        widths.append((high - low) / 2)
    assert max(widths) <= half / n
    assert widths[2] == min(widths)
    assert widths[0] == pytest.approx(half / n, rel=0.05)
    within = shares_for_width(average(), within=half / n, confidence="0.95", delta=0, noise="auto", n=n)
    assert within.epsilon == pytest.approx(1, rel=1e-3)


def test_a_sample_adds_its_own_error() -> None:
    n, theta = 400, 20
    ((_, low, high),) = answered([(theta * n, (STAYS - theta) * n)])
    ((_, wider_low, wider_high),) = answered([(theta * n, (STAYS - theta) * n)], sampling=True)
    sampled = 1.96 * math.sqrt(theta * (STAYS - theta) / n)
    assert (wider_high - wider_low) / 2 == pytest.approx(math.hypot((high - low) / 2, sampled), rel=0.03)


def test_statistics_find_their_parts_again() -> None:
    found = asked("SELECT COUNT(*), AVG(stay), SUM(cost), AVG(urgent) FROM visits", CATALOG)
    values = [output.value for output in found.outputs]
    labels = [
        [found.parts[p].label for p in one.parts] for one in values if isinstance(one, NoisyAggregate)
    ]
    assert labels == [
        ["rows"],
        ["sums of stay from its low end and from its high end"],
        ["sum of cost"],
        ["sums of urgent from its low end and from its high end"],
    ]


@pytest.mark.parametrize("last", [(1 << 26) - 1, 1 << 26])
def test_a_range_of_very_many_steps_has_no_pair(last: int, tmp_path: Path) -> None:
    """Its sums only grow with the rows, and would be clamped, where sums around the middle cancel."""
    policy = policy_of(tmp_path, table_of(tmp_path / "v.parquet", {"y": whole(0, last)}, rows=1))
    parts = bind("SELECT AVG(y) FROM visits", Catalog(policy)).parts
    assert [isinstance(part, NoisySumPair) for part in parts] == (
        [True] if last < 1 << 26 else [False, False]
    )
