"""How a training run's (ε, δ) becomes noise: Gaussian releases, all fixed before the first.

Claim    the releases of a `PricedReleases` are together (ε, δ)-private for one unit, each chosen in the light of the
         earlier ones.
Because  their number, distances and noise are fixed beforehand, so their loss distributions compose
         (docs/arguments/trainers.md); σ is only accepted if the price of the whole is at most ε at δ.
Test     tests/learn/trainers/test_pricing.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.core.conversions import gaussian_sigma
from lapwing.core.exact import Number, exact, sqrt_up, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import GaussianNoise, Loss, SampledGaussian, checked_delta, checked_epsilon
from lapwing.errors import BadParameter

_FINE = Fraction(1 << 60)  # squared distance in steps so fine that rounding to them costs nothing
_CLOSE = Fraction(1, 1000)
_NUDGE = Fraction(1, 100_000)
_MOST_TRIES = 60


@dataclass(frozen=True, slots=True)
class ReleaseGroup:
    """`count` releases of vectors within √l2_squared, at `share` of the run's squared ratio Δ² / σ²."""

    l2_squared: int
    dimension: int
    count: int = 1
    share: Fraction = Fraction(1)
    rate: Fraction = Fraction(1)

    def loss(self, sigma: Fraction) -> Loss:
        """Of one of them."""
        noise = GaussianNoise(sigma, Fraction(self.l2_squared), self.dimension)
        return noise if self.rate == 1 else SampledGaussian(self.rate, noise)

    def sigma(self, ratio: Fraction) -> Fraction:
        """The σ that gives this part its share, where σ / Δ of the whole run is `ratio`."""
        return _short(ratio * self.rate * sqrt_up(self.count * self.l2_squared / self.share))


@dataclass(frozen=True, slots=True)
class PricedReleases:
    """Priced releases: what to charge, and the mechanism of each part."""

    loss: FixedRun
    parts: tuple[ReleaseGroup, ...]
    sigmas: tuple[Fraction, ...]

    def release(self, part: int, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """One release of a part. Charge the loss first, and never release more often than was priced."""
        priced = self.parts[part]
        mechanism = Gaussian(self.sigmas[part], Fraction(priced.l2_squared), priced.dimension)
        return mechanism.sample(sums)


def noise_ratio(epsilon: Number, delta: Number) -> float:
    """σ over Δ of one Gaussian release that spends all of (ε, δ). Public: rules are made of it."""
    return float(_ratio(*_checked(epsilon, delta)))


def price_releases(epsilon: Number, delta: Number, parts: tuple[ReleaseGroup, ...]) -> PricedReleases:
    """The run with the least noise, to about five digits (three where it is sampled)."""
    return _priced(*_checked(epsilon, delta), parts)


def checked_size(size: int) -> int:
    """About how many units there are, as declared."""
    return whole(size, "size", at_least=1)


def checked_rate(rate: Number) -> Fraction:
    """The probability with which a unit takes part in a step."""
    chosen = exact(rate, "rate")
    if not 0 < chosen <= 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    return chosen


def _checked(epsilon: Number, delta: Number) -> tuple[Fraction, Fraction]:
    if not checked_delta(delta) > 0:
        raise BadParameter("delta", "must be above 0: training adds Gaussian noise")
    return checked_epsilon(epsilon), checked_delta(delta)


@lru_cache(maxsize=256)
def _ratio(epsilon: Fraction, delta: Fraction) -> Fraction:
    return gaussian_sigma(epsilon, delta, _FINE, 1) / sqrt_up(_FINE)


@lru_cache(maxsize=64)
def _priced(epsilon: Fraction, delta: Fraction, parts: tuple[ReleaseGroup, ...]) -> PricedReleases:
    ratio = _ratio(epsilon, delta)

    def at(factor: Fraction) -> PricedReleases:
        sigmas = tuple(part.sigma(ratio * factor) for part in parts)
        losses = [(part.loss(sigma), part.count) for part, sigma in zip(parts, sigmas, strict=True)]
        return PricedReleases(FixedRun.of(*losses, delta=delta), parts, sigmas)

    def fits(run: PricedReleases) -> bool:
        return run.loss.pair[0] <= epsilon

    factor, run = Fraction(1), at(Fraction(1))
    for _ in range(_MOST_TRIES):
        if run.loss.pair[0] <= epsilon:
            break
        factor *= (run.loss.pair[0] / epsilon + _NUDGE).limit_denominator(1 << 30)
        run = at(factor)
    else:
        raise BadParameter("epsilon", "cannot be reached at this δ with so many steps")
    if all(part.rate == 1 for part in parts):
        return run
    low, high = Fraction(0), factor
    while high - low > high * _CLOSE:
        middle = max((low + high) / 2, high * Fraction(3, 4)).limit_denominator(1 << 20)
        tried = at(middle)
        if tried.loss.pair[0] <= epsilon:
            high, run = middle, tried
        else:
            low = middle
    return run


def _short(sigma: Fraction) -> Fraction:
    """Rounded up to seven digits."""
    digits = 7 - math.ceil(math.log10(sigma))
    scale = Fraction(10) ** digits
    return math.ceil(sigma * scale) / scale
