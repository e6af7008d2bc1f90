"""Expressions evaluated in Python, as `Op` says in words: what every engine must compute."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lapwing.sql.policy.kinds import Moment
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference

DAY = 86400
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def evaluated(expression: Expression, row: Mapping[str, Any]) -> Any:
    match expression:
        case Reference(name):
            return row[name]
        case Constant(value):
            return value
        case Apply(op, args, parameter=parameter):
            values = [evaluated(arg, row) for arg in args]
            if op in _OF_NULLS:
                return _OF_NULLS[op](values)
            if None in values:
                return None
            if op in (Op.MONTHS, Op.PART):
                kind = args[0].kind
                assert isinstance(kind, Moment)
                moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                    seconds=kind.start + values[0] * kind.seconds
                )
                return _months(moment, parameter) if op is Op.MONTHS else PARTS[str(parameter)](moment)
            return _PLAIN[op](parameter, *values)


def _case(values: list[Any]) -> Any:
    for when, then in zip(values[:-1:2], values[1::2], strict=True):
        if when:
            return then
    return values[-1]


def _and(values: list[Any]) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[Any]) -> bool | None:
    return True if True in values else None if None in values else False


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _months(moment: datetime, by: Any) -> int:
    months: int = ((moment.year - 1970) * 12 + moment.month - 1) // by
    return months


def _like(pattern: Any, text: str) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c) or re.escape(c) for c in pattern), text, re.DOTALL) is not None


def _parse(_: Any, text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,15}", text) else None


_OF_NULLS: dict[Op, Callable[[list[Any]], Any]] = {
    Op.LEAST: lambda values: min(_known(values), default=None),
    Op.GREATEST: lambda values: max(_known(values), default=None),
    Op.COALESCE: lambda values: next(iter(_known(values)), None),
    Op.NULL_IF: lambda values: None if values[0] == values[1] else values[0],
    Op.CASE: _case,
    Op.IS_NULL: lambda values: values[0] is None,
    Op.AND: _and,
    Op.OR: _or,
}
_PLAIN: dict[Op, Callable[..., Any]] = {
    Op.ADD: lambda _, a, b: a + b,
    Op.SUBTRACT: lambda _, a, b: a - b,
    Op.MULTIPLY: lambda _, a, b: a * b,
    Op.SCALE: lambda p, a: a * p,
    Op.ABS: lambda _, a: abs(a),
    Op.FLOOR_DIVIDE: lambda p, a: a // p,
    Op.MODULO: lambda p, a: a % p,
    Op.QUOTIENT: lambda p, a, b: a * p // b if b else None,
    Op.FROM_TRUTH: lambda _, a: int(a),
    Op.EQ: lambda _, a, b: a == b,
    Op.NE: lambda _, a, b: a != b,
    Op.LT: lambda _, a, b: a < b,
    Op.LE: lambda _, a, b: a <= b,
    Op.GT: lambda _, a, b: a > b,
    Op.GE: lambda _, a, b: a >= b,
    Op.IN: lambda p, a: a in p,
    Op.NOT: lambda _, a: not a,
    Op.DECODE: lambda p, a: p[a],
    Op.LOWER: lambda _, a: a.translate(_LOWER),
    Op.UPPER: lambda _, a: a.translate(_UPPER),
    Op.TRIM: lambda _, a: a.strip(" "),
    Op.SUBSTRING: lambda p, a: a[max(p[0] - 1, 0) : max(p[0] - 1 + p[1], 0)],
    Op.LENGTH: lambda _, a: len(a),
    Op.CONCAT: lambda _, *texts: "".join(texts),
    Op.LIKE: _like,
    Op.PARSE_WHOLE: _parse,
}
PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "dayofweek": lambda moment: moment.isoweekday(),
    "dayofyear": lambda moment: moment.timetuple().tm_yday,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
}
