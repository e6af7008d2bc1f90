"""The functions that queries may use on private rows: an allow-list, all of them total."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

from sqlglot import exp

from lapwing.sql.policy.kinds import MONTHS, SECONDS, Choice, Moment, Numeric, Period, Text, Truth
from lapwing.sql.question.comparison import moment_of, require_a_time
from lapwing.sql.question.expression import Constant, Expression, Op
from lapwing.sql.question.refusal import Refused, allow_only, count_work, name_of, refused
from lapwing.sql.question.typed_expressions import (
    MOST_MAPPED,
    absolute,
    added,
    apply,
    as_number,
    as_text,
    extreme,
    floored,
    is_null,
    mapped,
    mapped_text,
    null_of,
    number,
    numeric,
    public_value,
    quotient,
    rounded,
)

Bind = Callable[[exp.Expr], Expression]
Function = Callable[[Bind, Any], Expression]
_PARTS = {
    "year": None, "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "dayofweek": (1, 7),
    "dayofyear": (1, 366), "hour": (0, 23), "minute": (0, 59), "second": (0, 59),
}  # fmt: skip
_PART_NAMES = {"isodow": "dayofweek", "doy": "dayofyear"}


def _moment(expression: Expression) -> Moment:
    if not isinstance(expression.kind, Moment):
        raise Refused("this is not a time", "Use a column with dates as bounds")
    return expression.kind


def _as_moment(expression: Expression) -> Expression:
    """Return the time that a public text names; other expressions as they are."""
    if isinstance(expression, Constant) and isinstance(expression.value, str):
        return moment_of(expression.value) if isinstance(expression.kind, Text) else expression
    return expression


def _day(value: Expression) -> Expression:
    return truncate_time(_as_moment(value), "day")


def truncate_time(value: Expression, unit: str) -> Expression:
    """Return DATE_TRUNC: the beginning of the month, week, hour … that contains a time."""
    kind = _moment(value)
    if unit in MONTHS:
        months = MONTHS[unit]
        ends = [_months(kind.value(code)) // months for code in (kind.first, kind.last)]
        return apply(Op.MONTHS, value, kind=Period(months, *ends), parameter=months)
    if unit not in SECONDS:
        raise Refused("times cannot be truncated to that", f"Use one of {', '.join([*SECONDS, *MONTHS])}")
    seconds = SECONDS[unit]
    if seconds <= kind.seconds and unit != "week":
        return value
    start = -3 * SECONDS["day"] if unit == "week" else 0  # 1970 began on a Thursday
    if kind.start or (kind.start - start) % kind.seconds or seconds % kind.seconds:
        raise Refused("these times cannot be truncated to that", "Use a multiple of their own precision")
    by, shift = seconds // kind.seconds, -start // kind.seconds
    moved = apply(
        Op.ADD, value, Constant(shift, Numeric(Fraction(1), shift, shift)),
        kind=Numeric(Fraction(1), kind.first + shift, kind.last + shift),
    )  # fmt: skip
    whole = Moment(seconds, (kind.first + shift) // by, (kind.last + shift) // by, start)
    return apply(Op.FLOOR_DIVIDE, moved if shift else value, kind=whole, parameter=by)


def _months(day: Any) -> int:
    return int((day.year - 1970) * 12 + day.month - 1)


def extract_part(value: Expression, name: str) -> Expression:
    """Return EXTRACT: a part of a time as a number."""
    kind = _moment(value)
    name = _PART_NAMES.get(name, name)
    if name not in _PARTS:
        known = ", ".join(_PARTS)
        raise Refused("that part of a time is unknown", f"Use one of {known} (Monday is 1, as for isodow)")
    if name in ("hour", "minute", "second") and kind.seconds % SECONDS["day"] == 0:
        raise Refused("a date has no hours", "Use a column of times")
    bounds = _PARTS[name] or (kind.value(kind.first).year, kind.value(kind.last).year)
    if kind.start:
        raise Refused("weeks have no parts", "Use the date itself")
    return apply(Op.PART, value, kind=Numeric(Fraction(1), *bounds), parameter=name)


def _truncate(bind: Bind, node: exp.Expr) -> Expression:
    """Bind DATE_TRUNC('month', x)."""
    return truncate_time(bind(node.this), node.args["unit"].name.lower())


def _extract(bind: Bind, node: exp.Extract) -> Expression:
    """Bind EXTRACT(year FROM x)."""
    return extract_part(bind(node.expression), node.this.name.lower())


def _date_part(bind: Bind, node: exp.Anonymous) -> Expression:
    """Bind DATE_PART('year', x)."""
    if len(node.expressions) != 2 or not node.expressions[0].is_string:
        raise refused(node, "DATE_PART needs a name and a time", "Write DATE_PART('year', x)")
    return extract_part(bind(node.expressions[1]), node.expressions[0].name.lower())


def shifted(value: Expression, interval: exp.Interval, *, minus: bool) -> Expression:
    """Return a time plus or minus a public interval of days, hours, and so on."""
    value = _as_moment(value)
    kind = _moment(value)
    unit = str(interval.args["unit"]).lower().rstrip("s") if interval.args.get("unit") else ""
    allow_only(interval, "this", "unit")
    count = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    if unit not in SECONDS or not re.fullmatch(r"-?\d{1,9}", count):
        instead = "Use whole days, weeks, hours, minutes or seconds"
        raise refused(interval, "this interval is not possible", instead)
    seconds = int(count) * SECONDS[unit] * (-1 if minus else 1)
    if seconds % kind.seconds:
        raise refused(interval, "the interval is finer than the time's own precision", "Use a longer one")
    by = seconds // kind.seconds
    moved = Moment(kind.seconds, kind.first + by, kind.last + by, kind.start)
    require_a_time(moved)
    if isinstance(value, Constant):
        return Constant(None if value.value is None else int(value.value) + by, moved)
    return apply(Op.ADD, value, Constant(by, Numeric(Fraction(1), by, by)), kind=moved)


def days_between(left: Expression, right: Expression) -> Expression:
    """Return left - right in days."""
    left, right = _as_moment(left), _as_moment(right)
    a, b = _moment(left), _moment(right)
    if (a.seconds, a.start) != (b.seconds, b.start):
        raise Refused("times of different precision cannot be subtracted", "Truncate them to days first")
    days = Fraction(a.seconds, SECONDS["day"])
    return apply(Op.SUBTRACT, left, right, kind=Numeric(days, a.first - b.last, a.last - b.first))


def _date_diff(bind: Bind, node: exp.DateDiff) -> Expression:
    """Bind DATEDIFF('day', a, b)."""
    if node.args.get("unit") is None or node.args["unit"].name.lower() != "day":
        raise refused(node, "differences are in days", "Write DATEDIFF('day', a, b)")
    return days_between(*(_day(bind(argument)) for argument in (node.this, node.expression)))


FINEST = 9  # decimals


def _whole(bind: Bind, node: exp.Expr | None, what: str) -> int:
    """Return the value of a public whole number."""
    bound = bind(node) if node is not None else None
    if isinstance(bound, Constant) and isinstance(bound.kind, Numeric) and bound.kind.step == 1:
        return int(bound.value or 0)
    raise refused(node, f"{what} must be a public whole number", "Write it in digits")


def _round(bind: Bind, node: exp.Round) -> Expression:
    decimals = _whole(bind, node.args["decimals"], "the decimals") if node.args.get("decimals") else 0
    if not -FINEST <= decimals <= FINEST:
        raise refused(node, "that many decimals cannot be rounded to", f"Use at most {FINEST}")
    return _rounded(bind, node.this, Fraction(10) ** -decimals, rounded)


def _floor(bind: Bind, node: exp.Floor) -> Expression:
    return _rounded(bind, node.this, Fraction(1), floored)


def _rounded(
    bind: Bind, node: exp.Expr, step: Fraction, rounding: Callable[[Expression, Fraction], Expression]
) -> Expression:
    """Return a rounded number. A quotient of columns is always rounded down: it has no step of its own."""
    inner = node.unnest()
    if isinstance(inner, exp.Div):
        allow_only(inner, "this", "expression", "typed", "safe")
        bottom = as_number(bind(inner.expression))
        if not isinstance(bottom, Constant):
            return quotient(as_number(bind(inner.this)), bottom, step)
    return rounding(as_number(bind(node)), step)


def _ceil(value: Expression) -> Expression:
    value = as_number(value)
    # ⌈k·step⌉ is the greatest whole number at most k·step + 1 - (the finest difference there is).
    finest = Fraction(1, numeric(value).step.denominator)
    return floored(value, Fraction(1), add=1 - finest)


def _bucket(bind: Bind, node: exp.WidthBucket) -> Expression:
    """Return WIDTH_BUCKET(x, low, high, n): 0 below low, n + 1 from high on."""
    low, high = (as_number(bind(node.args[name])) for name in ("min_value", "max_value"))
    count = _whole(bind, node.args["num_buckets"], "the number of buckets")
    if not isinstance(low, Constant) or not isinstance(high, Constant) or not 0 < count < 1 << 20:
        raise refused(node, "buckets must be public", "Write WIDTH_BUCKET(x, 0, 100, 10)")
    start, end = public_value(low), public_value(high)
    if start >= end:
        raise refused(node, "the first bucket must begin below the end of the last", "Swap them")
    from_start = added(as_number(bind(node.this)), number(start), minus=True)
    bucket = floored(from_start, (end - start) / count)
    plain = Numeric(Fraction(1), *numeric(bucket).bounds)
    counted = apply(Op.SCALE, bucket, kind=plain, parameter=1)
    inside = extreme(Op.GREATEST, [extreme(Op.LEAST, [counted, number(count)]), number(-1)])
    return apply(
        Op.COALESCE, _known_only(counted, added(inside, number(1))), kind=Numeric(Fraction(1), 0, count + 1)
    )


def _known_only(wanted: Expression, value: Expression) -> Expression:
    """Return the value, or NULL where `wanted` is NULL: LEAST and GREATEST ignore NULL arguments."""
    return apply(Op.CASE, apply(Op.IS_NULL, wanted), null_of(value.kind), value, kind=value.kind)


def _clamp(bind: Bind, node: exp.Anonymous) -> Expression:
    """Return CLAMP(x, low, high), which is NULL where x is."""
    if len(node.expressions) != 3:
        raise refused(node, "CLAMP needs three arguments", "Write CLAMP(x, low, high)")
    value, low, high = (as_number(bind(argument)) for argument in node.expressions)
    inside = extreme(Op.GREATEST, [extreme(Op.LEAST, [value, high]), low])
    return _known_only(value, inside)


def _extreme(op: Op) -> Function:
    return lambda bind, node: extreme(op, [bind(argument) for argument in (node.this, *node.expressions)])


# Text


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def ascii_lower(text: str) -> str:
    """Return the text in lower case, ASCII letters only, as engines do it."""
    return text.translate(_LOWER)


def ascii_upper(text: str) -> str:
    """Return the text in upper case, ASCII letters only, as engines do it."""
    return text.translate(_UPPER)


def _substring(bind: Bind, node: exp.Expr) -> Expression:
    if isinstance(node, exp.Left):
        start, length = 1, _whole(bind, node.expression, "the length")
    else:
        start = _whole(bind, node.args.get("start"), "the start")
        length = _whole(bind, node.args["length"], "the length") if node.args.get("length") else 1 << 20
    if start < 1 or length < 0:
        raise refused(node, "a part of a text begins at 1 or later", "Write SUBSTRING(x, 1, 3)")
    length = min(length, 1 << 20)
    return mapped_text(
        bind(node.this), Op.SUBSTRING, lambda text: text[start - 1 : start - 1 + length], (start, length)
    )


def _length(value: Expression) -> Expression:
    if isinstance(value.kind, Choice) and len(value.kind.values) <= MOST_MAPPED:
        return as_number(mapped(value, [len(str(text)) for text in value.kind.values]))
    return apply(Op.LENGTH, as_text(value), kind=Numeric(Fraction(1), None, None))


def _concat(bind: Bind, node: exp.Expr) -> Expression:
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else list(node.expressions)
    texts = [as_text(bind(part)) for part in parts]
    if node.args.get("coalesce"):  # CONCAT ignores NULL, || does not
        texts = [apply(Op.COALESCE, text, Constant("", Text()), kind=Text()) for text in texts]
    return apply(Op.CONCAT, *texts, kind=Text())


def _public_text(bind: Bind, node: exp.Expr, otherwise: str) -> str:
    """Return the public text on the right of a node. Raises Refused with `otherwise` if it is none."""
    bound = bind(node.expression)
    if not isinstance(bound, Constant) or not isinstance(bound.value, str):
        raise refused(node, otherwise, "Write it between quotes")
    return bound.value


def _like(bind: Bind, node: exp.Like | exp.ILike) -> Expression:
    """Return LIKE, or ILIKE, which ignores the case of ASCII letters."""
    fold: Callable[[str], str] = ascii_lower if isinstance(node, exp.ILike) else str
    pattern, value = fold(_public_text(bind, node, "LIKE needs a public pattern")), bind(node.this)
    if isinstance(value.kind, Choice):
        count_work(len(value.kind.values))
        codes = tuple(
            i for i, declared in enumerate(value.kind.values) if is_like(fold(str(declared)), pattern)
        )
        test = apply(Op.IN, value, parameter=codes)
    else:
        text = as_text(value)
        text = apply(Op.LOWER, text, kind=Text()) if isinstance(node, exp.ILike) else text
        test = apply(Op.LIKE, text, parameter=pattern)
    return apply(Op.NOT, test) if node.args.get("negate") else test


def is_like(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern of LIKE.

    The time grows with text length times pattern length: only the last % is ever retried.
    """
    at = place = 0
    back: tuple[int, int] | None = None  # in the pattern behind the last %, and in the text
    while at < len(text):
        letter = pattern[place : place + 1]
        if letter == "%":
            place += 1
            back = place, at
        elif letter in ("_", text[at]) and letter:
            at, place = at + 1, place + 1
        elif back is not None:
            place, at = back[0], back[1] + 1
            back = place, at
        else:
            return False
    return not pattern[place:].strip("%")


