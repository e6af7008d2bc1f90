"""Random arithmetic in SQL, with what it means in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from lapwing.sql.policy.kinds import codes_of
from support.small_kinds import KINDS, Row, greatest, half_away, known, least, meaning

F = Fraction
NUMBERS = ("a", "b", "p", "n", "g")
Made = tuple[str, Callable[[Row], Any]]


def binary(symbol: str, left: Made, right: Made, function: Callable[..., Any]) -> Made:
    text = f"({left[0]} {symbol} {right[0]})"
    return text, lambda row: known(function)(left[1](row), right[1](row))


def of_two(name: str, left: Made, right: Made, function: Callable[..., Any]) -> Made:
    return f"{name}({left[0]}, {right[0]})", lambda row: function(left[1](row), right[1](row))


def of_one(text: str, inner: Made, function: Callable[..., Any]) -> Made:
    return text.format(inner[0]), lambda row: known(function)(inner[1](row))


def of_three(x: Made, y: Made, z: Made) -> Made:
    text = f"CASE WHEN {x[0]} < {y[0]} THEN {z[0]} ELSE {x[0]} END"
    return text, lambda row: _case(x[1](row), y[1](row), z[1](row))


def column(name: str) -> Made:
    return name, lambda row: meaning(row[name], KINDS[name])


def constant(value: F | None) -> Made:
    return "NULL" if value is None else str(float(value)), lambda _: value


def numbers() -> st.SearchStrategy[Made]:
    """Any arithmetic on the columns with numbers."""
    constants = [constant(value) for value in (None, F(0), F(2), F(-3), F(5, 2), F(1, 8))]
    return st.recursive(st.sampled_from([*map(column, NUMBERS), *constants]), _grown, max_leaves=7)


def _grown(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda two: binary("+", *two, lambda x, y: x + y)),
        pairs.map(lambda two: binary("-", *two, lambda x, y: x - y)),
        pairs.map(lambda two: binary("*", *two, lambda x, y: x * y)),
        pairs.map(lambda two: of_two("LEAST", *two, least)),
        pairs.map(lambda two: of_two("GREATEST", *two, greatest)),
        pairs.map(lambda two: of_two("COALESCE", *two, _first)),
        pairs.map(lambda two: of_two("NULLIF", *two, _null_if)),
        st.tuples(inner, inner, inner).map(lambda three: of_three(*three)),
        inner.map(lambda one: of_one("ABS({})", one, abs)),
        inner.map(lambda one: of_one("FLOOR({})", one, math.floor)),
        inner.map(lambda one: of_one("CEIL({})", one, math.ceil)),
        inner.map(lambda one: of_one("ROUND({}, 1)", one, lambda x: half_away(x, F(1, 10)))),
        inner.map(lambda one: of_one("({} % 1.5)", one, lambda x: x % F(3, 2))),
        inner.map(lambda one: of_one("({} / -3)", one, lambda x: F(x) / -3)),
    )


def _first(x: Any, y: Any) -> Any:
    return y if x is None else x


def _null_if(x: Any, y: Any) -> Any:
    return None if x is not None and x == y else x


def _case(x: Any, y: Any, z: Any) -> Any:
    return z if x is not None and y is not None and x < y else x


def row_of(draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, Any]:
    """Codes for every number and declared value, or NULL."""
    found = {}
    for name in NUMBERS:
        codes = codes_of(KINDS[name])
        assert codes is not None
        found[name] = draw(st.one_of(st.none(), st.sampled_from(codes)))
    return found
