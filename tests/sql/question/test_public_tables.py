"""Public tables are coded by us: the multiplicity that is priced is that of the rows that are joined."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Text, Truth, codes_of
from lapwing.sql.question import public_tables
from lapwing.sql.question.public_tables import PublicTable, can_join, code_of, inferred_kind
from lapwing.sql.question.relation import PublicScan

WHOLE = Numeric(Fraction(1), 0, 60)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=3),
    st.decimals(allow_nan=True, allow_infinity=True), st.dates(), st.datetimes(), st.binary(max_size=2),
    st.lists(st.integers(), max_size=2),
)  # fmt: skip
KINDS: list[Kind] = [
    WHOLE, Numeric(Fraction(1, 4), -8, 8), Numeric(Fraction(1), None, None), Choice(("A", "1", "")),
    Choice((1, 2, 0)), Moment(86400, 0, 20_000), Moment(1, 0, 10**9), Period(1, 0, 600), Truth(), Text(),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 5, None], Numeric(Fraction(1), 1, 5)),
        ([0.5, 2], Numeric(Fraction(1, 2), 1, 4)),
        ([Decimal("1.25")], Numeric(Fraction(1, 4), 5, 5)),
        ([math.nan, Decimal("NaN"), 1.0], Numeric(Fraction(1), 1, 1)),
        ([1e300], Numeric(Fraction(1), None, None)),
        ([True, None], Truth()),
        (["b", "a", "a"], Choice(("a", "b"))),
        ([None], Choice(("",))),
        ([], Choice(("",))),
        ([date(1970, 1, 2)], Moment(86400, 1, 1)),
        ([datetime(1970, 1, 1, 1), datetime(1970, 1, 1, 3)], Moment(3600, 1, 3)),
        ([[1], [2]], Choice(("[1]", "[2]"))),
    ],
)
def test_kinds_are_found_from_all_values(values: list[object], kind: Kind) -> None:
    assert inferred_kind(values) == kind


@settings(max_examples=300, deadline=None)
@given(values=st.lists(VALUES, max_size=6), kind=st.sampled_from([*KINDS, None]))
def test_codes_lie_within_the_kind_and_keys_repeat_as_often_as_said(
    values: list[object], kind: Kind | None
) -> None:
    kind = inferred_kind(values) if kind is None else kind
    table = PublicTable("t", {"k": values})
    codes = table.codes("k", kind)
    inside = codes_of(kind)
    assert all(code is None or inside is None or code in inside for code in codes)
    if any(isinstance(code, str) and "\ud800" <= max(code, default="") <= "\udfff" for code in codes):
        return
    shipped = table.shipped(PublicScan("t", (("k", kind),), ("k",))).column("k").to_pylist()
    counts = Counter(value for value in shipped if value is not None)
    assert table.most([("k", kind)]) == max(counts.values(), default=0)


def test_values_are_coded_by_what_they_are() -> None:
    assert code_of("1", Choice((1, 2))) is None
    assert code_of(True, Choice((0, 1))) is None
    assert code_of(1, Choice(("1",))) is None
    assert code_of(2, Truth()) is None
    assert code_of(61, WHOLE) is None
    assert code_of(date(2026, 1, 1), Period(3, 0, 900)) == 56 * 4
    assert code_of(date(2026, 2, 1), Period(3, 0, 900)) is None
    assert code_of(datetime(2026, 1, 1, 5), Period(1, 0, 900)) is None
    assert code_of(datetime(1970, 1, 2, tzinfo=UTC), Moment(86400, 0, 9)) == 1
    assert code_of(datetime(1970, 1, 2, 1, tzinfo=UTC), Moment(86400, 0, 9)) is None


def test_s9_the_most_frequent_key_over_several_columns() -> None:
    table = PublicTable("t", {"a": ["x", "x", "x", None], "b": [1, 1, 2, 1]})
    assert table.most([("a", Choice(("x",)))]) == 3
    assert table.most([("a", Choice(("x",))), ("b", WHOLE)]) == 2
    assert table.most([("a", Choice(("y",)))]) == 0
    assert table.size == 4


@pytest.mark.parametrize(
    ("own", "wanted", "fits"),
    [
        (Choice(("a",)), Text(), True),
        (Text(), Choice(("a",)), True),
        (Choice(("a",)), Choice((1,)), False),
        (WHOLE, Choice((1, 2)), True),
        (WHOLE, Numeric(Fraction(1, 2), 0, 9), True),
        (Numeric(Fraction(1, 2), 0, 9), WHOLE, False),
        (WHOLE, Text(), False),
        (Moment(1, 0, 9), Period(1, 0, 9), True),
        (Moment(1, 0, 9), WHOLE, False),
        (Truth(), WHOLE, False),
        (Truth(), Truth(), True),
    ],
)
def test_only_like_is_joined_with_like(own: Kind, wanted: Kind, fits: bool) -> None:
    assert can_join(own, wanted) is fits


def test_strange_names_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"ward": ["A"], "a b": [1], "x;--": [2]})
    assert list(PublicTable.of("t", rows, {}).values) == ["ward"]
    monkeypatch.setattr(public_tables, "MOST_ROWS", 0)
    with pytest.raises(BadParameter, match="at most"):
        PublicTable.of("t", rows, {})
