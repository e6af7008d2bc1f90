"""Intervals of what is computed from several released numbers: ratios, differences, products, and so on.

Claim    an interval at confidence 1 - β holds what the expression comes to on the bounded table with about
         that probability: at least it, but for averages and the like within (see `intervals`).
Because  the m uncertain numbers in the expression are each held at 1 - β/m, so all of them together at
         1 - β (Bonferroni); the interval holds the expression at every point of that box. A ratio of two
         additive numbers is one uncertain number: its own interval (Fieller) is narrower than the box.
Test     tests/query/test_computed.py; docs/arguments/query-noise.md

Where a denominator may be 0 an interval has no end on that side: it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from lapwing.query.answering.estimate_arithmetic import Anything, apply
from lapwing.query.answering.estimate_parts import Parts, step_of
from lapwing.query.answering.intervals import Bounds, Floats, Noises, ratio_bounds, ratio_width
from lapwing.query.language.kinds import Number
from lapwing.query.language.question import Computed, Plain, Question, Released, Statistic

Ends = tuple[Anything, Anything]
FindEnds = Callable[[Released], Ends | None]
_CORNERS = ("+", "-", "*", "neg", "round")  # least and greatest in the corners of a box
_FEWER = ("count", "units", "distinct")  # sums that are never above the number of rows


@dataclass(frozen=True, slots=True)
class Ratio:
    """`factor` times the quotient of two parts, in their own steps. It lies within `low` and `high`."""

    top: int
    bottom: int
    factor: float
    low: float
    high: float


def ratio_of(tree: Released, question: Question) -> Ratio | None:
    """The ratio of two additive numbers that a tree is, apart from constants; None: it is another."""
    if not isinstance(tree, Computed) or tree.op != "/":
        return None
    top, bottom = (_scaled(arg) for arg in tree.args)
    if top is None or bottom is None or top[0].parts == bottom[0].parts:
        return None
    (a,), (n,) = top[0].parts, bottom[0].parts
    low, high = _within(top[0], bottom[0], question)
    return Ratio(a, n, top[1] / bottom[1], low, high)


def _scaled(tree: Released) -> tuple[Statistic, float] | None:
    """A count or a sum times a constant that is not 0; None: it is something else."""
    if isinstance(tree, Statistic):
        return (tree, float(step_of(tree))) if tree.function in ("count", "sum") else None
    if not isinstance(tree, Computed) or tree.op not in ("*", "/", "neg"):
        return None
    if tree.op == "neg":
        inner = _scaled(tree.args[0])
        return None if inner is None else (inner[0], -inner[1])
    first, second = tree.args
    if tree.op == "*" and isinstance(first, Plain):
        first, second = second, first
    inner, factor = _scaled(first), _constant(second)
    if inner is None or not factor:
        return None
    return inner[0], inner[1] * factor if tree.op == "*" else inner[1] / factor


def _constant(tree: Released) -> float | None:
    value = tree.value if isinstance(tree, Plain) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _within(top: Statistic, bottom: Statistic, question: Question) -> tuple[float, float]:
    """What the quotient cannot be beyond, whatever the rows are."""
    function = _function(top, question)
    if bottom.function != "count":
        return -math.inf, math.inf
    per_row = _function(bottom, question) == "rows"
    if top.function == "count":
        return 0.0, 1.0 if per_row and function in _FEWER else math.inf
    kind = top.number
    if not per_row or function != "sum" or not isinstance(kind, Number) or not kind.is_bounded:
        return -math.inf, math.inf
    assert kind.first is not None
    assert kind.last is not None
    return float(min(kind.first, 0)), float(max(kind.last, 0))


def _function(statistic: Statistic, question: Question) -> str:
    """What the engine adds up for a count or a sum; "" if it is more than one sum."""
    combination = question.parts[statistic.parts[0]].combination
    return question.sums[combination[0][1]].function if len(combination) == 1 else ""


def ratio_ends(ratio: Ratio, parts: Parts) -> Bounds:
    """Its interval in every group: all θ at which |A - θN| is no larger than noise, where N is not.

    Where N alone may be noise, θ can be anything that it can be.
    """
    top, bottom, noises = parts[ratio.top], parts[ratio.bottom], parts.noises
    a, b = parts.width(ratio.top), parts.width(ratio.bottom)
    # Beyond `far`, |A - θN| is larger than both noises at half of β each, and so than the width at θ.
    half = Noises.of(parts.mechanisms[0], (1 + noises.confidence) / 2)
    clear = np.abs(bottom) - half.width([b])
    known = clear > 1e-9 * (1 + np.abs(bottom))
    far = 1 + 2 * (np.abs(top) + half.width([a])) / np.where(known, clear, 1.0)
    low, high = np.maximum(ratio.low, -far), np.minimum(ratio.high, far)
    low, high = ratio_bounds(top, bottom, low, high, ratio_width(noises, a, b))
    low, high = np.where(known, low, ratio.low), np.where(known, high, ratio.high)
    ends = low * ratio.factor, high * ratio.factor
    return np.minimum(*ends), np.maximum(*ends)


def uncertain_in(tree: Released, is_one: Callable[[Released], bool]) -> Iterator[Released]:
    """The statistics in a tree, each time that they stand there; what `is_one` is not looked into."""
    if isinstance(tree, Statistic) or (isinstance(tree, Computed) and is_one(tree)):
        yield tree
    elif isinstance(tree, Computed):
        for arg in tree.args:
            yield from uncertain_in(arg, is_one)


def box(tree: Released, ends_of: FindEnds) -> Ends | None:
    """The least and greatest that a tree comes to, if all in it is within its ends; None: not known.

    `ends_of` gives those of an uncertain number or a constant, and None for what is to be computed.
    """
    found = ends_of(tree)
    if found is not None or not isinstance(tree, Computed):
        return found
    args = []
    for arg in tree.args:
        ends = box(arg, ends_of)
        if ends is None or any(end.dtype.kind not in "if" for end in ends):
            return None
        args.append(ends)
    return _computed(tree.op, args)


def _computed(op: str, args: list[Ends]) -> Ends | None:
    if op in ("/", "//"):
        low, high = _quotient(*args)
        return (low, high) if op == "/" else (np.floor(low), np.floor(high))
    if op == "abs":
        ((low, high),) = args
        inside = (low <= 0) & (high >= 0)
        one, other = np.abs(low), np.abs(high)
        return np.where(inside, 0, np.minimum(one, other)), np.maximum(one, other)
    if op == "sqrt":
        ((low, high),) = args
        return np.sqrt(np.maximum(low, 0.0)), np.sqrt(np.maximum(high, 0.0))
    if op in ("least", "greatest"):  # they rise in each
        return apply(op, [low for low, _ in args]), apply(op, [high for _, high in args])
    if op not in _CORNERS:
        return None
    with np.errstate(invalid="ignore"):
        corners = [_without_nan(apply(op, list(one))) for one in product(*args)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _quotient(top: Ends, bottom: Ends) -> tuple[Floats, Floats]:
    """Without an end where the denominator may be 0, but for the sign if no number is negative."""
    has_zero = (bottom[0] <= 0) & (bottom[1] >= 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        corners = [_without_nan(a / np.where(has_zero, 1.0, b)) for a in top for b in bottom]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    positive = (bottom[0] >= 0) & (top[0] >= 0)
    return np.where(has_zero, np.where(positive, 0.0, -np.inf), low), np.where(has_zero, np.inf, high)


def _without_nan(values: Anything) -> Anything:
    """0 for ∞ · 0, ∞ - ∞ and ∞ / ∞: the other corners of the box say how far it reaches."""
    return np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
