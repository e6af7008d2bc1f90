"""Binding of expressions over one row. Constructs that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import chain
from typing import Any

from sqlglot import exp

from lapwing.sql.policy.kinds import Moment, Person, Text, Truth
from lapwing.sql.question.comparison import compared, is_in, joint_kind, unified
from lapwing.sql.question.expression import Constant, Expression, Op
from lapwing.sql.question.functions import BY_NAME, FUNCTIONS, days_between, function_list, shifted
from lapwing.sql.question.refusal import allow_only, name_of, refusals_at, refused
from lapwing.sql.question.scope import Scope
from lapwing.sql.question.typed_expressions import (
    added,
    apply,
    as_number,
    divided,
    is_null,
    kind_in_words,
    multiplied,
    null_of,
    number,
    public_value,
    quotient,
    remainder,
    scaled,
    truth,
)

_COMPARISONS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ, exp.NEQ: Op.NE, exp.LT: Op.LT, exp.LTE: Op.LE, exp.GT: Op.GT, exp.GTE: Op.GE,
}  # fmt: skip
_PEOPLE = "it relates rows of different people"
_TODAY = "the same query must mean the same tomorrow"
_CLOCKS = ("now", "today", "get_current_timestamp", "transaction_timestamp", "clock_timestamp")
_LONGEST_NUMBER, _MOST_DIGITS = 60, 30


def exact_number(node: exp.Expr) -> Fraction:
    """Return the exact value of a number literal."""
    text = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise refused(node, "this is not a number", "Write it in digits") from None
    if len(text) > _LONGEST_NUMBER or abs(value.adjusted()) > _MOST_DIGITS:
        raise refused(node, "a number is too large or has too many digits", "Write a shorter one")
    return Fraction(value)


class ExpressionBinder:
    """A binder from syntax to typed expressions over the columns of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._bound: dict[int, tuple[exp.Expr, Expression]] = {}

    def truth(self, node: exp.Expr) -> Expression:
        """Bind a condition."""
        condition = self.bind(node)
        if isinstance(condition.kind, Truth):
            return condition
        if is_null(condition):
            return truth(None)
        raise refused(
            node, f"{kind_in_words(condition.kind)} is not a condition", "Compare it to something"
        )

    def bind(self, node: exp.Expr) -> Expression:
        """Bind any value. Refusals get the position of the innermost node."""
        known = self._bound.get(id(node))
        if known is not None:
            return known[1]
        with refusals_at(node):
            bound = self._bind(node)
        self._bound[id(node)] = node, bound  # the node is kept, so that no other node gets its id
        return bound

    def _bind(self, node: exp.Expr) -> Expression:
        for kind in type(node).__mro__:
            if kind in _COMPARISONS:
                allow_only(node, "this", "expression")
                return compared(_COMPARISONS[kind], self.bind(node.this), self.bind(node.expression))
            handler = _HANDLERS.get(kind)
            if handler is not None:
                if isinstance(node, exp.Binary | exp.Unary):
                    allow_only(node, "this", "expression", "typed", "safe")
                return handler(self, node)
        if isinstance(node, exp.AggFunc):
            instead = "Aggregate in SELECT, HAVING or ORDER BY"
            raise refused(node, f"{name_of(node)} cannot stand here", instead)
        if type(node) in FUNCTIONS:
            allowed, function = FUNCTIONS[type(node)]
            allow_only(node, *allowed.split())
            return function(self.bind, node)
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        if name in _CLOCKS:
            raise refused(node, f"{name_of(node)} is not possible: {_TODAY}", "Write the time")
        if name in BY_NAME:
            return BY_NAME[name](self.bind, node)
        if isinstance(node, exp.Func):
            raise refused(node, f"{name_of(node)} is not an allowed function", function_list())
        raise refused(node, f"{name_of(node)} is not possible", "See docs/reference/sql.md for what is")

    def column(self, node: exp.Column) -> Expression:
        """Return the expression that a column name stands for."""
        allow_only(node, "this", "table", "db", "catalog")
        return self.scope.find(node)

    def literal(self, node: exp.Literal) -> Expression:
        """Bind a number or a text. A date stays a text until it is compared to a date."""
        if node.is_string:
            return Constant(node.name, Text())
        return number(exact_number(node))

    def numbers(self, node: exp.Expr) -> tuple[Expression, Expression]:
        """Bind both sides of an operator as numbers."""
        return as_number(self.bind(node.this)), as_number(self.bind(node.expression))

    def modulo(self, node: exp.Expr) -> Expression:
        """Bind a % b for a public b above 0. The result is never negative."""
        by = as_number(self.bind(node.expression))
        if not isinstance(by, Constant) or not isinstance(by.value, int) or by.value <= 0:
            raise refused(node, "% needs a public number above 0", "Write, for example, x % 10")
        return remainder(as_number(self.bind(node.this)), public_value(by))

    def add(self, node: exp.Expr, *, minus: bool = False) -> Expression:
        """Bind a sum or difference of numbers, of times, or of a time and an interval."""
        left = self.bind(node.this)
        if isinstance(node.expression, exp.Interval):
            return shifted(left, node.expression, minus=minus)
        right = self.bind(node.expression)
        if isinstance(left.kind, Moment) or isinstance(right.kind, Moment):
            if minus:
                return days_between(left, right)
            raise refused(node, "times cannot be added", "Add an interval, such as INTERVAL 7 DAY")
        return added(left, right, minus=minus)

    def case(self, node: exp.Case) -> Expression:
        """Bind CASE, with or without an operand."""
        allow_only(node, "this", "ifs", "default")
        conditions: list[Expression] = []
        values: list[Expression] = []
        operand = self.bind(node.this) if node.this is not None else None
        for branch in node.args["ifs"]:
            allow_only(branch, "this", "true")
            if operand is not None:
                conditions.append(compared(Op.EQ, operand, self.bind(branch.this)))
            else:
                conditions.append(self.truth(branch.this))
            values.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        values.append(self.bind(default) if default is not None else null_of(Text()))
        return _cases(conditions, values)

    def either(self, node: exp.If) -> Expression:
        """Bind IF(condition, a, b)."""
        allow_only(node, "this", "true", "false")
        otherwise = node.args.get("false")
        values = [self.bind(node.args["true"]), self.bind(otherwise) if otherwise else null_of(Text())]
        return _cases([self.truth(node.this)], values)

    def coalesce(self, node: exp.Coalesce) -> Expression:
        """Bind COALESCE."""
        allow_only(node, "this", "expressions", "is_nvl", "is_null")
        args = unified([self.bind(argument) for argument in (node.this, *node.expressions)])
        if all(map(is_null, args)):
            return args[0]
        return apply(Op.COALESCE, *args, kind=joint_kind(args))

    def null_if(self, node: exp.Nullif) -> Expression:
        """Bind NULLIF(a, b)."""
        allow_only(node, "this", "expression")
        value = self.bind(node.this)
        if is_null(value):
            return value
        args = [compared(Op.EQ, value, self.bind(node.expression)), null_of(value.kind), value]
        return apply(Op.CASE, *args, kind=value.kind)

    def is_(self, node: exp.Is) -> Expression:
        """Bind IS NULL, IS TRUE and IS FALSE."""
        allow_only(node, "this", "expression")
        value = self.bind(node.this)
        if isinstance(value.kind, Person):
            raise refused(node, "the unit is never NULL", "Leave the condition out")
        if isinstance(node.expression, exp.Null):
            return apply(Op.IS_NULL, value)
        if isinstance(node.expression, exp.Boolean) and isinstance(value.kind, Truth):
            wanted = value if node.expression.this else apply(Op.NOT, value)
            return apply(Op.COALESCE, wanted, truth(False))
        raise refused(node, "IS needs NULL, TRUE or FALSE", "Use = for values")

    def one_of(self, node: exp.In) -> Expression:
        """Bind IN with a public list."""
        if node.args.get("query") is not None:
            why = f"IN with a sub-query is not possible: {_PEOPLE}"
            raise refused(node, why, "List the values, or join")
        allow_only(node, "this", "expressions")
        return is_in(self.bind(node.this), [self.bind(option) for option in node.expressions])

    def between(self, node: exp.Between) -> Expression:
        """Bind BETWEEN, with both ends included."""
        allow_only(node, "this", "low", "high")
        value = self.bind(node.this)
        low = compared(Op.GE, value, self.bind(node.args["low"]))
        return apply(Op.AND, low, compared(Op.LE, value, self.bind(node.args["high"])))

    def joined(self, node: exp.Expr, op: Op) -> Expression:
        """Bind AND or OR of any number of conditions, without recursion for each."""
        return apply(op, *[self.truth(side) for side in node.flatten()])


