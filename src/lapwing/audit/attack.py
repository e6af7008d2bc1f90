"""The auditor's attack: draw on neighbouring inputs, and find the event that distinguishes them best.

Claim    if the claimed (ε, δ) holds, `attack` reports a violation with probability at most `error`.
Because  the event is chosen on one half of the draws and counted on the other, fresh half; its two
         probabilities get exact (Clopper-Pearson) bounds at error / 4 each, for either direction.
Test     tests/audit/test_attack.py, with mechanisms that are broken on purpose and must be caught
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import inside_unit, precision, upper, whole

Draw = Callable[[int], NDArray[np.int64]]
SPARE_BITS = 48  # beyond those that distinguish the error from 0
# Pseudo-counts, so that outputs that occur once or twice by chance do not look decisive.
PRIOR = 8.0


@dataclass(frozen=True, slots=True)
class Case:
    """A mechanism on two neighbouring inputs (`one`, `other`), and the (ε, δ) that it claims for them."""

    name: str
    mechanism: type
    epsilon: Fraction
    delta: Fraction
    one: Draw
    other: Draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an attack: the true ε is at least `at_least`, up to the stated error."""

    name: str
    claimed: float
    at_least: float
    draws: int

    @property
    def holds(self) -> bool:
        """Whether the attack found no contradiction to the claim."""
        return self.at_least <= self.claimed


def attack(case: Case, *, draws: int, error: float) -> Verdict:
    """Try to show that the case's claim is false.

    Args:
        case: The mechanism, its neighbouring inputs and its claim.
        draws: The number of outputs to draw on each input, at least 2.
        error: The greatest probability of a false alarm, strictly between 0 and 1.

    Returns:
        A lower bound on the true ε, to be compared with the claim.

    Raises:
        BadParameter: If `draws` or `error` is out of range.
    """
    inside_unit(error, "error")
    half = whole(draws, "draws", at_least=2) // 2
    one, other = _codes(case.one(2 * half), case.other(2 * half))
    at_least = max(
        _directed(first, second, half, float(case.delta), error / 2)
        for first, second in ((one, other), (other, one))
    )
    return Verdict(case.name, float(case.epsilon), at_least, 2 * half)


def _codes(one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return outputs (numbers or rows of numbers) as small numbers, equal iff the outputs are."""
    both = np.concatenate([one, other])
    _, codes = np.unique(both, axis=0, return_inverse=True)
    flat = codes.reshape(-1).astype(np.int64)
    return flat[: len(one)], flat[len(one) :]


def _directed(
    first: NDArray[np.int64], second: NDArray[np.int64], half: int, delta: float, error: float
) -> float:
    """Return a lower bound on ε from the event that is more likely under `first`."""
    kinds = int(max(first.max(), second.max())) + 1
    seen = np.bincount(first[:half], minlength=kinds), np.bincount(second[:half], minlength=kinds)
    event = _best_event(seen[0], seen[1], half, delta)
    hits = int(event[first[half:]].sum()), int(event[second[half:]].sum())
    p = proportion_at_least(hits[0], half, error / 2)
    q = proportion_at_most(hits[1], half, error / 2)
    return max(float(np.log((p - delta) / q)), 0.0) if p > delta else 0.0


def _best_event(
    first: NDArray[np.int64], second: NDArray[np.int64], half: int, delta: float
) -> NDArray[np.bool_]:
    """Return the outputs with the highest likelihood ratios, cut where a rough bound on ε is greatest."""
    order = np.argsort(-(first + PRIOR) / (second + PRIOR), kind="stable")
    p, q = np.cumsum(first[order]) / half, np.cumsum(second[order]) / half
    # Four standard deviations on either side: a guess at the exact bounds.
    low = p - 4 * np.sqrt(p * (1 - p) / half) - 8 / half - delta
    high = q + 4 * np.sqrt(q * (1 - q) / half) + 8 / half
    cut = int(np.argmax(np.maximum(low, 0) / high))
    event = np.zeros(len(first), dtype=bool)
    event[order[: cut + 1]] = True
    return event


def proportion_at_least(hits: int, trials: int, error: float) -> float:
    """Return a lower bound on a probability; it is wrong with probability at most `error`."""
    return 1 - proportion_at_most(trials - hits, trials, error)


def proportion_at_most(hits: int, trials: int, error: float) -> float:
    """Return an upper bound on a probability; it is wrong with probability at most `error`.

    It is the p at which `hits` or fewer have probability `error`: 1 - I_p(hits + 1, trials - hits) = error.
    """
    if hits == trials:
        return 1.0
    low, high, limit = Fraction(hits, trials), Fraction(1), Fraction(error)
    with precision(SPARE_BITS - math.floor(math.log2(error))):
        for _ in range(32):
            middle = (low + high) / 2
            at = arb(middle.numerator) / middle.denominator
            below = at.beta_lower(hits + 1, trials - hits, regularized=True)
            low, high = (low, middle) if upper(1 - below) < limit else (middle, high)
    return float(high)