def _starts_with(bind: Bind, node: exp.StartsWith) -> Expression:
    text, value = _public_text(bind, node, "STARTS_WITH needs a public text"), bind(node.this)
    if isinstance(value.kind, Choice):
        codes = tuple(i for i, declared in enumerate(value.kind.values) if str(declared).startswith(text))
        return apply(Op.IN, value, parameter=codes)
    part = apply(Op.SUBSTRING, as_text(value), kind=Text(), parameter=(1, len(text)))
    return apply(Op.EQ, part, Constant(text, Text()))


def _cast(bind: Bind, node: exp.Cast) -> Expression:  # noqa: PLR0911 (a case for each type)
    """Return CAST. A value that cannot be converted becomes NULL: no row can cause an error."""
    to, is_text = node.to, isinstance(node.this, exp.Literal) and node.this.is_string
    if is_text and to.is_type(*exp.DataType.TEMPORAL_TYPES):
        text = node.this.name.strip()
        return moment_of(text[:10] if to.is_type("date") else text)
    value = bind(node.this)
    if is_null(value):
        return value
    if to.is_type(*exp.DataType.INTEGER_TYPES):
        if isinstance(value.kind, Text):
            return apply(Op.PARSE_WHOLE, value, kind=Numeric(Fraction(1), None, None))
        return rounded(as_number(value), Fraction(1))
    if to.is_type(*exp.DataType.NUMERIC_TYPES) and not isinstance(value.kind, Text):
        return as_number(value)
    if to.is_type(*exp.DataType.TEXT_TYPES) and isinstance(value.kind, Text | Choice):
        return as_text(value)
    if to.is_type("date") and isinstance(value.kind, Moment):
        return truncate_time(value, "day")
    if to.is_type("boolean") and isinstance(value.kind, Truth):
        return value
    raise refused(node, f"CAST to {to.sql()[:40]} is not possible here", "Use the column as it is declared")


