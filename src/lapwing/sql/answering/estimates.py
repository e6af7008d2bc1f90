"""From noisy parts to the columns of an answer. All of it is post-processing, and costs nothing.

An answer has one row for each group of each grouping. A key that a grouping lacks is NULL. HAVING, ORDER
BY, LIMIT and OFFSET use released values only. Totals of several groupings are made consistent with their
cells:

Claim    of all tables over the declared keys, take the one whose sums are nearest to all noisy groupings
         (in least squares, each weighted by the inverse of its variance). Its sums agree with one another,
         are unbiased, and none has a larger variance than the raw number.
Because  a table is the sum of its effects. The effect of a set U of keys is the mean over all other keys
         minus the effects of U's subsets. Effects are orthogonal, and summing over a key keeps the effects
         without it and drops the others. So least squares is, for each U, the weighted average of that
         effect in all groupings that contain U, and no system has to be solved. By Gauss and Markov, no
         linear unbiased estimate has a smaller variance.
Test     tests/sql/answering/test_estimates_consistency.py

Counts are also kept at 0 or above: the table is then the nearest one without negative cells. This is a
projection onto a convex set that contains the true table, so it moves no table further from the truth (in
the same norm).

Consistency is for groupings of the *same rows* only: no grouping may drop rows that another keeps (rows
whose key is NULL). Groupings with undeclared keys are left as they are, since their cells were selected. So
are distinct counts, which do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number
from lapwing.core.order_statistics import Extreme
from lapwing.core.spread import checked_confidence
from lapwing.sql.answering import computed_values, group_statistics
from lapwing.sql.answering.computed_values import Anything, Ends, PartRatio, objects_of
from lapwing.sql.answering.group_statistics import Estimate, NoisyParts, in_steps
from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.policy.kinds import Kind, Numeric, Person, Text, Truth
from lapwing.sql.pricing.noise_shares import PartMechanisms, deviation
from lapwing.sql.pricing.noise_widths import Floats, NoiseFamily, half_width
from lapwing.sql.pricing.weighted_noise import WeightedSum, weighted_half, weighted_sum_of, weighted_width
from lapwing.sql.question.bound_query import (
    CHOICE_FUNCTIONS,
    BoundQuery,
    Computed,
    KeyValue,
    NoisyAggregate,
    Order,
    Plain,
    Released,
    Sum,
    WantedCode,
    code_range,
    has_declared_keys,
    step_of,
    wanted_of,
)

Keys = frozenset[int]
Noisy = Sequence[NoisyGrouping]  # one for each grouping of the question
COUNTS = ("rows", "count", "units", "distinct")
ADDITIVE = ("rows", "count", "sum")
MOST_CELLS = 2_000_000  # of the table over all keys; beyond, groupings stay as they are
_ROUNDS, _WORK = 60, 300_000_000  # of the search for a table without negative cells


@dataclass(frozen=True, slots=True)
class MeasuredGrouping:
    """One part in one grouping: noisy numbers over the grouping's keys, and the variance of the noise."""

    keys: tuple[int, ...]
    values: Floats
    variance: float


def counts_rows(question: BoundQuery, part: int) -> bool:
    """Return whether a part cannot be below 0, since it counts rows or units."""
    combination = question.parts[part].combination
    return all(f > 0 and question.sums[at].function in COUNTS for f, at in combination)


def adds_up(question: BoundQuery, part: int) -> bool:
    """Return whether a part's total is the sum of its cells. Distinct values may be in several cells."""
    return all(question.sums[at].function in ADDITIVE for _, at in question.parts[part].combination)


def consistent_groupings(question: BoundQuery) -> list[int]:
    """Return the groupings to make consistent: all by declared keys, if there are several."""
    groupings = [s for s in range(len(question.sets)) if has_declared_keys(question, s)]
    keys = {key for s in groupings for key in question.sets[s]}
    cells = math.prod(len(question.keys[key].codes or ()) for key in keys)
    return groupings if len(groupings) > 1 and cells <= MOST_CELLS else []


@dataclass(frozen=True, slots=True)
class ConsistentGrouping:
    """The consistent numbers of one grouping. Their intervals are `centre` ± `half`."""

    values: Floats
    centre: Floats
    half: float


