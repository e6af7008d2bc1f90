"""Widths of the intervals of census estimates: how many deviations hold a sum of many discrete Gaussians.

Claim    an estimate X = Σ a_i e_i, with independent discrete Gaussians of parameters σ_i >= σ and
         V = Σ a_i² σ_i², has P[|X| > f √V] <= 1 - confidence for f = `deviations_that_hold(σ, confidence)`.
Because  from σ = 5 on, X has the normal law's characteristic function (to 1e-12) up to the frequency
         π σ / √V. Selberg's minorant of the interval ±f √V has no higher frequencies: so its mean is the
         same under both laws, and it is a lower bound of the probability inside. For smaller σ, and where
         it is less, f is √(2 ln(2 / β)): discrete Gaussians are sub-Gaussian. The proof is in
         docs/arguments/census.md.
Test     tests/publish/census/test_estimate_widths.py
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from lapwing.core.exact import halve
from lapwing.publish.census.least_squares import Floats, Query, SpineEstimate

CONFIDENCE = 0.95
_LEAST_SIGMA, _MOST_SIGMA = 5.0, 200.0  # below, frequencies mix; above, nothing is gained
_MARGIN = 1e-9  # of the probability, for floats and the 1e-12
_DIGITS = 1000  # factors are rounded up to three digits


def sub_gaussian_deviations(confidence: float = CONFIDENCE) -> float:
    """Return the factor that holds every sub-Gaussian noise: 2.72 at 95 %."""
    return math.sqrt(2 * math.log(2 / (1 - confidence)))


@lru_cache(maxsize=256)
def deviations_that_hold(least_sigma: float, confidence: float = CONFIDENCE) -> float:
    """Return how many deviations hold a weighted sum of noises whose least parameter is `least_sigma`.

    It is 1.97 from σ = 100 on and 2.17 for σ = 5, at 95 %.
    """
    widest = sub_gaussian_deviations(confidence)
    if least_sigma < _LEAST_SIGMA or not 0.5 <= confidence <= 1 - 1e-6:
        return widest
    sigma = min(least_sigma, _MOST_SIGMA)
    _, high = halve(lambda width: _inside(width, sigma) - _MARGIN >= confidence, 0.0, widest, times=30)
    return min(math.ceil(high * _DIGITS) / _DIGITS, widest)


def half_widths(
    estimate: SpineEstimate, level: int, query: Query, *, deviations: float | None = None
) -> Floats:
    """Return the half width of the interval of a query's numbers, for each node of a level.

    Older bundles have the widths of `sub_gaussian_deviations`.
    """
    factor = deviations_that_hold(estimate.least_sigma) if deviations is None else deviations
    return np.asarray(factor * np.sqrt(np.maximum(estimate.variance(level, query), 0)))


def _inside(width: float, sigma: float) -> float:
    """Return E m(Z) for a standard normal Z and Selberg's minorant m of ±width with frequencies up to πσ.

    m(x) = -(B(δ(-width - x)) + B(δ(x - width))) / 2 with δ = σ / 2. Its two halves have the same mean. The
    sum over a fine grid is the integral, but for frequencies beyond the grid's: none.
    """
    step = 1 / (8 * sigma)
    x = np.arange(-12.0, 12.0 + step, step)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(-(_beurling(sigma / 2 * (x - width)) * density).sum() * step)


def _beurling(z: Floats) -> Floats:
    """Return Beurling's function: the least majorant of the sign with no frequency above 2π.

    For z > 0 it is 1 + (sin πz / π)² (2/z - 2 ψ'(1 + z)); for z < 0, with y = -z, it is
    -1 + (sin πy / π)² (2 ψ'(y) - 2/y), which tends to 1 at 0.
    """
    size = np.maximum(np.abs(z), 1e-9)
    wave = (np.sin(np.pi * size) / np.pi) ** 2
    beyond = _trigamma(1 + size)
    right = 1 + wave * (2 / size - 2 * beyond)
    left = -1 + wave * (2 * beyond + 2 / size**2 - 2 / size)
    return np.where(z >= 0, right, left)


def _trigamma(x: Floats) -> Floats:
    """Return ψ'(x) for x >= 1, to 1e-15: twenty terms, then the asymptotic series."""
    total = np.zeros_like(x)
    for k in range(20):
        total += 1 / (x + k) ** 2
    y = x + 20
    return np.asarray(total + 1 / y + 1 / (2 * y**2) + 1 / (6 * y**3) - 1 / (30 * y**5) + 1 / (42 * y**7))
