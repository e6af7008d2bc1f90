"""Estimates: values, keys, intervals, HAVING, ORDER BY and LIMIT from what was released."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter
from lapwing.sql.answering.estimates import AnswerRows, decode_key, estimate
from lapwing.sql.answering.group_statistics import round_outward
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.policy.kinds import Moment, Numeric, Truth
from lapwing.sql.pricing.accuracy import Spread, shares_for_width, spread
from lapwing.sql.pricing.noise_shares import divide_budget
from lapwing.sql.pricing.weighted_noise import weighted_width
from lapwing.sql.question.bound_query import (
    BoundQuery,
    Computed,
    Key,
    KeyValue,
    NoisyAggregate,
    Order,
    Plain,
    wanted_codes,
)
from lapwing.sql.question.expression import Reference
from support.noisy_questions import AVG, COUNT, STAY, VAR, declared, exact, question, undeclared

SUM = NoisyAggregate("sum", (1,), Numeric(Fraction(1, 4), 0, 60))
MEDIAN = NoisyAggregate("quantile", (), STAY, spectrum=0, fraction=Fraction(1, 2))
TOP = NoisyAggregate("max", (), STAY, spectrum=0)
SHORTS = dict(delta="1e-6", noise="auto")


def answer(asked: BoundQuery, *parts: list[int], epsilon: str = "1", **more: Any) -> AnswerRows:
    """The answer if these are the noisy parts of the only grouping."""
    shares = divide_budget(asked, epsilon=epsilon, delta="1e-6", noise="laplace")
    values = tuple(np.array(part, dtype=np.int64) for part in parts)
    noisy = NoisyGrouping(values, more.get("codes", {}), more.get("keys"), len(values[0]) if values else 1)
    return estimate(shares, [noisy], confidence="0.95", agree=True)


def column(rows: AnswerRows, name: str = "c0") -> list[Any]:
    (found,) = [col for col in rows.columns if col.name == name]
    return [value.item() if isinstance(value, np.generic) else value for value in found.values]


def ends(rows: AnswerRows, name: str = "c0") -> list[tuple[Any, Any]]:
    (found,) = [col for col in rows.columns if col.name == name]
    assert found.low is not None
    assert found.high is not None
    return list(zip(found.low.tolist(), found.high.tolist(), strict=True))


def test_counts_are_whole_and_not_below_zero() -> None:
    rows = answer(question(declared(3)), [10, -4, 1])
    assert column(rows) == [10, 0, 1]
    assert column(rows, "ward") == ["ward0", "ward1", "ward2"]
    half = Laplace.for_epsilon(1, l1=1).spread("0.95")
    assert half == 3
    assert ends(rows) == [(7, 13), (0, 0), (0, 4)]


def test_sums_are_in_the_columns_unit() -> None:
    rows = answer(question(declared(2), parts=2, outputs=(SUM,)), [9, 9], [10, -3])
    assert column(rows) == [2.5, -0.75]
    low, high = ends(rows)[0]
    assert low < 2.5 < high
    assert high - 2.5 == 2.5 - low


def test_an_average_without_rows_is_the_middle_and_never_leaves_the_bounds() -> None:
    rows = answer(question(declared(4), parts=2, outputs=(AVG,)), [100, 0, -5, 2], [1000, 50, -700, 900])
    assert column(rows) == [40, 30, 30, 60]
    assert all(0 <= low <= high <= 60 for low, high in ends(rows))


@pytest.mark.parametrize("function", ["var_pop", "var_samp", "stddev_pop", "stddev_samp"])
def test_variances_stay_within_what_bounds_allow(function: str) -> None:
    statistic = NoisyAggregate(function, (1, 0, 2), STAY, 30)
    asked = question(declared(4), parts=3, outputs=(statistic,))
    rows = answer(asked, [1000, 1000, -3, 1], [0, 0, 5, 5], [100_000, -500, 9, 10**6])
    most = 900 ** (0.5 if function.startswith("stddev") else 1)
    found = column(rows)
    assert found[0] == pytest.approx(100 ** (0.5 if function.startswith("stddev") else 1), rel=1e-2)
    assert found[1] == 0
    assert all(0 <= value <= 2 * most for value in found)
    assert all(np.isfinite([low, high]).all() and low <= high for low, high in ends(rows))


def test_covariance_and_correlation() -> None:
    number, places = STAY, (1, 0, 1, 2)
    covar = NoisyAggregate("covar_pop", places, number, 30, number, 30)
    corr = NoisyAggregate("corr", (1, 0, 1, 2, 2, 2), number, 30, number, 30)
    asked = question(declared(3), parts=3, outputs=(covar, corr))
    rows = answer(asked, [10_000, 10_000, -5], [0, 10_000, 0], [10**6, 10**6, 10**6])
    assert column(rows)[0] == pytest.approx(100)
    assert column(rows)[1] == pytest.approx(99)
    assert column(rows, "c1")[:2] == [1, 1]  # a column with itself
    assert ends(rows, "c1")[2] == (-1, 1)


def test_quantiles_are_decoded_and_told_in_ranks() -> None:
    date = Moment(86400, 0, 20000)
    median = NoisyAggregate("quantile", (), date, spectrum=0, fraction=Fraction(1, 2))
    top = NoisyAggregate("max", (), date, spectrum=0)
    asked = question(parts=0, spectra=(date,), outputs=(median, top), rows=2)
    codes = {want: np.array([code]) for want, code in zip(wanted_codes(asked), (0, 365), strict=True)}
    rows = answer(asked, codes=codes)
    assert [str(column(rows)[0]), str(column(rows, "c1")[0])] == ["1970-01-01", "1971-01-01"]
    median_column, top_column = rows.columns
    assert median_column.low is None
    assert median_column.rank_error == pytest.approx(
        8 / 2 * 12.9, rel=0.01
    )  # 4/ε · ln(20001 · 20) at ε = ½
    assert median_column.note.startswith("rank within ±")
    assert top_column.note.startswith("a value that about 78 rows reach")


def test_computed_columns_carry_intervals() -> None:
    def of(op: str, *args: Any) -> Computed:
        return Computed(op, args)

    outputs = (
        of("*", COUNT, Plain(2)),
        of("-", Plain(100), COUNT),
        of("/", COUNT, Plain(4)),
        of("/", COUNT, COUNT),
        of("case", of(">", COUNT, Plain(5)), Plain("many"), Plain("few")),
        of("sqrt", of("-", COUNT, Plain(5))),
        of("round", of("/", COUNT, Plain(3)), Plain(1)),
        of("abs", of("-", COUNT, Plain(9))),
    )
    rows = answer(question(declared(2), outputs=outputs), [10, 0])
    assert [column(rows, f"c{i}") for i in range(8)] == [
        [20, 0], [90, 100], [2.5, 0.0], [1.0, None], ["many", "few"], [pytest.approx(5**0.5), None],
        [3.3, 0.0], [1, 9],
    ]  # fmt: skip
    assert ends(rows, "c0")[0] == (14, 26)
    assert ends(rows, "c1")[0] == (87, 93)
    assert ends(rows, "c2")[0] == (1.75, 3.25)
    assert ends(rows, "c6")[0] == (2.3, 4.3)
    assert ends(rows, "c7") == [(0, 4), (6, 9)]
    assert ends(rows, "c3") == [(7 / 13, 13 / 7), (0, float("inf"))]  # 3 of 0 may be all noise
    assert rows.columns[1 + 4].low is None


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("and", (True, None), None),
        ("and", (False, None), False),
        ("or", (True, None), True),
        ("or", (False, None), None),
        ("not", (None,), None),
        ("=", (1, None), None),
        ("is_null", (None,), True),
        ("coalesce", (None, 3), 3),
        ("least", (None, 3, 2), 2),
        ("greatest", (None, None), None),
        ("+", (None, 1), None),
        ("/", (1, 0), None),
        ("neg", (4,), -4),
    ],
)
def test_sql_rules_for_null(op: str, args: tuple[Any, ...], expected: Any) -> None:
    tree = Computed(op, tuple(Plain(arg) for arg in args))
    assert column(answer(question(outputs=(tree,)), [1])) == [expected]


def test_having_order_and_limit_act_on_released_values() -> None:
    order = (Order(COUNT, True, False), Order(KeyValue(0), True, False))
    asked = question(declared(5), having=Computed(">", (COUNT, Plain(2))), order=order, limit=2, offset=1)
    rows = answer(asked, [3, 9, 2, 3, 7])
    assert column(rows, "ward") == ["ward4", "ward3"]
    assert column(rows) == [7, 3]
    assert rows.length == 2
    assert len(ends(rows)) == 2


@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("descending", [True, False])
def test_nulls_stand_where_they_were_asked_for(nulls_first: bool, descending: bool) -> None:
    order = (Order(KeyValue(0), descending, nulls_first),)
    rows = answer(question(undeclared(), order=order), [1, 2, 3], keys=[("a",), ("b",), (None,)])
    known = ["b", "a"] if descending else ["a", "b"]
    assert column(rows, "town") == ([None, *known] if nulls_first else [*known, None])


def test_groupings_follow_one_another_with_null_for_missing_keys() -> None:
    asked = question(
        declared(2), declared(3, "sex"), sets=((0, 1), (1,), ()), parts=2, outputs=(COUNT, AVG)
    )
    shares = divide_budget(asked, epsilon=3, delta=0, noise="auto")
    noisy = add_noise(shares, exact(asked, 50))
    rows = estimate(shares, noisy, confidence="0.95", agree=False)
    assert column(rows, "ward") == ["ward0"] * 3 + ["ward1"] * 3 + [None] * 4
    assert column(rows, "sex") == ["sex0", "sex1", "sex2"] * 3 + [None]
    assert rows.length == len(column(rows)) == len(ends(rows, "c1")) == 10
    assert not rows.agree
    together = estimate(shares, noisy, confidence="0.95", agree=True)
    assert together.agree
    counts = column(together)
    assert (
        sum(counts[:6]) == pytest.approx(sum(counts[6:9]), abs=1e-4) == pytest.approx(counts[9], abs=1e-4)
    )
    assert counts[0] + counts[3] == pytest.approx(counts[6], abs=1e-4)
    assert column(together, "c1") == column(rows, "c1")


def test_people_are_not_made_to_add_up() -> None:
    """One person may be in several groups: a total of 40 is right beside cells of 30 and 30."""
    people = NoisyAggregate("count", (3,))
    asked = question(declared(2), sets=((0,), ()), parts=4, outputs=(people,))
    shares = divide_budget(asked, epsilon=1, delta=0, noise="auto")
    zeros, cells, total = np.zeros(2, np.int64), np.array([30, 30]), np.array([40])
    noisy = [
        NoisyGrouping((zeros, zeros, zeros, cells), {}, None, 2),
        NoisyGrouping((total,) * 4, {}, None, 1),
    ]
    assert column(estimate(shares, noisy, confidence="0.95", agree=True)) == [30, 30, 40]


def test_an_answer_without_groups() -> None:
    shares = divide_budget(question(undeclared(), parts=2, outputs=(COUNT, AVG)), epsilon=1, **SHORTS)  # type: ignore[arg-type]
    empty = np.zeros(0, dtype=np.int64)
    rows = estimate(shares, [NoisyGrouping((empty, empty), {}, [], 0)], confidence="0.95", agree=True)
    assert rows.length == 0
    assert all(len(col.values) == 0 for col in rows.columns)


def test_truths_and_nulls_are_decoded() -> None:
    assert [decode_key(Truth(), 1), decode_key(Truth(), None), decode_key(STAY, 4)] == [True, None, 4]


def test_spread_of_each_column_before_the_release() -> None:
    trees = (COUNT, SUM, AVG, VAR, MEDIAN, Computed("*", (COUNT, Plain(10))), Computed("+", (COUNT, SUM)))
    asked = question(declared(3), parts=3, outputs=trees, spectra=(STAY,))
    shares = divide_budget(asked, epsilon=2, delta=0, noise="auto")
    found = spread(asked, shares, "0.95")
    half = shares.mechanism(0, 0).spread("0.95")
    assert found["c0"] == Spread(half)
    assert found["c1"] == Spread(shares.mechanism(0, 1).spread("0.95") / 4)
    assert found["c2"].formula is not None
    assert found["c2"].formula.endswith(" / n")
    assert found["c3"].half is None
    assert found["c4"].ranks == float(shares.chosen[0].mechanism.spread("0.95"))
    assert found["c5"] == Spread(10.0 * half)
    both = ((Fraction(1), shares.mechanism(0, 0)), (Fraction(1, 4), shares.mechanism(0, 1)))
    assert found["c6"].half == weighted_width(both, Fraction(19, 20))
    assert found["ward"] == Spread()
    known = spread(asked, shares, "0.95", n=1000)
    assert known["c2"].half == pytest.approx(float(found["c2"].formula.split()[0]) / 1000, rel=1e-3)


def test_the_spread_of_an_average_is_that_of_its_intervals() -> None:
    """At the end of the range, where the formula has its worst case."""
    asked = question(declared(1), parts=2, outputs=(AVG,))
    shares = divide_budget(asked, epsilon=1, delta=0, noise="auto")
    half = spread(asked, shares, "0.95", n=10_000)["c0"].half
    rows = answer(asked, [10_000], [290_000])
    low, high = ends(rows)[0]
    assert half == pytest.approx((high - low) / 2, rel=0.05)


def test_truths_are_sorted_like_numbers() -> None:
    order = (Order(Computed(">", (COUNT, Plain(5))), True, False), Order(COUNT, False, False))
    assert column(answer(question(declared(4), order=order), [3, 9, 7, 1])) == [7, 9, 1, 3]


def test_the_spread_of_a_variance_is_that_of_its_intervals() -> None:
    """Mean at the end of the range and variance near 0: all of the formula's worst cases at once."""
    asked = question(declared(1), parts=3, outputs=(VAR,))
    shares = divide_budget(asked, epsilon=1, delta=0, noise="auto")
    half = spread(asked, shares, "0.95", n=10**6)["c0"].half
    rows = answer(asked, [10**6], [295 * 10**5], [8752 * 10**5])
    assert column(rows) == [pytest.approx(4.95, rel=0.01)]
    low, high = ends(rows)[0]
    assert half == pytest.approx((high - low) / 2, rel=0.05)


