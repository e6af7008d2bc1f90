"""Construction of typed expressions: kinds are converted, and the bounds of results are computed.

Claim    a code never leaves the bounds of its expression's kind, and no intermediate result reaches 2^52.
Because  each function computes the bounds of its result from those of its arguments, by interval
         arithmetic, and refuses larger ones.
Test     tests/sql/question/test_typed_expressions.py compares with evaluating all codes of small kinds

Functions of declared values are computed here, value by value, and not by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused, count_work

LARGEST = 1 << 52  # every code is smaller in absolute value
MOST_SIZE = 200_000  # parts of one expression
DEEPEST = 100
TRUTH = Truth()
_FOLDED: Mapping[Op, Callable[..., int | None]] = {
    Op.ADD: lambda _, a, b: a + b,
    Op.SUBTRACT: lambda _, a, b: a - b,
    Op.MULTIPLY: lambda _, a, b: a * b,
    Op.SCALE: lambda p, a: a * p,
    Op.ABS: lambda _, a: abs(a),
    Op.FLOOR_DIVIDE: lambda p, a: a // p,
    Op.MODULO: lambda p, a: a % p,
    Op.QUOTIENT: lambda p, a, b: a * p // b if b else None,
}


def is_null(expression: Expression) -> bool:
    """Return whether the expression is the constant NULL."""
    return isinstance(expression, Constant) and expression.value is None


def null_of(kind: Kind) -> Constant:
    """Return NULL of a kind."""
    return Constant(None, kind)


def number(value: Fraction | int) -> Constant:
    """Return a public number as a constant, with its own denominator as the step."""
    exact = Fraction(value)
    code = exact.numerator
    if max(abs(code), exact.denominator) >= LARGEST:
        raise Refused("a number is too large or has too many digits", "Write a shorter one")
    return Constant(code, Numeric(Fraction(1, exact.denominator), code, code))


def truth(value: bool | None) -> Constant:
    """Return a public truth as a constant."""
    return Constant(value, TRUTH)


def apply(op: Op, *args: Expression, kind: Kind = TRUTH, parameter: object = None) -> Apply:
    """Return an operation whose kind the caller knows. Raises Refused if it has too many parts."""
    made = Apply(op, tuple(args), kind, parameter)  # type: ignore[arg-type]
    count_work(1 + len(args) + (len(parameter) if isinstance(parameter, tuple) else 0))
    if made.size > MOST_SIZE or made.depth > DEEPEST:
        raise Refused("an expression has too many parts", "Compute in fewer steps")
    return made


def as_number(expression: Expression) -> Expression:
    """Return the expression as a number: truths are 1 and 0, declared whole numbers are themselves."""
    match expression.kind:
        case Numeric():
            return expression
        case Truth():
            whole = Numeric(Fraction(1), 0, 1)
            if isinstance(expression, Constant):
                return Constant(None if expression.value is None else int(expression.value), whole)
            return apply(Op.FROM_TRUTH, expression, kind=whole)
        case Choice(values) if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            whole = Numeric(Fraction(1), min(map(int, values)), max(map(int, values)))
            require_small_codes(whole)
            if isinstance(expression, Constant):
                code = expression.value
                return null_of(whole) if code is None else number(int(values[int(code)]))
            return _case_of_codes(expression, {int(value): [n] for n, value in enumerate(values)}, whole)
        case _ if is_null(expression):
            return null_of(Numeric(Fraction(1), 0, 0))
        case _:
            what = kind_in_words(expression.kind)
            raise Refused(f"{what} is not a number", "Use a column with bounds, or compare it")


def _case_of_codes(expression: Expression, cases: Mapping[int, Sequence[int]], kind: Kind) -> Expression:
    """Return the code of `kind` whose old codes contain that of the expression; NULL if none does."""
    args: list[Expression] = []
    for new, old in cases.items():
        args += [apply(Op.IN, expression, parameter=tuple(old)), Constant(new, kind)]
    return apply(Op.CASE, *args, null_of(kind), kind=kind)


def kind_in_words(kind: Kind) -> str:
    """Return the name of a kind for messages."""
    names: dict[type[object], str] = {
        Numeric: "a number", Choice: "a declared value", Moment: "a time", Period: "a calendar period",
        Truth: "a truth", Text: "a text", Person: "the unit",
    }  # fmt: skip
    return names[type(kind)]


def numeric(expression: Expression) -> Numeric:
    """Return the kind of an expression that is a number."""
    assert isinstance(expression.kind, Numeric)
    return expression.kind


def public_value(constant: Constant) -> Fraction:
    """Return the value of a public number, truth or declared whole number; 0 for NULL."""
    number = as_number(constant)
    assert isinstance(number, Constant)
    return int(number.value or 0) * numeric(number).step


def require_small_codes(kind: Numeric) -> None:
    """Refuse numbers whose codes, or the terms of their step, could reach 2^52."""
    sizes = [abs(end) for end in (kind.first, kind.last) if end is not None]
    if max([*sizes, kind.step.numerator, kind.step.denominator]) >= LARGEST:
        raise Refused("a number could become too large", "Use smaller bounds or a coarser step")


def _made(op: Op, *args: Expression, kind: Numeric, parameter: int | None = None) -> Expression:
    """Return an operation on numbers, computed at once if all arguments are public."""
    require_small_codes(kind)
    values = [arg.value for arg in args if isinstance(arg, Constant)]
    if len(values) < len(args):
        return apply(op, *args, kind=kind, parameter=parameter)
    value = None if None in values else _FOLDED[op](parameter, *values)
    end = 0 if value is None else value
    return Constant(value, Numeric(kind.step, end, end))


def rescaled(expression: Expression, step: Fraction) -> Expression:
    """Return the same number in smaller steps, which must divide its own."""
    kind = numeric(expression)
    factor = kind.step / step
    assert factor.denominator == 1
    times = factor.numerator
    if times == 1:
        return expression
    if not kind.is_bounded:
        raise Refused("a number without bounds can only be compared to whole numbers", "Bound it first")
    first, last = kind.bounds
    return _made(Op.SCALE, expression, kind=Numeric(step, first * times, last * times), parameter=times)


def _common_step(steps: Sequence[Fraction]) -> Fraction:
    """Return the greatest step that all steps are multiples of."""
    bottom = math.lcm(*[step.denominator for step in steps])
    top = math.gcd(*[int(step * bottom) for step in steps])
    return Fraction(top, bottom)


def on_one_grid(expressions: Sequence[Expression]) -> list[Expression]:
    """Return the expressions as numbers in the same steps."""
    numbers = [as_number(expression) for expression in expressions]
    step = _common_step(
        [numeric(number).step for number in numbers if not is_null(number)] or [Fraction(1)]
    )
    return [
        null_of(Numeric(step, 0, 0)) if is_null(number) else rescaled(number, step) for number in numbers
    ]


def _bounded(expression: Expression) -> tuple[int, int]:
    """Return the bounds of a number. Raises Refused if it has none."""
    kind = numeric(expression)
    if not kind.is_bounded:
        why = "a number without bounds cannot be used in arithmetic"
        raise Refused(why, "Bound it: GREATEST(low, LEAST(high, x))")
    return kind.bounds


def added(left: Expression, right: Expression, *, minus: bool = False) -> Expression:
    """Return left + right, or left - right if `minus`."""
    a, b = on_one_grid([left, right])
    (a0, a1), (b0, b1) = _bounded(a), _bounded(b)
    ends = (a0 - b1, a1 - b0) if minus else (a0 + b0, a1 + b1)
    return _made(Op.SUBTRACT if minus else Op.ADD, a, b, kind=Numeric(numeric(a).step, *ends))


def multiplied(left: Expression, right: Expression) -> Expression:
    """Return left * right. A public factor only changes the step of the other number."""
    a, b = as_number(left), as_number(right)
    for factor, other in ((a, b), (b, a)):
        if isinstance(factor, Constant) and factor.value:
            return scaled(other, public_value(factor))
    return product_of_codes(a, b)


def product_of_codes(a: Expression, b: Expression) -> Expression:
    """Return a * b such that the code of the product is the product of the codes."""
    corners = [left * right for left in _bounded(a) for right in _bounded(b)]
    step = numeric(a).step * numeric(b).step
    return _made(Op.MULTIPLY, a, b, kind=Numeric(step, min(corners), max(corners)))


def scaled(expression: Expression, factor: Fraction) -> Expression:
    """Return a number times a public factor (not 0): its step changes, and its codes only in their sign."""
    first, last = _bounded(expression)
    step = numeric(expression).step * abs(factor)
    if factor > 0:
        kind = Numeric(step, first, last)
        require_small_codes(kind)
        return with_kind(expression, kind)
    return _made(Op.SCALE, expression, kind=Numeric(step, -last, -first), parameter=-1)


def divided(top: Expression, bottom: Expression) -> Expression:
    """Return top / bottom for a public bottom, or NULL if the bottom is 0."""
    if not isinstance(bottom, Constant) or bottom.value is None:
        raise Refused("a quotient of columns has no steps", "Write ROUND(a / b, 2): it is rounded down")
    if not bottom.value:
        return null_of(Numeric(Fraction(1), 0, 0))
    return scaled(top, 1 / public_value(bottom))


def with_kind(expression: Expression, kind: Kind) -> Expression:
    """Return an expression with the same codes and another kind or wider bounds."""
    if expression.kind == kind:
        return expression
    if isinstance(expression, Constant):
        return Constant(expression.value, kind)
    if isinstance(expression, Reference):
        return apply(Op.SCALE, expression, kind=kind, parameter=1)  # the column itself keeps its kind
    return Apply(expression.op, expression.args, kind, expression.parameter)


def floored(expression: Expression, step: Fraction, *, add: Fraction = Fraction(0)) -> Expression:
    """Return the greatest multiple of `step` that is not above the number + `add`."""
    if add:
        expression = added(expression, number(add))
    first, last = _bounded(expression)
    ratio = numeric(expression).step / step
    kind = Numeric(step, math.floor(first * ratio), math.floor(last * ratio))
    if ratio.denominator == 1:
        return rescaled(expression, step)
    inner = expression
    if ratio.numerator != 1:
        grown = Numeric(numeric(expression).step, first * ratio.numerator, last * ratio.numerator)
        inner = _made(Op.SCALE, expression, kind=grown, parameter=ratio.numerator)
    return _made(Op.FLOOR_DIVIDE, inner, kind=kind, parameter=ratio.denominator)


def rounded(expression: Expression, step: Fraction) -> Expression:
    """Return the nearest multiple of `step`; halves are rounded away from 0."""
    if (numeric(expression).step / step).denominator == 1:
        return rescaled(expression, step)
    up = floored(expression, step, add=step / 2)
    first, last = _bounded(expression)
    if first >= 0:
        return up
    down = scaled(floored(scaled(expression, Fraction(-1)), step, add=step / 2), Fraction(-1))
    if last <= 0:
        return down
    ends = [end for side in (down, up) for end in _bounded(side)]
    below = apply(Op.LT, expression, Constant(0, Numeric(numeric(expression).step, 0, 0)))
    return apply(Op.CASE, below, down, up, kind=Numeric(step, min(ends), max(ends)))


def remainder(expression: Expression, by: Fraction) -> Expression:
    """Return the remainder of a division by a public positive number: from 0 to below that number."""
    a, b = on_one_grid([expression, number(by)])
    first, last = _bounded(a)
    assert isinstance(b, Constant)
    divisor = int(b.value or 0)
    is_one_stretch = first // divisor == last // divisor  # the remainder rises with the number
    ends = (first % divisor, last % divisor) if is_one_stretch else (0, divisor - 1)
    return _made(Op.MODULO, a, kind=Numeric(numeric(a).step, *ends), parameter=divisor)


def quotient(top: Expression, bottom: Expression, step: Fraction) -> Expression:
    """Return top / bottom rounded down to a multiple of `step`, or NULL where the bottom is 0."""
    a, b = on_one_grid([top, bottom])
    ends, (b0, b1) = _bounded(a), _bounded(b)
    if step.numerator != 1:
        raise Refused("a quotient can be rounded to 1, 0.1, 0.01 … only", "Write ROUND(a / b, 2)")
    times = step.denominator
    largest = max(map(abs, ends)) * times + 1  # the greatest intermediate result
    require_small_codes(Numeric(step, -largest, largest))
    # Codes of the bottom are whole: on either side of 0 the quotient has its extremes at the ends.
    bottoms = [
        divisor for side in ((max(b0, 1), b1), (b0, min(b1, -1))) if side[0] <= side[1] for divisor in side
    ]
    quotients = [end * times // divisor for end in ends for divisor in bottoms] or [0]
    return _made(Op.QUOTIENT, a, b, kind=Numeric(step, min(quotients), max(quotients)), parameter=times)


def extreme(op: Op, expressions: Sequence[Expression]) -> Expression:
    """Return the least (Op.LEAST) or greatest of the arguments that are not NULL."""
    numbers = on_one_grid(expressions)
    kinds = [numeric(number) for number in numbers if not is_null(number)]
    if not kinds:
        return numbers[0]
    first = joint_bound(min, [kind.first for kind in kinds])
    last = joint_bound(max, [kind.last for kind in kinds])
    # NULL arguments are ignored, so the bound of a column limits the result only together with those of
    # all others. A constant is never NULL: it alone limits the result.
    constants = [
        int(number.value) for number in numbers if isinstance(number, Constant) and number.value is not None
    ]
    if constants and op is Op.LEAST:
        last = min(constants)
        first = None if first is None else min(first, last)
    elif constants:
        first = max(constants)
        last = None if last is None else max(first, last)
    return apply(op, *numbers, kind=Numeric(kinds[0].step, first, last))


def joint_bound(choose: Callable[[list[int]], int], ends: Sequence[int | None]) -> int | None:
    """Return the least or greatest of the bounds, or None if one is missing."""
    known = [end for end in ends if end is not None]
    return choose(known) if len(known) == len(ends) else None


def absolute(expression: Expression) -> Expression:
    """Return the absolute value of a number."""
    number = as_number(expression)
    first, last = _bounded(number)
    least = 0 if first <= 0 <= last else min(abs(first), abs(last))
    return _made(Op.ABS, number, kind=Numeric(numeric(number).step, least, max(abs(first), abs(last))))


def as_text(expression: Expression) -> Expression:
    """Return the expression as a text."""
    match expression.kind:
        case Text():
            return expression
        case Choice(values) if all(isinstance(value, str) for value in values):
            if isinstance(expression, Constant):
                code = expression.value
                return Constant(None if code is None else str(values[int(code)]), Text())
            return apply(Op.DECODE, expression, kind=Text(), parameter=tuple(map(str, values)))
        case _:
            raise Refused(f"{kind_in_words(expression.kind)} is not a text", "Use a column of texts")


MOST_MAPPED = 2_000  # values of a Choice that are mapped one by one


def mapped(expression: Expression, values: Sequence[str | int | bool | None]) -> Expression:
    """Return a declared value turned into another.

    `values` are the new values of all codes, None for NULL.
    """
    kept = tuple(dict.fromkeys(value for value in values if value is not None))
    return recoded(expression, values, Choice(kept)) if kept else null_of(Choice(("",)))


def recoded(expression: Expression, values: Sequence[str | int | bool | None], kind: Choice) -> Expression:
    """Return a declared value with the codes of another kind: `values` are the new values of all codes."""
    count_work(len(values))
    position = {value: code for code, value in enumerate(kind.values)}
    if isinstance(expression, Constant):
        new = None if expression.value is None else values[int(expression.value)]
        return Constant(None if new is None else position[new], kind)
    if list(values) == list(kind.values[: len(values)]):
        return with_kind(expression, kind)
    groups: dict[int, list[int]] = {}
    for code, value in enumerate(values):
        if value is not None:
            groups.setdefault(position[value], []).append(code)
    return _case_of_codes(expression, groups, kind)


def mapped_text(
    expression: Expression, op: Op, function: Callable[[str], str], parameter: object = None
) -> Expression:
    """Return a function of a text.

    It is computed here for declared values, and by the engine for others.
    """
    match expression.kind:
        case Choice(values) if len(values) <= MOST_MAPPED and all(isinstance(v, str) for v in values):
            count_work(len(values))
            return mapped(expression, [function(str(value)) for value in values])
        case _:
            text = as_text(expression)
            if isinstance(text, Constant):
                return Constant(None if text.value is None else function(str(text.value)), Text())
            return apply(op, text, kind=Text(), parameter=parameter)