def _cases(conditions: list[Expression], values: list[Expression]) -> Expression:
    values = unified(values)
    if all(map(is_null, values)):
        return values[0]
    cases = chain.from_iterable(zip(conditions, values, strict=False))
    return apply(Op.CASE, *cases, values[-1], kind=joint_kind(values))


def _refused(instead: str, why: str = "") -> Callable[[ExpressionBinder, Any], Expression]:
    def handler(_: ExpressionBinder, node: exp.Expr) -> Expression:
        raise refused(node, f"{name_of(node)} is not possible{why and f': {why}'}", instead)

    return handler


_HANDLERS: dict[type[Any], Callable[[ExpressionBinder, Any], Expression]] = {
    exp.Column: ExpressionBinder.column,
    exp.Literal: ExpressionBinder.literal,
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Null: lambda _, __: null_of(Text()),
    exp.Boolean: lambda _, node: truth(bool(node.this)),
    exp.Neg: lambda binder, node: scaled(as_number(binder.bind(node.this)), Fraction(-1)),
    exp.Add: lambda binder, node: binder.add(node),
    exp.Sub: lambda binder, node: binder.add(node, minus=True),
    exp.Mul: lambda binder, node: multiplied(binder.bind(node.this), binder.bind(node.expression)),
    exp.Div: lambda binder, node: divided(*binder.numbers(node)),
    exp.IntDiv: lambda binder, node: quotient(*binder.numbers(node), Fraction(1)),
    exp.Mod: ExpressionBinder.modulo,
    exp.Case: ExpressionBinder.case,
    exp.If: ExpressionBinder.either,
    exp.Coalesce: ExpressionBinder.coalesce,
    exp.Nullif: ExpressionBinder.null_if,
    exp.Is: ExpressionBinder.is_,
    exp.In: ExpressionBinder.one_of,
    exp.Between: ExpressionBinder.between,
    exp.Not: lambda binder, node: apply(Op.NOT, binder.truth(node.this)),
    exp.And: lambda binder, node: binder.joined(node, Op.AND),
    exp.Or: lambda binder, node: binder.joined(node, Op.OR),
    exp.Subquery: _refused("Join the sub-query on the unit", _PEOPLE),
    exp.Select: _refused("Join the sub-query on the unit", _PEOPLE),
    exp.Exists: _refused("Join on the unit", _PEOPLE),
    exp.Window: _refused("Group a sub-query by the unit", _PEOPLE),
    exp.Star: _refused("Name the columns"),
    exp.Placeholder: _refused("Write the value"),
    exp.Parameter: _refused("Write the value"),
    exp.Pow: _refused("Write x * x"),
    exp.Tuple: _refused("Compare the columns one by one"),
    exp.CurrentDate: _refused("Write the day, such as DATE '2026-03-31'", _TODAY),
    exp.CurrentTimestamp: _refused("Write the time, such as TIMESTAMP '2026-03-31 12:00:00'", _TODAY),
    exp.CurrentTime: _refused("Write the time", _TODAY),
    exp.Localtimestamp: _refused("Write the time", _TODAY),
    exp.Rand: _refused("Leave it out", "a query has one meaning"),
}
