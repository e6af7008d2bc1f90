"""One column: its features are bounded whatever a row holds, and depend on that row alone."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.learn.features import Feature, code_of
from lapwing.learn.trainers.columns import Category, Real
from lapwing.learn.trainers.columns import feature_matrix as trainers_features
from lapwing.sql.policy.kinds import Choice, Numeric, Text
from lapwing.sql.row_questions import CodedColumn
from support.cases import each
from support.row_question import KINDS

CODES = st.lists(st.tuples(st.integers(-(2**40), 2**40), st.booleans()), min_size=1, max_size=8)


def column(*pairs: tuple[int, bool]) -> CodedColumn:
    return CodedColumn(
        np.array([code for code, _ in pairs], np.int64), np.array([known for _, known in pairs], bool)
    )


@given(CODES, st.sampled_from(sorted(KINDS)), st.booleans())
def test_features_are_bounded_and_each_row_stands_alone(
    pairs: list[tuple[int, bool]], name: str, indicator: bool
) -> None:
    feature = Feature(name, KINDS[name], indicator=indicator)
    whole = feature.matrix(column(*pairs))
    assert whole.shape == (len(pairs), len(feature.names))
    assert (np.abs(whole) <= 1).all()
    assert ((whole**2).sum(axis=1) <= 1).all()
    for n, pair in enumerate(pairs):
        assert (feature.matrix(column(pair))[0] == whole[n]).all()


@given(CODES, st.sampled_from(sorted(KINDS)), st.booleans())
def test_trainers_know_all_that_the_table_can_hold(
    pairs: list[tuple[int, bool]], name: str, indicator: bool
) -> None:
    feature = Feature(name, KINDS[name], indicator=indicator)
    table = feature.table(column(*pairs))
    assert table.shape == (len(pairs), len(feature.declared))
    for own, values in zip(feature.declared, table.T, strict=True):
        known = values[~np.isnan(values)]
        if isinstance(own, Real):
            assert ((known >= float(own.low)) & (known <= float(own.high))).all()
        else:
            assert isinstance(own, Category)
            assert set(known) <= {*own.values, 0}
    assert trainers_features(feature.declared, table).shape[0] == len(pairs)


def test_numbers_reach_from_minus_one_to_one() -> None:
    feature = Feature("age", KINDS["age"])
    found = feature.matrix(column((0, True), (50, True), (100, True), (7, False)))
    assert found[:, 0].tolist() == [-1.0, 0.0, 1.0, 0.0]
    assert np.isnan(feature.table(column((7, False)))).all()


def test_what_is_missing_is_declared_or_shown() -> None:
    gap = column((3, False), (100, True))
    shown = Feature("age", KINDS["age"], indicator=True)
    assert shown.matrix(gap).tolist() == [[0, 1], [1, 0]]
    assert shown.names == ["age", "age is missing"]
    assert Feature("age", KINDS["age"], missing=0).matrix(gap).tolist() == [[-1], [1]]
    one_hot = Feature("ward", KINDS["ward"])
    assert one_hot.matrix(column((0, False), (2, True))).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert one_hot.names == ["ward = A", "ward = B", "ward = C"]


def test_one_value_only_is_no_division_by_zero() -> None:
    alone = Feature("n", Numeric(KINDS["age"].step, 4, 4))  # type: ignore[union-attr]
    assert alone.matrix(column((4, True))).tolist() == [[0.0]]
    assert isinstance(alone.declared[0], Real)


@each(
    ("name", "value", "code"),
    [
        ("age", 50.5, 51), ("age", -3, 0), ("age", 1e9, 100), ("age", float("inf"), 100),
        ("age", float("nan"), None), ("age", None, None), ("age", "7", 7), ("age", "x", None),
        ("cost", 3.14, 314), ("cost", -100, -500), ("ward", "B", 1), ("ward", "Z", None), ("ward", 1, None),
        ("day", date(2025, 1, 1), 20_089), ("day", date(1999, 1, 1), 20_089),
        ("day", datetime(2025, 1, 2, 23, tzinfo=UTC), 20_090), ("day", "2025", None),
        ("month", date(2025, 3, 9), 662), ("month", 3, None), ("urgent", True, 1), ("urgent", 1, None),
    ],
)  # fmt: skip
def test_plain_values_have_the_codes_that_engines_give(name: str, value: object, code: int | None) -> None:
    assert code_of(KINDS[name], value) == code


def test_truths_and_numbers_are_different_choices() -> None:
    assert code_of(Choice((0, 1)), True) is None
    assert code_of(Choice((False, True)), True) == 1
    assert code_of(Text(), "x") is None


# Case A5.
def test_what_has_no_bounds_is_refused() -> None:
    feature = Feature("name", Text())
    with pytest.raises(BadParameter, match="neither bounds"):
        feature.matrix(column((1, True)))
