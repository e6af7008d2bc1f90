"""What a value in a private table can be. Everything but text is a whole number with a public meaning.

A column's *code* is what the engine computes with: the whole number of steps of a number, the position of
a declared value, days since 1970, months since 1970. Codes are exact and alike on every engine, and their
bounds are known before any row is read.

Expressions over one row, checked and typed: the only ones that ever reach an engine.

Every operation is total: whatever is in a row, it gives a value or NULL, never an error. All but text
and truth are whole numbers (codes) whose bounds follow from the policy, so that none can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import Enum, unique
from fractions import Fraction

MONTHS = {"month": 1, "quarter": 3, "year": 12}
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}

Value = str | int | float | bool | date | datetime | Fraction | None


@dataclass(frozen=True, slots=True)
class Numeric:
    """Multiples of `step`; `first` and `last` are the bounds in steps. Without bounds: None."""

    step: Fraction
    first: int | None
    last: int | None

    @property
    def is_bounded(self) -> bool:
        """Whether it can be summed."""
        return self.first is not None and self.last is not None

    @property
    def reach(self) -> int:
        """The greatest size of a code."""
        assert self.first is not None
        assert self.last is not None
        return max(abs(self.first), abs(self.last))

    def value(self, code: int) -> int | float:
        """What people read."""
        exact = code * self.step
        return int(exact) if exact.denominator == 1 else float(exact)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the declared values, by its position."""

    values: tuple[str | int | bool, ...]

    def value(self, code: int) -> str | int | bool:
        """What people read."""
        return self.values[code]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: how often `seconds` fit between `start` and it, from `first` to `last`.

    `start` is in seconds since 1970 (UTC), and 0 but for weeks, which begin on Mondays. A date is a
    Moment of 86400 seconds.
    """

    seconds: int
    first: int
    last: int
    start: int = 0

    def value(self, code: int) -> date | datetime:
        """What people read."""
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.start + code * self.seconds)
        return at.date() if self.seconds % SECONDS["day"] == 0 else at


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar period of so many months: the whole number of them since January 1970."""

    months: int
    first: int
    last: int

    def value(self, code: int) -> date:
        """The first day of the period."""
        year, month = divmod(code * self.months, 12)
        return date(1970 + year, month + 1, 1)


@dataclass(frozen=True, slots=True)
class Truth:
    """True or false (SQL's boolean, so that it may also be unknown)."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text. It has no bounds: it can be compared, and grouped by with private selection."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who the row is about. It can be counted (distinct) and grouped by, never shown."""


Kind = Numeric | Choice | Moment | Period | Truth | Text | Person


def codes_of(kind: Kind) -> range | None:
    """All codes of a kind, if they are finitely many: then every one of them can be answered."""
    match kind:
        case Choice(values):
            return range(len(values))
        case Numeric(_, int(first), int(last)) | Moment(_, first, last, _) | Period(_, first, last):
            return range(first, last + 1)
        case Truth():
            return range(2)
        case _:
            return None


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
