"""Functions of times: parts, beginnings of periods, differences. All of them total."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sqlglot import exp

from lapwing.query.binding.build import apply
from lapwing.query.binding.refused import Refused, only, refused
from lapwing.query.binding.unify import moment_of, require_a_time
from lapwing.query.language.expression import Constant, Expression, Op
from lapwing.query.language.kinds import MONTHS, SECONDS, Moment, Number, Period, Text

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
    """A public text stands for the time that it names."""
    if isinstance(expression, Constant) and isinstance(expression.value, str):
        return moment_of(expression.value) if isinstance(expression.kind, Text) else expression
    return expression


def truncated(value: Expression, unit: str) -> Expression:
    """DATE_TRUNC: the beginning of the month, week, hour … that a time lies in."""
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
        Op.ADD, value, Constant(shift, Number(Fraction(1), shift, shift)),
        kind=Number(Fraction(1), kind.first + shift, kind.last + shift),
    )  # fmt: skip
    whole = Moment(seconds, (kind.first + shift) // by, (kind.last + shift) // by, start)
    return apply(Op.FLOOR_DIVIDE, moved if shift else value, kind=whole, parameter=by)


def _months(day: Any) -> int:
    return int((day.year - 1970) * 12 + day.month - 1)


def part(value: Expression, name: str) -> Expression:
    """EXTRACT: a part of a time as a number."""
    kind = _moment(value)
    name = _PART_NAMES.get(name, name)
    if name not in _PARTS:
        raise Refused(
            "that part of a time is not known",
            f"Use one of {', '.join(_PARTS)} (Monday is 1, as for isodow)",
        )
    if name in ("hour", "minute", "second") and kind.seconds % SECONDS["day"] == 0:
        raise Refused("a date has no hours", "Use a column of times")
    bounds = _PARTS[name] or (kind.value(kind.first).year, kind.value(kind.last).year)
    if kind.start:
        raise Refused("weeks have no parts", "Use the date itself")
    return apply(Op.PART, value, kind=Number(Fraction(1), *bounds), parameter=name)


def truncate_function(bind: Bind, node: exp.Expr) -> Expression:
    """DATE_TRUNC('month', x)."""
    only(node, "this", "unit", "input_type_preserved")
    return truncated(bind(node.this), node.args["unit"].name.lower())


def extract_function(bind: Bind, node: exp.Extract) -> Expression:
    """EXTRACT(year FROM x)."""
    only(node, "this", "expression")
    return part(bind(node.expression), node.this.name.lower())


def part_function(name: str) -> Function:
    """YEAR(x) and the like."""

    def function(bind: Bind, node: exp.Expr) -> Expression:
        only(node, "this")
        return part(bind(node.this), name)

    return function


def date_function(bind: Bind, node: exp.Date) -> Expression:
    """DATE(x): the day."""
    only(node, "this")
    return truncated(_as_moment(bind(node.this)), "day")


def date_part_function(bind: Bind, node: exp.Anonymous) -> Expression:
    """DATE_PART('year', x)."""
    if len(node.expressions) != 2 or not node.expressions[0].is_string:
        raise refused(node, "DATE_PART needs a name and a time", "Write DATE_PART('year', x)")
    return part(bind(node.expressions[1]), node.expressions[0].name.lower())


def shifted(value: Expression, interval: exp.Interval, *, minus: bool) -> Expression:
    """A time plus or minus a public number of days, hours …"""
    value = _as_moment(value)
    kind = _moment(value)
    unit = str(interval.args["unit"]).lower().rstrip("s") if interval.args.get("unit") else ""
    only(interval, "this", "unit")
    count = interval.this.name if isinstance(interval.this, exp.Literal) else ""
    if unit not in SECONDS or not re.fullmatch(r"-?\d{1,9}", count):
        raise refused(
            interval, "this interval is not possible", "Use whole days, weeks, hours, minutes or seconds"
        )
    seconds = int(count) * SECONDS[unit] * (-1 if minus else 1)
    if seconds % kind.seconds:
        raise refused(interval, "the interval is finer than the time's own precision", "Use a longer one")
    by = seconds // kind.seconds
    moved = Moment(kind.seconds, kind.first + by, kind.last + by, kind.start)
    require_a_time(moved)
    if isinstance(value, Constant):
        return Constant(None if value.value is None else int(value.value) + by, moved)
    return apply(Op.ADD, value, Constant(by, Number(Fraction(1), by, by)), kind=moved)


def days_between(left: Expression, right: Expression) -> Expression:
    """left - right in days."""
    left, right = _as_moment(left), _as_moment(right)
    a, b = _moment(left), _moment(right)
    if (a.seconds, a.start) != (b.seconds, b.start):
        raise Refused("times of different precision cannot be subtracted", "Truncate them to days first")
    days = Fraction(a.seconds, SECONDS["day"])
    return apply(Op.SUBTRACT, left, right, kind=Number(days, a.first - b.last, a.last - b.first))


def date_diff_function(bind: Bind, node: exp.DateDiff) -> Expression:
    """DATEDIFF('day', a, b)."""
    only(node, "this", "expression", "unit", "date_part_boundary")
    if node.args.get("unit") is None or node.args["unit"].name.lower() != "day":
        raise refused(node, "differences are in days", "Write DATEDIFF('day', a, b)")
    ends = [truncated(_as_moment(bind(one)), "day") for one in (node.this, node.expression)]
    return days_between(*ends)


TIME_FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.DateTrunc: truncate_function,
    exp.TimestampTrunc: truncate_function,
    exp.Extract: extract_function,
    exp.Date: date_function,
    exp.DateDiff: date_diff_function,
    exp.Year: part_function("year"),
    exp.Quarter: part_function("quarter"),
    exp.Month: part_function("month"),
    exp.Day: part_function("day"),
    exp.DayOfMonth: part_function("day"),
    exp.DayOfYear: part_function("dayofyear"),
    exp.DayOfWeekIso: part_function("dayofweek"),
    exp.Hour: part_function("hour"),
    exp.Minute: part_function("minute"),
    exp.Second: part_function("second"),
}
