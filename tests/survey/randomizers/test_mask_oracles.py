"""Sets as packed bits: drawn exactly, counted exactly."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.survey.randomizers import ODDS, KaryResponse, SubsetSelection
from lapwing.survey.randomizers.mask_oracles import (
    CELLS,
    _Byte,
    contains_option,
    count_options,
    draw_subsets,
    insert_option,
    mask_size,
    random_masks,
    set_option,
)
from support.laws import decimal, follows
from support.streams import SeededStream


@pytest.mark.parametrize("favoured", [1 << 46, ODDS // 3, ODDS - (1 << 45), ODDS // 2])
def test_bits_are_set_independently(favoured: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(11))
    masks = random_masks(favoured, 200_000, 13)
    p = Fraction(favoured, ODDS)
    for column, bits in ((0, 8), (1, 5)):
        law = [decimal(p ** m.bit_count() * (1 - p) ** (bits - m.bit_count())) for m in range(1 << bits)]
        follows(masks[:, column], law)


@pytest.mark.parametrize("favoured", [1, 2, 3, 1 << 20, ODDS - 1, ODDS - 2])
def test_the_rarest_coins_have_tables_too(favoured: int) -> None:
    ones = np.bitwise_count(random_masks(favoured, 2000, 100)).sum()
    assert ones <= 1 if favoured < ODDS // 2 else ones >= 199_999


@settings(deadline=None)
@given(st.integers(0, 9000), st.integers(1, 70), st.integers(0, 1 << 30))
def test_options_are_counted_as_they_are(rows: int, options: int, seed: int) -> None:
    masks = np.random.default_rng(seed).integers(0, 256, (rows, mask_size(options)), dtype=np.uint8)
    plain = np.unpackbits(masks, axis=1, bitorder="little")[:, :options].sum(axis=0)
    assert count_options(masks, options).tolist() == plain.tolist()


def test_full_sets_do_not_overflow() -> None:
    masks = np.full((70_001, 3), 255, dtype=np.uint8)
    assert count_options(masks, 24).tolist() == [70_001] * 24


def test_single_options_are_put_and_found() -> None:
    masks = np.zeros((20, 3), dtype=np.uint8)
    where = np.arange(20)
    set_option(masks, where, np.ones(20, dtype=bool))
    for option in range(20):
        assert contains_option(masks, option).tolist() == [option == row for row in range(20)]
    set_option(masks, where, np.zeros(20, dtype=bool))
    assert not masks.any()


def subset_law(options: int, chosen: int) -> list[int]:
    """The numbers of all sets, each equally likely."""
    return sorted(sum(1 << j for j in one) for one in combinations(range(options), chosen))


@pytest.mark.parametrize(("options", "chosen"), [(7, 3), (10, 4), (16, 2), (17, 16), (12, 1)])
def test_every_set_is_equally_likely(options: int, chosen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(12))
    columns = draw_subsets(options, np.full(200_000, chosen), least=chosen - 1, most=chosen)
    numbers = sum(columns[byte].astype(np.int64) << (8 * byte) for byte in range(len(columns)))
    law = subset_law(options, chosen)
    places = np.searchsorted(law, numbers)
    assert np.array_equal(np.array(law)[places], numbers), "only sets of that size"
    follows(places, [Decimal(1) / len(law)] * len(law))


def test_what_is_left_of_the_cells_is_drawn_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rest, which is rare: its law and that of the whole cells make up the law of the byte."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(13))
    left, wanted = 30, 7
    byte = _Byte(left, wanted, wanted)
    ones = [mask.bit_count() for mask in range(256)]
    ways = [comb(left - 8, wanted - n) if n <= wanted else 0 for n in ones]
    chances = [Fraction(way, comb(left, wanted)) for way in ways]
    cells = np.bincount(byte._cells[0, : byte._whole[0]], minlength=256)
    rests = [chance * CELLS - int(own) for chance, own in zip(chances, cells, strict=True)]
    assert all(0 <= rest < 1 for rest in rests)
    assert sum(rests) == CELLS - byte._whole[0]
    drawn = byte._draw_rest(np.zeros(200_000, dtype=np.int64))
    follows(drawn, [decimal(rest / sum(rests)) for rest in rests])


@settings(deadline=None)
@given(st.integers(2, 40), st.data())
def test_an_option_is_put_in_between_the_others(options: int, data: st.DataObject) -> None:
    others = data.draw(
        st.lists(st.lists(st.booleans(), min_size=options - 1, max_size=options - 1), min_size=1)
    )
    where = data.draw(st.lists(st.integers(0, options - 1), min_size=len(others), max_size=len(others)))
    told = np.array(data.draw(st.lists(st.booleans(), min_size=len(others), max_size=len(others))))
    packed = np.packbits(np.array(others, dtype=np.uint8), axis=1, bitorder="little")
    rows = insert_option(np.ascontiguousarray(packed.T), options, np.array(where), told)
    found = np.unpackbits(rows, axis=1, bitorder="little")
    for one, place, value, bits in zip(others, where, told, found, strict=True):
        wanted = [*one[:place], bool(value), *one[place:]]
        assert bits.tolist() == wanted + [0] * (len(bits) - options)


@pytest.mark.parametrize(("options", "chosen"), [(10, 2), (9, 6), (100, 27), (300, 2), (3, 2)])
def test_both_ways_to_draw_sets_have_one_law(
    options: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tables and by mending: the same chance for each option (chi-square, 1e-9)."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(14))
    sets = SubsetSelection.for_epsilon(1, options=options, chosen=chosen)
    people, true = 40_000, options - 2
    for worth in (0, 1 << 60):
        monkeypatch.setattr("lapwing.survey.randomizers.mask_oracles.LEAST_TABLE_SETS", worth)
        masks = sets.decode(sets.sample(np.full(people, true)))
        counts = sets.counts(masks)
        low, high = (float(p) for p in (sets.outside, sets.inside))
        due = np.full(options, low)
        due[true] = high
        deviations = (counts - people * due) / np.sqrt(people * due * (1 - due))
        assert np.abs(deviations).max() < 6.7, "of 300 normal numbers, with probability below 1e-8"


def test_mended_sets_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(15))
    monkeypatch.setattr("lapwing.survey.randomizers.mask_oracles.LEAST_TABLE_SETS", 1 << 60)
    for options, chosen in ((10, 4), (9, 6)):
        sets = SubsetSelection.for_epsilon(1, options=options, chosen=chosen)
        masks = sets.sample(np.full(200_000, 8))
        numbers = masks[:, 0].astype(np.int64) | masks[:, 1].astype(np.int64) << 8
        possible = subset_law(options, chosen)
        laws = [sets.probability(8, number.to_bytes(2, "little")) for number in possible]
        follows(np.searchsorted(possible, numbers), [decimal(p) for p in laws])


def test_choices_beyond_the_table_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(16))
    monkeypatch.setattr("lapwing.survey.randomizers.index_oracles.MOST_TABLE_OPTIONS", 1)
    choice = KaryResponse.for_epsilon(1, options=7)
    law = [decimal(choice.inside if v == 5 else choice.outside) for v in range(7)]
    follows(choice.sample(np.full(200_000, 5)), law)
