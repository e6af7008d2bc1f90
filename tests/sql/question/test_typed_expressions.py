"""Expressions stay within the bounds of their kinds, and mean what SQL says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.sql.policy.kinds import Numeric, Truth
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.typed_expressions import added, apply, number, with_kind
from support.arithmetic import Made, numbers, row_of
from support.cases import each
from support.small_kinds import (
    KINDS,
    and_,
    bound,
    equal,
    greatest,
    half_away,
    known,
    le,
    least,
    meaning,
    or_,
    require_within,
    rows_over,
)  # fmt: skip


def trunc_week(day: date) -> date:
    return day - timedelta(days=day.weekday())


def bucket(value: Fraction, low: int, high: int, count: int) -> int:
    if value < low:
        return 0
    return count + 1 if value >= high else math.floor((value - low) * count / Fraction(high - low)) + 1


F = Fraction
CENT = F(1, 100)
CASES: list[tuple[str, str | tuple[str, ...], Callable[..., Any]]] = [
    ("a + b", "ab", known(lambda a, b: a + b)),
    ("a - b - 1.25", "ab", known(lambda a, b: a - b - F(5, 4))),
    ("a * b", "ab", known(lambda a, b: a * b)),
    ("n * n * -2", "n", known(lambda n: n * n * -2)),
    ("a * 0", "a", known(lambda _: 0)),
    ("-a", "a", known(lambda a: -a)),
    ("a / 4", "a", known(lambda a: a / 4)),
    ("a / -0.5", "a", known(lambda a: a * -2)),
    ("a / 0", "a", lambda _: None),
    ("a // 3", "a", known(lambda a: a // 3)),
    ("a // b", "ab", lambda a, b: None if a is None or not b else a // b),
    ("FLOOR(n / a)", "na", lambda n, a: None if n is None or not a else n // a),
    ("ROUND(a / b, 2)", "ab", lambda a, b: None if a is None or not b else a / b // CENT * CENT),
    ("a % 3", "a", known(lambda a: a % 3)),
    ("b % 0.7", "b", known(lambda b: b % F(7, 10))),
    ("ABS(a)", "a", known(abs)),
    ("ABS(n)", "n", known(abs)),
    ("ROUND(b)", "b", known(lambda b: half_away(b, F(1)))),
    ("ROUND(n)", "n", known(lambda n: half_away(n, F(1)))),
    ("ROUND(p, 1)", "p", known(lambda p: half_away(p, F(1, 10)))),
    ("ROUND(a * 7, -1)", "a", known(lambda a: half_away(a * 7, F(10)))),
    ("ROUND(a, 3)", "a", known(lambda a: a)),
    ("FLOOR(b)", "b", known(math.floor)),
    ("CEIL(b)", "b", known(math.ceil)),
    ("CEIL(n)", "n", known(math.ceil)),
    ("CEIL(p)", "p", known(math.ceil)),
    ("CAST(b AS INT)", "b", known(lambda b: half_away(b, F(1)))),
    ("LEAST(a, b)", "ab", least),
    ("LEAST(a, 2)", "a", lambda a: least(a, 2)),
    ("GREATEST(a, b, -1)", "ab", lambda a, b: greatest(a, b, -1)),
    ("GREATEST(-9, LEAST(a, 9))", "a", lambda a: greatest(-9, least(a, 9))),
    ("CLAMP(a, -1, 2)", "a", known(lambda a: max(-1, min(2, a)))),
    ("CLAMP(CAST(name AS INT), -5, 5)", "name", {"7": 5, "-12": -5}.get),
    ("CAST(name AS INT) > 3", "name", lambda x: int(x) > 3 if x in ("7", "-12") else None),
    ("WIDTH_BUCKET(b, -1, 1, 3)", "b", known(lambda b: bucket(b, -1, 1, 3))),
    ("WIDTH_BUCKET(a, 10, 20, 4)", "a", known(lambda a: bucket(a, 10, 20, 4))),
    ("COALESCE(a, b, 9)", "ab", lambda a, b: a if a is not None else b if b is not None else 9),
    ("NULLIF(a, 2)", "a", lambda a: None if a == 2 else a),
    ("CASE WHEN a > 1 THEN b WHEN a < 0 THEN -7 END", "ab",
     lambda a, b: None if a is None else b if a > 1 else -7 if a < 0 else None),
    ("CASE a WHEN 1 THEN 'one' WHEN 2 THEN w ELSE 'b' END", "aw",
     lambda a, w: "one" if a == 1 else w if a == 2 else "b"),
    ("IF(t, a, NULL)", "ta", lambda t, a: a if t else None),
    ("a BETWEEN b AND 2", "ab", lambda a, b: and_(le(b, a), le(a, 2))),
    ("a NOT BETWEEN -1 AND 2", "a", known(lambda a: not -1 <= a <= 2)),
    ("a IN (1, -2, 2.5)", "a", known(lambda a: a in (1, -2))),
    ("a NOT IN (1, NULL)", "a", lambda a: False if a == 1 else None),
    ("b IN (0.5, 1, a)", "ba", lambda b, a: or_(equal(b, F(1, 2)), equal(b, 1), equal(b, a))),
    ("g IN (3, 7)", "g", known(lambda g: g in (3, 7))),
    ("g + 1", "g", known(lambda g: g + 1)),
    ("g > a", "ga", known(lambda g, a: g > a)),
    ("g >= 3", "g", known(lambda g: g >= 3)),
    ("t + t + 1", "t", known(lambda t: 2 * t + 1)),
    ("t AND u", "tu", and_),
    ("t OR NOT u", "tu", lambda t, u: or_(t, None if u is None else not u)),
    ("t = u", "tu", equal),
    ("t IS NULL OR u IS TRUE", "tu", lambda t, u: t is None or u is True),
    ("t IS NOT FALSE", "t", lambda t: t is not False),
    ("w = 'A'", "w", known(lambda w: w == "A")),
    ("w <> 'A'", "w", known(lambda w: w != "A")),
    ("w < 'a'", "w", known(lambda w: w < "a")),
    ("w LIKE '_c%'", "w", known(lambda w: w[1:2] == "c")),
    ("w NOT LIKE 'A'", "w", known(lambda w: w != "A")),
    ("w ILIKE 'c%'", "w", known(lambda w: w[:1] in ("c", "C"))),
    ("w IN ('A', 'b')", "w", known(lambda w: w in ("A", "b"))),
    ("LOWER(TRIM(w))", "w", known(lambda w: w.strip(" ").lower())),
    ("UPPER(w)", "w", known(lambda w: w.upper())),
    ("LENGTH(w) + 1", "w", known(lambda w: len(w) + 1)),
    ("SUBSTRING(w, 2, 1)", "w", known(lambda w: w[1:2])),
    ("LEFT(w, 2)", "w", known(lambda w: w[:2])),
    ("STARTS_WITH(w, 'C')", "w", known(lambda w: w.startswith("C"))),
    ("w || '-' || name", ("w", "name"), known(lambda w, x: f"{w}-{x}")),
    ("CONCAT(w, name)", ("w", "name"), lambda w, x: (w or "") + (x or "")),
    ("COALESCE(w, 'none')", "w", lambda w: "none" if w is None else w),
    ("COALESCE(w, name)", ("w", "name"), lambda w, x: x if w is None else w),
    ("w = name", ("w", "name"), equal),
    ("name IN ('7', 'Ab')", ("name",), known(lambda x: x in ("7", "Ab"))),
    ("name ILIKE 'AB'", ("name",), known(lambda x: x == "Ab")),
    ("LENGTH(name) > 2", ("name",), known(lambda x: len(x) > 2)),
    ("YEAR(d)", "d", known(lambda d: d.year)),
    ("EXTRACT(doy FROM d)", "d", known(lambda d: d.timetuple().tm_yday)),
    ("EXTRACT(isodow FROM d)", "d", known(lambda d: d.isoweekday())),
    ("DATE_PART('month', d)", "d", known(lambda d: d.month)),
    ("HOUR(h)", "h", known(lambda h: h.hour)),
    ("DATE_TRUNC('month', d)", "d", known(lambda d: d.replace(day=1))),
    ("DATE_TRUNC('quarter', h)", "h", known(lambda h: date(h.year, (h.month - 1) // 3 * 3 + 1, 1))),
    ("DATE_TRUNC('week', d)", "d", known(trunc_week)),
    ("DATE_TRUNC('week', h)", "h", known(lambda h: trunc_week(h.date()))),
    ("DATE_TRUNC('day', h)", "h", known(lambda h: h.date())),
    ("DATE(h)", "h", known(lambda h: h.date())),
    ("d + INTERVAL 7 DAY", "d", known(lambda d: d + timedelta(days=7))),
    ("d - INTERVAL '2' WEEK", "d", known(lambda d: d - timedelta(days=14))),
    ("d - DATE '2025-01-01'", "d", known(lambda d: (d - date(2025, 1, 1)).days)),
    ("DATEDIFF('day', d, h)", "dh", known(lambda d, h: (h.date() - d).days)),
    ("d >= '2025-01-10'", "d", known(lambda d: d >= date(2025, 1, 10))),
    ("d < '2025-01-10 12:00:00'", "d", known(lambda d: d <= date(2025, 1, 10))),
    ("d = '2025-01-10 12:00:00'", "d", known(lambda _: False)),
    ("d > '1999-01-01'", "d", known(lambda _: True)),
    ("d IN ('2025-01-10', '2025-01-11')", "d", known(lambda d: d.day in (10, 11) and d.year == 2025)),
    ("DATE_TRUNC('month', d) > '2025-01-15'", "d", known(lambda d: d >= date(2025, 2, 1))),
    ("DATE_TRUNC('month', d) = '2025-02-01'", "d", known(lambda d: d.month == 2)),
    ("d < h", "dh", known(lambda d, h: datetime(d.year, d.month, d.day) < h.replace(tzinfo=None))),
    ("COALESCE(d, DATE '2025-02-02')", "d", lambda d: date(2025, 2, 2) if d is None else d),
]  # fmt: skip


@each(("sql", "names", "expected"), CASES)
def test_each_operation_means_what_sql_says_within_its_bounds(
    sql: str, names: str | tuple[str, ...], expected: Callable[..., Any]
) -> None:
    columns = (names,) if names in KINDS and isinstance(names, str) else tuple(names)
    expression = bound(sql)
    for row in rows_over(*columns):
        found = meaning(require_within(expression, row), expression.kind)
        wanted = expected(*[meaning(row[name], KINDS[name]) for name in columns])
        assert found == wanted, (row, found, wanted)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(made=numbers(), data=st.data())
def test_nested_arithmetic_means_what_sql_says_within_its_bounds(made: Made, data: st.DataObject) -> None:
    sql, expected = made
    try:
        expression = bound(sql)
    except Refused as refusal:
        assert re.search("too large|too many|not a declared value", refusal.construct)  # noqa: PT017
        return
    for _ in range(5):
        row = row_of(data.draw)
        found = meaning(require_within(expression, row), expression.kind)
        assert found == expected(row), (sql, row)


def test_s13_sums_use_both_bounds() -> None:
    low, high = Numeric(Fraction(1), -100, 3), Numeric(Fraction(1), -2, 7)
    total = added(Reference("x", low), Reference("y", high))
    assert total.kind == Numeric(Fraction(1), -102, 10)
    difference = added(Reference("x", low), Reference("y", high), minus=True)
    assert difference.kind == Numeric(Fraction(1), -107, 5)


@pytest.mark.parametrize(
    "sql",
    [
        "a * 4503599627370495 * 3 * a",
        "a * 1e15 * 1e15",
        "a / 1e15 / 1e15",
        "9007199254740992",
        "1e40",
        "1e99999999",
    ],
)
def test_x2_what_could_overflow_is_refused(sql: str) -> None:
    with pytest.raises(Refused, match="too large"):
        bound(sql)


def test_expressions_have_a_size_and_a_depth() -> None:
    once = apply(Op.NOT, Reference("t", Truth()))
    assert (once.size, once.depth) == (3, 1)
    twice = apply(Op.AND, once, once)
    assert (twice.size, twice.depth) == (8, 2)
    assert hash(twice) == hash(apply(Op.AND, once, once))
    with pytest.raises(Refused, match="too many parts"):
        _doubled(twice)


def _doubled(expression: Expression) -> None:
    while True:
        expression = apply(Op.AND, expression, expression)


def test_a_column_keeps_its_kind() -> None:
    column = Reference("a", KINDS["a"])
    wider = with_kind(column, Numeric(Fraction(1), -9, 9))
    assert isinstance(wider, Apply)
    assert wider.args == (column,)
    assert with_kind(column, KINDS["a"]) is column
    assert with_kind(number(3), Numeric(Fraction(1), 0, 9)) == Constant(3, Numeric(Fraction(1), 0, 9))