def make_consistent(
    shares: PartMechanisms, part: int, values: dict[int, NDArray[np.int64]], confidence: Fraction
) -> dict[int, ConsistentGrouping]:
    """Return consistent numbers for each grouping, not negative if they count rows.

    The noise of such a number is a sum of many noises. Its width is the standard deviation times a factor
    that holds any such sum (`NoiseFamily.for_sums`).
    """
    question = shares.question
    sizes = {key: len(question.keys[key].codes or ()) for s in values for key in question.sets[s]}
    measured = []
    for s, noisy in values.items():
        shape = [sizes[key] for key in question.sets[s]]
        variance = deviation(shares.mechanism(s, part)) ** 2
        measured.append(
            MeasuredGrouping(question.sets[s], noisy.astype(np.float64).reshape(shape), variance)
        )
    least = math.sqrt(min(grouping.variance for grouping in measured))
    factor = NoiseFamily.of(shares.mechanism(next(iter(values)), part), confidence).for_sums(least)
    averages = least_squares(measured, sizes)
    nearest = [values for values, _ in averages]
    if counts_rows(question, part) and any(values.min(initial=0.0) < 0 for values in nearest):
        nearest = nearest_non_negative(measured, sizes)
    return {
        s: ConsistentGrouping(near.ravel(), values.ravel(), factor * math.sqrt(variance))
        for s, near, (values, variance) in zip(values, nearest, averages, strict=True)
    }


def least_squares(measured: list[MeasuredGrouping], sizes: dict[int, int]) -> list[tuple[Floats, float]]:
    """Return each grouping's consistent numbers, and the variance of each number."""
    keys = sorted(sizes)
    effects: dict[Keys, list[tuple[float, Floats, float]]] = {}
    for grouping in measured:
        # Divided by the cells that it adds up, every grouping measures the same effects.
        summed = _size(set(keys) - set(grouping.keys), sizes)
        weight, variance = summed / grouping.variance, grouping.variance / summed**2
        for effect, values in _effects(grouping, keys, sizes).items():
            freedom = math.prod(sizes[key] - 1 for key in effect)
            noise = variance * freedom / _size(grouping.keys, sizes)
            effects.setdefault(effect, []).append((weight, values / summed, noise))
    best = {effect: _average(measurements) for effect, measurements in effects.items()}
    results = []
    for grouping in measured:
        summed = _size(set(keys) - set(grouping.keys), sizes)
        total = np.zeros([sizes[key] if key in grouping.keys else 1 for key in keys])
        variance = 0.0
        for effect in _subsets(grouping.keys):
            total = total + best[effect][0]
            variance += best[effect][1]
        order = [sorted(grouping.keys).index(key) for key in grouping.keys]
        shaped = (total * summed).reshape([sizes[key] for key in sorted(grouping.keys)])
        results.append((np.transpose(shaped, order), variance * summed**2))
    return results


def _size(keys: set[int] | tuple[int, ...], sizes: dict[int, int]) -> float:
    return float(math.prod(sizes[key] for key in keys))


def _subsets(keys: tuple[int, ...]) -> list[Keys]:
    return [frozenset(some) for k in range(len(keys) + 1) for some in combinations(keys, k)]


def _effects(grouping: MeasuredGrouping, keys: list[int], sizes: dict[int, int]) -> dict[Keys, Floats]:
    """Return the effect of every subset of a grouping's keys, with all keys as axes (length 1: absent)."""
    effects: dict[Keys, Floats] = {frozenset(): _spread_out(grouping, keys, sizes)}
    for axis, key in enumerate(keys):
        if key in grouping.keys:
            split: dict[Keys, Floats] = {}
            for effect, part in effects.items():
                mean = part.mean(axis=axis, keepdims=True)
                split[effect], split[effect | {key}] = mean, part - mean
            effects = split
    return effects


def _average(measurements: list[tuple[float, Floats, float]]) -> tuple[Floats, float]:
    """Return the weighted average of one effect, and its variance in a cell."""
    whole = sum(weight for weight, _, _ in measurements)
    values = np.sum([weight / whole * values for weight, values, _ in measurements], axis=0)
    return values, sum((weight / whole) ** 2 * noise for weight, _, noise in measurements)


