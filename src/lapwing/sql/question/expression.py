"""Typed expressions over one row of a table.

Every operation is total: for any row it gives a value or NULL, never an error. The bounds of all codes
follow from the policy, so that no operation can overflow. Only these expressions ever reach an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique

from lapwing.sql.policy.kinds import (
    Kind,
)


@unique
class Op(Enum):
    """The operations.

    `p` is the public parameter. The result is NULL if an argument is, unless stated otherwise.

    The texts are a part of stored digests of queries: never change them. "Known" in them means: not NULL.
    """

    # Whole numbers. The kind of the result bounds it. Every intermediate result is below 2^52.
    ADD = "a + b"
    SUBTRACT = "a - b"
    MULTIPLY = "a * b"
    SCALE = "a * p, p a whole number"
    ABS = "|a|"
    FLOOR_DIVIDE = "the greatest whole number <= a / p, p > 0"
    MODULO = "a - p * floor(a / p), p > 0"
    QUOTIENT = "floor(a * p / b), p > 0; NULL where b = 0"
    LEAST = "the least of the known ones"
    GREATEST = "the greatest of the known ones"
    FROM_TRUTH = "1 or 0"

    # Any kind
    COALESCE = "the first that is known"
    NULL_IF = "a, or NULL where a = b"
    CASE = "args: condition, value, condition, value, ..., otherwise (always given, maybe a NULL)"

    # Truth
    EQ = "a = b"
    NE = "a <> b"
    LT = "a < b"
    LE = "a <= b"
    GT = "a > b"
    GE = "a >= b"
    IN = "a is one of p, a tuple of codes or texts"
    IS_NULL = "never NULL itself"
    AND = "all args are true"
    OR = "some arg is true"
    NOT = "not a"

    # Text. Comparisons are by code point, on every engine.
    DECODE = "the text of a code; p is the tuple of texts"
    LOWER = "with small ASCII letters"
    UPPER = "with large ASCII letters"
    TRIM = "without spaces at both ends"
    SUBSTRING = "p = (start from 1, length)"
    LENGTH = "in code points"
    CONCAT = "all args in a row"
    LIKE = "p is a pattern with % and _; no escape"
    PARSE_WHOLE = "a whole number of at most 15 digits, with or without a sign; else NULL"

    # Time: a is a Moment
    MONTHS = "calendar periods of p months since January 1970 (1970-01 is 0, earlier is negative)"
    PART = "p is year, quarter, month, day, dayofweek (Monday is 1), dayofyear, hour, minute or second"


@dataclass(frozen=True, slots=True)
class Reference:
    """A column of the relation that the expression is computed over."""

    name: str
    kind: Kind

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Constant:
    """A public value: a code, a text or a truth. None is NULL."""

    value: int | str | bool | None
    kind: Kind

    def __hash__(self) -> int:
        return hash((self.value, type(self.kind)))  # a kind may have many values


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation on expressions.

    `size` counts all parts of the expression; a part that is used twice counts twice. `depth` is its
    nesting.
    """

    op: Op
    args: tuple[Expression, ...]
    kind: Kind
    parameter: int | str | tuple[int | str, ...] | None = None
    size: int = field(init=False, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)
    hashed: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        calls = [arg for arg in self.args if isinstance(arg, Apply)]
        own = len(self.parameter) if isinstance(self.parameter, tuple) else 1
        size = 1 + own + len(self.args) - len(calls) + sum(call.size for call in calls)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", 1 + max((call.depth for call in calls), default=0))
        object.__setattr__(self, "hashed", hash((self.op, self.args, self.parameter)))

    def __hash__(self) -> int:
        return self.hashed


Expression = Reference | Constant | Apply


def conjuncts(predicate: Expression) -> list[Expression]:
    """Return the conditions that AND joins to the predicate, nested ones too."""
    if isinstance(predicate, Apply) and predicate.op is Op.AND:
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]
