"""The Gaussian releases of a training run: all fixed before the first, with noise that follows from (ε, δ).

Claim    all releases of a `PricedReleases` together are (ε, δ)-private for one unit, even if each one is
         chosen after seeing the earlier ones.
Because  their number, distances and noise are fixed beforehand, so their loss distributions compose
         (docs/arguments/trainers.md); σ is only accepted if the price of the whole is at most ε at δ.
Test     tests/learn/trainers/test_priced_releases.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from lapwing.core.conversions import gaussian_sigma
from lapwing.core.exact import Number, exact, sqrt_up
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import GaussianNoise, Loss, SampledGaussian, checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.table_input import Wholes

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
        """Return the loss of one of the releases."""
        noise = GaussianNoise(sigma, Fraction(self.l2_squared), self.dimension)
        return noise if self.rate == 1 else SampledGaussian(self.rate, noise)

    def sigma(self, ratio: Fraction) -> Fraction:
        """Return the σ that gives this group its share, where σ / Δ of the whole run is `ratio`."""
        return _short(ratio * self.rate * sqrt_up(self.count * self.l2_squared / self.share))


@dataclass(frozen=True, slots=True)
class PricedReleases:
    """The releases of a run: the loss to charge, and the noise of each group."""

    loss: FixedRun
    parts: tuple[ReleaseGroup, ...]
    sigmas: tuple[Fraction, ...]

    def release(self, part: int, sums: Wholes) -> Wholes:
        """Do one release of a group.

        Charge the loss first, and never release more often than was priced.
        """
        priced = self.parts[part]
        mechanism = Gaussian(self.sigmas[part], Fraction(priced.l2_squared), priced.dimension)
        return mechanism.sample(sums)


def noise_ratio(epsilon: Number | None, delta: Number | None) -> float:
    """Return σ over Δ of one Gaussian release that spends all of (ε, δ). It is public."""
    return float(_ratio(*_checked(epsilon, delta)))


def price_releases(
    epsilon: Number | None, delta: Number | None, parts: tuple[ReleaseGroup, ...]
) -> PricedReleases:
    """Return the run with the least noise, to about five digits (three if rows are sampled)."""
    return _priced(*_checked(epsilon, delta), parts)


def checked_rate(rate: Number) -> Fraction:
    """Return the probability with which a unit takes part in a step."""
    chosen = exact(rate, "rate")
    if not 0 < chosen <= 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    return chosen


def _checked(epsilon: Number | None, delta: Number | None) -> tuple[Fraction, Fraction]:
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is None:
            raise BadParameter(name, "must be given: it is a part of the price of a fit")
    assert epsilon is not None
    assert delta is not None
    if not checked_delta(delta) > 0:
        needs = "Only a budget that was opened with a δ, such as 1e-6, can pay for it"
        raise BadParameter("delta", f"must be above 0: training adds Gaussian noise. {needs}")
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
        if fits(run):
            break
        factor *= (run.loss.pair[0] / epsilon + _NUDGE).limit_denominator(1 << 30)
        run = at(factor)
    else:
        raise BadParameter("epsilon", "cannot be reached at this δ with this number of steps")
    if all(part.rate == 1 for part in parts):
        return run
    low, high = Fraction(0), factor
    while high - low > high * _CLOSE:
        middle = max((low + high) / 2, high * Fraction(3, 4)).limit_denominator(1 << 20)
        tried = at(middle)
        if fits(tried):
            high, run = middle, tried
        else:
            low = middle
    return run


def _short(sigma: Fraction) -> Fraction:
    """Round up to seven digits."""
    digits = 7 - math.ceil(math.log10(sigma))
    scale = Fraction(10) ** digits
    return math.ceil(sigma * scale) / scale
