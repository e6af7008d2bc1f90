"""Arithmetic, comparison and logic on released values, and the intervals of the results.

SQL's rules hold: NULL in, NULL out. Division by 0 and the root of a negative number are NULL. A monotone
function of one uncertain number and constants maps the ends of the interval.

Claim    the interval at confidence 1 - β of an expression of several released numbers holds its value on
         the bounded table with at least that probability; with about that probability if it contains
         averages or similar statistics (see `intervals`).
Because  the m uncertain numbers in the expression are each held at 1 - β/m, so all of them together at
         1 - β (Bonferroni). The interval contains the expression at every point of that box. A ratio of two
         additive numbers is one uncertain number: its own interval (Fieller) is narrower than the box.
         So is a weighted sum of additive numbers: its noise has a known law (`weighted_noise`).
Test     tests/sql/answering/test_computed_values.py; docs/arguments/query-noise.md

An interval is infinite on the side where a denominator may be 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.sql.answering.group_statistics import Estimate, NoisyParts
from lapwing.sql.answering.intervals import Bounds, ratio_bounds, ratio_width
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.pricing.noise_widths import Floats, NoiseFamily
from lapwing.sql.pricing.weighted_noise import WeightedSum, constant_of
from lapwing.sql.question.bound_query import BoundQuery, Computed, NoisyAggregate, Plain, Released, step_of

Anything = NDArray[Any]
Values = list[Any]
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MONOTONE = ("+", "-", "*", "/", "//", "neg", "sqrt", "round", "least", "greatest")
_LARGE = float(1 << 62)


def compute(tree: Computed, args: list[Estimate]) -> Estimate:
    """Compute an operation on all rows, with its interval if it is monotone in one uncertain number."""
    values = apply_operation(tree.op, [arg.values for arg in args])
    note = "; ".join(dict.fromkeys(arg.note for arg in args if arg.note))
    low, high = _monotone_ends(tree.op, args)
    return Estimate(values, low, high, note)


def apply_operation(op: str, args: list[Anything]) -> Anything:
    """Apply an operation: with numpy if all are plain numbers, else row by row."""
    if all(arg.dtype.kind in "if" for arg in args) and op in _BINARY:
        if op in ("+", "-", "*") and not _fits(op, args):
            args = [arg.astype(np.float64) for arg in args]
        return np.asarray(_BINARY[op](*args))
    if op == "/" and all(arg.dtype.kind in "if" for arg in args) and np.all(args[1] != 0):
        return np.asarray(args[0] / args[1])
    rows = zip(*args, strict=True)
    return pack_values([_row(op, [_plain(value) for value in row]) for row in rows])


def _fits(op: str, args: list[Anything]) -> bool:
    """Return whether 64-bit integers hold the result."""
    if any(arg.dtype.kind == "f" or not len(arg) for arg in args):
        return True
    sizes = [float(np.abs(arg.astype(np.float64)).max()) for arg in args]
    return (sizes[0] * sizes[1] if op == "*" else sum(sizes)) < _LARGE


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def pack_values(values: Values) -> Anything:
    """Return a numeric array if all are numbers of one kind; else objects, with None for NULL."""
    kinds = {type(value) for value in values}
    if kinds in ({float}, {int, float}):
        return np.array(values, dtype=np.float64)
    if kinds == {int} and all(abs(value) < _LARGE for value in values):
        return np.array(values, dtype=np.int64)
    return objects_of(values)


def objects_of(values: Values) -> Anything:
    """Return an array of objects, whatever their types."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _row(op: str, args: Values) -> Any:
    """Apply an operation to one row."""
    if op in _OF_NULLS:
        return _OF_NULLS[op](args)
    return None if any(arg is None for arg in args) else _OF_KNOWN[op](*args)


# Operations that are NULL where an argument is.
_OF_KNOWN: dict[str, Callable[..., Any]] = {
    **_BINARY,
    "/": lambda top, bottom: top / bottom if bottom else None,
    "//": lambda top, bottom: top // bottom if bottom else None,
    "neg": operator.neg,
    "abs": abs,
    "round": lambda number, digits=0: round(number, int(digits)),
    "sqrt": lambda number: math.sqrt(number) if number >= 0 else None,
    "not": operator.not_,
}


def _logic(args: Values, *, decides: bool) -> bool | None:
    """Compute AND (`decides` is False) or OR (`decides` is True) with NULL."""
    if any(arg is not None and bool(arg) is decides for arg in args):
        return decides
    return None if any(arg is None for arg in args) else not decides


def _case(args: Values) -> Any:
    for condition, value in zip(args[:-1:2], args[1:-1:2], strict=True):
        if condition:
            return value
    return args[-1]


def _known(args: Values) -> Values:
    return [arg for arg in args if arg is not None]


