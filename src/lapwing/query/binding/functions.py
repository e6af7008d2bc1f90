"""The functions that may be used on private rows: an allow-list, each of them total."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from lapwing.query.binding.build import (
    absolute,
    added,
    apply,
    as_number,
    as_text,
    extreme,
    floored,
    is_null,
    number,
    quotient,
    rounded,
)
from lapwing.query.binding.choices import MOST_MAPPED, mapped, mapped_text
from lapwing.query.binding.effort import spend
from lapwing.query.binding.refused import name_of, only, refused
from lapwing.query.binding.times import (
    TIME_FUNCTIONS,
    Bind,
    Function,
    date_part_function,
    truncated,
)
from lapwing.query.binding.unify import moment_of
from lapwing.query.language.expression import Constant, Expression, Op
from lapwing.query.language.kinds import Choice, Moment, Number, Text, Truth

FINEST = 9  # decimals


def _whole(bind: Bind, node: exp.Expr | None, what: str) -> int:
    """A public whole number."""
    found = bind(node) if node is not None else None
    if isinstance(found, Constant) and isinstance(found.kind, Number) and found.kind.step == 1:
        return int(found.value or 0)
    raise refused(node, f"{what} must be a public whole number", "Write it in digits")


def _round(bind: Bind, node: exp.Round) -> Expression:
    only(node, "this", "decimals")
    decimals = _whole(bind, node.args["decimals"], "the decimals") if node.args.get("decimals") else 0
    if not -FINEST <= decimals <= FINEST:
        raise refused(node, "that many decimals cannot be rounded to", f"Use at most {FINEST}")
    step = Fraction(10) ** -decimals
    value = _divided(bind, node.this, step)
    return rounded(as_number(bind(node.this)), step) if value is None else value


def _floor(bind: Bind, node: exp.Floor) -> Expression:
    only(node, "this")
    value = _divided(bind, node.this, Fraction(1))
    return floored(as_number(bind(node.this)), Fraction(1)) if value is None else value


def _divided(bind: Bind, node: exp.Expr, step: Fraction) -> Expression | None:
    """A quotient of columns, rounded down; None for all else."""
    inner = node.unnest()
    if not isinstance(inner, exp.Div):
        return None
    only(inner, "this", "expression", "typed", "safe")
    bottom = as_number(bind(inner.expression))
    return None if isinstance(bottom, Constant) else quotient(as_number(bind(inner.this)), bottom, step)


def _ceil(bind: Bind, node: exp.Ceil) -> Expression:
    only(node, "this")
    value = as_number(bind(node.this))
    assert isinstance(value.kind, Number)
    step = value.kind.step
    # ⌈k·step⌉ is the greatest whole number at most k·step + 1 - (the finest difference there is).
    finest = Fraction(1, step.denominator)
    return floored(value, Fraction(1), add=1 - finest)


def _bucket(bind: Bind, node: exp.WidthBucket) -> Expression:
    """WIDTH_BUCKET(x, low, high, n): 0 below, n + 1 from high on."""
    only(node, "this", "min_value", "max_value", "num_buckets")
    low, high = (as_number(bind(node.args[name])) for name in ("min_value", "max_value"))
    count = _whole(bind, node.args["num_buckets"], "the number of buckets")
    if not isinstance(low, Constant) or not isinstance(high, Constant) or not 0 < count < 1 << 20:
        raise refused(node, "buckets must be public", "Write WIDTH_BUCKET(x, 0, 100, 10)")
    assert isinstance(low.kind, Number)
    assert isinstance(high.kind, Number)
    start, end = int(low.value or 0) * low.kind.step, int(high.value or 0) * high.kind.step
    if start >= end:
        raise refused(node, "the first bucket must begin below the end of the last", "Swap them")
    from_start = added(as_number(bind(node.this)), number(start), minus=True)
    width = (end - start) / count
    bucket = floored(from_start, width)
    assert isinstance(bucket.kind, Number)
    plain = Number(Fraction(1), bucket.kind.first, bucket.kind.last)
    counted = apply(Op.SCALE, bucket, kind=plain, parameter=1)
    inside = extreme(Op.GREATEST, [extreme(Op.LEAST, [counted, number(count)]), number(-1)])
    return apply(
        Op.COALESCE, _known_only(counted, added(inside, number(1))), kind=Number(Fraction(1), 0, count + 1)
    )


def _known_only(wanted: Expression, value: Expression) -> Expression:
    """The value, unless `wanted` is unknown: LEAST and GREATEST pass over what is unknown."""
    null = Constant(None, value.kind)
    return apply(Op.CASE, apply(Op.IS_NULL, wanted), null, value, kind=value.kind)


def _clamp(bind: Bind, node: exp.Anonymous) -> Expression:
    """CLAMP(x, low, high), unknown where x is."""
    if len(node.expressions) != 3:
        raise refused(node, "CLAMP needs three arguments", "Write CLAMP(x, low, high)")
    value, low, high = (as_number(bind(one)) for one in node.expressions)
    inside = extreme(Op.GREATEST, [extreme(Op.LEAST, [value, high]), low])
    return _known_only(value, inside)


def _extreme(op: Op) -> Function:
    def function(bind: Bind, node: exp.Expr) -> Expression:
        only(node, "this", "expressions", "ignore_nulls")
        return extreme(op, [bind(one) for one in (node.this, *node.expressions)])

    return function


def _abs(bind: Bind, node: exp.Abs) -> Expression:
    only(node, "this")
    return absolute(bind(node.this))


# Text


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def ascii_lower(text: str) -> str:
    """As the engines do it: only ASCII letters."""
    return text.translate(_LOWER)


def ascii_upper(text: str) -> str:
    """As the engines do it: only ASCII letters."""
    return text.translate(_UPPER)


def _text(op: Op, function: Callable[[str], str]) -> Function:
    def applied(bind: Bind, node: exp.Expr) -> Expression:
        only(node, "this")
        return mapped_text(bind(node.this), op, function)

    return applied


def _substring(bind: Bind, node: exp.Expr) -> Expression:
    if isinstance(node, exp.Left):
        only(node, "this", "expression")
        start, length = 1, _whole(bind, node.expression, "the length")
    else:
        only(node, "this", "start", "length")
        start = _whole(bind, node.args.get("start"), "the start")
        length = _whole(bind, node.args["length"], "the length") if node.args.get("length") else 1 << 20
    if start < 1 or length < 0:
        raise refused(node, "a part of a text begins at 1 or later", "Write SUBSTRING(x, 1, 3)")
    length = min(length, 1 << 20)
    return mapped_text(
        bind(node.this), Op.SUBSTRING, lambda text: text[start - 1 : start - 1 + length], (start, length)
    )


def _length(bind: Bind, node: exp.Length) -> Expression:
    only(node, "this")
    value = bind(node.this)
    if isinstance(value.kind, Choice) and len(value.kind.values) <= MOST_MAPPED:
        lengths = [len(str(text)) for text in value.kind.values]
        return as_number(mapped(value, list(lengths)))
    return apply(Op.LENGTH, as_text(value), kind=Number(Fraction(1), None, None))


def _concat(bind: Bind, node: exp.Expr) -> Expression:
    only(node, "this", "expression", "expressions", "safe", "coalesce")
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else list(node.expressions)
    texts = [as_text(bind(one)) for one in parts]
    if node.args.get("coalesce"):  # CONCAT passes over what is unknown, || does not
        texts = [apply(Op.COALESCE, text, Constant("", Text()), kind=Text()) for text in texts]
    return apply(Op.CONCAT, *texts, kind=Text())


def _like(bind: Bind, node: exp.Like | exp.ILike) -> Expression:
    """LIKE, and ILIKE for ASCII letters."""
    only(node, "this", "expression", "negate")
    found = _matched(bind, node)
    return apply(Op.NOT, found) if node.args.get("negate") else found


def _matched(bind: Bind, node: exp.Like | exp.ILike) -> Expression:
    pattern = bind(node.expression)
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        raise refused(node, "LIKE needs a public pattern", "Write it between quotes")
    value, text = bind(node.this), pattern.value
    fold: Callable[[str], str] = ascii_lower if isinstance(node, exp.ILike) else str
    text = fold(text)
    if isinstance(value.kind, Choice):
        spend(len(value.kind.values))
        codes = tuple(i for i, one in enumerate(value.kind.values) if is_like(fold(str(one)), text))
        return apply(Op.IN, value, parameter=codes)
    if isinstance(node, exp.ILike):
        return apply(Op.LIKE, apply(Op.LOWER, as_text(value), kind=Text()), parameter=text)
    return apply(Op.LIKE, as_text(value), parameter=text)


def is_like(text: str, pattern: str) -> bool:
    """Tell whether a text matches a pattern of LIKE.

    It takes time of text times pattern, since only the last % is ever gone back to.
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
    only(node, "this", "expression")
    start = bind(node.expression)
    if not isinstance(start, Constant) or not isinstance(start.value, str):
        raise refused(node, "STARTS_WITH needs a public text", "Write it between quotes")
    value, text = bind(node.this), start.value
    if isinstance(value.kind, Choice):
        codes = tuple(i for i, one in enumerate(value.kind.values) if str(one).startswith(text))
        return apply(Op.IN, value, parameter=codes)
    part = apply(Op.SUBSTRING, as_text(value), kind=Text(), parameter=(1, len(text)))
    return apply(Op.EQ, part, Constant(text, Text()))


