"""Families of events that may distinguish two inputs, each chosen on one half of the draws.

A family gives every output a code; an event is a set of codes. A family may look at the choosing half
only, so that the fresh half is independent of the event. A family returns None if it does not apply.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.stages.outputs import Codes, Pool, bits_of, most_telling

# Pseudo-counts, so that outputs that occur once or twice by chance do not look decisive.
PRIOR = 8.0
_RARE = 8  # an output seen less often in the choosing half is taken together with all other rare ones
_FEW = 64  # with so few outputs, all of them frequent, likelihood order alone is best
_FEWEST_BINS, _MOST_BINS = 16, 64
_MOST_KEYS = 10
_MOST_FEATURES = 40
_MOST_FITTED = 4_000  # rows of each input to which the classifier is fitted
_LARGEST = 1e100  # so that squares of features are finite
_MOST_COMPARED = 8  # columns whose differences are compared
_ROUNDS = 12
_EXAMPLES = 5
Family = Callable[[Pool], Codes | None]


@dataclass(frozen=True, slots=True)
class Event:
    """A set of codes, and how often it happened among fresh draws on either input."""

    hits: tuple[int, int]
    trials: int
    share: tuple[float, float]
    codes: NDArray[np.bool_]
    examples: tuple[str, ...]  # outputs in it that were frequent in the choosing half


def likelihood(pool: Pool) -> Codes:
    """Return a code for each output that is seen often, and one for all that are rare."""
    return _without_rare(pool.exact, pool)


def _without_rare(codes: Codes, pool: Pool) -> Codes:
    kinds = int(codes.max()) + 1
    often = np.bincount(codes[pool.chooses], minlength=kinds) >= _RARE
    names = np.where(often, np.cumsum(often), 0)
    return names[codes].astype(np.int64)


def order(pool: Pool) -> Codes | None:
    """Return the bin of each number, between quantiles of the choosing half; of rows: of their sums."""
    if pool.numbers is None:
        return None
    rows = pool.numbers
    with np.errstate(invalid="ignore", over="ignore"):
        values = rows[:, 0] if rows.shape[1] == 1 else np.nansum(rows, axis=1)
    return _binned(values, pool)


def _binned(values: NDArray[np.float64], pool: Pool) -> Codes:
    """Return the number of quantiles of the choosing half below each value; NaN has a code of its own."""
    known = values[pool.chooses & np.isfinite(values)]
    if not len(known):
        return np.isnan(values).astype(np.int64)
    # With many bins, those that differ by chance look best; with few, events are coarse.
    bins = min(max(round(float(len(known) / 2) ** (1 / 3)), _FEWEST_BINS), _MOST_BINS)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1), method="nearest"))
    return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right")).astype(
        np.int64
    )


def lowest_bit(pool: Pool) -> Codes | None:
    """Return the place of the lowest bit that is set in each float: which numbers are reachable."""
    if pool.numbers is None or pool.whole is not None:
        return None
    places = _lowest_places(pool.numbers[:, :_MOST_FEATURES])
    return _without_rare(places.min(axis=1) * 2100 + places.max(axis=1), pool)


def _lowest_places(rows: NDArray[Any]) -> Codes:
    """Return 0 for 0.0, 1 for -0.0, 2 for infinities, 3 for NaN, else 4 + the place above 2^-1074."""
    bits = bits_of(rows)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    digits = np.where(exponent > 0, fraction | np.uint64(1 << 52), fraction)
    lowest = digits & (~digits + np.uint64(1))
    zeros = np.where(digits == 0, 0, np.frexp(lowest.astype(np.float64))[1] - 1)
    places = 4 + np.maximum(exponent, 1) - 1 + zeros
    places = np.where(digits == 0, (bits >> np.uint64(63)).astype(np.int64), places)
    return np.where(exponent == 0x7FF, np.where(fraction == 0, 2, 3), places).astype(np.int64)


def last_bits(pool: Pool) -> Codes | None:
    """Return the last six bits of each number (of rows: of the first two columns)."""
    if pool.numbers is None:
        return None
    first = pool.numbers[:, :2]
    known = first[pool.chooses]
    if pool.whole is not None:
        last = pool.whole[:, :2] & 63
    elif (np.isfinite(known) & (known == np.floor(known))).mean() > 0.5:  # whole numbers, as floats
        last = np.mod(np.nan_to_num(first, posinf=0, neginf=0), 64).astype(np.int64)
    else:
        last = (bits_of(first) & np.uint64(63)).astype(np.int64)
    return last[:, 0] if last.shape[1] == 1 else last[:, 0] * 64 + last[:, 1]


def kind(pool: Pool) -> Codes | None:
    """Return the type, length and class of error of each output."""
    kinds = _without_rare(pool.kinds, pool)
    return kinds if len(np.unique(kinds[pool.chooses])) > 1 else None


def column(pool: Pool) -> Codes | None:
    """Return the frequent values and the bins of the column that differs most."""
    if pool.numbers is None or pool.numbers.shape[1] == 1:
        return None
    return _values_and_bins(pool.numbers[:, 0], pool)


def differences(pool: Pool) -> Codes | None:
    """Return the frequent values and the bins of the difference of two columns that differs most."""
    if pool.numbers is None or pool.numbers.shape[1] == 1:
        return None
    first = (pool.numbers if pool.whole is None else pool.whole)[:, :_MOST_COMPARED]
    left, right = np.triu_indices(first.shape[1], 1)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = (first[:, left] - first[:, right]).astype(np.float64)
    return _values_and_bins(apart[:, most_telling(apart, pool.chooses, pool.is_other)[0]], pool)


def _values_and_bins(values: NDArray[np.float64], pool: Pool) -> Codes:
    """Return a code for each frequent value; other values have the code of their bin."""
    exact = _without_rare(np.unique(bits_of(values), return_inverse=True)[1].reshape(-1), pool)
    return np.where(exact > 0, exact + 2 * _MOST_BINS, _binned(values, pool)).astype(np.int64)


def keys(pool: Pool) -> Codes | None:
    """Return which of the ten most telling keys or words each output has."""
    if pool.words is None:
        return None
    has = _presence(pool, _MOST_KEYS)
    return None if has is None else (has @ (1 << np.arange(has.shape[1]))).astype(np.int64)


def _presence(pool: Pool, most: int) -> NDArray[np.int64] | None:
    """Return for the words that differ most in the choosing half whether each output has them."""
    counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    words = pool.words or []
    for chosen in np.flatnonzero(pool.chooses):
        counts[int(pool.is_other[chosen])].update(words[chosen])

    def telling(key: str) -> float:
        first, second = counts[0][key], counts[1][key]
        return abs(first - second) / math.sqrt(first + second + 1)

    both = counts[0] + counts[1]
    top = sorted(sorted(key for key in both if both[key] >= _RARE), key=telling, reverse=True)[:most]
    if not top:
        return None
    return np.array([[key in each for key in top] for each in words], dtype=np.int64)


def classifier(pool: Pool) -> Codes | None:
    """Return bins of the score of a logistic regression on features, fitted to draws that choose."""
    has = None if pool.words is None else _presence(pool, _MOST_FEATURES)
    taken = [np.flatnonzero(pool.chooses & side)[:_MOST_FITTED] for side in (~pool.is_other, pool.is_other)]
    fitted = np.concatenate(taken)
    numbers = None if pool.numbers is None else pool.numbers[:, :_MOST_FEATURES]
    ranges = None if numbers is None else _ranges(numbers[fitted])
    features = _features(fitted, numbers, ranges, has)
    if features.shape[1] <= 3:  # a single number
        return None
    middle, spread = features.mean(axis=0), features.std(axis=0)
    if not (spread > 0).any():
        return None

    def scaled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        moved = (rows[:, spread > 0] - middle[spread > 0]) / spread[spread > 0]
        clipped: NDArray[np.float64] = np.clip(np.column_stack([np.ones(len(moved)), moved]), -8, 8)
        return clipped

    weights = _logistic(scaled(features), pool.is_other[fitted])
    every = np.arange(len(pool.exact))
    scores = [
        scaled(_features(every[start : start + _MOST_FITTED], numbers, ranges, has)) @ weights
        for start in range(0, len(every), _MOST_FITTED)
    ]
    return _binned(np.concatenate(scores), pool)


def _ranges(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the .1 % and 99.9 % quantiles of each column; 0 where it has no finite number."""
    known = np.where(np.isfinite(rows), np.clip(rows, -_LARGEST, _LARGEST), np.nan)
    known[:, np.isnan(known).all(axis=0)] = 0.0
    quantiles: NDArray[np.float64] = np.nanquantile(known, (0.001, 0.999), axis=0)
    return quantiles