# Operations with rules of their own for NULL.
_OF_NULLS: dict[str, Callable[[Values], Any]] = {
    "and": lambda args: _logic(args, decides=False),
    "or": lambda args: _logic(args, decides=True),
    "case": _case,
    "coalesce": lambda args: next(iter(_known(args)), None),
    "is_null": lambda args: args[0] is None,
    "least": lambda args: min(_known(args), default=None),
    "greatest": lambda args: max(_known(args), default=None),
}


def _monotone_ends(op: str, args: list[Estimate]) -> tuple[Anything | None, Anything | None]:
    """Return the interval if one number is uncertain and the operation is monotone in it."""
    uncertain = [i for i, arg in enumerate(args) if arg.low is not None and arg.high is not None]
    others = [arg.values for i, arg in enumerate(args) if i not in uncertain]
    are_numbers = all(arg.dtype.kind in "if" for arg in others)
    if len(uncertain) != 1 or not are_numbers or any(arg.rank_error is not None for arg in args):
        return None, None
    at = uncertain[0]
    low, high = args[at].low, args[at].high
    assert low is not None
    assert high is not None
    if op == "abs":
        return _abs_ends(low, high)
    if op not in _MONOTONE or (op in ("/", "//") and at == 1 and bool(np.any((low <= 0) & (high >= 0)))):
        return None, None
    if op == "sqrt":
        low = np.maximum(low, 0)

    def put(end: Anything) -> Anything:
        return apply_operation(op, [end if i == at else arg.values for i, arg in enumerate(args)])

    at_low, at_high = put(low), put(high)
    if object in (at_low.dtype, at_high.dtype):
        return None, None
    return np.minimum(at_low, at_high), np.maximum(at_low, at_high)


Ends = tuple[Anything, Anything]
FindEnds = Callable[[Released], Ends | None]
_CORNERS = ("+", "-", "*", "neg", "round")  # least and greatest in the corners of a box
_FEWER = ("count", "units", "distinct")  # sums that are never above the number of rows


@dataclass(frozen=True, slots=True)
class PartRatio:
    """`factor` times the quotient of two parts, in their own steps. It lies within `low` and `high`."""

    top: int
    bottom: int
    factor: float
    low: float
    high: float


def ratio_of(tree: Released, question: BoundQuery) -> PartRatio | None:
    """Return the tree as a ratio of two additive numbers times constants, or None."""
    if not isinstance(tree, Computed) or tree.op != "/":
        return None
    top, bottom = (_scaled(arg) for arg in tree.args)
    if top is None or bottom is None or top[0].parts == bottom[0].parts:
        return None
    (a,), (n,) = top[0].parts, bottom[0].parts
    low, high = _within(top[0], bottom[0], question)
    return PartRatio(a, n, top[1] / bottom[1], low, high)


def _scaled(tree: Released) -> tuple[NoisyAggregate, float] | None:
    """Return the tree as a count or sum, and the non-zero constant it is multiplied with, or None."""
    if isinstance(tree, NoisyAggregate):
        return (tree, float(step_of(tree))) if tree.function in ("count", "sum") else None
    if not isinstance(tree, Computed) or tree.op not in ("*", "/", "neg"):
        return None
    if tree.op == "neg":
        inner = _scaled(tree.args[0])
        return None if inner is None else (inner[0], -inner[1])
    first, second = tree.args
    if tree.op == "*" and isinstance(first, Plain):
        first, second = second, first
    inner, factor = _scaled(first), constant_of(second)
    if inner is None or not factor:
        return None
    return inner[0], inner[1] * factor if tree.op == "*" else inner[1] / factor


def _within(top: NoisyAggregate, bottom: NoisyAggregate, question: BoundQuery) -> tuple[float, float]:
    """Return the range of the quotient, for all possible rows."""
    function = _function(top, question)
    if bottom.function != "count":
        return -math.inf, math.inf
    per_row = _function(bottom, question) == "rows"
    if top.function == "count":
        return 0.0, 1.0 if per_row and function in _FEWER else math.inf
    kind = top.number
    if not per_row or function != "sum" or not isinstance(kind, Numeric) or not kind.is_bounded:
        return -math.inf, math.inf
    first, last = kind.bounds
    return float(min(first, 0)), float(max(last, 0))


def _function(statistic: NoisyAggregate, question: BoundQuery) -> str:
    """Return the function that the engine adds up for a count or sum; "" if it is several sums."""
    combination = question.parts[statistic.parts[0]].combination
    return question.sums[combination[0][1]].function if len(combination) == 1 else ""


