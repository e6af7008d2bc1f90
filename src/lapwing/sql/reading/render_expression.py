"""Rendering of typed expressions as SQL of an engine.

Claim    no row can make the SQL fail or overflow, and the result is the code that `Op` defines.
Because  whole numbers are computed in 4 bytes only if the bounds of all operands and of the result are
         below 2^31, else in 8 bytes, and no bound reaches 2^52; dialects make all other operations total.
Test     tests/sql/reading/test_render.py, on random expressions and rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lapwing.engines.dialect import SqlDialect
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Period, Text, Truth
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.typed_expressions import LARGEST

NARROWEST, NARROW = 1 << 15, 1 << 31
LONGEST = 4_000_000  # characters; a declared list of 100,000 values has about that many
NULL_TRUTH = "(NULL = 1)"
NULL_TEXT = "NULLIF('', '')"  # a NULL of type text on every engine
DAY = SECONDS["day"]
_COMPARISONS = {Op.EQ: "=", Op.NE: "<>", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}
_ARITHMETIC = {Op.ADD: "+", Op.SUBTRACT: "-", Op.MULTIPLY: "*"}


@dataclass(frozen=True, slots=True)
class SqlText:
    """SQL text.

    `width` is the number of bytes of a whole number computed here; 0 if the engine chose it.
    """

    text: str
    width: int = 0


def reach_of(kind: Kind) -> int:
    """Return the greatest absolute value of a code."""
    match kind:
        case Numeric(_, int(first), int(last)) | Moment(_, first, last) | Period(_, first, last):
            return max(abs(first), abs(last))
        case Choice(values):
            return len(values)
        case Truth():
            return 1
        case _:
            return LARGEST


def literal(value: int) -> str:
    """Return a whole number as SQL."""
    return str(value) if value >= 0 else f"({value})"


def render_membership(sql: str, codes: Sequence[int]) -> str:
    """Return the condition that a whole number is one of the codes; NULL if the number is NULL."""
    distinct = sorted(set(codes))
    if not distinct:
        return f"({sql} IS NULL AND {NULL_TRUTH})"
    if len(distinct) == 1:
        return f"({sql} = {literal(distinct[0])})"
    if distinct[-1] - distinct[0] == len(distinct) - 1:
        return f"({sql} BETWEEN {literal(distinct[0])} AND {literal(distinct[-1])})"
    return f"({sql} IN ({', '.join(map(literal, distinct))}))"


@dataclass(frozen=True, slots=True)
class ExpressionWriter:
    """A writer of expressions over columns whose SQL is given."""

    dialect: SqlDialect
    columns: Mapping[str, str]

    def plain(self, expression: Expression) -> str:
        """Return the SQL of an expression."""
        return self.write(expression).text

    def compared(self, expression: Expression) -> str:
        """Return SQL to be compared or grouped by: texts are compared by code point."""
        sql = self.plain(expression)
        return self.dialect.compared_text(sql) if isinstance(expression.kind, Text) else sql

    def code(self, expression: Expression) -> str:
        """Return SQL of a result column: truths are 1 and 0."""
        sql = self.compared(expression)
        return self.dialect.whole(sql, 1) if isinstance(expression.kind, Truth) else sql

    def write(self, expression: Expression) -> SqlText:
        """Return the SQL and the width of an expression. Raises Refused if it is too long.

        Some dialects repeat an argument, so that nesting doubles the text.
        """
        sql = self._written(expression)
        if len(sql.text) > LONGEST:
            raise Refused("an expression is nested too deeply", "Compute in fewer steps")
        return sql

    def _written(self, expression: Expression) -> SqlText:
        match expression:
            case Reference(name):
                return SqlText(self.columns[name])
            case Constant(value, kind):
                width = _width(abs(value)) if isinstance(value, int) and not isinstance(kind, Truth) else 0
                return SqlText(self._constant(value, kind), width)
            case Apply():
                return self._apply(expression)

    def _constant(self, value: int | str | bool | None, kind: Kind) -> str:
        match value:
            case None if isinstance(kind, Truth):
                return NULL_TRUTH
            case None if isinstance(kind, Text):
                return NULL_TEXT
            case None:
                return self.dialect.whole("NULL", reach_of(kind))
            case str():
                return self.dialect.text(value)
            case _ if isinstance(kind, Truth):
                return "TRUE" if value else "FALSE"
            case _:
                return literal(int(value))

    def _apply(self, call: Apply) -> SqlText:
        args = call.args
        if call.op in _ARITHMETIC:
            reach = max(reach_of(call.kind), *(reach_of(arg.kind) for arg in args))
            left, right = (self._whole(arg, reach) for arg in args)
            return SqlText(f"({left} {_ARITHMETIC[call.op]} {right})", _width(reach))
        if call.op in _COMPARISONS:
            return SqlText(f"({self.compared(args[0])} {_COMPARISONS[call.op]} {self.compared(args[1])})")
        text = _OPERATIONS[call.op](self, call)
        return SqlText(text) if isinstance(text, str) else text

    def _whole(self, expression: Expression, reach: int) -> str:
        """Return a whole number in the width that computing with numbers of this size takes."""
        sql = self.write(expression)
        return sql.text if sql.width == _width(reach) else self.dialect.whole(sql.text, reach)

    def _scale(self, call: Apply) -> SqlText:
        by, (arg,) = _number(call), call.args
        if by == 1:
            return self.write(arg)
        reach = max(reach_of(arg.kind), abs(by), reach_of(arg.kind) * abs(by))
        return SqlText(f"({self._whole(arg, reach)} * {literal(by)})", _width(reach))

    def _abs(self, call: Apply) -> SqlText:
        reach = reach_of(call.args[0].kind)
        return SqlText(f"abs({self._whole(call.args[0], reach)})", _width(reach))

    def _floor_divide(self, call: Apply) -> str:
        by, (arg,) = _number(call), call.args
        # The dialect may add the divisor on the way.
        return self.dialect.floor_divide(self._whole(arg, reach_of(arg.kind) + by), by)

    def _modulo(self, call: Apply) -> str:
        by, (arg,) = _number(call), call.args
        return self.dialect.modulo(self._whole(arg, reach_of(arg.kind) + 2 * by), by)

    def _quotient(self, call: Apply) -> str:
        by, (top, bottom) = _number(call), call.args
        reach = reach_of(top.kind) * by + reach_of(bottom.kind)
        upper = self._whole(top, reach) if by == 1 else f"({self._whole(top, reach)} * {by})"
        return self.dialect.quotient(upper, self._whole(bottom, reach))

    def _extreme(self, call: Apply) -> SqlText:
        reach = max(reach_of(arg.kind) for arg in call.args)
        spelled = self.dialect.least if call.op is Op.LEAST else self.dialect.greatest
        return SqlText(spelled([self._whole(arg, reach) for arg in call.args]), _width(reach))

    def _in(self, call: Apply) -> str:
        values, (arg,) = call.parameter, call.args
        assert isinstance(values, tuple)
        if not values:
            return render_membership(self.compared(arg), ())
        if isinstance(arg.kind, Text):
            texts = ", ".join(self.dialect.text(str(value)) for value in dict.fromkeys(values))
            return f"({self.compared(arg)} IN ({texts}))"
        return render_membership(self.code(arg), [int(value) for value in values])

    def _case(self, call: Apply) -> str:
        pairs = zip(call.args[:-1:2], call.args[1::2], strict=True)
        whens = [f"WHEN {self.plain(when)} THEN {self.plain(then)}" for when, then in pairs]
        return f"CASE {' '.join(whens)} ELSE {self.plain(call.args[-1])} END"

    def _decode(self, call: Apply) -> str:
        assert isinstance(call.parameter, tuple)
        whens = [f"WHEN {n} THEN {self.dialect.text(str(text))}" for n, text in enumerate(call.parameter)]
        return f"CASE {self.plain(call.args[0])} {' '.join(whens)} ELSE {NULL_TEXT} END"

    def _substring(self, call: Apply) -> str:
        assert isinstance(call.parameter, tuple)
        start, length = map(int, call.parameter)
        return self.dialect.substring(self.plain(call.args[0]), start, length)

    def _months(self, call: Apply) -> str:
        (arg,) = call.args
        assert isinstance(arg.kind, Moment)
        months = self.dialect.month_of(self._days(arg, arg.kind))
        by = _number(call)
        return months if by == 1 else self.dialect.floor_divide(self.dialect.whole(months, LARGEST), by)

    def _part(self, call: Apply) -> str:
        (arg,) = call.args
        assert isinstance(arg.kind, Moment)
        if arg.kind.seconds % DAY == 0:
            return self.dialect.part_of(self._days(arg, arg.kind), str(call.parameter), in_days=True)
        seconds = self._since(arg, arg.kind.seconds, arg.kind.start)
        return self.dialect.part_of(seconds, str(call.parameter), in_days=False)

    def _days(self, arg: Expression, kind: Moment) -> str:
        if kind.seconds % DAY == 0 and kind.start % DAY == 0:
            return self._since(arg, kind.seconds // DAY, kind.start // DAY)
        if DAY % kind.seconds == 0 and kind.start == 0:
            by = DAY // kind.seconds
            return self.dialect.floor_divide(self._whole(arg, reach_of(kind) + by), by)
        return self.dialect.floor_divide(self._since(arg, kind.seconds, kind.start), DAY)

    def _since(self, arg: Expression, by: int, start: int) -> str:
        reach = reach_of(arg.kind) * by + abs(start) + DAY
        sql = self._whole(arg, reach)
        sql = f"({sql} * {by})" if by > 1 else sql
        return f"({sql} + {literal(start)})" if start else sql


def _width(reach: int) -> int:
    """Return the bytes of numbers of this size. Engines without types of two bytes use four."""
    return 2 if reach < NARROWEST else 4 if reach < NARROW else 8


def _number(call: Apply) -> int:
    assert isinstance(call.parameter, int)
    return call.parameter


# A function for each operation. Those of whole numbers also say how many bytes they computed in.
_OPERATIONS: dict[Op, Callable[[ExpressionWriter, Apply], SqlText | str]] = {
    Op.SCALE: ExpressionWriter._scale,
    Op.ABS: ExpressionWriter._abs,
    Op.FLOOR_DIVIDE: ExpressionWriter._floor_divide,
    Op.MODULO: ExpressionWriter._modulo,
    Op.QUOTIENT: ExpressionWriter._quotient,
    Op.LEAST: ExpressionWriter._extreme,
    Op.GREATEST: ExpressionWriter._extreme,
    Op.FROM_TRUTH: lambda writer, call: SqlText(writer.dialect.whole(writer.plain(call.args[0]), 1), 2),
    Op.LOWER: lambda writer, call: writer.dialect.lower(writer.plain(call.args[0])),
    Op.UPPER: lambda writer, call: writer.dialect.upper(writer.plain(call.args[0])),
    Op.TRIM: lambda writer, call: writer.dialect.trim(writer.plain(call.args[0])),
    Op.LENGTH: lambda writer, call: writer.dialect.length(writer.plain(call.args[0])),
    Op.CONCAT: lambda writer, call: writer.dialect.concat([writer.plain(arg) for arg in call.args]),
    Op.PARSE_WHOLE: lambda writer, call: writer.dialect.parse_whole(writer.plain(call.args[0])),
    Op.SUBSTRING: ExpressionWriter._substring,
    Op.LIKE: lambda writer, call: writer.dialect.like(writer.compared(call.args[0]), str(call.parameter)),
    Op.DECODE: ExpressionWriter._decode,
    Op.IN: ExpressionWriter._in,
    Op.COALESCE: lambda writer, call: f"coalesce({', '.join(map(writer.plain, call.args))})",
    Op.NULL_IF: lambda writer, call: f"NULLIF({', '.join(map(writer.compared, call.args))})",
    Op.CASE: ExpressionWriter._case,
    Op.IS_NULL: lambda writer, call: f"({writer.plain(call.args[0])} IS NULL)",
    Op.AND: lambda writer, call: f"({' AND '.join(map(writer.plain, call.args))})",
    Op.OR: lambda writer, call: f"({' OR '.join(map(writer.plain, call.args))})",
    Op.NOT: lambda writer, call: f"(NOT {writer.plain(call.args[0])})",
    Op.MONTHS: ExpressionWriter._months,
    Op.PART: ExpressionWriter._part,
}
WRITTEN = frozenset([*_ARITHMETIC, *_COMPARISONS, *_OPERATIONS])
