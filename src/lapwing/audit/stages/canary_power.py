"""The power of an audit with canaries: the bound that one run can be expected to show.

The forecast is about a Gaussian release that is as easy to audit as any: each canary has a coordinate of
its own, and moves it by the whole sensitivity. For δ = 0 it is randomized response about each canary
instead. A trainer with canaries that share coordinates shows less.

These are forecasts in floats. No verdict rests on them. docs/arguments/audit_canaries.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from lapwing.core.conversions import gaussian_epsilon, gaussian_sigma

CAUGHT = 0.95  # the share of runs in which a release of `smallest_caught` is caught
_FINE = 1 << 30  # a sensitivity so large that whole numbers are as good as real ones
_LARGEST = 64.0
_NORMAL = NormalDist()
_HALVINGS = 60


def gaussian_ratio(epsilon: Fraction, delta: Fraction) -> float:
    """Return σ over the sensitivity, for the least Gaussian noise that is (ε, δ)-private."""
    return float(gaussian_sigma(epsilon, delta, Fraction(_FINE**2), 1)) / _FINE


def guess_accuracy(ratio: float, canaries: int, guesses: int) -> float:
    """Return the share of right guesses to be expected, if only the highest and lowest scores are guessed.

    Scores are normal around 1 for canaries in the data and around 0 for others, with deviation `ratio`.
    """
    tail = min(guesses / 2 / canaries, 0.5)

    def above(mean: float, at: float) -> float:
        return _NORMAL.cdf((mean - at) / ratio)

    def is_beyond(at: float) -> bool:
        return (above(0, at) + above(1, at)) / 2 < tail

    at = _first(is_beyond, -40 * ratio, 40 * ratio + 1)
    return above(1, at) / 2 / tail


def expected_bound(ratio: float, *, canaries: int, guesses: int, delta: Fraction, error: Fraction) -> float:
    """Return the lower bound on ε that the expected number of right guesses shows, for Gaussian noise."""
    right = math.floor(guesses * guess_accuracy(ratio, canaries, guesses))
    return shown_bound(canaries, guesses, right, delta, error)


@lru_cache(maxsize=256)
def best_expected_bound(
    epsilon: Fraction, *, canaries: int, delta: Fraction, error: Fraction
) -> tuple[float, int]:
    """Return the largest bound to be expected for a correct release, and the number of guesses for it."""

    def bound(guesses: int) -> float:
        if not delta:
            right = math.floor(guesses / (1 + math.exp(-float(epsilon))))
            return shown_bound(canaries, guesses, right, delta, error)
        return expected_bound(ratio, canaries=canaries, guesses=guesses, delta=delta, error=error)

    ratio = gaussian_ratio(epsilon, delta) if delta else 0.0
    tried = {max(2, math.ceil(canaries / 2 ** (k / 2))) for k in range(16)}
    return max((bound(guesses), guesses) for guesses in tried)


def smallest_caught(least_right: int, *, canaries: int, guesses: int, delta: Fraction) -> float:
    """Return the least true ε, at δ, of a release that has `least_right` right guesses in 95 % of runs.

    Right guesses are counted as if they were independent.
    """
    log_binomials = _log_binomials(guesses)

    def is_enough(accuracy: float) -> bool:
        return _upper_tail(log_binomials, accuracy, least_right) >= CAUGHT

    accuracy = _first(is_enough, 0.5, 1.0)
    if not delta:
        return math.log(accuracy / (1 - accuracy)) if accuracy < 1 else math.inf
    log_ratio = _first(lambda at: guess_accuracy(math.exp(-at), canaries, guesses) >= accuracy, -12.0, 5.0)
    sigma = Fraction(math.exp(-log_ratio) * _FINE).limit_denominator(1)
    return float(gaussian_epsilon(delta, sigma, Fraction(_FINE**2), 1))


def shown_bound(canaries: int, guesses: int, right: int, delta: Fraction, error: Fraction) -> float:
    """Return in floats what `OneRun.at_least` computes rigorously."""
    if not right:
        return 0.0
    log_binomials, places = _log_binomials(guesses), np.arange(1, right + 1)

    def is_plausible(epsilon: float) -> bool:
        law = _law(log_binomials, 1 / (1 + math.exp(-epsilon)))
        worst = float((np.cumsum(law[:right][::-1]) / places).max())
        return float(law[right:].sum()) + 2 * canaries * float(delta) * worst > error

    return 0.0 if is_plausible(0.0) else _first(is_plausible, 0.0, _LARGEST)


def _log_binomials(count: int) -> NDArray[np.float64]:
    """Return ln of the number of ways to choose k of `count`, for each k."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    binomials: NDArray[np.float64] = logs[-1] - logs - logs[::-1]
    return binomials


def _law(log_binomials: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    """Return the binomial probabilities."""
    if not 0 < probability < 1:
        law = np.zeros(len(log_binomials))
        law[-1 if probability else 0] = 1.0
        return law
    k = np.arange(len(log_binomials))
    probabilities: NDArray[np.float64] = np.exp(
        log_binomials + k * math.log(probability) + k[::-1] * math.log1p(-probability)
    )
    return probabilities


def _upper_tail(log_binomials: NDArray[np.float64], probability: float, least: int) -> float:
    return float(_law(log_binomials, probability)[least:].sum())


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return about the least number from which `holds` is true; `high` if it never is."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
