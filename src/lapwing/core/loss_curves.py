"""What follows from a loss: ε at δ, δ at ε, ρ, and the trade-off curve of f-DP. Rounded the safe way.

Claim    each function returns a true statement about every release that has the loss: an ε, δ or ρ that is
         large enough, an error of the second kind that no test falls below.
Because  all bounds of a loss are about one remainder (docs/arguments/portfolio.md), so each of them alone
         gives a true statement, and so does the best of them. δ₀ is added.
         docs/arguments/composition.md has the rest.
Test     tests/core/test_loss_curves.py, beside exact laws, closed forms and dp-accounting
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from lapwing.core.conversions import BITS, best_renyi_delta, best_renyi_epsilon
from lapwing.core.exact import ball, lower, precision, round_up, upper
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    ZERO,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    Loss,
    Pair,
    ParallelComposition,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)

ONE = Fraction(1)
UNIT = 10**9  # an ε that is not exact is rounded up to this many parts of 1
_LARGEST_EXPONENT = 10_000  # beyond it, randomized response reveals all
_POINTS = 32  # of a trade-off curve
_SMALLEST_DELTA = Fraction(1, 10**9)  # of the points of a trade-off curve


def epsilon_of(loss: Loss, delta: Fraction) -> Fraction | None:
    """Return the least ε at δ that follows from the bounds of a loss; None if no ε follows."""
    left = delta - loss.delta0
    if left < 0:
        return None
    epsilons: list[Fraction] = []
    pair = loss.pair
    if pair is not None and pair[1] <= left:
        epsilons.append(_response_epsilon(pair, left))
    if left > 0 and loss.renyi(Fraction(2)) is not None:
        epsilons.append(_in_units(best_renyi_epsilon(loss, left)))
    return min(epsilons, default=None)


def delta_of(loss: Loss, epsilon: Fraction) -> Fraction:
    """Return the least δ at ε that follows from the bounds of a loss: 1 if none does."""
    deltas = [ONE]
    pair = loss.pair
    if pair is not None:
        deltas.append(_response_delta(pair, epsilon))
    if min(deltas) > 0 and loss.renyi(Fraction(2)) is not None:
        deltas.append(best_renyi_delta(loss, epsilon))
    return min(loss.delta0 + min(deltas), ONE)


def _in_units(epsilon: Fraction) -> Fraction:
    return Fraction(round_up(epsilon, UNIT), UNIT)


def _response_epsilon(pair: Pair, delta: Fraction) -> Fraction:
    """Return the ε at δ >= δ_b of the worst law with a pair: ln(e^ε_b - (δ - δ_b) (1 + e^ε_b)), or 0.

    A pair is never worse than "with probability δ_b reveal, else randomized response at ε_b".
    """
    epsilon, more = pair[0], delta - pair[1]
    if not more or epsilon > _LARGEST_EXPONENT:
        return epsilon
    with precision(BITS + 2 * math.ceil(epsilon)):
        power = ball(epsilon).exp()
        rest = power - ball(more) * (1 + power)
        return min(_in_units(upper(rest.log())), epsilon) if rest > 1 else ZERO


def _response_delta(pair: Pair, epsilon: Fraction) -> Fraction:
    """Return the δ at ε of the worst law with a pair: δ_b + (1 - δ_b) (e^ε_b - e^ε) / (1 + e^ε_b)."""
    if epsilon >= pair[0]:
        return pair[1]
    if pair[0] > _LARGEST_EXPONENT:
        return ONE
    with precision(BITS + 2 * math.ceil(pair[0])):
        power = ball(pair[0]).exp()
        return upper(ball(pair[1]) + ball(1 - pair[1]) * (power - ball(epsilon).exp()) / (1 + power))


def rho_of(loss: Loss) -> Fraction | None:
    """Return a ρ for which the remainder of a loss is ρ-zCDP: Rényi divergence at most ρ · order.

    None if the loss is of no kind for which a ρ is known. A sample reveals no more than the whole would.
    """
    match loss:
        case Concentrated(rho):
            return rho
        case GaussianNoise():
            return loss.concentrated.rho
        case SampledGaussian():
            return loss.noise.concentrated.rho
        case Repeated() | SequentialComposition() | ParallelComposition() | FixedRun():
            return _composed_rho(loss)
    pure = loss.pure
    # Bounded range: ε²/8; any pure loss: ε²/2 (Bun and Steinke).
    return None if pure is None else pure**2 / (8 if isinstance(loss, BoundedRange) else 2)


def _composed_rho(
    loss: Repeated | SequentialComposition | ParallelComposition | FixedRun,
) -> Fraction | None:
    match loss:
        case Repeated():
            parts = [(loss.loss, loss.count)]
        case FixedRun():
            parts = list(loss.steps)
        case _:
            parts = [(part, 1) for part in loss.parts]
    rhos = [count * rho for part, count in parts if (rho := rho_of(part)) is not None]
    if len(rhos) < len(parts):
        return None
    return max(rhos, default=ZERO) if isinstance(loss, ParallelComposition) else sum(rhos, ZERO)


@lru_cache(maxsize=64)
def _curve(loss: Loss) -> tuple[Pair, ...]:
    """Return points (ε, δ) that the loss holds, from ε = 0 to where δ is nearly as small as it gets."""
    pure = loss.pure
    end = epsilon_of(loss, min(loss.delta0 + _SMALLEST_DELTA, ONE)) if pure is None else pure
    if end is None:
        end = loss.pair[0] if loss.pair is not None else ZERO
    ends = sorted({end * k / _POINTS for k in range(_POINTS + 1)})
    return tuple((epsilon, delta_of(loss, epsilon)) for epsilon in ends)


def tradeoff_of(loss: Loss, alpha: Fraction) -> Fraction:
    """Return a β such that no test with false alarms at most `alpha` misses less often than β.

    At a pair (ε, δ), both P(S) <= e^ε P'(S) + δ and the same for the complement of S hold, in both
    directions: β >= 1 - δ - e^ε α, and β >= e^-ε (1 - δ - α). Each pair of the curve gives such a bound.
    """
    best = ZERO
    with precision(BITS):
        for epsilon, delta in _curve(loss):
            if epsilon <= _LARGEST_EXPONENT:
                power = ball(epsilon).exp()
                best = max(best, lower(1 - ball(delta) - power * ball(alpha)))
                best = max(best, lower(ball(1 - delta - alpha) / power))
    return best
