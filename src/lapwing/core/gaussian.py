"""The Gaussian mechanism, the same noise in shares, and the noise in a sum of shares.

`Gaussian` adds discrete Gaussian noise to vectors of whole numbers. For long vectors it is better than
Laplace noise, since their L2 distance (√k) is much less than their L1 distance (k). With `GaussianShares`
each member adds one share of the noise. `SummedGaussian` is the noise in a sum of shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.core import conversions
from lapwing.core.exact import (
    Number,
    ball,
    exact,
    least_where,
    narrow,
    positive,
    precision,
    set_fields,
    sqrt_up,
    upper,
    whole,
)
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.laplace_sampler import LARGEST_SCALE
from lapwing.core.losses import Concentrated, GaussianNoise, checked_delta, checked_epsilon
from lapwing.core.noise import discrete_gaussian
from lapwing.core.observed import observed
from lapwing.core.spread import BITS, checked_confidence, least_width, miss_of_each
from lapwing.core.values import whole_values
from lapwing.errors import BadParameter, BadValue

SMALLEST_SIGMA = Fraction(1, 10**6)


def _checked_sigma(value: Fraction) -> Fraction:
    sigma = exact(value, "sigma")
    if not SMALLEST_SIGMA <= sigma <= LARGEST_SCALE:
        raise BadParameter("sigma", "must lie between 1e-6 and 2^48")
    return sigma


@dataclass(frozen=True, slots=True)
class _GaussianTerms:
    """The noise of each coordinate, and the squared L2 distance and dimension of neighbouring inputs."""

    sigma: Fraction
    l2_squared: Fraction
    dimension: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=_checked_sigma(self.sigma), l2_squared=exact(self.l2_squared, "l2_squared"))
        set_fields(self, dimension=whole(self.dimension, "dimension", at_least=1))
        if self.l2_squared < 1:
            raise BadParameter("l2_squared", "must be at least 1: whole numbers differ by 1 or more")

    @property
    def metric(self) -> InputMetric:
        """The distance of inputs that the loss is about: squared L2."""
        return InputMetric(Distance.L2_SQUARED, self.l2_squared)

    @observed
    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the values with fresh noise. Charge the loss first; a second call is a second use.

        Of `GaussianShares`, the result has one share each and is private only inside a sum: no member shows
        its own to anybody (unless of = 1).
        """
        checked = whole_values(values)
        if len(checked) != self.dimension:
            raise BadValue(f"this mechanism was priced for {self.dimension} values")
        return checked + discrete_gaussian(self.sigma, len(checked))


@dataclass(frozen=True, slots=True)
class Gaussian(_GaussianTerms):
    """Vectors of whole numbers plus independent discrete Gaussian noise.

    Claim    inputs at L2 distance at most √l2_squared have Rényi divergence order · l2_squared / 2σ²,
             and are (ε, δ)-private with `epsilon(δ)` or `delta(ε)`. Never purely private.
    Because  the normaliser of the discrete law does not change under whole shifts, so its moments
             are at most those of the continuous law.
    Test     claims/test_gaussian.py::test_divergence_is_that_of_the_continuous_law

    Args:
        sigma: The parameter σ of the noise in each coordinate, from 1e-6 to 2^48.
        l2_squared: The squared sensitivity: the greatest squared L2 distance of neighbouring inputs.
        dimension: The number of values that are released together, at least 1.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> mechanism = Gaussian.for_budget(1, "1e-6", l2_squared=3, dimension=3)
        >>> float(mechanism.sigma)
        7.42424
        >>> noisy = mechanism.sample([120, 33, 7])  # charge the loss first
    """

    @classmethod
    def for_budget(cls, epsilon: Number, delta: Number, *, l2_squared: Number, dimension: int) -> Gaussian:
        """Return the least noise (six digits) that is (ε, δ)-private, also for ε above 1."""
        squared = positive(l2_squared, "l2_squared")
        dims = whole(dimension, "dimension", at_least=1)
        sigma = conversions.gaussian_sigma(checked_epsilon(epsilon), checked_delta(delta), squared, dims)
        return cls(sigma, squared, dims)

    @classmethod
    def for_rho(cls, rho: Number, *, l2_squared: Number, dimension: int) -> Gaussian:
        """Return the least noise (rounded up) with zCDP loss at most ρ."""
        squared, most = positive(l2_squared, "l2_squared"), positive(rho, "rho")
        scaled = squared / (2 * most) * 10**12
        sigma = Fraction(math.isqrt(math.ceil(scaled) - 1) + 1, 10**6)
        return cls(sigma, squared, dimension)

    @classmethod
    def for_width(
        cls, width: int, *, confidence: Number, l2_squared: Number, dimension: int, answers: int = 1
    ) -> Gaussian:
        """Return the most noise (to about six digits) that stays within ±width; `epsilon(δ)` is its ε.

        Raises BadParameter if no noise stays within ±width at this confidence.
        """
        within, squared = whole(width, "width"), positive(l2_squared, "l2_squared")

        def fits(sigma: Fraction) -> bool:
            return cls(sigma, squared, dimension).spread(confidence, answers=answers) <= within

        low, high = SMALLEST_SIGMA, Fraction(1)
        if not fits(low):
            raise BadParameter("width", "cannot be kept at this confidence by any noise")
        while high < LARGEST_SCALE and fits(high):
            low, high = high, 2 * high
        low, _ = narrow(lambda sigma: not fits(sigma), low, high, Fraction(1, 10**6))
        return cls(low, squared, dimension)

    @property
    def loss(self) -> GaussianNoise:
        """The loss of one use."""
        return GaussianNoise(self.sigma, self.l2_squared, self.dimension)

    def delta(self, epsilon: Number) -> Fraction:
        """Return δ at ε, rounded up."""
        e = checked_epsilon(epsilon)
        return conversions.gaussian_delta(e, self.sigma, self.l2_squared, self.dimension)

    def epsilon(self, delta: Number) -> Fraction:
        """Return ε at δ, rounded up to ledger units."""
        d = checked_delta(delta)
        if not d:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        return conversions.gaussian_epsilon(d, self.sigma, self.l2_squared, self.dimension)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return the least w such that all of `answers` noises lie within ±w with this confidence.

        Above σ = 1024 it may be one more than the least.
        """
        miss = miss_of_each(checked_confidence(confidence), answers)
        return least_width(lambda width: 2 * conversions.gaussian_tail(self.sigma, Fraction(width)), miss)


# Shares are refused if η √dimension is more than this part of Δ / (σ √of).
_MOST_PAID = Fraction(1, 10)
_SUMMED_TERMS = 64
# Tails are summed term by term up to this σ, where it is fast.
_SUMMED_UP_TO = 64


def unevenness(sigma: Fraction, shares: int) -> arb:
    """Return η: the range of ln(the law of a sum of `shares` / the discrete Gaussian law at σ √shares).

    It is infinite if nothing is proved. An upper bound, at the current precision:
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
        # Terms fall with j: the last listed one bounds each of those that are not listed.
        total += term * (shares - listed if j == listed else 1)
    return total


