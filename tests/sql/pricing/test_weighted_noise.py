"""The law of weighted sums of noises, beside sums of exact probabilities.

Exact: all probabilities of whole values are added up directly, in a double loop over both noises.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.sql.pricing.noise_shares import PartNoise
from lapwing.sql.pricing.noise_widths import half_width
from lapwing.sql.pricing.weighted_noise import WeightedNoises, weighted_width

LEVEL = Fraction(19, 20)


def laplace(scale: str) -> Laplace:
    return Laplace(Fraction(scale), 1)


def gaussian(sigma: str) -> Gaussian:
    return Gaussian(Fraction(sigma), Fraction(1), 1)


def law(noise: PartNoise) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all values that matter, and their probabilities."""
    scale = float(noise.scale if isinstance(noise, Laplace | SummedLaplace) else noise.sigma)
    far = math.ceil(45 * scale) + 3
    values = np.arange(-far, far + 1)
    is_laplace = isinstance(noise, Laplace | SummedLaplace)
    weights = np.exp(-np.abs(values) / scale if is_laplace else -((values / scale) ** 2) / 2)
    one = weights / weights.sum()
    if isinstance(noise, Laplace | Gaussian):
        return values, one
    wholes = noise.wholes if isinstance(noise, SummedLaplace) else Fraction(noise.contributors)
    assert wholes.denominator == 1
    found = one
    for _ in range(int(wholes) - 1):
        found = np.convolve(found, one)
    half = len(found) // 2
    return np.arange(-half, half + 1), found


def beyond(noises: WeightedNoises, width: Fraction) -> float:
    """Return P[|Σ weight · noise| > width] for two noises, with sums of exact values."""
    (first, one), (second, other) = noises
    values, chances = law(one)
    others, other_chances = law(other)
    below = math.lcm(first.denominator, second.denominator, width.denominator)
    a, b, limit = int(first * below), int(second * below), int(width * below)
    missed = 0.0
    for value, chance in zip(values.tolist(), chances.tolist(), strict=True):
        missed += chance * float(other_chances[np.abs(a * value + b * others) > limit].sum())
    return missed


PAIRS: dict[str, WeightedNoises] = {
    "sum": ((Fraction(1), laplace("2")), (Fraction(1), laplace("2"))),
    "difference": ((Fraction(1), laplace("2")), (Fraction(-1), laplace("2.5"))),
    "less than a row": ((Fraction(1), laplace("0.3")), (Fraction(-1), laplace("0.4"))),
    "weights": ((Fraction(3), laplace("2")), (Fraction(-1, 2), laplace("40"))),
    "unlike": ((Fraction(1), laplace("1")), (Fraction(1), laplace("60"))),
    "gaussian": ((Fraction(1), gaussian("4")), (Fraction(-2), gaussian("3"))),
    "mixed": ((Fraction(2), laplace("3")), (Fraction(-1), gaussian("7"))),
    "members": (
        (Fraction(1), SummedLaplace(Fraction(3), of=2, contributors=6)),
        (Fraction(-1), SummedGaussian(Fraction(4), contributors=3)),
    ),
    "no common step": ((Fraction("1.0000001"), laplace("5")), (Fraction("-0.7320508"), gaussian("6"))),
}


@pytest.mark.parametrize("level", [LEVEL, Fraction(1, 2), Fraction(999, 1000)], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_the_width_holds_and_the_next_narrower_one_does_not(name: str, level: Fraction) -> None:
    noises = PAIRS[name]
    width = weighted_width(noises, level)
    assert width is not None
    miss = float(1 - level)
    assert beyond(noises, width) <= miss
    step = Fraction(1, math.lcm(*(weight.denominator for weight, _ in noises)))
    fine = name == "no common step"
    narrower = width * Fraction(999, 1000) if fine else width - step
    if fine or width > 0:
        assert beyond(noises, narrower) > miss * (1 - 1e-5)


@pytest.mark.parametrize("scale", ["30", "3000", "300000", "300000000"])
def test_wide_noises_have_the_continuous_width(scale: str) -> None:
    """P[|X - Y| > t] of two Laplace noises is (1 + t/2b) e^(-t/b): 0.05 at t = 4.1124 b."""
    found = weighted_width(((Fraction(1), laplace(scale)), (Fraction(-1), laplace(scale))), LEVEL)
    assert found is not None
    t = float(found) / float(scale)
    assert abs(t - 4.1124) < 2 / float(scale) + 0.002
    normal = weighted_width(((Fraction(1), gaussian(scale)), (Fraction(1), gaussian(scale))), LEVEL)
    assert normal is not None
    assert abs(float(normal) / float(scale) - 1.95996 * math.sqrt(2)) < 2 / float(scale) + 0.001


def test_three_noises_are_narrower_than_three_widths() -> None:
    one = laplace("20")
    found = weighted_width(((Fraction(1), one), (Fraction(-1), one), (Fraction(1), one)), LEVEL)
    assert found is not None
    apart = 3 * half_width(one, 1 - (1 - LEVEL) / 3)
    assert apart / found > Fraction(23, 10)


def test_a_law_that_is_out_of_reach_is_not_guessed() -> None:
    one = laplace("2")
    assert weighted_width(((Fraction(1), one), (Fraction(1), one)), 1 - Fraction(1, 10**9)) is None
    wide = SummedLaplace(Fraction(10**9), of=2, contributors=3)
    assert weighted_width(((Fraction(1), wide), (Fraction(1), wide)), LEVEL) is None


@pytest.mark.parametrize("tiny", ["1e-20", "1e-22", "1e-25", "1e-300"])
def test_a_weight_that_is_almost_nothing_takes_nothing_away(tiny: str) -> None:
    for noise in (laplace("10"), gaussian("10")):
        alone = half_width(noise, LEVEL)
        found = weighted_width(((Fraction(1), noise), (Fraction(tiny), noise)), LEVEL)
        assert found is None or alone <= found <= alone * Fraction(101, 100)
