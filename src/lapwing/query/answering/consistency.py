"""Totals that agree with the sums of their cells, for several groupings of the same rows.

Claim    of all tables over the declared keys, the one whose sums are nearest to all noisy groupings (in
         least squares, each weighted by the inverse of its variance) gives every grouping's numbers. They
         agree with one another, stay unbiased, and none has a larger variance than the raw one.
Because  a table is the sum of its effects: for every set U of keys, what remains of the means over all
         other keys after taking off the effects of U's subsets. Effects are orthogonal, and summing over
         a key keeps the effects without it and drops the others. So least squares is, for each U, the
         weighted average of that effect in all groupings that contain U: nothing has to be solved. That
         average is Gauss and Markov's, so nothing linear and unbiased has a smaller variance.
Test     tests/query/test_consistency.py

Counts are kept at 0 or above as well: the table is then the nearest one without negative cells. Being a
projection onto a convex set that holds the truth, it brings no table further from it (in the same norm).

It is post-processing and costs nothing. It is for groupings of the *same rows* only: whoever asks for it
must know that no grouping drops rows which another keeps (those whose key is NULL). Groupings with
undeclared keys are left alone, since their cells were selected; so are distinct counts: they do not add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lapwing.query.answering.intervals import Noises
from lapwing.query.answering.shares import Mechanisms, deviation, is_declared
from lapwing.query.language.question import Question

Floats = NDArray[np.float64]
Keys = frozenset[int]
COUNTS = ("rows", "count", "units", "distinct")
ADDITIVE = ("rows", "count", "sum")
MOST_CELLS = 2_000_000  # of the table over all keys; beyond, groupings stay as they are
_ROUNDS, _WORK = 60, 300_000_000  # of the search for a table without negative cells


@dataclass(frozen=True, slots=True)
class Measured:
    """A part in one grouping: noisy numbers over the grouping's keys, and the noise's variance."""

    keys: tuple[int, ...]
    values: Floats
    variance: float


def counts_rows(question: Question, part: int) -> bool:
    """Whether a part cannot be below 0: it adds up rows or units."""
    combination = question.parts[part].combination
    return all(f > 0 and question.sums[at].function in COUNTS for f, at in combination)


def adds_up(question: Question, part: int) -> bool:
    """Whether a part's total is the sum of its cells. What is distinct is counted again in each cell."""
    return all(question.sums[at].function in ADDITIVE for _, at in question.parts[part].combination)


def agreeable(question: Question) -> list[int]:
    """The groupings that are made to agree: all by declared keys, if there are several."""
    found = [s for s in range(len(question.sets)) if is_declared(question, s)]
    keys = {key for s in found for key in question.sets[s]}
    cells = math.prod(len(question.keys[key].codes or ()) for key in keys)
    return found if len(found) > 1 and cells <= MOST_CELLS else []


@dataclass(frozen=True, slots=True)
class Agreed:
    """One grouping's consistent numbers, and where their intervals lie: half a width around `centre`."""

    values: Floats
    centre: Floats
    half: float


def agree(
    shares: Mechanisms, part: int, values: dict[int, NDArray[np.int64]], confidence: Fraction
) -> dict[int, Agreed]:
    """For each of the groupings, its numbers made consistent, and not negative if they count rows.

    The noise of such a number is a sum of many. Its width is taken as the standard deviation times what one
    noise or a normal law would need, whichever is more.
    """
    question = shares.question
    sizes = {key: len(question.keys[key].codes or ()) for s in values for key in question.sets[s]}
    measured = []
    for s, noisy in values.items():
        shape = [sizes[key] for key in question.sets[s]]
        variance = deviation(shares.mechanism(s, part)) ** 2
        measured.append(Measured(question.sets[s], noisy.astype(np.float64).reshape(shape), variance))
    factor = Noises.of(shares.mechanism(next(iter(values)), part), confidence).in_deviations
    found = reconcile(measured, sizes)
    nearest = [values for values, _ in found]
    if counts_rows(question, part) and any(values.min(initial=0.0) < 0 for values in nearest):
        nearest = not_negative(measured, sizes)
    return {
        s: Agreed(near.ravel(), values.ravel(), factor * math.sqrt(variance))
        for s, near, (values, variance) in zip(values, nearest, found, strict=True)
    }


