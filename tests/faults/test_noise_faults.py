"""N1, N2, N3: noise that floats give away, and noise that its work gives away."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from flint import arb
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import exp_of, lower, precision, upper
from lapwing.core.gaussian_sampler import DirectGaussian, discrete_gaussian
from lapwing.core.laplace_sampler import CHUNK, SMALL, DigitSampler
from support import laws
from support.streams import ONES, CountingStream, ScriptedStream, SeededStream

SIZE = 20_000
ERROR = 1e-9


def has_fine_bits(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """The event "y * 2^53 is not an integer"."""
    scaled = np.ldexp(values.astype(np.float64), 53)
    return np.asarray(scaled != np.rint(scaled), dtype=np.bool_)


def breaks(on_0: int, on_1: int, size: int, epsilon: float, *, error: float, delta: float = 0) -> bool:
    """Whether the counts of an event prove more than (epsilon, delta), wrongly at most by `error`."""
    for one, other in [(on_0, on_1), (on_1, on_0)]:
        least = laws.between(one, size, error / 2)[0]
        most = laws.between(other, size, error / 2)[1]
        if least > math.exp(epsilon) * most + delta:
            return True
    return False


def best_attack(
    on_0: NDArray[np.generic], on_1: NDArray[np.generic], epsilon: float, delta: float = 0
) -> bool:
    """Fine bits, every small value and every small tail; the error is `ERROR` for all together."""
    y0, y1 = on_0.astype(np.float64), on_1.astype(np.float64)
    events = [(has_fine_bits(on_0), has_fine_bits(on_1))]
    for x in range(-10, 12):
        events += [(y0 == x, y1 == x), (y0 >= x, y1 >= x), (y0 <= x, y1 <= x)]
    return any(
        breaks(int(a.sum()), int(b.sum()), len(a), epsilon, error=ERROR / len(events), delta=delta)
        for a, b in events
    )


@pytest.mark.parametrize("epsilon", [1, 2])
def test_N1_the_attack_catches_laplace_noise_in_floats(epsilon: int) -> None:
    """Positive control: the textbook mechanism, with numpy's floats."""
    generator = np.random.Generator(np.random.Philox(1))
    on_0 = 0.0 + generator.laplace(0, 1 / epsilon, SIZE)
    on_1 = 1.0 + generator.laplace(0, 1 / epsilon, SIZE)
    assert best_attack(on_0, on_1, epsilon)
    # And far beyond what was promised: the same event proves a loss of more than 5.
    assert breaks(int(has_fine_bits(on_0).sum()), int(has_fine_bits(on_1).sum()), SIZE, 5, error=ERROR)


@pytest.mark.parametrize("epsilon", [1, 2])
@pytest.mark.parametrize("size", [SIZE, 2 * CHUNK])
def test_N1_the_attack_finds_nothing_in_ours(epsilon: int, size: int) -> None:
    # False alarm 1e-9, on the system's own stream, for both paths.
    on_0 = 0 + noise.discrete_laplace(Fraction(1, epsilon), size)
    on_1 = 1 + noise.discrete_laplace(Fraction(1, epsilon), size)
    assert on_0.dtype.kind == "i"
    assert not has_fine_bits(on_0).any()
    assert not has_fine_bits(on_1).any()
    assert not best_attack(on_0, on_1, epsilon)


def test_N1_the_attack_notices_ours_when_too_little_noise_is_added() -> None:
    """Positive control: noise for epsilon 2, sold as epsilon 1."""
    on_0 = noise.discrete_laplace(Fraction(1, 2), SIZE)
    on_1 = 1 + noise.discrete_laplace(Fraction(1, 2), SIZE)
    assert best_attack(on_0, on_1, 1)


def probability(sampler: DigitSampler, x: int, bits: int) -> arb:
    """P[X = x] from the very reals that the sampler compares with, as a ball."""
    magnitude = ~x if x < 0 else x
    digits, (beyond, coin) = sampler._reals[:-2], sampler._reals[-2:]
    with precision(bits):
        p = (1 - beyond(bits)) * (coin(bits) if x < 0 else 1 - coin(bits))
        for j, digit in enumerate(digits):
            p *= digit(bits) if magnitude >> j & 1 else 1 - digit(bits)
    return p


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5, 2)])
def test_N1_exact_probabilities_of_neighbours_are_within_e_to_the_epsilon(
    epsilon: Fraction,
) -> None:
    sampler = DigitSampler(1 / epsilon, signed=True)
    bound = exp_of(epsilon)(400)
    with precision(400):
        # Every point of the ratio is e^epsilon or e^-epsilon itself, to more than 100 digits.
        slack = 1 + arb(2) ** -340
        reach = min(60, (1 << sampler._count) - 2)
        ps = {x: probability(sampler, x, 400) for x in range(-reach, reach + 1)}
        for x in range(-reach, reach):
            ratio = ps[x + 1] / ps[x]
            assert ratio <= bound * slack
            assert 1 / ratio <= bound * slack
        assert (
            abs(sum(ps.values(), arb(0)) - 1)
            < 3 * (-arb(reach) * epsilon.numerator / epsilon.denominator).exp()
        )