def nearest_non_negative(measured: list[MeasuredGrouping], sizes: dict[int, int]) -> list[Floats]:
    """Return the groupings of the nearest table without negative cells.

    By alternating directions: x is the nearest table to the groupings and to z, and z is x without negative
    cells. x takes one division for each effect. The sums of z agree and are not negative after every round.
    """
    keys = sorted(sizes)
    shape = [sizes[key] for key in keys]
    strength: dict[Keys, float] = dict.fromkeys(_subsets(tuple(keys)), 0.0)
    target = np.zeros(shape)
    for grouping in measured:
        summed = _size(set(keys) - set(grouping.keys), sizes)
        for effect in _subsets(grouping.keys):
            strength[effect] += summed / grouping.variance
        target += _spread_out(grouping, keys, sizes) / grouping.variance
    pull = min(value for value in strength.values() if value)
    factors = _mean_factors({effect: 1 / (value + pull) for effect, value in strength.items()})
    z, u = np.zeros(shape), np.zeros(shape)
    for _ in range(max(min(_ROUNDS, _WORK // (len(factors) * max(z.size, 1))), 5)):
        x = _of_means(target + pull * (z - u), keys, factors)
        z, u = np.maximum(x + u, 0.0), np.minimum(x + u, 0.0)
    sums = []
    for grouping in measured:
        ordered = z.sum(axis=tuple(i for i, key in enumerate(keys) if key not in grouping.keys))
        sums.append(np.transpose(ordered, [sorted(grouping.keys).index(key) for key in grouping.keys]))
    return sums


def _spread_out(grouping: MeasuredGrouping, keys: list[int], sizes: dict[int, int]) -> Floats:
    """Return a grouping's numbers with an axis of length 1 for every key that it lacks."""
    values = np.transpose(grouping.values, [grouping.keys.index(key) for key in sorted(grouping.keys)])
    return values.reshape([sizes[key] if key in grouping.keys else 1 for key in keys])


def _mean_factors(factors: dict[Keys, float]) -> dict[Keys, float]:
    """Return g_S = Σ_{U ⊇ S} ±factor_U: Σ factor_U · effect_U is Σ g_S · (mean over all keys but S)."""
    return {s: sum((-1) ** len(u - s) * f for u, f in factors.items() if s <= u) for s in factors}


def _of_means(values: Floats, keys: list[int], factors: dict[Keys, float]) -> Floats:
    total = np.zeros_like(values)
    for some, factor in factors.items():
        away = tuple(i for i, key in enumerate(keys) if key not in some)
        total += factor * (values.mean(axis=away, keepdims=True) if away else values)
    return total


NO_INTERVAL = "no interval"


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer: values, the ends of their intervals (None: no interval), and a note.

    `rank_error` is the error of quantiles, MIN and MAX in ranks; None for other columns.
    """

    name: str
    values: Anything
    low: Anything | None = None
    high: Anything | None = None
    note: str = ""
    rank_error: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """The rows of an answer. `agree` says whether totals equal the sums of their cells."""

    columns: list[AnswerColumn]
    length: int
    agree: bool = False


def estimate(
    shares: PartMechanisms, noisy: Noisy, *, confidence: Number, sampling: bool = False, agree: bool = True
) -> AnswerRows:
    """Estimate the answer of a question. With `sampling`, intervals include the error of a sample."""
    question, level = shares.question, checked_confidence(confidence)
    release = _Release(shares, noisy, level, sampling, agree)
    columns = [release.column(output.value) for output in question.outputs]
    length = sum(grouping.groups for grouping in noisy)
    kept = np.arange(length)
    if question.having is not None:
        truth = release.column(question.having).values
        kept = kept[np.array([value is not None and bool(value) for value in truth], dtype=bool)]
    kept = _ordered(kept, [(order, release.column(order.value).values) for order in question.order])
    end = None if question.limit is None else question.offset + question.limit
    kept = kept[question.offset : end]
    whole = len(kept) == length and not question.order
    taken: Any = slice(None) if whole else kept
    cols = []
    for output, column in zip(question.outputs, columns, strict=True):
        low, high = (None if end is None else end[taken] for end in (column.low, column.high))
        cols.append(
            AnswerColumn(output.name, column.values[taken], low, high, column.note, column.rank_error)
        )
    return AnswerRows(cols, len(kept), bool(release.agreed))


def _has_numbers(values: Anything) -> bool:
    return any(isinstance(value, int | float) and not isinstance(value, bool) for value in values.tolist())


class _Release:
    """Noisy groupings, and the estimates made from them so far."""

    def __init__(
        self, shares: PartMechanisms, noisy: Noisy, level: Fraction, sampling: bool, agree: bool
    ) -> None:
        self.shares, self.noisy, self.level = shares, noisy, level
        self.question: BoundQuery = shares.question
        places = range(len(self.question.parts))
        self.parts = [
            NoisyParts(grouping.parts, tuple(shares.mechanism(s, p) for p in places), level, sampling)
            for s, grouping in enumerate(noisy)
        ]
        self.agreed = consistent_groupings(self.question) if agree else []
        self.sampling = sampling
        self._agreed: dict[int, dict[int, ConsistentGrouping]] = {}
        self._known: dict[Released, Estimate] = {}

    def column(self, tree: Released) -> Estimate:
        """Return a released value over all rows of all groupings, with its interval."""
        estimate = self._value(tree)
        if not isinstance(tree, Computed) or estimate.values.dtype.kind == "b":
            return estimate
        leaves = list(computed_values.uncertain_in(tree, self._is_one))
        if not leaves or (
            len(leaves) == 1 and isinstance(leaves[0], NoisyAggregate) and estimate.low is not None
        ):
            return estimate
        ends = self._ends(tree, list(dict.fromkeys(leaves)))
        if ends is None:
            said = NO_INTERVAL if _has_numbers(estimate.values) else ""
            note = "; ".join(sentence for sentence in (estimate.note, said) if sentence)
            return replace(estimate, low=None, high=None, note=note)
        if estimate.values.dtype.kind in "if":
            ends = np.minimum(ends[0], estimate.values), np.maximum(ends[1], estimate.values)
        return replace(estimate, low=ends[0], high=ends[1])

    def _ends(self, tree: Computed, leaves: list[Released]) -> Ends | None:
        """Return the interval of an expression of uncertain numbers: each may miss with its share of β."""
        if any(isinstance(leaf, NoisyAggregate) and leaf.function in CHOICE_FUNCTIONS for leaf in leaves):
            return None
        level, agrees = 1 - (1 - self.level) / len(leaves), bool(self.agreed)
        same = len(leaves) == 1
        release = self if same else _Release(self.shares, self.noisy, level, self.sampling, agrees)
        return computed_values.box_ends(tree, release.ends_of)

    def ends_of(self, tree: Released) -> Ends | None:
        """Return the ends of a constant, a statistic, a ratio or a weighted sum of them; else None."""
        weighted = self._weighted(tree)
        if weighted is not None:
            ends_by_grouping = [self._weighted_ends(s, weighted) for s in range(len(self.noisy))]
            low, high = (_stacked(list(ends)) for ends in zip(*ends_by_grouping, strict=True))
            return low, high
        ratio = self._ratio(tree)
        if ratio is not None:
            ends_by_grouping = [computed_values.ratio_ends(ratio, parts) for parts in self.parts]
            low, high = (_stacked(list(ends)) for ends in zip(*ends_by_grouping, strict=True))
            return low, high
        if isinstance(tree, Computed):
            return None
        estimate = self._value(tree)
        if isinstance(tree, NoisyAggregate):
            return None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)
        return estimate.values, estimate.values

    def _ratio(self, tree: Released) -> PartRatio | None:
        """Return the tree as a ratio, or None. With sampling, it is as uncertain as both numbers."""
        return None if self.sampling else computed_values.ratio_of(tree, self.question)

    def _is_one(self, tree: Released) -> bool:
        return self._ratio(tree) is not None or self._weighted(tree) is not None

    def _weighted(self, tree: Released) -> WeightedSum | None:
        """Return the tree as a weighted sum whose noise has a known law in every grouping, or None."""
        weighted = None if self.sampling else weighted_sum_of(tree)
        return (
            weighted
            if weighted is not None and weighted_half(self.shares, weighted, self.level) is not None
            else None
        )

    def _weighted_ends(self, grouping: int, tree: WeightedSum) -> Ends:
        """Return the interval of a weighted sum in one grouping.

        Consistent numbers are sums of many noises: their widths are deviations, which add as squares.
        """
        values: list[Anything] = [self.noisy[grouping].parts[part] for part, _ in tree.weights]
        noises = [(weight, self.shares.mechanism(grouping, part)) for part, weight in tree.weights]
        half = weighted_width(tuple(noises), self.level)
        if any(self._is_agreed(grouping, part) for part, _ in tree.weights):
            squares = 0.0
            for i, (weight, noise) in enumerate(noises):
                part = tree.weights[i][0]
                typical = deviation(noise)
                noise_half = NoiseFamily.of(noise, self.level).for_sums(typical) * typical
                if self._is_agreed(grouping, part):
                    agreed = self._consistent(part)[grouping]
                    values[i], noise_half = agreed.centre, agreed.half
                squares += (float(weight) * noise_half) ** 2
            half = Fraction(math.sqrt(squares))
        assert half is not None
        low, high = computed_values.weighted_ends(tree, values, half)
        if all(counts_rows(self.question, part) for part, _ in tree.weights):
            least = float(tree.constant)
            if all(weight > 0 for _, weight in tree.weights):
                low, high = np.maximum(low, least), np.maximum(high, least)
            elif all(weight < 0 for _, weight in tree.weights):
                low, high = np.minimum(low, least), np.minimum(high, least)
        return low, high

    def _value(self, tree: Released) -> Estimate:
        if tree not in self._known:
            self._known[tree] = self._column(tree)
        return self._known[tree]

    def _column(self, tree: Released) -> Estimate:
        if isinstance(tree, Plain):
            length = sum(grouping.groups for grouping in self.noisy)
            exact = isinstance(tree.value, int | float) and not isinstance(tree.value, bool)
            values = np.full(length, tree.value, dtype=None if exact else object)
            return Estimate(values)
        if isinstance(tree, KeyValue):
            return Estimate(_stacked([self._key(s, tree.key) for s in range(len(self.noisy))]))
        if isinstance(tree, NoisyAggregate):
            return _joined([self._statistic(s, tree) for s in range(len(self.noisy))])
        return computed_values.compute(tree, [self._value(arg) for arg in tree.args])

    def _key(self, grouping: int, key: int) -> Anything:
        members, noisy = self.question.sets[grouping], self.noisy[grouping]
        if key not in members:
            return np.full(noisy.groups, None, dtype=object)
        kind, place = self.question.keys[key].kind, members.index(key)
        if noisy.keys is not None:
            return objects_of([decode_key(kind, values[place]) for values in noisy.keys])
        sizes = [len(self.question.keys[k].codes or ()) for k in members]
        codes = self.question.keys[key].codes or range(0)
        if isinstance(kind, Numeric):
            names = in_steps(np.array(codes, dtype=np.int64), kind.step)
        else:
            names = objects_of([decode_key(kind, code) for code in codes])
        inner = int(np.prod(sizes[place + 1 :]))
        return np.tile(np.repeat(names, inner), int(np.prod(sizes[:place])))

    def _statistic(self, grouping: int, statistic: NoisyAggregate) -> Estimate:
        if statistic.function in CHOICE_FUNCTIONS:
            return self._chosen(grouping, statistic)
        if statistic.function in ("count", "sum"):
            return self._additive(grouping, statistic)
        return group_statistics.estimate_statistic(statistic, self.parts[grouping])

    def _chosen(self, grouping: int, statistic: NoisyAggregate) -> Estimate:
        wanted = wanted_of(statistic)
        codes, kind = self.noisy[grouping].codes[wanted], self.question.spectra[wanted.spectrum].number
        mechanism = self.shares.choice(grouping, wanted)
        ranks, about = float(mechanism.spread(self.level)), ""
        if isinstance(mechanism, Extreme):
            about = f"a value that about {mechanism.rank} rows reach; "
        note = f"{about}rank within ±{ranks:.4g}"
        if isinstance(kind, Numeric):
            estimate = Estimate(in_steps(codes, kind.step), note=note, rank_error=ranks)
            ends = self._between(grouping, wanted, codes)
            if ends is None:
                return estimate
            return replace(estimate, low=in_steps(ends[0], kind.step), high=in_steps(ends[1], kind.step))
        distinct, inverse = np.unique(codes, return_inverse=True)
        values = objects_of([decode_key(kind, int(code)) for code in distinct])[inverse]
        return Estimate(values, note=note, rank_error=ranks)

    def _between(self, grouping: int, wanted: WantedCode, codes: Anything) -> Ends | None:
        """Return an interval of codes for a quantile, from others that are released with it, or None.

        A quantile at a fraction so far below that its own band of ranks ends before the wanted rank is a
        lower end; likewise above. The number of rows must be released, too. Each of the three may miss with
        a third of β. Where no fraction is far enough, the end is the declared bound.
        """
        question, noisy = self.question, self.noisy[grouping]
        part = size_part(question, wanted.spectrum)
        if wanted.fraction is None or part is None or self.sampling:
            return None
        level = 1 - (1 - self.level) / 3
        size = noisy.parts[part] - half_width(self.shares.mechanism(grouping, part), level)
        first, last = code_range(question, wanted.spectrum)
        low, high = np.full(len(codes), first), np.full(len(codes), last)
        known = [(code.fraction, code) for code in noisy.codes if code.spectrum == wanted.spectrum]
        apart_of = {code: fraction - wanted.fraction for fraction, code in known if fraction is not None}
        # The nearest of those that are far enough comes last. Which one it is depends on the size alone.
        for other, apart in sorted(apart_of.items(), key=lambda item: -abs(item[1])):
            band = self.shares.choice(grouping, other).spread(level)
            is_far = float(abs(apart)) * size >= float(band) * (1 + 1e-12)
            if apart < 0:
                low = np.where(is_far, noisy.codes[other], low)
            elif apart > 0:
                high = np.where(is_far, noisy.codes[other], high)
        if np.all((low == first) & (high == last)):
            return None
        return np.minimum(low, codes), np.maximum(high, codes)

    def _additive(self, grouping: int, statistic: NoisyAggregate) -> Estimate:
        (part,) = statistic.parts
        parts, is_count = self.parts[grouping], counts_rows(self.question, part)
        if not self._is_agreed(grouping, part):
            estimate = group_statistics.estimate_statistic(statistic, parts)
            return _not_negative(estimate) if is_count else estimate
        consistent, step = self._consistent(part)[grouping], float(step_of(statistic))
        low, high = consistent.centre - consistent.half, consistent.centre + consistent.half
        if statistic.function == "count":
            low, high = group_statistics.count_ends(consistent.centre, consistent.half, parts)
        low, high = np.minimum(low, consistent.values), np.maximum(high, consistent.values)
        # Six digits of a step: few enough to read, and sums of cells stay their totals.
        digits = 6 - math.floor(math.log10(step))
        value, low, high = (np.round(x * step, digits) + 0.0 for x in (consistent.values, low, high))
        return Estimate(value, low, high)

    def _is_agreed(self, grouping: int, part: int) -> bool:
        return grouping in self.agreed and adds_up(self.question, part)

    def _consistent(self, part: int) -> dict[int, ConsistentGrouping]:
        if part not in self._agreed:
            noisy = {s: self.noisy[s].parts[part] for s in self.agreed}
            self._agreed[part] = make_consistent(self.shares, part, noisy, self.level)
        return self._agreed[part]


def size_part(question: BoundQuery, spectrum: int) -> int | None:
    """Return the part that counts the rows of a spectrum (those whose value is known), or None."""
    counted = Sum("count", question.spectra[spectrum].expression)
    for place, part in enumerate(question.parts):
        if [(factor, question.sums[at]) for factor, at in part.combination] == [(1, counted)]:
            return place
    return None


def _not_negative(estimate: Estimate) -> Estimate:
    low, high = (None if end is None else np.maximum(end, 0) for end in (estimate.low, estimate.high))
    return Estimate(np.maximum(estimate.values, 0), low, high, estimate.note, estimate.rank_error)


def decode_key(kind: Kind, code: Any) -> Any:
    """Return the value of a key's code; NULL stays NULL."""
    if code is None or isinstance(kind, Text):
        return code
    if isinstance(kind, Truth):
        return bool(code)
    assert not isinstance(kind, Person), "units are never shown"
    return kind.value(code)


def _stacked(arrays: list[Anything]) -> Anything:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(estimates: list[Estimate]) -> Estimate:
    """Join the estimates of all groupings, one below the other."""
    if len(estimates) == 1:
        return estimates[0]
    ends: list[Anything | None] = []
    for some in ([e.low for e in estimates], [e.high for e in estimates]):
        known = [end for end in some if end is not None]
        ends.append(np.concatenate(known) if len(known) == len(estimates) else None)
    notes = dict.fromkeys(e.note for e in estimates if e.note)
    ranks = [e.rank_error for e in estimates if e.rank_error is not None]
    values = _stacked([e.values for e in estimates])
    return Estimate(values, ends[0], ends[1], "; ".join(notes), max(ranks, default=None))


def _ordered(kept: NDArray[np.int64], orders: list[tuple[Order, Anything]]) -> NDArray[np.int64]:
    """Sort by the last order first: each sort is stable, so the first order decides."""
    for order, values in reversed(orders):
        column = values[kept]
        if column.dtype != object:
            number = column.astype(np.int8) if column.dtype.kind == "b" else column
            place = np.argsort(-number if order.descending else number, kind="stable")
        else:
            place = np.array(_sorted(list(column), order), dtype=np.int64)
        kept = kept[place]
    return kept


def _sorted(values: list[Any], order: Order) -> list[int]:
    known = [i for i, value in enumerate(values) if value is not None]
    unknown = [i for i, value in enumerate(values) if value is None]
    known.sort(key=values.__getitem__, reverse=order.descending)  # equal ones keep their order
    return unknown + known if order.nulls_first else known + unknown
