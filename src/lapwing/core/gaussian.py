"""The Gaussian mechanism: whole numbers plus discrete Gaussian noise.

Gaussian noise in shares: for long vectors, where √k is much less than k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.core.conversions import (
    continuous_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gaussian_tail,
    normal_cdf,
    probability_up,
    rounded_gaussian,
    zcdp_to_delta,
)
from lapwing.core.exact import Number, ball, exact, positive, precision, set_fields, sqrt_up, upper, whole
from lapwing.core.losses import Concentrated, GaussianNoise, checked_delta, checked_epsilon
from lapwing.core.noise import LARGEST_SCALE, discrete_gaussian
from lapwing.core.spread import BITS, checked_confidence, least_width, miss_of_each
from lapwing.core.values import whole_values
from lapwing.errors import BadParameter, BadValue

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
        set_fields(self, sigma=exact(self.sigma, "sigma"), l2_squared=exact(self.l2_squared, "l2_squared"))
        set_fields(self, dimension=whole(self.dimension, "dimension", at_least=1))
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
            return 2 * gaussian_tail(self.sigma, Fraction(width))


# Shares are refused where η √dimension is more than this part of Δ / (σ √of).
_MOST_PAID = Fraction(1, 10)
_SUMMED_TERMS = 64
# Summing tails term by term is quick up to here.
_SUMMED_UP_TO = 64


def unevenness(sigma: Fraction, shares: int) -> arb:
    """η: how far ln of (the law of a sum of `shares` / the discrete Gaussian law at σ √shares) ranges.

    Infinite where nothing is shown. An upper bound, at the current precision:
    Σ_(j < shares) ln((1 + κ_j) / (1 - κ_j)), κ_j = 2 Σ_i exp(-2π² s_j² i²), s_j² = σ² j / (j + 1).
    """
    total = arb(0)
    listed = min(shares - 1, _SUMMED_TERMS)
    for j in range(1, listed + 1):
        x = (-2 * arb.pi() ** 2 * ball(sigma * sigma * j / (j + 1))).exp()
        kappa = 2 * x / (1 - x**3)  # i² >= 1 + 3(i - 1)
        if not kappa < 1:
            return arb.pos_inf()
        term = ((1 + kappa) / (1 - kappa)).log()
        # Terms fall with j: the last one listed stands for all that are not.
        total += term * (shares - listed if j == listed else 1)
    return total


@dataclass(frozen=True, slots=True)
class GaussianShares:
    """Vectors plus one member's part of Gaussian noise, to be opened only in a sum; σ is one share's.

    Claim    if at least `of` shares that the adversary does not know are in the sum, inputs at L2
             distance at most Δ = √l2_squared have Rényi divergence at most order · ρ,
             ρ = ½ (Δ / (σ √of) + η √dimension)², and are (ε, δ)-private with `delta(ε)`.
    Because  a sum of discrete Gaussians is not one, but its law divided by that of the discrete
             Gaussian of the same variance varies by no more than e^η (Poisson summation). Roots of
             zCDP losses obey the triangle inequality; η is paid half on either side.
    Test     claims/test_noise_shares.py::test_divergence_of_summed_gaussian_shares_is_below_the_claim
    """

    sigma: Fraction
    l2_squared: Fraction
    dimension: int
    of: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=exact(self.sigma, "sigma"), l2_squared=exact(self.l2_squared, "l2_squared"))
        set_fields(self, dimension=whole(self.dimension, "dimension", at_least=1))
        set_fields(self, of=whole(self.of, "of", at_least=1))
        if self.l2_squared < 1:
            raise BadParameter("l2_squared", "must be at least 1: whole numbers differ by 1 or more")
        if not SMALLEST_SIGMA <= self.sigma <= LARGEST_SCALE:
            raise BadParameter("sigma", "must lie between 1e-6 and 2^48")
        if not self._wide_enough():
            raise BadParameter(
                "sigma", "of one share is so narrow that sums of shares are not nearly Gaussian: take more"
            )

    @classmethod
    def for_rho(cls, rho: Number, *, l2_squared: Number, dimension: int, of: int) -> GaussianShares:
        """The least noise (six digits) with zCDP loss at most ρ, and wide enough to be shared out."""
        squared, most = positive(l2_squared, "l2_squared"), positive(rho, "rho")
        shares = whole(of, "of", at_least=1)
        start = sqrt_up(squared / (2 * most * shares))
        return _least_sigma(start, squared, dimension, shares, lambda found: found.loss.rho <= most)

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, l2_squared: Number, dimension: int, of: int
    ) -> GaussianShares:
        """The least noise (six digits) that is (ε, δ)-private, and wide enough to be shared out."""
        e, d, squared = checked_epsilon(epsilon), checked_delta(delta), positive(l2_squared, "l2_squared")
        dims, shares = whole(dimension, "dimension", at_least=1), whole(of, "of", at_least=1)
        alone = gaussian_sigma(e, d, squared, dims)
        if shares == 1:
            return cls(alone, squared, dims, 1)
        start = alone / sqrt_up(shares)
        return _least_sigma(start, squared, dims, shares, lambda found: found.delta(e) <= d)

    @property
    def loss(self) -> Concentrated:
        """What the opened sum reveals, if at least `of` honest shares are in it."""
        rho = self.l2_squared / (2 * self.of * self.sigma**2)
        if self.of == 1:
            return Concentrated(rho)
        with precision(BITS):
            return Concentrated(upper(((2 * ball(rho)).sqrt() + self._paid()) ** 2 / 2))

    def delta(self, epsilon: Number) -> Fraction:
        """δ at ε of the opened sum, rounded up."""
        e = checked_epsilon(epsilon)
        if self.of == 1:
            return gaussian_delta(e, self.sigma, self.l2_squared, self.dimension)
        least = 1 / sqrt_up(1 / (self.of * self.sigma**2))  # σ √of rounded down: the bound falls with σ
        law = rounded_gaussian(least, self.l2_squared, self.dimension)
        with precision(BITS):
            uneven = self.dimension * unevenness(self.sigma, self.of)
            left = ball(e) - law.paid - 2 * uneven
            found = zcdp_to_delta(self.loss.rho, e)
            if not (law.ratio.is_finite() and left > 0):
                return found
            return min(found, probability_up((law.paid + uneven).exp() * continuous_delta(left, law.ratio)))

    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values with one fresh share each. Charge the loss first; a second call is a second use.

        The result is private only inside a sum: no member shows its own to anybody (unless of = 1).
        """
        checked = whole_values(values)
        if len(checked) != self.dimension:
            raise BadValue(f"this mechanism was priced for {self.dimension} values")
        return checked + discrete_gaussian(self.sigma, len(checked))

    def total(self, contributors: int) -> SummedGaussian:
        """The noise in a sum of so many shares, the adversary's among them."""
        return SummedGaussian(self.sigma, contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """`SummedGaussian.spread` of exactly `of` shares: the least noise that a sum may have."""
        return self.total(self.of).spread(confidence, answers=answers)

    def _paid(self) -> arb:
        """η √dimension."""
        return unevenness(self.sigma, self.of) * arb(self.dimension).sqrt()

    def _wide_enough(self) -> bool:
        with precision(BITS):
            apart = ball(self.l2_squared / (self.of * self.sigma**2)).sqrt()
            return bool(self._paid() <= ball(_MOST_PAID) * apart)


def _least_sigma(
    start: Fraction,
    l2_squared: Fraction,
    dimension: int,
    of: int,
    accepts: Callable[[GaussianShares], bool],
) -> GaussianShares:
    """The least σ >= start, in steps of about a millionth, that may be built and is accepted.

    Only what was accepted is returned; that the search finds the least rests on `accepts` rising with σ.
    """
    whole(dimension, "dimension", at_least=1)
    start = min(max(start, SMALLEST_SIGMA), Fraction(2 * LARGEST_SCALE))
    unit = Fraction(10) ** (math.floor(math.log10(start)) - 6)
    first = math.ceil(start / unit)

    def built(steps: int) -> GaussianShares | None:
        try:
            found = GaussianShares(steps * unit, l2_squared, dimension, of)
        except BadParameter as refusal:
            if steps * unit > LARGEST_SCALE or refusal.name != "sigma":
                raise
            return None
        return found if accepts(found) else None

    low, step = first - 1, 1
    found = built(first)
    high = first
    while found is None:
        low, high, step = high, high + step, 2 * step
        found = built(high)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = built(middle)
        if candidate is None:
            low = middle
        else:
            high, found = middle, candidate
    return found


@dataclass(frozen=True, slots=True)
class SummedGaussian:
    """`contributors` discrete Gaussian noises, each at `sigma`."""

    sigma: Fraction
    contributors: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=exact(self.sigma, "sigma"))
        set_fields(self, contributors=whole(self.contributors, "contributors", at_least=1))
        if not SMALLEST_SIGMA <= self.sigma <= LARGEST_SCALE:
            raise BadParameter("sigma", "must lie between 1e-6 and 2^48")

    @property
    def deviation(self) -> float:
        """σ √contributors: never less than the deviation, and the same to seven digits from σ = 1 on."""
        return float(self.sigma) * math.sqrt(self.contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """A w such that all of `answers` noises lie within ±w with this confidence.

        Where σ is at least 1.5: the least one if σ √contributors is at most 64, else at most one more.
        """
        return _summed_width(
            self.sigma, self.contributors, miss_of_each(checked_confidence(confidence), answers)
        )


@lru_cache(maxsize=4096)
def _summed_width(sigma: Fraction, contributors: int, miss: Fraction) -> int:
    with precision(BITS):
        # Wider discrete Gaussians have heavier tails, so σ √n may be rounded up.
        wide = sqrt_up(contributors * sigma * sigma)
        uneven = unevenness(sigma, contributors).exp()

        def beyond(width: int) -> arb:
            square = Fraction((width + 1) ** 2) / (2 * contributors * sigma * sigma)
            sub_gaussian = 2 * ball(-square).exp()  # as all sums of discrete Gaussians are
            if not uneven.is_finite():
                return sub_gaussian
            if wide <= _SUMMED_UP_TO:
                return (2 * uneven * gaussian_tail(wide, Fraction(width))).min(sub_gaussian)
            # Σ_(k > w) exp(-k² / 2σ²) is below the integral from w on, and the normaliser above σ √2π.
            return (2 * uneven * normal_cdf(ball(-width / wide))).min(sub_gaussian)

        return least_width(beyond, miss)