def _features(
    places: NDArray[np.int64],
    numbers: NDArray[np.float64] | None,
    ranges: NDArray[np.float64] | None,
    has: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """Return numbers, their magnitudes, whether there is a number, and words."""
    columns: list[NDArray[np.float64]] = []
    if numbers is not None and ranges is not None:
        rows, (low, high) = numbers[places], ranges
        clipped = np.nan_to_num(np.clip(rows, low, high))
        columns += [clipped, np.abs(clipped - (low + high) / 2), np.isnan(rows).astype(np.float64)]
    if has is not None:
        columns.append(has[places].astype(np.float64))
    return np.column_stack(columns) if columns else np.zeros((len(places), 0))


def _logistic(features: NDArray[np.float64], labels: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the coefficients of a logistic regression with a small ridge, by Newton's steps."""
    weights = np.zeros(features.shape[1])
    for _ in range(_ROUNDS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        gradient = features.T @ (chance - labels) + weights
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-3:
            break
    return weights


FAMILIES: Mapping[str, Family] = {
    "likelihood order": likelihood,
    "order of numbers": order,
    "lowest bit of floats": lowest_bit,
    "last bits": last_bits,
    "error, type and length": kind,
    "single column": column,
    "difference of columns": differences,
    "keys": keys,
    "classifier": classifier,
}


_FROM_OUTSIDE = ("likelihood order", "error, type and length")


def applicable(pool: Pool, families: Mapping[str, Family]) -> dict[str, Codes]:
    """Return the codes of each family that applies.

    If all outputs are among a few frequent ones, then every event is a set of these, and likelihood order
    finds the best one: the other families would only cost error probability.
    """
    codes: dict[str, Codes] = {}
    for name, family in families.items():
        made = family(pool)
        if made is None:
            continue
        codes[name] = made
        if family is likelihood and families is FAMILIES and _is_enough(made, pool):
            break
    return codes


def looks_inside(codes: Mapping[str, Codes], pool: Pool) -> bool:
    """Return whether most outputs are frequent, or some event looks inside them; by the choosing half."""
    rare = likelihood(pool)[pool.chooses] == 0
    return bool(rare.mean() < 0.5) or any(name not in _FROM_OUTSIDE for name in codes)


def _is_enough(codes: Codes, pool: Pool) -> bool:
    chosen = codes[pool.chooses]
    return bool(codes.max() <= _FEW and (chosen == 0).mean() < 0.01)


def best_event(codes: Codes, pool: Pool, delta: float, *, is_reversed: bool) -> Event:
    """Return the event that is more likely under one input (the second if reversed), chosen and counted.

    Codes are ordered by their likelihood ratios, and cut where a rough bound on ε is greatest.
    """
    first_is = pool.is_other if is_reversed else ~pool.is_other
    number = int(codes.max()) + 1
    first = np.bincount(codes[pool.chooses & first_is], minlength=number)
    second = np.bincount(codes[pool.chooses & ~first_is], minlength=number)
    half = int((pool.chooses & first_is).sum())
    ranked = np.argsort(-(first + PRIOR) / (second + PRIOR), kind="stable")
    p, q = np.cumsum(first[ranked]) / half, np.cumsum(second[ranked]) / half
    # Four standard deviations on either side: a guess at the exact bounds.
    low = p - 4 * np.sqrt(p * (1 - p) / half) - 8 / half - delta
    high = q + 4 * np.sqrt(q * (1 - q) / half) + 8 / half
    cut = int(np.argmax(np.maximum(low, 0) / high))
    chosen = np.zeros(number, dtype=bool)
    chosen[ranked[: cut + 1]] = True
    happened = chosen[codes] & ~pool.chooses
    hits = int((happened & first_is).sum()), int((happened & ~first_is).sum())
    share = float(p[cut]), float(q[cut])
    examples = _examples(pool, chosen[codes] & pool.chooses & first_is)
    return Event(hits, int((~pool.chooses & first_is).sum()), share, chosen, examples)


def _examples(pool: Pool, inside: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the most frequent of some outputs, as texts."""
    places = np.flatnonzero(inside)
    _, first, counts = np.unique(pool.exact[places], return_index=True, return_counts=True)
    often = np.argsort(-counts, kind="stable")[:_EXAMPLES]
    return tuple(pool.shown(int(places[first[place]])) for place in often)
