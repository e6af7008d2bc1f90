"""Widths of noise: how far the noise of one part, or of a sum of parts, goes at a confidence.

Claim    with the probability of the confidence, noise is no farther from 0 than `half_width`, exactly; and
         a weighted sum of noises no farther than `NoiseFamily.width`.
Because  the law of each noise is known and public. Sums of Laplace noises of different scales have a tail
         in closed form; scales that are too near to each other are pulled apart, which widens it.
Test     tests/sql/answering/test_intervals.py; docs/arguments/query-noise.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.conversions import SUMMED_UP_TO
from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.sql.pricing.noise_shares import PartNoise

Floats = NDArray[np.float64]
_NEWTON = 8
TINY = 1e-300
_APART = 1.001  # scales nearer than this are pulled apart: their tails would cancel
_FINE = Fraction(1 << 20)  # a scale at which whole numbers are as good as continuous
_FINE_NOISE = 5.0  # from this standard deviation on, sums of whole noises are as sums of continuous ones


@lru_cache(maxsize=4096)
def half_width(mechanism: PartNoise, confidence: Fraction) -> int:
    """Return `mechanism.spread(confidence)`, the least w with P[|noise| > w] <= β, faster.

    Floats decide, unless a tail is so near to β that they might be wrong.
    """
    if isinstance(mechanism, SummedLaplace | SummedGaussian):
        return mechanism.spread(confidence)
    miss = float(1 - confidence)
    if isinstance(mechanism, Laplace):
        scale = float(mechanism.scale)
        if 1 / scale > 500 or miss < 1e-12:
            return mechanism.spread(confidence)
        at = scale * (math.log(2 / miss) - math.log1p(math.exp(-1 / scale))) - 1
        near = abs(at - round(at)) < 1e-9 * (1 + abs(at))
        return mechanism.spread(confidence) if near else max(math.ceil(at), 0)
    if mechanism.sigma > SUMMED_UP_TO or mechanism.sigma < 1 or miss < 1e-12:
        return mechanism.spread(confidence)
    sigma = float(mechanism.sigma)
    weights = np.exp(-((np.arange(math.ceil(12 * sigma)) / sigma) ** 2) / 2)
    beyond = np.cumsum(weights[::-1])[::-1]  # Σ from k on
    tails = 2 * beyond[1:] / (2 * beyond[0] - 1)
    width = int(np.searchsorted(-tails, -miss))
    near = bool(np.any(np.abs(tails[max(width - 1, 0) : width + 1] / miss - 1) < 1e-9))
    return mechanism.spread(confidence) if near else width


@dataclass(frozen=True, slots=True)
class NoiseFamily:
    """Independent noises of one kind, given by their scales (Laplace b, Gaussian σ), and a confidence.

    Summed noises of several members are given by their standard deviations, as Gaussian ones are. Every sum
    of such noises lies between one of them, held by `widest` deviations, and a normal distribution (a test
    tries a grid).
    """

    is_gaussian: bool
    confidence: Fraction
    widest: float = 0.0

    @classmethod
    def of(cls, mechanism: PartNoise, confidence: Fraction) -> NoiseFamily:
        """Return the family of a mechanism's noise."""
        if isinstance(mechanism, SummedLaplace):
            return cls(True, confidence, _widest(replace(mechanism, scale=_FINE), confidence))
        return cls(isinstance(mechanism, Gaussian | SummedGaussian), confidence)

    @property
    def _normal(self) -> float:
        return max(NormalDist().inv_cdf(float((1 + self.confidence) / 2)), self.widest)

    @property
    def in_deviations(self) -> float:
        """A width in standard deviations that holds any sum of such noises, of one or of many."""
        of_laplace = -math.log(float(1 - self.confidence)) / math.sqrt(2)
        return self._normal if self.is_gaussian else max(self._normal, of_laplace)

    def for_sums(self, least: float) -> float:
        """Return a width in standard deviations that holds any weighted sum of such noises.

        Claim    the sum exceeds it with probability at most 1 - confidence, where `least` is the smallest
                 standard deviation of a noise in it.
        Because  below `_FINE_NOISE` whole noise is far from a continuous one. There a sum of Gaussian
                 noises is held by its sub-Gaussian bound, any other by Chebyshev's, whatever the weights.
        Test     tests/sql/answering/test_estimates_consistency.py
        """
        if least >= _FINE_NOISE:
            return self.in_deviations
        miss = float(1 - self.confidence)
        is_summed_laplace = self.widest > 0
        bound = (
            math.sqrt(2 * math.log(2 / miss)) if self.is_gaussian and not is_summed_laplace else miss**-0.5
        )
        return max(self.in_deviations, bound)

    def width(self, scales: list[ArrayLike]) -> Floats:
        """Return t + ½ with P[|Σ noises| > t] = β, elementwise over arrays of scales.

        The sum is taken as continuous. At the worst t, whole noise exceeds t as often as continuous noise
        exceeds t - ½. Every pivot contains one whole total with factor 1 (or a pair of them, whose factors
        add up to 1).
        """
        columns = [np.abs(np.asarray(scale, dtype=np.float64)) for scale in scales]
        if self.is_gaussian:
            return np.asarray(self._normal * np.sqrt(sum(column**2 for column in columns))) + 0.5
        stacked = np.sort(np.stack(np.broadcast_arrays(*columns)), axis=0)
        return _laplace_width(stacked, float(1 - self.confidence)) + 0.5


def noise_scale(mechanism: PartNoise) -> float:
    """Return the scale of a noise in `NoiseFamily`: b, σ, or the continuous deviation of a sum."""
    match mechanism:
        case Laplace():
            return float(mechanism.scale)
        case Gaussian():
            return float(mechanism.sigma)
        case SummedLaplace():
            return math.sqrt(2 * mechanism.wholes) * float(mechanism.scale)
        case SummedGaussian():
            return mechanism.deviation


@lru_cache(maxsize=256)
def _widest(mechanism: SummedLaplace, confidence: Fraction) -> float:
    return mechanism.spread(confidence) / mechanism.deviation


def _laplace_width(scales: Floats, miss: float) -> Floats:
    """Solve P[|ΣX| > t] = Σ c_i exp(-t / a_i) = β with c_i = Π_{j≠i} a_i² / (a_i² - a_j²), a distinct.

    Newton's method on the logarithm, which is concave and nearly straight: it cannot overshoot twice.
    """
    top = np.maximum(scales[-1], TINY)
    a = np.maximum(scales / top, 1e-6)
    for i in range(1, len(a)):
        a[i] = np.maximum(a[i], a[i - 1] * _APART)  # wider, so on the safe side
    if len(a) == 1:
        return np.asarray(-math.log(miss) * top)
    squares = a**2
    factors = np.ones_like(a)
    for i in range(len(a)):
        for j in range(len(a)):
            if i != j:
                factors[i] *= squares[i] / (squares[i] - squares[j])
    # The widest noise dominates: c e^(-t/a) = β is a good start, and the tail's logarithm is concave.
    t = np.maximum(a[-1] * np.log(np.maximum(factors[-1], 1.0) / miss), 0.0)
    goal = math.log(miss)
    for _ in range(_NEWTON):
        terms = factors * np.exp(-t / a)
        tail = np.clip(terms.sum(axis=0), TINY, 1.0)
        slope = np.maximum((terms / a).sum(axis=0), TINY) / tail
        step = (np.log(tail) - goal) / slope
        t = np.maximum(t + step, 0.0)
        if np.max(np.abs(step), initial=0.0) < 1e-6:
            break
    return np.asarray(t * top)