def weighted_ends(tree: WeightedSum, values: list[Anything], half: Fraction) -> Ends:
    """Return the interval of a weighted sum of parts' `values`: whole if all is, else rounded outwards."""
    terms = [(weight, value) for (_, weight), value in zip(tree.weights, values, strict=True)]
    size = sum(float(abs(weight)) * float(np.abs(value).max(initial=0)) for weight, value in terms)
    size += float(abs(tree.constant) + half)
    numbers = [tree.constant, half, *(weight for weight, _ in terms)]
    is_whole = all(number.denominator == 1 for number in numbers) and all(
        v.dtype.kind == "i" for v in values
    )
    if is_whole and size < _LARGE:
        centre: Anything = np.full(len(values[0]), int(tree.constant), dtype=np.int64)
        for weight, value in terms:
            centre = centre + int(weight) * value
        return centre - int(half), centre + int(half)
    middle = np.full(len(values[0]), float(tree.constant))
    for weight, value in terms:
        middle = middle + float(weight) * value.astype(np.float64)
    outward = float(half) + 1e-15 * len(terms) * size
    return middle - outward, middle + outward


def ratio_ends(ratio: PartRatio, parts: NoisyParts) -> Bounds:
    """Return a ratio's interval in every group: all θ at which |A - θN| is no larger than noise.

    Where N alone may be noise, the interval is the whole range of the ratio.
    """
    top, bottom, noises = parts[ratio.top], parts[ratio.bottom], parts.noises
    a, b = parts.width(ratio.top), parts.width(ratio.bottom)
    # Beyond `far`, |A - θN| is larger than both noises at half of β each, and so than the width at θ.
    half = NoiseFamily.of(parts.mechanisms[0], (1 + noises.confidence) / 2)
    clear = np.abs(bottom) - half.width([b])
    known = clear > 1e-9 * (1 + np.abs(bottom))
    far = 1 + 2 * (np.abs(top) + half.width([a])) / np.where(known, clear, 1.0)
    low, high = np.maximum(ratio.low, -far), np.minimum(ratio.high, far)
    low, high = ratio_bounds(top, bottom, low, high, ratio_width(noises, a, b))
    low, high = np.where(known, low, ratio.low), np.where(known, high, ratio.high)
    ends = low * ratio.factor, high * ratio.factor
    return np.minimum(*ends), np.maximum(*ends)


def uncertain_in(tree: Released, is_one: Callable[[Released], bool]) -> Iterator[Released]:
    """Yield the statistics in a tree, once for each occurrence. A subtree with `is_one` is one of them."""
    if isinstance(tree, NoisyAggregate) or (isinstance(tree, Computed) and is_one(tree)):
        yield tree
    elif isinstance(tree, Computed):
        for arg in tree.args:
            yield from uncertain_in(arg, is_one)


def box_ends(tree: Released, ends_of: FindEnds) -> Ends | None:
    """Return the least and greatest value of a tree over the box of its uncertain numbers, or None.

    `ends_of` returns the ends of an uncertain number or a constant, and None for a tree to compute.
    """
    known = ends_of(tree)
    if known is not None or not isinstance(tree, Computed):
        return known
    args = []
    for arg in tree.args:
        ends = box_ends(arg, ends_of)
        if ends is None or any(end.dtype.kind not in "if" for end in ends):
            return None
        args.append(ends)
    return _operation_ends(tree.op, args)


def _abs_ends(low: Anything, high: Anything) -> Ends:
    inside, ends = (low <= 0) & (high >= 0), (np.abs(low), np.abs(high))
    return np.where(inside, 0, np.minimum(*ends)), np.maximum(*ends)


def _operation_ends(op: str, args: list[Ends]) -> Ends | None:
    if op in ("/", "//"):
        low, high = _quotient(*args)
        return (low, high) if op == "/" else (np.floor(low), np.floor(high))
    if op == "abs":
        return _abs_ends(*args[0])
    if op == "sqrt":
        ((low, high),) = args
        return np.sqrt(np.maximum(low, 0.0)), np.sqrt(np.maximum(high, 0.0))
    if op in ("least", "greatest"):  # they rise in each
        low, high = (apply_operation(op, list(ends)) for ends in zip(*args, strict=True))
        return low, high
    if op not in _CORNERS:
        return None
    with np.errstate(invalid="ignore"):
        corners = [_without_nan(apply_operation(op, list(corner))) for corner in product(*args)]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _quotient(top: Ends, bottom: Ends) -> tuple[Floats, Floats]:
    """Divide intervals: infinite where the denominator may be 0, but from 0 on if none is negative."""
    has_zero = (bottom[0] <= 0) & (bottom[1] >= 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        corners = [_without_nan(a / np.where(has_zero, 1.0, b)) for a in top for b in bottom]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    positive = (bottom[0] >= 0) & (top[0] >= 0)
    return np.where(has_zero, np.where(positive, 0.0, -np.inf), low), np.where(has_zero, np.inf, high)


def _without_nan(values: Anything) -> Anything:
    """Replace ∞ · 0, ∞ - ∞ and ∞ / ∞ by 0: other corners of the box give its extent."""
    return np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
