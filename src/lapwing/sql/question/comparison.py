"""Conversion of values to a common kind: for comparisons, CASE, COALESCE and UNION ALL."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.question.expression import Apply, Constant, Expression, Op
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.typed_expressions import (
    MOST_MAPPED,
    apply,
    as_number,
    as_text,
    is_null,
    joint_bound,
    kind_in_words,
    null_of,
    on_one_grid,
    public_value,
    recoded,
    truth,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND, _LAST_SECOND = (
    (end.replace(tzinfo=UTC, microsecond=0) - _EPOCH) // timedelta(seconds=1)
    for end in (datetime.min, datetime.max)
)

_TESTS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq, Op.NE: operator.ne, Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt,
    Op.GE: operator.ge,
}  # fmt: skip
_MIRRORED = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE, Op.EQ: Op.EQ, Op.NE: Op.NE}


def compared(op: Op, left: Expression, right: Expression) -> Expression:
    """Return `left op right`, compared by the values that the codes stand for."""
    if is_null(left) or is_null(right):
        return truth(None)
    if isinstance(left, Constant) and not isinstance(right, Constant):
        return compared(_MIRRORED[op], right, left)
    if isinstance(left.kind, Person) or isinstance(right.kind, Person):
        raise Refused("the unit cannot be compared", "Count it, group a sub-query by it, or join on it")
    return _compared(op, left, right)


def _compared(op: Op, left: Expression, right: Expression) -> Expression:  # noqa: PLR0911 (pairs of kinds)
    match left.kind, right.kind:
        case (Choice(), _) if isinstance(right, Constant):
            return _choice_and_constant(op, left, right)
        case (Choice(mine), Choice(other)) if mine == other and op in (Op.EQ, Op.NE):
            return apply(op, left, right)
        case (Moment() | Period(), _) if isinstance(right, Constant) and isinstance(right.kind, Text):
            return _time_and_seconds(op, left, seconds_of(str(right.value)))
        case (Moment() | Period(), Moment()) if isinstance(right, Constant):
            assert isinstance(right.value, int)
            return _time_and_seconds(op, left, right.kind.start + right.value * right.kind.seconds)
        case (Moment(), Moment()):
            return apply(op, *_on_one_clock([left, right]))
        case (Period(a), Period(b)) if a == b:
            return apply(op, left, right)
        case (Truth(), Truth()):
            return apply(op, as_number(left), as_number(right))
        case (Numeric() | Choice() | Truth(), Numeric() | Choice() | Truth()) if _are_numbers(left, right):
            return apply(op, *on_one_grid([left, right]))
        case (Text() | Choice(), Text() | Choice()):
            return apply(op, as_text(left), as_text(right))
    first, second = kind_in_words(left.kind), kind_in_words(right.kind)
    raise Refused(f"{first} cannot be compared to {second}", "Compare values of the same type")


def _are_numbers(*expressions: Expression) -> bool:
    return all(
        isinstance(expression.kind, Numeric | Truth)
        or (isinstance(expression.kind, Choice) and all(isinstance(v, int) for v in expression.kind.values))
        for expression in expressions
    )


def _choice_and_constant(op: Op, left: Expression, right: Constant) -> Expression:
    assert isinstance(left.kind, Choice)
    values = left.kind.values
    wanted: object = right.value
    if isinstance(right.kind, Choice):
        wanted = right.kind.values[int(right.value or 0)]
    elif isinstance(right.kind, Numeric | Truth):
        wanted = public_value(right)
    if not isinstance(right.kind, Choice | Numeric | Truth | Text) or any(
        isinstance(value, str) is not isinstance(wanted, str) for value in values
    ):
        raise Refused("declared values are compared to another type", "Compare values of the same type")
    if op in (Op.EQ, Op.NE) and wanted not in values:
        raise Refused(f"{_quoted(wanted)} is not a declared value", f"Declared are {_listed(values)}")
    codes = tuple(code for code, value in enumerate(values) if _TESTS[op](value, wanted))
    return apply(Op.IN, left, parameter=codes)


def _quoted(value: object) -> str:
    return f"'{value[:60]}'" if isinstance(value, str) else str(value)


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(_quoted(value) for value in values[:12])
    return f"{shown} and {len(values) - 12} more" if len(values) > 12 else shown


def is_in(left: Expression, options: Sequence[Expression]) -> Expression:
    """Return whether the left expression equals one of the options."""
    known = [option for option in options if not is_null(option)]
    tests = [compared(Op.EQ, left, option) for option in known]
    some = apply(Op.OR, *(tests or [truth(None)]))  # IN of NULLs alone is NULL
    if isinstance(left, Constant) or not all(isinstance(option, Constant) for option in known):
        is_member: Expression = some
    elif isinstance(left.kind, Text):
        texts = [str(as_text(option).value) for option in known if isinstance(option, Constant)]  # type: ignore[union-attr]
        is_member = apply(Op.IN, left, parameter=tuple(dict.fromkeys(texts)))
    elif isinstance(left.kind, Numeric):
        # A number between the steps has no code: no value equals it.
        codes = [public_value(option) / left.kind.step for option in known if isinstance(option, Constant)]
        whole = {code.numerator for code in codes if code.denominator == 1}
        is_member = apply(Op.IN, left, parameter=tuple(sorted(whole)))
    elif isinstance(left.kind, Choice | Moment | Period):
        is_member = apply(Op.IN, left, parameter=tuple(sorted({c for test in tests for c in _codes(test)})))
    else:
        is_member = some
    return is_member if len(known) == len(options) else apply(Op.OR, is_member, truth(None))


def _codes(test: Expression) -> Sequence[int]:
    """Return the codes that pass a test of equality to a constant."""
    assert isinstance(test, Apply)
    if test.op is Op.IN and isinstance(test.parameter, tuple):
        return [int(code) for code in test.parameter]
    other = test.args[1]
    assert isinstance(other, Constant)
    return [int(other.value or 0)]


def seconds_of(text: str) -> int:
    """Return the seconds since 1970 of a date or time in ISO form."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text.strip()):
            at = datetime.combine(date.fromisoformat(text.strip()), datetime.min.time(), UTC)
        else:
            at = datetime.fromisoformat(text.strip())
            at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    except ValueError:
        instead = "Write it like '2026-03-31' or '2026-03-31 12:00:00'"
        raise Refused("a time is not in ISO form", instead) from None
    seconds, rest = divmod(at - _EPOCH, timedelta(seconds=1))
    if rest or not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise Refused("a time has parts of a second, or lies before year 1", "Write whole seconds")
    return seconds


