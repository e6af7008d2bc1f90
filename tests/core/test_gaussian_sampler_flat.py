"""Many discrete Gaussian draws: the table and the rest add up to the exact law."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core import gaussian_sampler
from lapwing.core.exact import Real, lower, precision, upper
from lapwing.core.exact_sampling import padded_count
from lapwing.core.gaussian_sampler import (
    FLAT_AFTER,
    LOT,
    SLOT_BITS,
    SLOTS,
    SMALL,
    FlatBlocks,
    FlatGaussian,
    LargeGaussian,
    Lookup,
    SlotTable,
)
from lapwing.core.laplace_sampler import LARGEST_SCALE
from support.cases import each
from support.laws import follows, fraction, gaussian_law
from support.slowly import first
from support.streams import ONES, ScriptedStream, SeededStream

SIGMAS = [Fraction(16), Fraction(47, 2), Fraction(400, 3), Fraction(600), Fraction(1100)]  # widths 1 to 4
TINY = Fraction(1, 10**40)


def middle(real: Real) -> Fraction:
    found = real(200)
    with precision(300):
        assert upper(found) - lower(found) < TINY
        return (lower(found) + upper(found)) / 2


class Bytes(ScriptedStream):
    """Scripted halves, and these bytes."""

    def __init__(self, halves: list[int], scripted: bytes) -> None:
        super().__init__(halves=halves)
        self._scripted = scripted

    def take(self, size: int) -> bytes:
        assert size == len(self._scripted)
        return self._scripted


def value_of(blocks: FlatBlocks, block: int, inward: int) -> int:
    distance = blocks.inner(block) + inward
    return -distance if block % 2 else distance


def drawn(sampler: FlatGaussian, stream: SeededStream, size: int) -> NDArray[np.int64]:
    out = np.empty(size, dtype=np.int64)
    rooms = [out[start : start + LOT] for start in range(0, size, LOT)]
    assert sum(1 for _ in sampler.fill_all(stream, rooms, size)) == len(rooms)
    return out


def in_tables(sampler: FlatGaussian) -> dict[int, Fraction]:
    """The probability of each value in the two tables together."""
    blocks = sampler._blocks
    found: dict[int, Fraction] = {}
    for block in range(blocks.listed):
        flat = in_first(blocks, block, tables=2)
        for inward in range(blocks.width):
            value = value_of(blocks, block, inward)
            assert value not in found
            found[value] = flat
    return found


def in_first(blocks: FlatBlocks, block: int, *, tables: int) -> Fraction:
    """The probability of each value of a block in the first so many tables."""
    shares = zip(blocks.slots[:tables], blocks.shares[:tables], strict=True)
    return sum(
        (share * Fraction(slots[block], SLOTS * blocks.width) for slots, share in shares), Fraction(0)
    )


def read(coded: Lookup) -> list[int]:
    """What a lookup says, one number after the other."""
    starts, spare = coded.starts.tolist(), iter(coded.spare.tolist())
    words = coded.words.view(np.uint32).tolist()
    return [
        starts[word >> SLOT_BITS] + (word & coded.mask) if word >> SLOT_BITS < coded.used else next(spare)
        for word in words
    ]


# The exact law, without any randomness.


@pytest.mark.parametrize("sigma", first(3, SIGMAS))
def test_the_tables_and_the_rest_add_up_to_the_exact_law(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    blocks, flat = sampler._blocks, in_tables(sampler)
    in_rest: dict[int, Fraction] = {}
    before = Fraction(0)
    for block in range(blocks.listed):
        cdf = middle(blocks.cdf(block))
        for inward in range(blocks.width):
            coin = middle(sampler._kept_with(block, inward))
            assert 0 <= coin <= 1 + TINY
            in_rest[value_of(blocks, block, inward)] = (cdf - before) / blocks.width * coin
        before = cdf
    assert in_rest.keys() == flat.keys()
    kept = sum(in_rest.values())
    assert kept > Fraction(1, 2)
    reach = max(flat)
    assert set(range(-reach, reach + 1)) <= set(flat)
    law = gaussian_law(sigma, 3 * reach)
    rest = blocks.shares[-1]
    assert sum(flat.values()) == 1 - rest
    for value in range(-reach, reach + 1):
        found = flat[value] + rest * in_rest[value] / kept
        # Beyond the listed blocks there is less than 2^-66 of the rest.
        assert abs(found - fraction(law[value + 3 * reach])) < found / 2**60


@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SCALE)])
def test_slots_hold_whole_blocks_and_the_rest_is_small(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    blocks = sampler._blocks
    left = Fraction(1)
    for slots, table in zip(blocks.slots, sampler._tables, strict=True):
        assert len(table.starts) == SLOTS
        assert table.used == sum(slots) < SLOTS
        left *= Fraction(table.rest_share)
        values, counts = np.unique(table.starts[: table.used], return_counts=True)
        due = {
            value_of(blocks, b, blocks.width - 1 if b % 2 else 0): count
            for b, count in enumerate(slots)
            if count
        }
        assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == due
    assert blocks.shares[-1] == left < Fraction(1, 500)
    assert blocks.shares[1] < Fraction(1, 25)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SCALE)])
def test_float_coins_are_within_their_margin(sigma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = FlatGaussian(sigma)
    listed, width = sampler._blocks.listed, sampler._blocks.width
    symbols = np.arange(0, listed, max(listed // 300, 1), dtype=np.int64)
    monkeypatch.setattr(sampler._proposals, "draw_guided", lambda _stream, _size: symbols)
    seen: list[float] = []

    def recorded(
        _stream: object, near: NDArray[np.float64], margin: float, real_of: object
    ) -> NDArray[np.bool_]:
        assert callable(real_of)
        for i in range(len(near)):
            error = abs(Fraction(near[i]) - middle(real_of(i)))
            assert error < Fraction(margin) / 4
            seen.append(float(error))
        return np.ones(len(near), dtype=bool)

    monkeypatch.setattr("lapwing.core.gaussian_sampler.coins_near", recorded)
    for place in (0, width // 3, width - 1):
        sampler._accepted(ScriptedStream([place] * len(symbols)), len(symbols))
    assert len(seen) == 3 * len(symbols)
    assert sampler._margin < 2.0**-20


# Statistics: chi-square at 1e-9 each, on seeded streams.


@pytest.mark.parametrize("sigma", first(3, SIGMAS))
@each("batch", [3000, 1 << 16])
def test_draws_follow_the_law(sigma: Fraction, batch: int) -> None:
    sampler, stream, reach = FlatGaussian(sigma), SeededStream(1), int(12 * sigma)
    found = [drawn(sampler, stream, batch) for _ in range(600_000 // batch)]
    follows(np.concatenate(found), gaussian_law(sigma, reach), -reach)


@pytest.mark.parametrize("sigma", first(3, SIGMAS))
@each("tables", [0, 1])
def test_what_the_tables_lack_follows_its_law(sigma: Fraction, tables: int) -> None:
    """All that is left after the first table, and after both."""
    sampler, reach = FlatGaussian(sigma), int(12 * sigma)
    law, blocks = gaussian_law(sigma, reach), sampler._blocks
    for block in range(blocks.listed):
        flat = in_first(blocks, block, tables=2 - tables)
        for inward in range(blocks.width):
            value = value_of(blocks, block, inward)
            if abs(value) <= reach:
                law[value + reach] -= flat.numerator / type(law[0])(flat.denominator)
    total = sum(law)
    found = sampler._drawn(SeededStream(2), 300_000, sampler._tables[2 - tables :])
    follows(found, [p / total for p in law], -reach)


@pytest.mark.parametrize("sigma", [Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SCALE)])
def test_places_in_wide_blocks_are_uniform(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    out = drawn(sampler, SeededStream(3), 400_000)
    width = sampler._blocks.width
    sixteenths = np.bincount((out % width) * 16 // width, minlength=16)
    # Within a block the law falls by less than 2 % for all but a few draws, alike on both sides of 0.
    assert abs(sixteenths / len(out) - 1 / 16).max() < 6.5 * np.sqrt(1 / 16 / len(out))
    assert abs(np.mean((out / float(sigma)) ** 2) - 1) < 6.5 * np.sqrt(2 / len(out))


# How words are read, and both sides of every decision, by a script.


@pytest.mark.parametrize(
    ("sigma", "size"),
    [(Fraction(1000), 2), (Fraction(2**24), 2), (Fraction(2**25), 4), (Fraction(10**9), 8)],
)
def test_a_half_is_the_slot_and_low_bits_are_the_place(sigma: Fraction, size: int) -> None:
    sampler = FlatGaussian(sigma)
    width, table = sampler._blocks.width, sampler._tables[0]
    used = table.used
    cases = [(0, 0), (0, width - 1), (used - 1, width // 2), (used, 1), (SLOTS - 1, 0), (1234, 3 % width)]
    out = np.empty(len(cases), dtype=np.int64)
    if size == 2:  # one word of four bytes has both, and bits above the place that do not count
        above = width * 5 % SLOTS
        words = [(slot << 16 | above | place).to_bytes(4, "little") for slot, place in cases]
        stream = Bytes([], b"".join(words))
    else:
        words = [(width * 5 | place).to_bytes(size, sys.byteorder) for _, place in cases]
        stream = Bytes([slot for slot, _ in cases], b"".join(words))
    assert table.fill(stream, out).tolist() == [3, 4]
    for (slot, place), found in zip(cases, out.tolist(), strict=True):
        if slot < used:
            assert found == table.starts[slot] + place


def test_what_a_table_lacks_is_put_into_place(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = FlatGaussian(Fraction(1000))
    marked = 10**9
    monkeypatch.setattr(
        sampler, "_drawn", lambda _stream, count, _tables: np.arange(marked, marked + count)
    )
    found = drawn(sampler, SeededStream(5), 100_000)
    put = found[found >= marked]
    assert abs(len(put) - 100_000 * sampler._tables[0].rest_share) < 10 * np.sqrt(len(put))
    assert put.tolist() == list(range(marked, marked + len(put)))  # each once


@pytest.mark.parametrize("block", [0, 1, 4, 301])
def test_a_coin_of_the_rest_is_decided_exactly_on_both_sides(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = FlatGaussian(Fraction(4000))
    monkeypatch.setattr(sampler._proposals, "draw_guided", lambda _stream, size: np.full(size, block))
    place = 5
    edge = int(middle(sampler._kept_with(block, place)) * 2**64)
    value = value_of(sampler._blocks, block, place)
    for coin, more, kept in [
        (edge - 1, [], [value]),
        (edge, [0], [value]),
        (edge, [ONES], []),
        (edge + 1, [], []),
        (0, [], [value]),
        (ONES, [], []),
    ]:
        stream = ScriptedStream([place, coin, *more])
        assert sampler._accepted(stream, 1).tolist() == kept
        assert stream.unused == 0


def test_beyond_the_listed_blocks_the_exact_real_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = FlatGaussian(Fraction(4000))
    block, place = sampler._blocks.listed + 5, 6
    monkeypatch.setattr(sampler._proposals, "draw_guided", lambda _stream, size: np.full(size, block))
    inner = sampler._blocks.inner(block)
    due = np.exp(-place * (2 * inner + place) / 32e6)
    value = value_of(sampler._blocks, block, place)
    for share, kept in ((due - 1e-9, [value]), (due + 1e-9, [])):
        assert sampler._accepted(ScriptedStream([place, int(share * 2**64)]), 1).tolist() == kept


# Work does not tell the values.


def test_every_vector_draws_the_same_number_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    # The padding is exceeded with probability below 1e-15 for each vector.
    sampler = FlatGaussian(Fraction(1000))
    asked = set()
    draw = sampler._drawn

    def counted(stream: SeededStream, size: int, tables: tuple[SlotTable, ...]) -> NDArray[np.int64]:
        asked.add((size, len(tables)))
        return draw(stream, size, tables)

    monkeypatch.setattr(sampler, "_drawn", counted)
    for seed in range(30):
        drawn(sampler, SeededStream(seed), 20_000)
    first, second = (table.rest_share for table in sampler._tables)
    second_size = padded_count(first, 20_000)
    assert asked == {(second_size, 1), (padded_count(second, second_size), 0)}


# When it is used.


def test_the_tables_are_made_once_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Fraction] = []

    class Noted(FlatGaussian):
        def __init__(self, sigma: Fraction) -> None:
            made.append(sigma)
            super().__init__(sigma)

    monkeypatch.setattr(gaussian_sampler, "FlatGaussian", Noted)
    sampler, stream = LargeGaussian(Fraction(40)), SeededStream(4)
    out = np.empty(LOT, dtype=np.int64)
    found = []
    for _ in range(2 * FLAT_AFTER // LOT):
        assert len(list(sampler.fill_all(stream, [out], LOT))) == 1
        found.append(out.copy())
        assert len(made) == (len(found) * LOT > FLAT_AFTER)
    follows(np.concatenate(found[-20:]), gaussian_law(Fraction(40), 480), -480)
    few = np.empty(SMALL, dtype=np.int64)
    monkeypatch.setattr(sampler, "_flat", None)
    assert len(list(sampler.fill_all(stream, [few], SMALL))) == 1  # few draws never take it


@each("sigma", [*SIGMAS[::2], Fraction(2**24)])
def test_a_lookup_is_of_the_same_draws(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    coded = sampler.lookup(SeededStream(7), LOT)
    assert coded is not None
    assert (coded.words.view(np.uint32) >> SLOT_BITS >= coded.used).any()
    assert read(coded) == drawn(sampler, SeededStream(7), LOT).tolist()


def test_a_lookup_has_enough_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.gaussian_sampler.padded_count", lambda _share, size: min(size, 3))
    sampler, law = FlatGaussian(Fraction(16)), gaussian_law(Fraction(16), 200)
    found = []
    for seed in range(20):
        coded = sampler.lookup(SeededStream(seed), LOT)
        assert coded is not None
        found += read(coded)
    follows(np.array(found), law, -200)


def test_there_is_no_lookup_where_a_word_is_too_short() -> None:
    assert FlatGaussian(Fraction(2**25)).lookup(SeededStream(1), 10) is None
    assert LargeGaussian(Fraction(1000)).lookup(SeededStream(1), 10) is None, "there are no tables yet"
    assert gaussian_sampler.gaussian_lookup(SeededStream(1), Fraction(3), 10) is None


def test_a_few_draws_are_not_looked_up() -> None:
    sampler = LargeGaussian(Fraction(1000))
    sampler._asked = FLAT_AFTER
    assert sampler.lookup(SeededStream(1), SMALL) is None
    assert sampler.lookup(SeededStream(1), SMALL + 1) is not None