def test_N2_the_attack_catches_gaussian_noise_in_floats() -> None:
    """Positive control: sigma 1 on 0 and 1 is far from (3, 0.01)-private in floats.

    For real numbers it is: the loss is normal with mean 1/2 and deviation 1, and
    P[loss > 3] - e^3 P'[loss > 3] is below 0.0062.
    """
    generator = np.random.Generator(np.random.Philox(2))
    on_0 = 0.0 + generator.normal(0, 1, SIZE)
    on_1 = 1.0 + generator.normal(0, 1, SIZE)
    assert best_attack(on_0, on_1, 3, 0.01)


@pytest.mark.parametrize("size", [1000, SIZE, 2 * CHUNK])
def test_N2_the_attack_finds_nothing_in_ours(size: int) -> None:
    # False alarm 1e-9; the discrete law at sigma 1 is (3, 0.01)-private as well.
    law = [laws.fraction(p) for p in laws.gaussian_law(Fraction(1), 40)]
    e3 = laws.fraction(laws.exp(3))
    assert sum(max(p - e3 * q, Fraction(0)) for p, q in zip(law[1:], law, strict=False)) < 0.01
    on_0 = 0 + noise.discrete_gaussian(1, size)
    on_1 = 1 + noise.discrete_gaussian(1, size)
    assert on_0.dtype.kind == "i"
    assert not has_fine_bits(on_0).any()
    assert not best_attack(on_0, on_1, 3, 0.01)


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(7, 2)])
def test_N2_exact_probabilities_fall_as_the_gaussian_does(sigma: Fraction) -> None:
    table = DirectGaussian(sigma)._table
    with precision(400):
        sums = [table._cdf(s)(400) for s in range(2 * math.ceil(6 * sigma) + 1)]
        p = [sums[0], *(b - a for a, b in pairwise(sums))]
        for k in range(1, len(p) // 2):
            positive, negative = p[2 * k - 1], p[2 * k]
            assert abs(positive / negative - 1) < arb(2) ** -300
            ratio = positive / p[0]
            truth = laws.fraction(laws.exp(-Fraction(k * k) / (2 * sigma * sigma)))
            assert abs((lower(ratio) + upper(ratio)) / 2 - truth) < truth / 10**80


def test_N3_a_single_draw_takes_the_same_bytes_for_every_value() -> None:
    for scale in (Fraction(1, 3), Fraction(10), Fraction(10**6)):
        for signed in (True, False):
            sampler = DigitSampler(scale, signed=signed)
            taken = set()
            for seed in range(300):
                stream = CountingStream(SeededStream(seed))
                sampler.draw(stream, 1)
                taken.add(stream.bytes_taken)
            assert taken == {8 * (sampler._count + 1 + signed)}


def test_N3_the_extreme_values_take_the_same_bytes_as_zero() -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    taken = {}
    for words in ([ONES] * 11, [0] * 9 + [ONES, ONES], [0] * 9 + [ONES, 0], [ONES] * 10 + [0]):
        stream = CountingStream(ScriptedStream(words))
        value = int(sampler.draw(stream, 1)[0])
        taken[value] = stream.bytes_taken
    assert taken == {0: 88, 511: 88, -512: 88, -1: 88}


@pytest.mark.parametrize("size", [2, 100, SMALL, SMALL + 1, 3 * SMALL + 7])
def test_N3_a_small_batch_takes_the_same_bytes_whatever_is_drawn(size: int) -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    taken = set()
    for seed in range(20):
        stream = CountingStream(SeededStream(seed))
        sampler.draw(stream, size)
        taken.add(stream.bytes_taken)
    assert taken == {88 * size}


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(10), Fraction(10**6)])
@pytest.mark.parametrize("size", [1, 1000, CHUNK])
def test_N3_a_guided_chunk_takes_the_same_bytes_whatever_is_drawn(scale: Fraction, size: int) -> None:
    # The padding of ten deviations is exceeded with probability below 1e-15 for each chunk.
    sampler = DigitSampler(scale, signed=True)
    taken, values = set(), set()
    for seed in range(60):
        stream = CountingStream(SeededStream(seed))
        out = np.empty(size, dtype=np.int64)
        sampler._by_groups(stream, out)
        taken.add(stream.bytes_taken)
        values.add(int(np.abs(out).sum()))
    assert len(values) > 1
    assert len(taken) == 1


def test_N3_bytes_of_a_rejecting_sampler_tell_nothing_of_the_values() -> None:
    # Large sigmas reject: bytes vary, but not with the size of what is kept. A correlation beyond
    # 6.5 / sqrt(n) has probability below 1e-10.
    taken, sizes = [], []
    for seed in range(3000):
        stream = CountingStream(SeededStream(seed))
        sizes.append(abs(int(discrete_gaussian(stream, Fraction(100), 10)[0])))
        taken.append(stream.bytes_taken)
    if len(set(taken)) > 1:
        correlation = float(np.corrcoef(taken, sizes)[0, 1])
        assert abs(correlation) < 6.5 / math.sqrt(3000)
