"""Exact bounds on a probability, from the number of times that an event happened.

Claim    of independent trials, `proportion_at_most` is below the true probability with probability at most
         `error`; `proportion_at_least` is above it with probability at most `error`.
Because  they are the bounds of Clopper and Pearson 1934: the probability at which the counted number or
         fewer hits have probability `error`. Ball arithmetic rounds to the safe side.
Test     tests/audit/stages/test_proportions.py
"""

from __future__ import annotations

import math

from flint import arb

from lapwing.core.exact import precision, upper

_STEPS = 60
_NEAR = 1e-8  # of the logarithm of the error
SPARE_BITS = 48  # beyond those that distinguish the error from 0


def proportion_at_least(hits: int, trials: int, error: float) -> float:
    """Return a lower bound on a probability; it is wrong with probability at most `error`."""
    above = proportion_at_most(trials - hits, trials, error)
    return max(math.nextafter(1 - above, 0), 0.0) if above < 1 else 0.0


def proportion_at_most(hits: int, trials: int, error: float) -> float:
    """Return an upper bound on a probability; it is wrong with probability at most `error`.

    It is the p at which `hits` or fewer have probability `error`: 1 - I_p(hits + 1, trials - hits) = error.
    """
    if hits == trials:
        return 1.0
    low, high, goal = hits / trials, 1.0, -math.log(error)
    # √(-ln tail) is nearly linear: go along its secant, between bounds that balls have decided.
    known, slope = (low, math.sqrt(math.log(2))), 0.0
    guess = min(low + math.sqrt(2 * goal * (low * (1 - low) + goal / trials) / trials), (1 + low) / 2)
    with precision(SPARE_BITS - math.floor(math.log2(error))):
        for _ in range(_STEPS):
            tail = _minus_log_tail(guess, hits, trials)
            low, high = (low, guess) if tail > goal else (guess, high)
            if goal < tail < goal + _NEAR or high - low < 2.0**-40 * high:
                break
            slope = (math.sqrt(tail) - known[1]) / (guess - known[0]) if guess != known[0] else 0.0
            known = guess, math.sqrt(tail)
            step = (math.sqrt(goal + _NEAR / 2) - known[1]) / slope if slope > 0 else math.inf
            guess = guess + step if low < guess + step < high else (low + high) / 2
    return high


def _minus_log_tail(p: float, hits: int, trials: int) -> float:
    """Return a lower bound on -ln P[at most `hits` of `trials`] where each hits with probability p."""
    below = arb(p).beta_lower(hits + 1, trials - hits, regularized=True)
    tail = upper(1 - below)
    return max(-math.log(tail) - 1e-12, 0.0) if tail > 0 else math.inf
