"""From noisy parts to the columns of an answer. Nothing here costs anything: all of it is post-processing.

One row for each group of each grouping; a key that a grouping lacks is NULL. HAVING, ORDER BY, LIMIT and
OFFSET act on released values only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Number
from lapwing.mechanisms import Extreme
from lapwing.mechanisms.spread import checked_confidence
from lapwing.query.answering.consistency import Agreed, adds_up, agree, agreeable, counts_rows
from lapwing.query.answering.estimate_arithmetic import compute
from lapwing.query.answering.estimate_computed import Ends, Ratio, box, ratio_ends, ratio_of, uncertain_in
from lapwing.query.answering.estimate_parts import Estimate, Parts, counts, evaluate, in_steps, step_of
from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import CHOSEN, Mechanisms, wanted_of
from lapwing.query.language.kinds import Kind, Person, Text, Truth
from lapwing.query.language.kinds import Number as NumberKind
from lapwing.query.language.question import Computed, KeyValue, Order, Plain, Question, Released, Statistic

Anything = NDArray[Any]
NO_INTERVAL = "no interval"


@dataclass(frozen=True, slots=True)
class Col:
    """A column: values, the ends of their intervals (None: there is none), and what else is to be said."""

    name: str
    values: Anything
    low: Anything | None = None
    high: Anything | None = None
    note: str = ""
    rank_error: float | None = None  # for quantiles and extremes: how far off in ranks


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer. `agree` says whether totals equal the sums of their cells."""

    columns: list[Col]
    length: int
    agree: bool = False


def estimate(
    shares: Mechanisms,
    noisy: Sequence[Noisy],
    *,
    confidence: Number,
    sampling: bool = False,
    agree: bool = True,
) -> Rows:
    """The answer of a question. With `sampling` intervals also hold the error of a sample of rows."""
    question, level = shares.question, checked_confidence(confidence)
    release = _Release(shares, noisy, level, sampling, agree)
    columns = [release.column(output.value) for output in question.outputs]
    length = sum(found.groups for found in noisy)
    kept = np.arange(length)
    if question.having is not None:
        truth = release.column(question.having).values
        kept = kept[np.array([value is not None and bool(value) for value in truth], dtype=bool)]
    kept = _ordered(kept, [(order, release.column(order.value).values) for order in question.order])
    end = None if question.limit is None else question.offset + question.limit
    kept = kept[question.offset : end]
    whole = len(kept) == length and not question.order

    def taken(values: Anything | None) -> Anything | None:
        return values if values is None or whole else values[kept]

    cols = []
    for output, found in zip(question.outputs, columns, strict=True):
        values = taken(found.values)
        assert values is not None
        cols.append(
            Col(output.name, values, taken(found.low), taken(found.high), found.note, found.rank_error)
        )
    return Rows(cols, len(kept), bool(release.agreed))


def _has_numbers(values: Anything) -> bool:
    return any(isinstance(value, int | float) and not isinstance(value, bool) for value in values.tolist())