def moment_of(text: str) -> Constant:
    """Return a public time, given in ISO form, as a constant."""
    seconds = seconds_of(text)
    every = 86400 if seconds % 86400 == 0 else 1
    return Constant(seconds // every, Moment(every, seconds // every, seconds // every))


def _time_and_seconds(op: Op, left: Expression, seconds: int) -> Expression:
    """Return the exact comparison of a time with a public time, in seconds since 1970."""
    kind = left.kind
    if isinstance(kind, Moment):
        below, over = divmod(seconds - kind.start, kind.seconds)
    else:
        assert isinstance(kind, Period)
        day = _EPOCH + timedelta(seconds=seconds)
        below, over = divmod((day.year - 1970) * 12 + day.month - 1, kind.months)
        over += (day - datetime(day.year, day.month, 1, tzinfo=UTC)).total_seconds() > 0
    above = below + bool(over)
    if op in (Op.EQ, Op.NE) and over:
        return apply(op, left, Constant(kind.first - 1, kind))  # no code is that
    code = above if op in (Op.LT, Op.GE) else below
    return apply(op, left, Constant(min(max(code, kind.first - 1), kind.last + 1), kind))


def require_a_time(kind: Moment) -> None:
    """Refuse times that could lie before year 1 or after year 9999."""
    first, last = (kind.start + code * kind.seconds for code in (kind.first, kind.last))
    if first < _FIRST_SECOND or last > _LAST_SECOND:
        raise Refused("a time could lie before year 1 or after 9999", "Use a shorter interval")


def _on_one_clock(expressions: Sequence[Expression]) -> list[Expression]:
    """Return times in the same steps."""
    kinds = [expression.kind for expression in expressions if isinstance(expression.kind, Moment)]
    if len({kind.start for kind in kinds}) > 1:
        raise Refused("weeks cannot be compared to other times", "Compare dates")
    seconds = math.gcd(*[kind.seconds for kind in kinds])
    on_clock: list[Expression] = []
    for expression, kind in zip(expressions, kinds, strict=True):
        times = kind.seconds // seconds
        finer = Moment(seconds, kind.first * times, kind.last * times, kind.start)
        if times == 1:
            on_clock.append(expression)
        elif isinstance(expression, Constant):
            on_clock.append(Constant(int(expression.value or 0) * times, finer))
        else:
            on_clock.append(apply(Op.SCALE, expression, kind=finer, parameter=times))
    return on_clock


def unified(expressions: Sequence[Expression]) -> list[Expression]:
    """Return the expressions with one kind, except for its bounds. `joint_kind` gives the bounds of all."""
    known = [expression for expression in expressions if not is_null(expression)]
    if not known:
        return list(expressions)
    same = _of_one_kind(known)
    null = null_of(joint_kind(same))
    waiting = iter(same)
    return [null if is_null(expression) else next(waiting) for expression in expressions]


def _of_one_kind(known: Sequence[Expression]) -> list[Expression]:
    kinds = [expression.kind for expression in known]
    if any(isinstance(kind, Person) for kind in kinds):
        raise Refused("the unit cannot be used in an expression", "Count it, or group a sub-query by it")
    if all(isinstance(kind, Truth) for kind in kinds):
        return list(known)
    if _are_numbers(*known) and not all(isinstance(kind, Choice) for kind in kinds):
        return on_one_grid(known)
    if all(isinstance(kind, Text | Choice) for kind in kinds):
        return _texts(known)
    if all(isinstance(kind, Moment) for kind in kinds):
        return _on_one_clock(known)
    months = {kind.months if isinstance(kind, Period) else 0 for kind in kinds}
    if len(months) == 1 and 0 not in months:
        return list(known)
    raise Refused("the branches are of different types", "Give all of them the same type")


def joint_kind(unified_expressions: Sequence[Expression]) -> Kind:
    """Return the kind of unified expressions, with bounds that hold for all of them."""
    kinds = [expression.kind for expression in unified_expressions if not is_null(expression)]
    ordered = [kind for kind in kinds if isinstance(kind, Numeric | Moment | Period)]  # all or none
    if not ordered:
        return kinds[0] if kinds else Text()
    first = joint_bound(min, [kind.first for kind in ordered])
    last = joint_bound(max, [kind.last for kind in ordered])
    if isinstance(ordered[0], Numeric):
        return Numeric(ordered[0].step, first, last)
    assert first is not None
    assert last is not None
    return replace(ordered[0], first=first, last=last)


def _texts(known: Sequence[Expression]) -> list[Expression]:
    """Return texts of one kind: declared values if all are declared or constants, else plain texts."""
    values: dict[str | int | bool, None] = {}
    if isinstance(known[0].kind, Choice) and all(expression.kind == known[0].kind for expression in known):
        return list(known)
    for expression in known:
        if isinstance(expression.kind, Choice):
            values |= dict.fromkeys(expression.kind.values)
        elif isinstance(expression, Constant):
            values[str(expression.value)] = None
    if len({isinstance(value, str) for value in values}) > 1:
        raise Refused("the branches are of different types", "Give all of them the same type")
    declared = all(
        isinstance(expression.kind, Choice) or isinstance(expression, Constant) for expression in known
    )
    if not declared or len(values) > MOST_MAPPED:
        return [as_text(expression) for expression in known]
    kind = Choice(tuple(values))
    return [_recoded(expression, kind) for expression in known]


def _recoded(expression: Expression, kind: Choice) -> Expression:
    if isinstance(expression.kind, Choice):
        return recoded(expression, expression.kind.values, kind)
    assert isinstance(expression, Constant)
    return Constant(kind.values.index(str(expression.value)), kind)
