"""Values of different kinds are compared and brought together by what they mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Person, Text, Truth
from lapwing.sql.question.comparison import compared, is_in, joint_kind, seconds_of, unified
from lapwing.sql.question.expression import Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.typed_expressions import null_of
from support.cases import each
from support.evaluated import evaluated
from support.small_kinds import KINDS, bound, equal, meaning, require_within, rows_over

TESTS = {
    Op.EQ: lambda x, y: x == y,
    Op.NE: lambda x, y: x != y,
    Op.LT: lambda x, y: x < y,
    Op.LE: lambda x, y: x <= y,
    Op.GT: lambda x, y: x > y,
    Op.GE: lambda x, y: x >= y,
}
NUMERIC = ("a", "b", "p", "n", "g", "t")
MIXES = [("a", "b", "g"), ("w",), ("d",), ("t", "u"), ("h",), ("b", "p"), ("d", "h"), ("w", "name")]
PERSON = Reference("lapwing_unit", Person())


def column(name: str) -> Reference:
    return Reference(name, KINDS[name])


def value_of(name: str, row: dict[str, Any]) -> Any:
    value = meaning(row[name], KINDS[name])
    return int(value) if isinstance(value, bool) else value


@settings(max_examples=60, deadline=None)
@given(op=st.sampled_from(list(TESTS)), left=st.sampled_from(NUMERIC), right=st.sampled_from(NUMERIC))
def test_numbers_are_compared_by_value(op: Op, left: str, right: str) -> None:
    expression = compared(op, column(left), column(right))
    for row in rows_over(*dict.fromkeys((left, right))):
        one, other = value_of(left, row), value_of(right, row)
        wanted = None if one is None or other is None else TESTS[op](one, other)
        assert require_within(expression, row) == wanted


@settings(max_examples=150, deadline=None)
@given(
    op=st.sampled_from([Op.LT, Op.LE, Op.GT, Op.GE]),
    name=st.sampled_from(["a", "b", "p", "n"]),
    value=st.fractions(-20, 20, max_denominator=40),
)
def test_constants_need_not_lie_on_the_grid_nor_within_the_bounds(
    op: Op, name: str, value: Fraction
) -> None:
    constant = Constant(value.numerator, Numeric(Fraction(1, value.denominator), *(value.numerator,) * 2))
    for row in rows_over(name):
        there, back = compared(op, column(name), constant), compared(op, constant, column(name))
        one = value_of(name, row)
        assert require_within(there, row) == (None if one is None else TESTS[op](one, value))
        assert require_within(back, row) == (None if one is None else TESTS[op](value, one))


@settings(max_examples=100, deadline=None)
@given(op=st.sampled_from(list(TESTS)), seconds=st.integers(20_080 * 86400, 20_130 * 86400))
def test_times_are_compared_to_any_second(op: Op, seconds: int) -> None:
    constant = Constant(seconds, Moment(1, seconds, seconds))
    expression = compared(op, column("d"), constant)
    for row in rows_over("d"):
        wanted = None if row["d"] is None else TESTS[op](row["d"] * 86400, seconds)
        assert evaluated(expression, row) == wanted


@settings(max_examples=100, deadline=None)
@given(names=st.sampled_from(MIXES), nulls=st.integers(0, 2))
def test_unified_values_mean_what_they_meant(names: tuple[str, ...], nulls: int) -> None:
    given_ones: list[Expression] = [*map(column, names), *[null_of(Text())] * nulls]
    found = unified(given_ones)
    kind = joint_kind(found)
    assert len(found) == len(given_ones)
    assert all(type(one.kind) is type(kind) for one in found)
    for row in rows_over(*names):
        for name, one in zip(names, found[: len(names)], strict=True):
            value = require_within(one, row)
            assert comparable(meaning(value, kind)) == comparable(meaning(row[name], KINDS[name]))


def comparable(value: Any) -> Any:
    """A day is the beginning of it."""
    return value.isoformat()[:10] if hasattr(value, "isoformat") else value


def test_joint_bounds_hold_all() -> None:
    kinds: list[Kind] = [
        Numeric(Fraction(1), 0, 5),
        Numeric(Fraction(1), -9, 1),
        Numeric(Fraction(1), 3, None),
    ]
    assert joint_kind([Reference("x", kind) for kind in kinds]) == Numeric(Fraction(1), -9, None)
    assert joint_kind([Reference("x", Moment(1, 0, 5)), Reference("y", Moment(1, -2, 3))]) == Moment(
        1, -2, 5
    )
    assert joint_kind([null_of(Truth())]) == Text()


def test_declared_values_stay_declared_beside_public_texts() -> None:
    found = bound("CASE WHEN t THEN w ELSE 'other' END")
    assert found.kind == Choice(("A", "b", "Cc ", "", "other"))
    assert bound("COALESCE(w, name)").kind == Text()


def test_in_takes_codes_of_numbers_and_times() -> None:
    expression = is_in(column("b"), [bound("0.5"), bound("0.25"), bound("-1")])
    assert expression == bound("b IN (-1, 0.5)")
    for row in rows_over("b"):
        wanted = None if row["b"] is None else row["b"] in (1, -2)
        assert evaluated(expression, row) == wanted


def test_in_with_null_is_never_false() -> None:
    expression = bound("w IN ('A', NULL)")
    for row in rows_over("w"):
        assert evaluated(expression, row) == (True if row["w"] == 0 else None)
    assert bound("NULL IN (1, 2)") == bound("NULL IN (1, 2)")
    assert evaluated(bound("NULL IN (1, 2)"), {}) is None


def test_texts_of_columns_and_declared_values_are_equal_by_text() -> None:
    expression = compared(Op.EQ, column("w"), column("name"))
    for row in rows_over("w", "name"):
        assert evaluated(expression, row) == equal(meaning(row["w"], KINDS["w"]), row["name"])


@each(
    ("sql", "words"),
    [
        ("w = 'Z'", "'Z' is not a declared value"),
        ("w = 3", "another type"),
        ("g = 'A'", "another type"),
        ("g = DATE '2025-01-01'", "another type"),
        ("a = 'x'", "cannot be compared"),
        ("d = 3", "cannot be compared"),
        ("d = name", "cannot be compared"),
        ("d > 'yesterday'", "ISO form"),
        ("d > '2025-01-01 00:00:00.5'", "parts of a second"),
        ("d > '0001-01-01T00:00:00+23:59'", "before year 1"),
        ("COALESCE(a, w)", "different types"),
        ("COALESCE(g, 'x')", "different types"),
        ("COALESCE(d, DATE_TRUNC('month', d))", "different types"),
        ("DATE_TRUNC('week', d) = d", "weeks cannot be compared"),
        ("d + INTERVAL 999999999 DAY", "before year 1 or after 9999"),
        ("DATE '9999-12-31' + INTERVAL 1 DAY", "before year 1 or after 9999"),
        ("d + INTERVAL 1 HOUR", "finer than"),
        ("d + INTERVAL 1 MONTH", "interval is not possible"),
        ("CAST(name AS INT) > 0.5", "without bounds"),
        ("CAST(name AS INT) + 1", "without bounds"),
    ],
)  # fmt: skip
def test_what_cannot_be_brought_together_is_refused(sql: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        bound(sql)


@pytest.mark.parametrize("op", list(TESTS))
def test_the_unit_is_compared_to_nothing(op: Op) -> None:
    with pytest.raises(Refused, match="unit cannot be compared"):
        compared(op, PERSON, column("a"))
    with pytest.raises(Refused, match="unit cannot be used in an expression"):
        unified([PERSON, PERSON])


def test_seconds_of_iso_times() -> None:
    assert seconds_of("1970-01-02") == 86400
    assert seconds_of("1970-01-01T01:00:00+01:00") == 0
    assert seconds_of("0001-01-01") < 0
