"""The Gaussian mechanism: whole numbers plus discrete Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact, positive, precision, settle, whole
from lapwing.mechanisms.spread import BITS, checked_confidence, least_width, miss_of_each
from lapwing.mechanisms.values import whole_values
from lapwing.noise import LARGEST_SCALE, discrete_gaussian
from lapwing.privacy import GaussianNoise
from lapwing.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma, tail
from lapwing.privacy.loss import checked_delta, checked_epsilon

SMALLEST_SIGMA = Fraction(1, 10**6)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Vectors of whole numbers plus independent discrete Gaussian noise.

    Claim    inputs at L2 distance at most √l2_squared have Rényi divergence order · l2_squared / 2σ²,
             and are (ε, δ)-private where `epsilon(δ)` or `delta(ε)` say so. Never purely private.
    Because  the normaliser of the discrete law does not change under whole shifts, so its moments
             are at most those of the continuous law.
    Test     claims/test_gaussian.py::test_divergence_is_that_of_the_continuous_law
    """

    sigma: Fraction
    l2_squared: Fraction
    dimension: int

    def __post_init__(self) -> None:
        settle(self, sigma=exact(self.sigma, "sigma"), l2_squared=exact(self.l2_squared, "l2_squared"))
        settle(self, dimension=whole(self.dimension, "dimension", at_least=1))
        if self.l2_squared < 1:
            raise BadParameter("l2_squared", "must be at least 1: whole numbers differ by 1 or more")
        if not SMALLEST_SIGMA <= self.sigma <= LARGEST_SCALE:
            raise BadParameter("sigma", "must lie between 1e-6 and 2^48")

    @classmethod
    def for_budget(cls, epsilon: Number, delta: Number, *, l2_squared: Number, dimension: int) -> Gaussian:
        """The least noise (six digits) that is (ε, δ)-private, also for ε above 1."""
        squared = positive(l2_squared, "l2_squared")
        dims = whole(dimension, "dimension", at_least=1)
        sigma = gaussian_sigma(checked_epsilon(epsilon), checked_delta(delta), squared, dims)
        return cls(sigma, squared, dims)

    @classmethod
    def for_rho(cls, rho: Number, *, l2_squared: Number, dimension: int) -> Gaussian:
        """The least noise (rounded up) with zCDP loss at most ρ."""
        squared, most = positive(l2_squared, "l2_squared"), positive(rho, "rho")
        scaled = squared / (2 * most) * 10**12
        sigma = Fraction(math.isqrt(math.ceil(scaled) - 1) + 1, 10**6)
        return cls(sigma, squared, dimension)

    @classmethod
    def for_width(
        cls, width: int, *, confidence: Number, l2_squared: Number, dimension: int, answers: int = 1
    ) -> Gaussian:
        """The most noise (to about six digits) that stays within ±width; ε follows by `epsilon(δ)`."""
        within, squared = whole(width, "width"), positive(l2_squared, "l2_squared")

        def fits(sigma: Fraction) -> bool:
            return cls(sigma, squared, dimension).spread(confidence, answers=answers) <= within

        low, high = SMALLEST_SIGMA, Fraction(1)
        if not fits(low):
            raise BadParameter("width", "cannot be kept at this confidence by any noise")
        while high < LARGEST_SCALE and fits(high):
            low, high = high, 2 * high
        while high - low > high / 10**6:
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return cls(low, squared, dimension)

    @property
    def loss(self) -> GaussianNoise:
        """What one use reveals."""
        return GaussianNoise(self.sigma, self.l2_squared, self.dimension)

    def delta(self, epsilon: Number) -> Fraction:
        """δ at ε, rounded up."""
        e = checked_epsilon(epsilon)
        return gaussian_delta(e, self.sigma, self.l2_squared, self.dimension)

    def epsilon(self, delta: Number) -> Fraction:
        """ε at δ, rounded up to ledger units."""
        d = checked_delta(delta)
        if not d:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        return gaussian_epsilon(d, self.sigma, self.l2_squared, self.dimension)

    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values with fresh noise. Charge the loss first; a second call is a second use."""
        checked = whole_values(values)
        if len(checked) != self.dimension:
            raise BadValue(f"this mechanism was priced for {self.dimension} values")
        return checked + discrete_gaussian(self.sigma, len(checked))

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """The least w such that all of `answers` noises lie within ±w with this confidence.

        Above σ = 1024 it may be one more than the least.
        """
        miss = miss_of_each(checked_confidence(confidence), answers)
        return least_width(self._tail, miss)

    def _tail(self, width: int) -> arb:
        with precision(BITS):
            return 2 * tail(self.sigma, Fraction(width))
