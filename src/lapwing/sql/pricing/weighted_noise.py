"""The noise of a weighted sum of released numbers: its exact law, by convolution.

Claim    `weighted_width` is a w with P[|Σ w_i e_i| > w] <= β for independent noises e_i. Where the weights
         are whole multiples of one step that is not too fine, it is the least multiple of it (with a
         margin of 1e-6 β). Otherwise it is at most (number of noises) / 2 cells of a grid wider, about 1e-4
         of the width for two noises.
Because  each law is put on a grid: a value goes to the nearest cell, so no value moves by more than half a
         cell, and a sum of m by no more than m / 2. On a grid that holds all values none moves. The laws
         on the grid are convolved. What lies beyond the grid and the error of floats are in the margin.
Test     tests/sql/pricing/test_weighted_noise.py; docs/arguments/query-noise.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.sql.pricing.noise_shares import PartMechanisms, PartNoise
from lapwing.sql.pricing.noise_widths import Floats, half_width, noise_scale
from lapwing.sql.question.bound_query import (
    Computed,
    NoisyAggregate,
    Plain,
    Released,
    step_of,
)

WeightedNoises = tuple[tuple[Fraction, PartNoise], ...]
_MOST_CELLS = 1 << 17  # on each side of 0
_MOST_VALUE = 2.0**62  # of noise: beyond, no law has weight that floats could hold
_LEAST_MISS = Fraction(1, 10**6)  # below, the error of floats would show
_BEYOND, _MARGIN = Fraction(1, 10**7), 1e-6  # shares of β
_SUMMED_UP_TO = 1 << 20  # whole values on each side of 0, of a law that is added up value by value
_NORMAL_FROM = 1e5  # here a discrete Gaussian's tail is a normal one from k + 1/2 on, to 1e-12


@lru_cache(maxsize=1024)
def weighted_width(noises: WeightedNoises, confidence: Fraction) -> Fraction | None:
    """Return a w with P[|Σ weight · noise| > w] <= 1 - confidence, or None if the law is out of reach."""
    miss = 1 - confidence
    if miss < _LEAST_MISS:
        return None
    noises = tuple((abs(weight), noise) for weight, noise in noises)
    level = 1 - miss * _BEYOND / len(noises)
    reaches = [weight * half_width(noise, level) for weight, noise in noises]
    step, whole = _common_step([weight for weight, _ in noises]), sum(reaches, Fraction(0))
    is_exact = whole / step <= _MOST_CELLS
    if not is_exact:
        step = whole / _MOST_CELLS
    sides = []
    for (weight, noise), reach in zip(noises, reaches, strict=True):
        cells = _cells(noise, float(step / weight), round(reach / step) + 1)
        if cells is None:
            return None
        sides.append(cells)
    tails = _tails(sides)
    if not np.isfinite(tails).all():
        return None
    cell = int(np.searchsorted(-tails, -float(miss) * (1 - _MARGIN)))
    moved = Fraction(0) if is_exact else Fraction(len(noises), 2)
    return (cell + moved) * step


def _common_step(weights: list[Fraction]) -> Fraction:
    below = math.lcm(*(weight.denominator for weight in weights))
    return Fraction(math.gcd(*(int(weight * below) for weight in weights)), below)


def _cells(noise: PartNoise, width: float, cells: int) -> Floats | None:
    """Return the law on cells 0..`cells` of this width (in whole values); cell -j is as likely as j."""
    edges = np.minimum(np.floor((np.arange(cells + 1) + 0.5) * width), _MOST_VALUE)
    upper = _upper_tails(noise, edges.astype(np.int64))
    if upper is None:
        return None
    return np.concatenate([[1 - 2 * upper[0]], upper[:-1] - upper[1:]])


def _upper_tails(noise: PartNoise, values: NDArray[np.int64]) -> Floats | None:
    """Return P[noise > k] for whole k >= 0, to about 1e-12."""
    scale = noise_scale(noise)
    if isinstance(noise, Laplace):
        return np.asarray(np.exp(-(values + 1) / scale) / (1 + math.exp(-1 / scale)))
    if scale > _NORMAL_FROM and isinstance(noise, Gaussian | SummedGaussian):
        return np.array([math.erfc(z) / 2 for z in ((values + 0.5) / (scale * math.sqrt(2))).tolist()])
    most = int(values[-1]) + 1
    if most > _SUMMED_UP_TO:
        return None
    law = _law(noise, most)
    return np.append(np.cumsum(law[::-1])[::-1], 0.0)[np.minimum(values + 1, most)]


def _law(noise: PartNoise, most: int) -> Floats:
    """Return P[noise = k] for k = 0..most - 1. A sum's law is that of its characteristic function."""
    if isinstance(noise, Gaussian):
        return _gaussian_law(float(noise.sigma), most)
    size = 1 << (2 * most + 64).bit_length()
    if isinstance(noise, SummedGaussian):
        law = np.zeros(size)
        half = _gaussian_law(float(noise.sigma), size // 2)
        law[: size // 2], law[size // 2 + 1 :] = half, half[:0:-1]
        function = np.fft.rfft(law).real ** noise.contributors
    else:
        assert isinstance(noise, SummedLaplace)
        q = math.exp(-1 / float(noise.scale))
        angles = 2 * np.pi * np.arange(size // 2 + 1) / size
        less = -math.expm1(-1 / float(noise.scale))
        function = (less**2 / (less**2 + 4 * q * np.sin(angles / 2) ** 2)) ** float(noise.wholes)
    return np.maximum(np.fft.irfft(function, size)[:most], 0.0)


def _gaussian_law(sigma: float, most: int) -> Floats:
    far = max(most, math.ceil(40 * sigma) + 1)
    weights = np.exp(-((np.arange(far) / sigma) ** 2) / 2)
    return np.asarray(weights[:most] / (2 * weights.sum() - 1))


def _tails(sides: list[Floats]) -> Floats:
    """Return P[|sum| > j] for j = 0, 1, ..., where every law is given by its cells from 0 on."""
    cells = sum(len(side) - 1 for side in sides)
    size = 1 << (2 * cells + 1).bit_length()
    product = np.ones(size // 2 + 1)
    for side in sides:
        law = np.zeros(size)
        law[: len(side)] = side
        law[size - len(side) + 1 :] = side[:0:-1]
        product *= np.fft.rfft(law).real
    law = np.fft.irfft(product, size)[: cells + 1]
    inside = law[0] + 2 * np.append(0.0, np.cumsum(law[1:]))
    return np.maximum.accumulate((1 - inside)[::-1])[::-1]


def constant_of(tree: Released) -> float | None:
    """Return the number that a tree is, or None if it is released."""
    value = tree.value if isinstance(tree, Plain) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """A constant plus weighted parts, in their own steps. Each part occurs once; no weight is 0."""

    weights: tuple[tuple[int, Fraction], ...]
    constant: Fraction


def weighted_sum_of(tree: Released) -> WeightedSum | None:
    """Return the tree as a weighted sum of two or more parts (counts and sums), or None."""
    weight_of = _weights(tree) if isinstance(tree, Computed) else None
    if weight_of is None:
        return None
    constant = weight_of.pop(None, Fraction(0))
    weights = tuple((part, weight) for part, weight in weight_of.items() if part is not None and weight)
    return WeightedSum(weights, constant) if len(weights) > 1 else None


def _weights(tree: Released) -> dict[int | None, Fraction] | None:
    """Return the weight of each part in a linear tree, and its constant under None; else None."""
    if isinstance(tree, NoisyAggregate):
        return {tree.parts[0]: step_of(tree)} if tree.function in ("count", "sum") else None
    if not isinstance(tree, Computed):
        value = constant_of(tree)
        return {None: Fraction(str(value))} if value is not None and math.isfinite(value) else None
    args = [_weights(arg) for arg in tree.args] if tree.op in ("+", "-", "*", "/", "neg") else []
    known = [arg for arg in args if arg is not None]
    if not known or len(known) < len(args):
        return None
    if tree.op in ("+", "-", "neg"):
        sign = 1 if tree.op == "+" else -1
        total = {key: sign * weight for key, weight in known[-1].items()}
        for key, weight in known[0].items() if len(known) == 2 else ():
            total[key] = total.get(key, Fraction(0)) + weight
        return total
    terms, factor = known if known[1].keys() == {None} else (known[1], known[0])
    by = factor.get(None, Fraction(0))
    if factor.keys() != {None} or (tree.op == "/" and (factor is not known[1] or not by)):
        return None
    return {key: weight * by if tree.op == "*" else weight / by for key, weight in terms.items()}


def weighted_half(shares: PartMechanisms, tree: WeightedSum, level: Fraction) -> Fraction | None:
    """Return the widest ± of a weighted sum over all groupings; None if a law is out of reach."""
    widest = Fraction(0)
    for s in range(len(shares.question.sets)):
        half = weighted_width(tuple((w, shares.mechanism(s, part)) for part, w in tree.weights), level)
        if half is None:
            return None
        widest = max(widest, half)
    return widest
