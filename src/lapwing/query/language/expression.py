"""Expressions over one row, checked and typed: the only ones that ever reach an engine.

Every operation is total: whatever is in a row, it gives a value or NULL, never an error. All but text
and truth are whole numbers (codes) whose bounds follow from the policy, so that none can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique

from lapwing.query.language.kinds import Kind


@unique
class Op(Enum):
    """What can be computed. `p` is the operation's public parameter. NULL in, NULL out, unless said."""

    # Whole numbers. The result's kind bounds it, and every intermediate one, below 2^52.
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

    # Of any kind
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
    """A column of the relation that the expression stands on."""

    name: str
    kind: Kind

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Constant:
    """A public value as a code, a text or a truth; None is NULL."""

    value: int | str | bool | None
    kind: Kind

    def __hash__(self) -> int:
        return hash((self.value, type(self.kind)))  # a kind may have many values


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation on expressions.

    `size` counts all that stands in it, what stands in it twice twice; `depth` is how far it is nested.
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
