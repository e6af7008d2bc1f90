"""JSON from a survey's owner: its size, its numbers and its names, before anything in it is used.

The page does the same (server/pages/offered.js). Whole numbers only: a browser would round others, and then
the two would not agree on what a survey's digest is of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from lapwing.errors import BadValue
from lapwing.survey.planning.design import LARGEST_SURVEY

_SAFE = (1 << 53) - 1  # what a browser's numbers hold exactly
_MOST = 1 << 62


def parsed(raw: bytes) -> Any:
    """The value of a JSON text. `BadValue` for what is none, too large, too deep, or has fractions."""
    if len(raw) > LARGEST_SURVEY:
        raise BadValue("a survey has at most 16 MB")
    try:
        return json.loads(raw, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        raise BadValue("this is not JSON as surveys have it") from None


def _refuse(_: str) -> NoReturn:
    raise ValueError


def canonical(value: object) -> str:
    """The one text of a value: names sorted, no spaces, only ASCII. `BadValue` for inexact numbers."""
    _check(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _check(value: object) -> None:
    match value:
        case dict():
            for name, each in value.items():
                require(isinstance(name, str), "a name in it is none")
                _check(each)
        case list():
            for each in value:
                _check(each)
        case int():
            require(is_exact(value), "a number in it is not whole, or too large")
        case _:
            require(isinstance(value, str), "it has a value of no known kind")


def is_exact(number: int) -> bool:
    """Whether a browser reads it as it is: small enough, or a power of two, as the 2^60 words are."""
    return abs(number) <= _SAFE or (0 < number <= _MOST and number & (number - 1) == 0)


def require(condition: bool, why: str) -> None:
    """`BadValue` unless it holds."""
    if not condition:
        raise BadValue(why)


def has_exactly(value: object, names: Iterable[str]) -> bool:
    """Whether it is a table with these names and no others."""
    return isinstance(value, Mapping) and set(value) == set(names)


def are_texts(value: Mapping[str, Any], names: Iterable[str]) -> None:
    """`BadValue` unless all of these are texts."""
    require(all(isinstance(value[name], str) for name in names), "one of its texts is none")
