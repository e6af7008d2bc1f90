"""Each unit is sampled independently, and its rows are drawn from its own rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from lapwing.errors import BadValue
from lapwing.learn.sgd.randomness import ABSENT, UnitIndex, draw_place_kinds, lay_out_pages


def test_each_unit_comes_with_the_rate_whatever_its_number_of_rows() -> None:
    """False alarm: each count is binomial(4000, 1/4); seven standard deviations, below 1e-10 in all."""
    units = UnitIndex(12, np.array([5, 1, 5, 5, 2, 2, 9, 5, 5, 5, 5, 5]))
    assert len(units) == 4
    owner = np.array([5, 1, 5, 5, 2, 2, 9, 5, 5, 5, 5, 5])
    counts = dict.fromkeys([1, 2, 5, 9], 0)
    sizes = set()
    for _ in range(4000):
        sampled = units.sample(Fraction(1, 4), 2)
        sizes.add(len(sampled))
        for line in sampled:
            present = line[line != ABSENT]
            assert len(set(present)) == len(present) == min(2, (owner == owner[line[0]]).sum())
            assert len(set(owner[present])) == 1
            counts[int(owner[line[0]])] += 1
    assert sizes == {0, 1, 2, 3, 4}  # a Poisson sample has no fixed size, and may be empty
    assert all(abs(count - 1000) < 7 * 27.4 for count in counts.values())


def test_every_row_of_a_unit_is_drawn() -> None:
    units = UnitIndex(5, np.array([3, 3, 3, 3, 3]))
    drawn = {int(units.sample(Fraction(1), 1)[0, 0]) for _ in range(300)}
    assert drawn == {0, 1, 2, 3, 4}  # one is missed with probability below 5 · 0.8^300


def test_rows_are_units_where_nothing_else_is_said() -> None:
    assert UnitIndex(7, None).sample(Fraction(1), 1).tolist() == [[k] for k in range(7)]
    assert UnitIndex(7, None).sample(Fraction(1), 2).tolist() == [[k, ABSENT] for k in range(7)]


@pytest.mark.parametrize("units", [None, np.zeros(0, dtype=np.int64)])
def test_nobody_is_an_empty_sample(units: np.ndarray | None) -> None:
    sampled = UnitIndex(0, units).sample(Fraction(1, 2), 3)
    assert sampled.shape == (0, 3)
    for kinds in (1, 2, 4):
        assert lay_out_pages(sampled, draw_place_kinds(0, 4, kinds), 4, kinds).shape == (0, 4, 3)


def test_pages_have_one_shape() -> None:
    sampled = UnitIndex(10, None).sample(Fraction(1), 1)
    found = lay_out_pages(sampled, draw_place_kinds(10, 4, 1), 4, 1)
    assert found.shape == (3, 4, 1)
    assert found[-1, :, 0].tolist() == [8, 9, ABSENT, ABSENT]


@pytest.mark.parametrize("units", [np.array([1.0, 2.0]), np.array([1, 2, 3]), np.array([["a"], ["b"]])])
def test_units_that_are_no_whole_numbers_are_refused(units: np.ndarray) -> None:
    with pytest.raises(BadValue, match="whole numbers, one for each row"):
        UnitIndex(2, units)


def test_a_column_of_a_table_is_taken_by_place_and_not_by_its_labels() -> None:
    column = pd.Series([1, 1, 2, 2, 3, 3], index=[5, 3, 1, 0, 2, 4])
    lines = UnitIndex(6, column).sample(Fraction(1), 2)
    assert sorted(map(sorted, lines.tolist())) == [[0, 1], [2, 3], [4, 5]]


def test_the_number_of_units_is_never_an_error() -> None:
    """It is private. (These take 100 MB for a moment.)"""
    assert len(UnitIndex((1 << 22) + 1, None)) == (1 << 22) + 1


@pytest.mark.parametrize(("page", "kinds"), [(4, 1), (4, 4), (12, 4), (24, 16), (64, 16), (64, 64)])
def test_each_unit_gets_a_place_of_its_kind_in_as_few_pages_as_hold_them(page: int, kinds: int) -> None:
    for count in (0, 1, 5, 200):
        sampled = np.arange(2 * count).reshape(count, 2)
        kind = draw_place_kinds(count, page, kinds)
        found = lay_out_pages(sampled, kind, page, kinds)
        assert sorted(found[found != ABSENT].tolist()) == list(range(2 * count))
        numbers, places, _ = np.nonzero(found[:, :, :1] != ABSENT)
        assert (places % kinds == kind[found[numbers, places, 0] // 2]).all()
        if count:
            of_kind = np.bincount(kind, minlength=kinds) / np.bincount(np.arange(page) % kinds)
            assert len(found) == np.ceil(of_kind).max()


def test_a_units_kind_is_its_own_coin_and_as_frequent_as_its_places() -> None:
    """False alarm: 16 counts, binomial(24,000, 1/12 or 1/24); seven standard deviations, below 1e-10."""
    counts = np.bincount(draw_place_kinds(24_000, 24, 16), minlength=16)
    expected = np.where(np.arange(16) < 8, 2000, 1000)
    assert (np.abs(counts - expected) < 7 * np.sqrt(expected)).all()


def test_who_leaves_takes_nobody_else_to_another_kind_of_place() -> None:
    kind = draw_place_kinds(100, 64, 16)
    sampled = np.arange(100)[:, None]
    before, after = (
        lay_out_pages(sampled[some], kind[some], 64, 16) for some in (slice(100), slice(1, 100))
    )
    for unit in range(1, 100):
        (was,), (now,) = (np.nonzero((found == unit).any((0, 2)))[0] for found in (before, after))
        assert was % 16 == now % 16