# The arguments that a function may have, and the function that binds it. No argument is ever ignored.
Entry = tuple[str, Function]


def _of_one(function: Callable[[Expression], Expression]) -> Entry:
    """Return the entry of a function with one argument."""
    return "this", lambda bind, node: function(bind(node.this))


_TRUNCATE: Entry = ("this unit input_type_preserved", _truncate)
_CONCAT: Entry = ("this expression expressions safe coalesce", _concat)
_LIKE: Entry = ("this expression negate", _like)
_CAST: Entry = ("this to safe _type action", _cast)
_PART_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day", exp.Hour: "hour",
    exp.Minute: "minute", exp.Second: "second", exp.DayOfMonth: "day", exp.DayOfWeekIso: "dayofweek",
    exp.DayOfYear: "dayofyear",
}  # fmt: skip
FUNCTIONS: dict[type[exp.Expr], Entry] = {
    exp.Round: ("this decimals", _round), exp.Floor: ("this", _floor), exp.Ceil: _of_one(_ceil),
    exp.WidthBucket: ("this min_value max_value num_buckets", _bucket), exp.Abs: _of_one(absolute),
    exp.Least: ("this expressions ignore_nulls", _extreme(Op.LEAST)),
    exp.Greatest: ("this expressions ignore_nulls", _extreme(Op.GREATEST)),
    exp.Lower: _of_one(partial(mapped_text, op=Op.LOWER, function=ascii_lower)),
    exp.Upper: _of_one(partial(mapped_text, op=Op.UPPER, function=ascii_upper)),
    exp.Trim: _of_one(partial(mapped_text, op=Op.TRIM, function=lambda text: text.strip(" "))),
    exp.Substring: ("this start length", _substring), exp.Left: ("this expression", _substring),
    exp.StartsWith: ("this expression", _starts_with), exp.Length: _of_one(_length), exp.Concat: _CONCAT,
    exp.DPipe: _CONCAT, exp.Like: _LIKE, exp.ILike: _LIKE, exp.Cast: _CAST, exp.TryCast: _CAST,
    exp.DateTrunc: _TRUNCATE, exp.TimestampTrunc: _TRUNCATE, exp.Extract: ("this expression", _extract),
    exp.Date: _of_one(_day), exp.DateDiff: ("this expression unit date_part_boundary", _date_diff),
    **{kind: _of_one(partial(extract_part, name=name)) for kind, name in _PART_FUNCTIONS.items()},
}  # fmt: skip
BY_NAME: dict[str, Function] = {"clamp": _clamp, "date_part": _date_part, "datepart": _date_part}


def function_list() -> str:
    """Return the allowed functions, for messages."""
    names = sorted({name_of(kind()) for kind in FUNCTIONS if issubclass(kind, exp.Func)} | {"CLAMP()"})
    return "There are " + ", ".join(names)
