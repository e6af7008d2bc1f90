"""Columns of few codes, and what expressions over them must come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

from sqlglot import exp, parse_one

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Text, Truth, codes_of
from lapwing.sql.question.expression import Apply, Constant, Expression, Reference
from lapwing.sql.question.scalar import ExpressionBinder
from lapwing.sql.question.scope import FromItem, Scope
from lapwing.sql.question.typed_expressions import LARGEST
from support.evaluated import evaluated

Row = Mapping[str, Any]
KINDS: dict[str, Kind] = {
    "a": Numeric(Fraction(1), -3, 4),
    "b": Numeric(Fraction(1, 2), -5, 3),
    "p": Numeric(Fraction(1, 4), 1, 9),
    "n": Numeric(Fraction(3, 2), -4, -1),
    "t": Truth(),
    "u": Truth(),
    "w": Choice(("A", "b", "Cc ", "")),
    "g": Choice((3, -1, 7)),
    "d": Moment(86400, 20084, 20084 + 40),
    "h": Moment(3600, 482_000, 482_030),
    "name": Text(),
}
TEXTS = ("", "7", "-12", "Ab", " x ", "ä%")
SCOPE = Scope([FromItem("t", {name: Reference(name, kind) for name, kind in KINDS.items()})])


def bound(sql: str) -> Expression:
    tree = parse_one(f"SELECT {sql}", read="duckdb")
    assert isinstance(tree, exp.Select)
    return ExpressionBinder(SCOPE).bind(tree.expressions[0])


def meaning(code: Any, kind: Kind) -> Any:
    """What a code stands for."""
    if code is None or isinstance(kind, Text | Truth):
        return code
    if isinstance(kind, Numeric):
        return code * kind.step
    assert isinstance(kind, Choice | Moment | Period)
    return kind.value(code)


def rows_over(*names: str) -> Iterator[dict[str, Any]]:
    """All rows of codes, also with NULL."""
    ranges: list[list[Any]] = []
    for name in names:
        kind = KINDS[name]
        codes: list[Any] = list(TEXTS) if isinstance(kind, Text) else list(codes_of(kind) or ())
        ranges.append([bool(code) for code in codes] if isinstance(kind, Truth) else codes)
    for row in product(*[[*one, None] for one in ranges]):
        yield dict(zip(names, row, strict=True))


def parts_of(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, Apply):
        for arg in expression.args:
            yield from parts_of(arg)


def require_within(expression: Expression, row: Row) -> Any:
    """The value of an expression, none of whose parts leaves its bounds."""
    for part in parts_of(expression):
        value = evaluated(part, row)
        codes = codes_of(part.kind)
        if value is not None and isinstance(part.kind, Numeric | Moment | Period | Choice):
            outside = isinstance(part, Constant) and isinstance(part.kind, Moment | Period)
            assert codes is None or value in codes or outside, (part, row, value)
            assert abs(value) < LARGEST
        assert value is None or isinstance(value, bool) == isinstance(part.kind, Truth)
    return evaluated(expression, row)


def known(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL in, NULL out."""
    return lambda *values: None if None in values else function(*values)


def half_away(value: Fraction, step: Fraction) -> Fraction:
    size = math.floor(abs(value) / step + Fraction(1, 2)) * step
    return size if value >= 0 else -size


def equal(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x == y


def least(*values: Any) -> Any:
    return min((value for value in values if value is not None), default=None)


def greatest(*values: Any) -> Any:
    return max((value for value in values if value is not None), default=None)


def le(x: Any, y: Any) -> bool | None:
    return None if x is None or y is None else x <= y


def and_(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def or_(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False
