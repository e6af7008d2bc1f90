"""δ at small ε, of losses that are made of Gaussian noise, or are fixed runs.

Claim    `profile` is at least the true δ at ε, in either direction.
Because  *Gaussian*: each noise is a rounded continuous one up to a factor e^paid (privacy.gaussian);
         continuous ones compose to one whose squared ratio is the sum. *Other fixed runs*: δ is convex
         in e^ε, so it lies below the line between two points at which the run was priced.
Test     tests/learn/selection/test_profile.py
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from flint import arb

from lapwing.errors import BadParameter
from lapwing.exact import ball, precision
from lapwing.privacy import FixedRun, GaussianNoise, Loss, Repeated, Sum, Worst
from lapwing.privacy.convert import BITS, probability_up
from lapwing.privacy.gaussian import continuous_delta, rounded_from

# A run's distribution is dear, so its ε is found at these δ only.
_DELTAS = [Fraction(1, 2**k) for k in range(1, 9)]


def profile(loss: Loss, epsilon: Fraction) -> Fraction:
    """δ at ε, rounded up."""
    if isinstance(loss, Worst):
        return max((profile(part, epsilon) for part in loss.parts), default=Fraction(0))
    if isinstance(loss, FixedRun) and not all(isinstance(step, GaussianNoise) for step, _ in loss.steps):
        return _between(loss, epsilon)
    return gaussian_profile(loss, epsilon)


def _between(run: FixedRun, epsilon: Fraction) -> Fraction:
    """δ at ε by the line between two known points: δ is convex in e^ε, a greatest of P[S] - e^ε P'[S]."""
    known = _points(run)
    with precision(BITS):
        at = ball(epsilon).exp()
        below = [point for point in known if point[0] <= epsilon]
        above = [point for point in known if point[0] > epsilon]
        if not below or not above:
            return below[-1][1] if below else Fraction(1)
        (low, more), (high, less) = below[-1], above[0]
        left, right = ball(low).exp(), ball(high).exp()
        return probability_up(ball(more) + (ball(less) - ball(more)) * (at - left) / (right - left))


@lru_cache(maxsize=64)
def _points(run: FixedRun) -> tuple[tuple[Fraction, Fraction], ...]:
    """(ε, δ) in the order of rising ε and falling δ."""
    found = {FixedRun(run.steps, delta).pair[0]: delta for delta in _DELTAS}
    return tuple(sorted(found.items()))


def gaussian_profile(loss: Loss, epsilon: Fraction) -> Fraction:
    """δ at ε of Gaussian noise, rounded up."""
    with precision(BITS):
        squared, paid = _added(loss)
        left = ball(epsilon) - paid
        if not squared.is_finite() or not left > 0:
            return Fraction(1)
        if squared.is_zero():
            return Fraction(0)
        return probability_up(paid.exp() * continuous_delta(left, squared.sqrt()))


def _added(loss: Loss) -> tuple[arb, arb]:
    """(sensitivity / σ)², and what rounding to whole numbers pays."""
    match loss:
        case GaussianNoise(sigma, l2_squared, dimension):
            law = rounded_from(sigma, l2_squared, dimension)
            return law.ratio**2, law.paid
        case Repeated(each, count):
            one = _added(each)
            return count * one[0], count * one[1]
        case FixedRun():
            several = [_added(Repeated(step, count)) for step, count in loss.steps]
        case Sum():
            several = [_added(part) for part in loss.parts]
        case _:
            raise BadParameter(
                "base",
                "must be a fixed run, or Gaussian noise, for Poisson runs: use negative binomial ones",
            )
    return sum((one[0] for one in several), arb(0)), sum((one[1] for one in several), arb(0))