def reconcile(measured: list[Measured], sizes: dict[int, int]) -> list[tuple[Floats, float]]:
    """Each grouping's consistent numbers, and the variance of one of them."""
    keys = sorted(sizes)
    effects: dict[Keys, list[tuple[float, Floats, float]]] = {}
    for one in measured:
        # As means over the keys that are not in the grouping, all measure the same effects.
        summed = _size(set(keys) - set(one.keys), sizes)
        weight, variance = summed / one.variance, one.variance / summed**2
        for effect, values in _effects(one, keys, sizes).items():
            freedom = math.prod(sizes[key] - 1 for key in effect)
            noise = variance * freedom / _size(one.keys, sizes)
            effects.setdefault(effect, []).append((weight, values / summed, noise))
    best = {effect: _average(found) for effect, found in effects.items()}
    results = []
    for one in measured:
        summed = _size(set(keys) - set(one.keys), sizes)
        total = np.zeros([sizes[key] if key in one.keys else 1 for key in keys])
        variance = 0.0
        for effect in _subsets(one.keys):
            total = total + best[effect][0]
            variance += best[effect][1]
        order = [sorted(one.keys).index(key) for key in one.keys]
        shaped = (total * summed).reshape([sizes[key] for key in sorted(one.keys)])
        results.append((np.transpose(shaped, order), variance * summed**2))
    return results


def _size(keys: set[int] | tuple[int, ...], sizes: dict[int, int]) -> float:
    return float(math.prod(sizes[key] for key in keys))


def _subsets(keys: tuple[int, ...]) -> list[Keys]:
    return [frozenset(some) for k in range(len(keys) + 1) for some in combinations(keys, k)]


def _effects(one: Measured, keys: list[int], sizes: dict[int, int]) -> dict[Keys, Floats]:
    """The effect of every subset of the grouping's keys, over all keys as axes (of length 1 if absent)."""
    effects: dict[Keys, Floats] = {frozenset(): _spread_out(one, keys, sizes)}
    for axis, key in enumerate(keys):
        if key in one.keys:
            split: dict[Keys, Floats] = {}
            for effect, part in effects.items():
                mean = part.mean(axis=axis, keepdims=True)
                split[effect], split[effect | {key}] = mean, part - mean
            effects = split
    return effects


def _average(found: list[tuple[float, Floats, float]]) -> tuple[Floats, float]:
    """The weighted average of one effect, and its variance in a cell."""
    whole = sum(weight for weight, _, _ in found)
    values = np.sum([weight / whole * values for weight, values, _ in found], axis=0)
    return values, sum((weight / whole) ** 2 * noise for weight, _, noise in found)


def not_negative(measured: list[Measured], sizes: dict[int, int]) -> list[Floats]:
    """The groupings of the nearest table without negative cells.

    By alternating directions: x is the nearest table to the groupings and to z, and z is x without negative
    cells. x takes one division for each effect. Wherever it stops, z's sums agree and are not negative.
    """
    keys = sorted(sizes)
    shape = [sizes[key] for key in keys]
    strength: dict[Keys, float] = dict.fromkeys(_subsets(tuple(keys)), 0.0)
    target = np.zeros(shape)
    for one in measured:
        summed = _size(set(keys) - set(one.keys), sizes)
        for effect in _subsets(one.keys):
            strength[effect] += summed / one.variance
        target += _spread_out(one, keys, sizes) / one.variance
    pull = min(value for value in strength.values() if value)
    factors = _mean_factors({effect: 1 / (value + pull) for effect, value in strength.items()})
    z, u = np.zeros(shape), np.zeros(shape)
    for _ in range(max(min(_ROUNDS, _WORK // (len(factors) * max(z.size, 1))), 5)):
        x = _of_means(target + pull * (z - u), keys, factors)
        z, u = np.maximum(x + u, 0.0), np.minimum(x + u, 0.0)
    sums = []
    for one in measured:
        ordered = z.sum(axis=tuple(i for i, key in enumerate(keys) if key not in one.keys))
        sums.append(np.transpose(ordered, [sorted(one.keys).index(key) for key in one.keys]))
    return sums


def _spread_out(one: Measured, keys: list[int], sizes: dict[int, int]) -> Floats:
    """A grouping's numbers with an axis of length 1 for every key that it lacks."""
    values = np.transpose(one.values, [one.keys.index(key) for key in sorted(one.keys)])
    return values.reshape([sizes[key] if key in one.keys else 1 for key in keys])


def _mean_factors(factors: dict[Keys, float]) -> dict[Keys, float]:
    """Σ factor_U · effect_U is Σ g_S · (mean over all keys but S): g_S = Σ over U ⊇ S of ±factor_U."""
    return {s: sum((-1) ** len(u - s) * f for u, f in factors.items() if s <= u) for s in factors}


def _of_means(values: Floats, keys: list[int], factors: dict[Keys, float]) -> Floats:
    total = np.zeros_like(values)
    for some, factor in factors.items():
        away = tuple(i for i, key in enumerate(keys) if key not in some)
        total += factor * (values.mean(axis=away, keepdims=True) if away else values)
    return total