@dataclass(frozen=True, slots=True)
class GaussianShares(_GaussianTerms):
    """Vectors plus one member's share of Gaussian noise, to be opened only in a sum.

    Claim    if at least `of` shares that the adversary does not know are in the sum, inputs at L2
             distance at most Δ = √l2_squared have Rényi divergence at most order · ρ,
             ρ = ½ (Δ / (σ √of) + η √dimension)², and are (ε, δ)-private with `delta(ε)`.
    Because  a sum of discrete Gaussians is not one, but its law divided by that of the discrete
             Gaussian of the same variance varies by no more than e^η (Poisson summation). Roots of
             zCDP losses obey the triangle inequality; η is paid half on either side.
    Test     claims/test_noise_shares.py::test_divergence_of_summed_gaussian_shares_is_below_the_claim

    Args:
        sigma: The parameter σ of one share in each coordinate, from 1e-6 to 2^48.
        l2_squared: The squared sensitivity: the greatest squared L2 distance of neighbouring inputs.
        dimension: The number of values that are released together, at least 1.
        of: The number of honest shares that the sum must have, at least 1.

    Raises:
        BadParameter: If a parameter is out of range, or σ is so small that sums are not nearly Gaussian.

    Example:
        >>> shares = GaussianShares.for_rho("0.1", l2_squared=2, dimension=2, of=3)
        >>> bool(shares.loss.rho <= Fraction(1, 10))
        True
    """

    of: int

    def __post_init__(self) -> None:
        _GaussianTerms.__post_init__(self)
        set_fields(self, of=whole(self.of, "of", at_least=1))
        if not self._wide_enough():
            raise BadParameter(
                "sigma", "of one share is so narrow that sums of shares are not nearly Gaussian: take more"
            )

    @classmethod
    def for_rho(cls, rho: Number, *, l2_squared: Number, dimension: int, of: int) -> GaussianShares:
        """Return the least noise (six digits) with zCDP loss at most ρ that is wide enough for shares."""
        squared, most = positive(l2_squared, "l2_squared"), positive(rho, "rho")
        shares = whole(of, "of", at_least=1)
        start = sqrt_up(squared / (2 * most * shares))
        return _least_sigma(start, squared, dimension, shares, lambda noise: noise.loss.rho <= most)

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, l2_squared: Number, dimension: int, of: int
    ) -> GaussianShares:
        """Return the least noise (six digits) that is (ε, δ)-private and wide enough for shares."""
        e, d, squared = checked_epsilon(epsilon), checked_delta(delta), positive(l2_squared, "l2_squared")
        dims, shares = whole(dimension, "dimension", at_least=1), whole(of, "of", at_least=1)
        alone = conversions.gaussian_sigma(e, d, squared, dims)
        if shares == 1:
            return cls(alone, squared, dims, 1)
        start = alone / sqrt_up(shares)
        return _least_sigma(start, squared, dims, shares, lambda noise: noise.delta(e) <= d)

    @property
    def loss(self) -> Concentrated:
        """The loss of the opened sum, if at least `of` honest shares are in it."""
        rho = self.l2_squared / (2 * self.of * self.sigma**2)
        if self.of == 1:
            return Concentrated(rho)
        with precision(BITS):
            return Concentrated(upper(((2 * ball(rho)).sqrt() + self._paid()) ** 2 / 2))

    def delta(self, epsilon: Number) -> Fraction:
        """Return δ at ε of the opened sum, rounded up."""
        e = checked_epsilon(epsilon)
        if self.of == 1:
            return conversions.gaussian_delta(e, self.sigma, self.l2_squared, self.dimension)
        least = 1 / sqrt_up(1 / (self.of * self.sigma**2))  # σ √of rounded down: the bound falls with σ
        law = conversions.rounded_gaussian(least, self.l2_squared, self.dimension)
        with precision(BITS):
            uneven = self.dimension * unevenness(self.sigma, self.of)
            left = ball(e) - law.paid - 2 * uneven
            delta = conversions.zcdp_to_delta(self.loss.rho, e)
            if not (law.ratio.is_finite() and left > 0):
                return delta
            rounded = (law.paid + uneven).exp() * conversions.continuous_delta(left, law.ratio)
            return min(delta, conversions.probability_up(rounded))

    def total(self, contributors: int) -> SummedGaussian:
        """Return the noise in a sum of `contributors` shares, the adversary's included."""
        return SummedGaussian(self.sigma, contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return `SummedGaussian.spread` of exactly `of` shares: the least noise that a sum may have."""
        return self.total(self.of).spread(confidence, answers=answers)

    def _paid(self) -> arb:
        """Return η √dimension."""
        return unevenness(self.sigma, self.of) * arb(self.dimension).sqrt()

    def _wide_enough(self) -> bool:
        with precision(BITS):
            apart = ball(self.l2_squared / (self.of * self.sigma**2)).sqrt()
            return bool(self._paid() <= ball(_MOST_PAID) * apart)


def _least_sigma(
    start: Fraction, l2_squared: Fraction, dimension: int, of: int, fits: Callable[[GaussianShares], bool]
) -> GaussianShares:
    """Find the shares with the least σ >= start, in steps of about a millionth, that are accepted.

    Only accepted shares are returned. They are the least if `fits` stays true as σ rises.
    """
    whole(dimension, "dimension", at_least=1)
    start = min(max(start, SMALLEST_SIGMA), Fraction(2 * LARGEST_SCALE))
    unit = Fraction(10) ** (math.floor(math.log10(start)) - 6)
    first = math.ceil(start / unit)

    @cache
    def built(steps: int) -> GaussianShares | None:
        try:
            shares = GaussianShares(steps * unit, l2_squared, dimension, of)
        except BadParameter as refusal:
            if steps * unit > LARGEST_SCALE or refusal.name != "sigma":
                raise
            return None
        return shares if fits(shares) else None

    low, high, step = first - 1, first, 1
    while built(high) is None:
        low, high, step = high, high + step, 2 * step
    shares = built(least_where(lambda steps: built(steps) is not None, low, high))
    assert shares is not None
    return shares


@dataclass(frozen=True, slots=True)
class SummedGaussian:
    """The noise in a sum of `contributors` discrete Gaussian noises, each at `sigma`.

    Args:
        sigma: The parameter σ of one noise, from 1e-6 to 2^48.
        contributors: The number of noises in the sum, at least 1.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> SummedGaussian(Fraction(10), contributors=4).spread("0.95")
        39
    """

    sigma: Fraction
    contributors: int

    def __post_init__(self) -> None:
        set_fields(self, sigma=_checked_sigma(self.sigma))
        set_fields(self, contributors=whole(self.contributors, "contributors", at_least=1))

    @property
    def deviation(self) -> float:
        """σ √contributors: at least the standard deviation, and equal to seven digits from σ = 1 on."""
        return float(self.sigma) * math.sqrt(self.contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """Return a w such that all of `answers` noises lie within ±w with this confidence.

        From σ = 1.5 on it is the least one if σ √contributors is at most 64, else at most one more.
        """
        miss = miss_of_each(checked_confidence(confidence), answers)
        return _summed_width(self.sigma, self.contributors, miss)


@lru_cache(maxsize=4096)
def _summed_width(sigma: Fraction, contributors: int, miss: Fraction) -> int:
    with precision(BITS):
        # Wider discrete Gaussians have heavier tails, so σ √n may be rounded up.
        wide = sqrt_up(contributors * sigma * sigma)
        uneven = unevenness(sigma, contributors).exp()

        def beyond(width: int) -> arb:
            square = Fraction((width + 1) ** 2) / (2 * contributors * sigma * sigma)
            sub_gaussian = 2 * ball(-square).exp()  # holds for all sums of discrete Gaussians
            if not uneven.is_finite():
                return sub_gaussian
            if wide <= _SUMMED_UP_TO:
                return (2 * uneven * conversions.gaussian_tail(wide, Fraction(width))).min(sub_gaussian)
            # Σ_(k > w) exp(-k² / 2σ²) is below the integral from w on, and the normaliser above σ √2π.
            return (2 * uneven * conversions.normal_cdf(ball(-width / wide))).min(sub_gaussian)

        return least_width(beyond, miss)