def _cast(bind: Bind, node: exp.Cast) -> Expression:  # noqa: PLR0911 (a case for each type)
    """What cannot be read becomes unknown: no row can cause an error."""
    only(node, "this", "to", "safe", "_type", "action")
    to = node.to
    if (
        isinstance(node.this, exp.Literal)
        and node.this.is_string
        and to.is_type(*exp.DataType.TEMPORAL_TYPES)
    ):
        text = node.this.name.strip()
        return moment_of(text[:10] if to.is_type("date") else text)
    value = bind(node.this)
    if is_null(value):
        return value
    if to.is_type(*exp.DataType.INTEGER_TYPES):
        if isinstance(value.kind, Text):
            return apply(Op.PARSE_WHOLE, value, kind=Number(Fraction(1), None, None))
        return rounded(as_number(value), Fraction(1))
    if to.is_type(*exp.DataType.NUMERIC_TYPES) and not isinstance(value.kind, Text):
        return as_number(value)
    if to.is_type(*exp.DataType.TEXT_TYPES) and isinstance(value.kind, Text | Choice):
        return as_text(value)
    if to.is_type("date") and isinstance(value.kind, Moment):
        return truncated(value, "day")
    if to.is_type("boolean") and isinstance(value.kind, Truth):
        return value
    raise refused(node, f"CAST to {to.sql()[:40]} is not possible here", "Use the column as it is declared")


FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Round: _round, exp.Floor: _floor, exp.Ceil: _ceil, exp.WidthBucket: _bucket, exp.Abs: _abs,
    exp.Least: _extreme(Op.LEAST), exp.Greatest: _extreme(Op.GREATEST),
    exp.Lower: _text(Op.LOWER, ascii_lower), exp.Upper: _text(Op.UPPER, ascii_upper),
    exp.Trim: _text(Op.TRIM, lambda text: text.strip(" ")),
    exp.Substring: _substring, exp.Left: _substring, exp.Length: _length, exp.Concat: _concat,
    exp.DPipe: _concat, exp.Like: _like, exp.ILike: _like, exp.StartsWith: _starts_with,
    exp.Cast: _cast, exp.TryCast: _cast,
    **TIME_FUNCTIONS,
}  # fmt: skip

BY_NAME: dict[str, Function] = {
    "clamp": _clamp,
    "date_part": date_part_function,
    "datepart": date_part_function,
}


def listed() -> str:
    """What may be used instead."""
    names = sorted({name_of(kind()) for kind in FUNCTIONS if issubclass(kind, exp.Func)} | {"CLAMP()"})
    return "There are " + ", ".join(names)
