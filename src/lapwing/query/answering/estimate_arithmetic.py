"""Arithmetic, comparison and logic on released values, by SQL's rules: NULL in, NULL out.

Division by 0 and the root of a negative number are NULL. An interval goes along where one uncertain number
meets constants and the way from one to the other rises or falls throughout. Of several uncertain numbers
it is made in `estimate_computed`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.query.answering.estimate_parts import Estimate
from lapwing.query.language.question import Computed

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
    """The operation on all rows, with its interval where there is one."""
    values = apply(tree.op, [arg.values for arg in args])
    note = "; ".join(dict.fromkeys(arg.note for arg in args if arg.note))
    low, high = _ends(tree.op, args)
    return Estimate(values, low, high, note)


def apply(op: str, args: list[Anything]) -> Anything:
    """By numpy where all are plain numbers, row by row otherwise."""
    if all(arg.dtype.kind in "if" for arg in args) and op in _BINARY:
        if op in ("+", "-", "*") and not _fits(op, args):
            args = [arg.astype(np.float64) for arg in args]
        return np.asarray(_BINARY[op](*args))
    if op == "/" and all(arg.dtype.kind in "if" for arg in args) and np.all(args[1] != 0):
        return np.asarray(args[0] / args[1])
    rows = zip(*args, strict=True)
    return packed([_row(op, [_plain(value) for value in row]) for row in rows])


def _fits(op: str, args: list[Anything]) -> bool:
    """Whether 64-bit integers hold the result."""
    if any(arg.dtype.kind == "f" or not len(arg) for arg in args):
        return True
    sizes = [float(np.abs(arg.astype(np.float64)).max()) for arg in args]
    return (sizes[0] * sizes[1] if op == "*" else sum(sizes)) < _LARGE


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def packed(values: Values) -> Anything:
    """A numeric array if all are numbers of one kind; else one of objects, in which None is NULL."""
    kinds = {type(value) for value in values}
    if kinds in ({int}, {float}, {int, float}):
        array = np.array(values, dtype=np.float64 if float in kinds else object)
        if array.dtype == object and all(abs(value) < _LARGE for value in values):
            array = array.astype(np.int64)
        return array
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _row(op: str, args: Values) -> Any:
    """One row."""
    if op in _OF_NULLS:
        return _OF_NULLS[op](args)
    if any(arg is None for arg in args):
        return None
    return _BINARY[op](*args) if op in _BINARY else _arithmetic(op, args)


def _arithmetic(op: str, args: Values) -> Any:
    match op:
        case "/" | "//":
            divide = operator.truediv if op == "/" else operator.floordiv
            return divide(*args) if args[1] else None
        case "neg":
            return -args[0]
        case "abs":
            return abs(args[0])
        case "round":
            return round(args[0], int(args[1]) if len(args) > 1 else 0)
        case "sqrt":
            return math.sqrt(args[0]) if args[0] >= 0 else None
        case "not":
            return not args[0]
        case other:
            raise AssertionError(f"{other} is not an operation on released values")


def _logic(args: Values, *, decides: bool) -> bool | None:
    """AND (decided by a false) and OR (decided by a true), with unknowns."""
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


# Operations that say something about NULL.
_OF_NULLS: dict[str, Callable[[Values], Any]] = {
    "and": lambda args: _logic(args, decides=False),
    "or": lambda args: _logic(args, decides=True),
    "case": _case,
    "coalesce": lambda args: next(iter(_known(args)), None),
    "is_null": lambda args: args[0] is None,
    "least": lambda args: min(_known(args), default=None),
    "greatest": lambda args: max(_known(args), default=None),
}


def _ends(op: str, args: list[Estimate]) -> tuple[Anything | None, Anything | None]:
    """The interval, if one uncertain number meets exact ones and the operation is monotone in it."""
    uncertain = [i for i, arg in enumerate(args) if arg.low is not None and arg.high is not None]
    others = [arg.values for i, arg in enumerate(args) if i not in uncertain]
    if len(uncertain) != 1 or any(arg.dtype.kind not in "if" for arg in others):
        return None, None
    if any(arg.rank_error is not None for arg in args):
        return None, None
    at = uncertain[0]
    low, high = args[at].low, args[at].high
    assert low is not None
    assert high is not None
    if op == "abs":
        ends = apply("abs", [low]), apply("abs", [high])
        inside = (low <= 0) & (high >= 0)
        return np.where(inside, 0, np.minimum(*ends)), np.maximum(*ends)
    if op not in _MONOTONE or (op in ("/", "//") and at == 1 and bool(np.any((low <= 0) & (high >= 0)))):
        return None, None
    if op == "sqrt":
        low = np.maximum(low, 0)

    def put(end: Anything) -> Anything:
        return apply(op, [end if i == at else arg.values for i, arg in enumerate(args)])

    one, other = put(low), put(high)
    if object in (one.dtype, other.dtype):
        return None, None
    return np.minimum(one, other), np.maximum(one, other)