@pytest.mark.parametrize("noise_", ["auto", "gaussian"])
def test_a_width_is_also_reached_with_gaussian_noise_and_selected_keys(noise_: str) -> None:
    asked = question(undeclared(), parts=4, outputs=(COUNT, NoisyAggregate("count", (3,))), rows=4)
    shares = shares_for_width(asked, within=200, confidence="0.9", delta="1e-6", noise=noise_)
    halves = [found.half for found in spread(asked, shares, "0.9").values() if found.half is not None]
    assert 190 < max(halves) <= 200


@pytest.mark.parametrize("within", [3, 50, 4000])
def test_epsilon_follows_from_a_width(within: int) -> None:
    asked = question(declared(3), parts=2, outputs=(COUNT,), rows=2)
    shares = shares_for_width(asked, within=within, confidence="0.95", delta=0, noise="auto")
    assert shares.mechanism(0, 0).spread("0.95") <= within
    less = divide_budget(asked, epsilon=shares.epsilon * Fraction(998, 1000), delta=0, noise="auto")
    assert less.mechanism(0, 0).spread("0.95") > within


def test_a_width_for_an_average_needs_n() -> None:
    asked = question(declared(3), parts=2, outputs=(AVG,))
    with pytest.raises(BadParameter, match="give n"):
        shares_for_width(asked, within=1, confidence="0.95", delta=0, noise="auto")
    shares = shares_for_width(asked, within=1, confidence="0.95", delta=0, noise="auto", n=1000)
    half = spread(asked, shares, "0.95", n=1000)["c0"].half
    assert half is not None
    assert 0.99 < half <= 1


