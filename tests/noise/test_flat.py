"""Many discrete Gaussian draws: the table and the rest add up to the exact law."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.exact import Real, lower, precision, upper
from lapwing.noise import gaussian
from lapwing.noise.flat import SLOTS, FlatGaussian
from lapwing.noise.gaussian import FLAT_AFTER, LARGEST_SIGMA, SMALL, LargeGaussian
from lapwing.noise.inversion import padded_count
from support.laws import follows, fraction, gaussian_law
from support.streams import ONES, ScriptedStream, SeededStream

SIGMAS = [Fraction(16), Fraction(47, 2), Fraction(100), Fraction(400, 3), Fraction(300)]
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


def value_of(sampler: FlatGaussian, block: int, inward: int) -> int:
    distance = sampler._blocks.inner(block) + inward
    return -distance if block % 2 else distance


# The exact law, without any randomness.


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_table_and_the_rest_add_up_to_the_exact_law(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    blocks = sampler._blocks
    in_table: dict[int, Fraction] = {}
    in_rest: dict[int, Fraction] = {}
    before = Fraction(0)
    for block in range(blocks.listed):
        cdf = middle(blocks.cdf(block))
        for inward in range(blocks.width):
            value = value_of(sampler, block, inward)
            assert value not in in_table
            in_table[value] = Fraction(blocks.slots[block], SLOTS * blocks.width)
            coin = middle(sampler._kept_with(block, inward))
            assert 0 <= coin <= 1 + TINY
            in_rest[value] = (cdf - before) / blocks.width * coin
        before = cdf
    kept = sum(in_rest.values())
    assert kept > Fraction(1, 2)
    reach = -min(in_table)
    assert set(range(-reach, reach + 1)) <= set(in_table)
    law = gaussian_law(sigma, 3 * reach)
    for value in range(-reach, reach + 1):
        found = in_table[value] + sampler.rest_share * in_rest[value] / kept
        # Beyond the listed blocks there is less than 2^-66 of the rest.
        assert abs(found - fraction(law[value + 3 * reach])) < found / 2**60


@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SIGMA)])
def test_slots_hold_whole_blocks_and_the_rest_is_small(sigma: Fraction) -> None:
    sampler = FlatGaussian(sigma)
    blocks = sampler._blocks
    starts = sampler._starts
    assert len(starts) == SLOTS
    rest = np.iinfo(starts.dtype).min
    assert int((starts == rest).sum()) == sampler.rest_share * SLOTS
    assert sampler.rest_share < Fraction(1, 80)
    values, counts = np.unique(starts[starts != rest], return_counts=True)
    due = {
        value_of(sampler, b, blocks.width - 1 if b % 2 else 0): slots
        for b, slots in enumerate(blocks.slots)
        if slots
    }
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == due


@pytest.mark.parametrize("sigma", [*SIGMAS, Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SIGMA)])
def test_float_coins_are_within_their_margin(sigma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = FlatGaussian(sigma)
    listed, width = sampler._blocks.listed, sampler._blocks.width
    symbols = np.arange(0, listed, max(listed // 300, 1), dtype=np.int64)
    monkeypatch.setattr(sampler._table, "draw_guided", lambda _stream, _size: symbols)
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

    monkeypatch.setattr("lapwing.noise.flat.coins_near", recorded)
    for place in (0, width // 3, width - 1):
        sampler._candidates(ScriptedStream([place] * len(symbols)), len(symbols))
    assert len(seen) == 3 * len(symbols)
    assert sampler._margin < 2.0**-20


# Statistics: chi-square at 1e-9 each, on seeded streams.


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("batch", [3000, 1 << 16])
def test_draws_follow_the_law(sigma: Fraction, batch: int) -> None:
    out = np.empty(600_000, dtype=np.int64)
    sampler, stream, reach = FlatGaussian(sigma), SeededStream(1), int(12 * sigma)
    for start in range(0, len(out), batch):
        sampler.fill(stream, out[start : start + batch])
    follows(out, gaussian_law(sigma, reach), -reach)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_rest_alone_follows_its_law(sigma: Fraction) -> None:
    sampler, reach = FlatGaussian(sigma), int(12 * sigma)
    blocks = sampler._blocks
    law = gaussian_law(sigma, reach)
    for block in range(blocks.listed):
        for inward in range(blocks.width):
            value = value_of(sampler, block, inward)
            if abs(value) <= reach:
                flat = Fraction(blocks.slots[block], SLOTS * blocks.width)
                law[value + reach] -= flat.numerator / type(law[0])(flat.denominator)
    total = sum(law)
    follows(sampler._rest(SeededStream(2), 300_000), [p / total for p in law], -reach)


@pytest.mark.parametrize("sigma", [Fraction(10**6), Fraction(10**12), Fraction(LARGEST_SIGMA)])
def test_places_in_wide_blocks_are_uniform(sigma: Fraction) -> None:
    out = np.empty(400_000, dtype=np.int64)
    sampler = FlatGaussian(sigma)
    sampler.fill(SeededStream(3), out)
    width = sampler._blocks.width
    sixteenths = np.bincount((out % width) * 16 // width, minlength=16)
    # Within a block the law falls by less than 2 % for all but a few draws, alike on both sides of 0.
    assert abs(sixteenths / len(out) - 1 / 16).max() < 6.5 * np.sqrt(1 / 16 / len(out))
    assert abs(np.mean((out / float(sigma)) ** 2) - 1) < 6.5 * np.sqrt(2 / len(out))


# How words are read, and both sides of every decision, by a script.


def test_a_half_is_the_slot_and_the_low_bits_of_a_word_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for sigma, size in ((Fraction(1000), 4), (Fraction(10**9), 8)):
        sampler = FlatGaussian(sigma)
        assert sampler._starts.itemsize == size
        monkeypatch.setattr(sampler, "_rest", lambda _stream, count: np.full(count, 7))
        width = sampler._blocks.width
        used = SLOTS - int(sampler.rest_share * SLOTS)
        cases = [(0, 0), (0, width - 1), (used - 1, width // 2), (used, 1), (SLOTS - 1, 0), (1234, 3)]
        words = b"".join((width * 5 | place).to_bytes(size, sys.byteorder) for _, place in cases)
        out = np.empty(len(cases), dtype=np.int64)
        sampler.fill(Bytes([slot for slot, _ in cases], words), out)
        due = [7 if slot >= used else int(sampler._starts[slot]) + place for slot, place in cases]
        assert out.tolist() == due


@pytest.mark.parametrize("block", [0, 1, 4, 301])
def test_a_coin_of_the_rest_is_decided_exactly_on_both_sides(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = FlatGaussian(Fraction(1000))
    monkeypatch.setattr(sampler._table, "draw_guided", lambda _stream, size: np.full(size, block))
    place = 5
    edge = int(middle(sampler._kept_with(block, place)) * 2**64)
    value = value_of(sampler, block, place)
    for coin, more, kept in [
        (edge - 1, [], [value]),
        (edge, [0], [value]),
        (edge, [ONES], []),
        (edge + 1, [], []),
        (0, [], [value]),
        (ONES, [], []),
    ]:
        stream = ScriptedStream([place, coin, *more])
        assert sampler._candidates(stream, 1).tolist() == kept
        assert stream.unused == 0


def test_beyond_the_listed_blocks_the_exact_real_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = FlatGaussian(Fraction(1000))
    block, place = sampler._blocks.listed + 5, 6
    monkeypatch.setattr(sampler._table, "draw_guided", lambda _stream, size: np.full(size, block))
    inner = sampler._blocks.inner(block)
    due = np.exp(-place * (2 * inner + place) / 2e6)
    value = value_of(sampler, block, place)
    for share, kept in ((due - 1e-9, [value]), (due + 1e-9, [])):
        assert sampler._candidates(ScriptedStream([place, int(share * 2**64)]), 1).tolist() == kept


# Work does not tell the values.


def test_every_chunk_draws_the_same_number_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    # The padding is exceeded with probability below 1e-15 for each chunk.
    sampler = FlatGaussian(Fraction(1000))
    asked = set()
    draw = sampler._rest

    def counted(stream: SeededStream, size: int) -> NDArray[np.int64]:
        asked.add(size)
        return draw(stream, size)

    monkeypatch.setattr(sampler, "_rest", counted)
    out = np.empty(20_000, dtype=np.int64)
    for seed in range(30):
        sampler.fill(SeededStream(seed), out)
    assert asked == {padded_count(float(sampler.rest_share), len(out))}


# When it is used.


def test_the_tables_are_made_once_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Fraction] = []

    class Noted(FlatGaussian):
        def __init__(self, sigma: Fraction) -> None:
            made.append(sigma)
            super().__init__(sigma)

    monkeypatch.setattr(gaussian, "FlatGaussian", Noted)
    sampler, stream = LargeGaussian(Fraction(40)), SeededStream(4)
    out = np.empty(1 << 15, dtype=np.int64)
    drawn = []
    for _ in range(2 * FLAT_AFTER // len(out)):
        sampler.fill(stream, out)
        drawn.append(out.copy())
        assert len(made) == (len(drawn) * len(out) > FLAT_AFTER)
    follows(np.concatenate(drawn[-20:]), gaussian_law(Fraction(40), 480), -480)
    few = np.empty(SMALL, dtype=np.int64)
    monkeypatch.setattr(sampler, "_flat", None)
    sampler.fill(stream, few)  # few draws never take it