class _Release:
    """Noisy groupings, and what was already worked out from them."""

    def __init__(
        self, shares: Mechanisms, noisy: Sequence[Noisy], level: Fraction, sampling: bool, agree: bool
    ) -> None:
        self.shares, self.noisy, self.level = shares, noisy, level
        self.question: Question = shares.question
        self.parts = [self._parts(s, sampling) for s in range(len(noisy))]
        self.agreed = agreeable(self.question) if agree else []
        self.sampling = sampling
        self._agreed: dict[int, dict[int, Agreed]] = {}
        self._known: dict[Released, Estimate] = {}

    def _parts(self, grouping: int, sampling: bool) -> Parts:
        mechanisms = tuple(self.shares.mechanism(grouping, p) for p in range(len(self.question.parts)))
        return Parts(self.noisy[grouping].parts, mechanisms, self.level, sampling)

    def column(self, tree: Released) -> Estimate:
        """A released value over all rows of all groupings, with its interval."""
        found = self._value(tree)
        if not isinstance(tree, Computed) or found.values.dtype.kind == "b":
            return found
        leaves = list(uncertain_in(tree, self._is_ratio))
        if not leaves:
            return found
        if len(leaves) == 1 and found.low is not None:
            return found
        ends = self._ends(tree, list(dict.fromkeys(leaves)))
        if ends is None:
            said = NO_INTERVAL if _has_numbers(found.values) else ""
            note = "; ".join(one for one in (found.note, said) if one)
            return replace(found, low=None, high=None, note=note)
        if found.values.dtype.kind in "if":
            ends = np.minimum(ends[0], found.values), np.maximum(ends[1], found.values)
        return replace(found, low=ends[0], high=ends[1])

    def _ends(self, tree: Computed, leaves: list[Released]) -> Ends | None:
        """The interval of what is computed from uncertain numbers: each may miss its share of β."""
        if any(isinstance(leaf, Statistic) and leaf.function in CHOSEN for leaf in leaves):
            return None
        level, agrees = 1 - (1 - self.level) / len(leaves), bool(self.agreed)
        same = len(leaves) == 1
        release = self if same else _Release(self.shares, self.noisy, level, self.sampling, agrees)
        return box(tree, release.ends_of)

    def ends_of(self, tree: Released) -> Ends | None:
        """Those of a constant, a statistic, or a ratio of two additive ones; None for what is computed."""
        ratio = self._ratio(tree)
        if ratio is not None:
            found = [ratio_ends(ratio, parts) for parts in self.parts]
            return _stacked([low for low, _ in found]), _stacked([high for _, high in found])
        if isinstance(tree, Computed):
            return None
        one = self._value(tree)
        if isinstance(tree, Statistic):
            return None if one.low is None or one.high is None else (one.low, one.high)
        return one.values, one.values

    def _is_ratio(self, tree: Released) -> bool:
        return self._ratio(tree) is not None

    def _ratio(self, tree: Released) -> Ratio | None:
        """With the error of a sample, a ratio is as uncertain as both of its numbers."""
        return None if self.sampling else ratio_of(tree, self.question)

    def _value(self, tree: Released) -> Estimate:
        if tree not in self._known:
            self._known[tree] = self._column(tree)
        return self._known[tree]

    def _column(self, tree: Released) -> Estimate:
        if isinstance(tree, Plain):
            length = sum(found.groups for found in self.noisy)
            exact = isinstance(tree.value, int | float) and not isinstance(tree.value, bool)
            values = np.full(length, tree.value, dtype=None if exact else object)
            return Estimate(values)
        if isinstance(tree, KeyValue):
            return Estimate(_stacked([self._key(s, tree.key) for s in range(len(self.noisy))]))
        if isinstance(tree, Statistic):
            return _joined([self._statistic(s, tree) for s in range(len(self.noisy))])
        return compute(tree, [self._value(arg) for arg in tree.args])

    def _key(self, grouping: int, key: int) -> Anything:
        members, found = self.question.sets[grouping], self.noisy[grouping]
        if key not in members:
            return np.full(found.groups, None, dtype=object)
        kind, place = self.question.keys[key].kind, members.index(key)
        if found.keys is not None:
            return _objects([decoded(kind, values[place]) for values in found.keys])
        sizes = [len(self.question.keys[k].codes or ()) for k in members]
        codes = self.question.keys[key].codes or range(0)
        if isinstance(kind, NumberKind):
            names = in_steps(np.array(codes, dtype=np.int64), kind.step)
        else:
            names = _objects([decoded(kind, code) for code in codes])
        inner = int(np.prod(sizes[place + 1 :]))
        return np.tile(np.repeat(names, inner), int(np.prod(sizes[:place])))

    def _statistic(self, grouping: int, statistic: Statistic) -> Estimate:
        if statistic.function in CHOSEN:
            return self._chosen(grouping, statistic)
        if statistic.function in ("count", "sum"):
            return self._additive(grouping, statistic)
        return evaluate(statistic, self.parts[grouping])

    def _chosen(self, grouping: int, statistic: Statistic) -> Estimate:
        wanted = wanted_of(statistic)
        codes, kind = self.noisy[grouping].codes[wanted], self.question.spectra[wanted.spectrum].number
        mechanism = self.shares.choice(grouping, wanted)
        ranks, about = float(mechanism.spread(self.level)), ""
        if isinstance(mechanism, Extreme):
            about = f"a value that about {mechanism.rank} rows reach; "
        note = f"{about}rank within ±{ranks:.4g}"
        if isinstance(kind, NumberKind):
            return Estimate(in_steps(codes, kind.step), note=note, rank_error=ranks)
        distinct, inverse = np.unique(codes, return_inverse=True)
        values = _objects([decoded(kind, int(code)) for code in distinct])[inverse]
        return Estimate(values, note=note, rank_error=ranks)

    def _additive(self, grouping: int, statistic: Statistic) -> Estimate:
        (part,) = statistic.parts
        parts, is_count = self.parts[grouping], counts_rows(self.question, part)
        if grouping not in self.agreed or not adds_up(self.question, part):
            found = evaluate(statistic, parts)
            return _not_negative(found) if is_count else found
        if part not in self._agreed:
            noisy = {s: self.noisy[s].parts[part] for s in self.agreed}
            self._agreed[part] = agree(self.shares, part, noisy, self.level)
        one, step = self._agreed[part][grouping], float(step_of(statistic))
        low, high = one.centre - one.half, one.centre + one.half
        if statistic.function == "count":
            ends = counts(one.centre, one.half, parts)
            assert ends.low is not None
            assert ends.high is not None
            low, high = ends.low, ends.high
        low, high = np.minimum(low, one.values), np.maximum(high, one.values)
        # Six digits of a step: few enough to read, and sums of cells stay their totals.
        digits = 6 - math.floor(math.log10(step))
        value, low, high = (np.round(x * step, digits) + 0.0 for x in (one.values, low, high))
        return Estimate(value, low, high)


def _not_negative(found: Estimate) -> Estimate:
    low, high = (None if end is None else np.maximum(end, 0) for end in (found.low, found.high))
    return Estimate(np.maximum(found.values, 0), low, high, found.note, found.rank_error)


def decoded(kind: Kind, code: Any) -> Any:
    """What people read for a key's code; NULL stays NULL."""
    if code is None or isinstance(kind, Text):
        return code
    if isinstance(kind, Truth):
        return bool(code)
    assert not isinstance(kind, Person), "units are never shown"
    return kind.value(code)


def _objects(values: list[Any]) -> Anything:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _stacked(arrays: list[Anything]) -> Anything:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(found: list[Estimate]) -> Estimate:
    """The groupings one below the other."""
    if len(found) == 1:
        return found[0]
    ends: list[Anything | None] = []
    for pick in (lambda e: e.low, lambda e: e.high):
        known = [end for end in map(pick, found) if end is not None]
        ends.append(np.concatenate(known) if len(known) == len(found) else None)
    notes = list(dict.fromkeys(e.note for e in found if e.note))
    ranks = [e.rank_error for e in found if e.rank_error is not None]
    values = _stacked([e.values for e in found])
    return Estimate(values, ends[0], ends[1], "; ".join(notes), max(ranks, default=None))


def _ordered(kept: NDArray[np.int64], orders: list[tuple[Order, Anything]]) -> NDArray[np.int64]:
    """Sorted by the last order first: each sort is stable, so the first one wins."""
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