def test_a_width_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(BadParameter, match="ask with epsilon"):
        shares_for_width(
            question(parts=0, outputs=(MEDIAN,), spectra=(STAY,)),
            within=1, confidence="0.95", delta=0, noise="auto",
        )  # fmt: skip
    with pytest.raises(BadParameter, match="cannot be reached"):
        shares_for_width(question(rows=10**6), within=1, confidence="0.95", delta=0, noise="auto")


@pytest.mark.parametrize("outputs", [(COUNT,), (SUM,), (AVG,), (VAR,)])
def test_a_hundred_thousand_groups_are_estimated_fast(outputs: tuple[NoisyAggregate, ...]) -> None:
    """Aims 50 ms for counts and sums, 0.3 s for averages; wide limits, since other tests run beside."""
    numbers = Key("id", Reference("id", Numeric(Fraction(1), 0, 99_999)), range(100_000))
    asked = question(numbers, parts=3, outputs=outputs)
    shares = divide_budget(asked, epsilon=1, delta=0, noise="auto")
    noisy = add_noise(shares, exact(asked, 1000))
    start = time.process_time()
    rows = estimate(shares, noisy, confidence="0.95", agree=True)
    assert time.process_time() - start < 3
    assert rows.length == 100_000


FOUND = st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e6), st.floats(0, 1))


@given(st.lists(FOUND, min_size=1, max_size=5))
def test_rounding_makes_no_interval_narrower(found: list[tuple[float, float, float]]) -> None:
    low, widths, parts = np.array(found).T
    told = round_outward(low + widths * parts, low, low + widths)
    assert told.low is not None
    assert told.high is not None
    assert (told.low <= low).all()
    assert (told.high >= low + widths).all()
    assert ((told.low <= told.values) & (told.values <= told.high)).all()


def test_what_is_told_is_within_the_interval() -> None:
    told = round_outward(np.array([30.0, 6 / 7]), np.array([0.0, 0.5]), np.array([12.5, 6 / 7]))
    assert told.values[0] == 12.5
    assert told.values[1] <= 6 / 7
