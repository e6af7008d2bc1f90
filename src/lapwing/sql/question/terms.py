"""Terms of questions that are made of Python values: columns, conditions, arithmetic, aggregates.

Claim    a name or a value that a caller gives is always one name or one value of the question.
Because  names and values are nodes of a syntax tree, names are always quoted, and sqlglot writes the text.
         That text then takes the way of every question: parsed, limited, checked, bound.
Test     tests/sql/question/test_terms.py
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from sqlglot import exp

from lapwing.core.exact import exact
from lapwing.errors import BadParameter

EXAMPLE = 'column("age") >= 18'
_LONGEST_SHOWN = 2_000
_MOST_DECIMALS = 30
# Parts of a tree that need no brackets in another one.
_CLOSED = (exp.Column, exp.Literal, exp.Boolean, exp.Cast, exp.AggFunc, exp.Filter, exp.Paren)


class Term:
    """A part of a question: a column, what is computed from columns, a condition, or an aggregate.

    Make one with the functions of `lapwing.questions`. Terms have `+ - * /`, the comparisons
    `== != < <= > >=`, and `& | ~` for AND, OR and NOT.

    Args:
        tree: The tree of sqlglot that it stands for, if none of these functions can make it.

    Raises:
        BadParameter: If something else is given.

    Example:
        >>> from lapwing.questions import column
        >>> print((column("stay") > 2) & (column("ward") == "A"))
        ("stay" > 2) AND ("ward" = 'A')
    """

    __slots__ = ("_tree",)
    _tree: exp.Expr

    def __init__(self, tree: exp.Expr) -> None:
        if not isinstance(tree, exp.Expr):
            raise BadParameter("tree", "must be a tree of sqlglot")
        self._tree = tree.copy()

    @property
    def tree(self) -> exp.Expr:
        """A copy of the syntax tree."""
        return self._tree.copy()

    def __str__(self) -> str:
        return self._tree.sql("duckdb")

    def __repr__(self) -> str:
        return f"<Term {self}>"

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __bool__(self) -> NoReturn:
        raise BadParameter(
            "condition",
            "is true or false for each row, not in Python. Write & | ~ for and, or, not, and "
            "column(…).between(low, high) for low <= column <= high",
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f'questions in Python have no "{name[:60]}". Write the whole question as SQL, where this is '
            f"{shown_sql(str(self))}"
        )

    # Conditions

    def __eq__(self, other: object) -> Term:  # type: ignore[override]
        return self._with(exp.EQ, other)

    def __ne__(self, other: object) -> Term:  # type: ignore[override]
        return self._with(exp.NEQ, other)

    def __lt__(self, other: object) -> Term:
        return self._with(exp.LT, other)

    def __le__(self, other: object) -> Term:
        return self._with(exp.LTE, other)

    def __gt__(self, other: object) -> Term:
        return self._with(exp.GT, other)

    def __ge__(self, other: object) -> Term:
        return self._with(exp.GTE, other)

    def __and__(self, other: object) -> Term:
        return self._with(exp.And, require_term(other))

    def __or__(self, other: object) -> Term:
        return self._with(exp.Or, require_term(other))

    def __invert__(self) -> Term:
        return Term(exp.Not(this=_operand(self)))

    def between(self, low: Any, high: Any) -> Term:
        """Return the condition that a value lies between two others, both included.

        Args:
            low: The lowest value.
            high: The highest value.

        Example:
            >>> print(column("stay").between(1, 3))
            "stay" BETWEEN 1 AND 3
        """
        return Term(exp.Between(this=_operand(self), low=_operand(low), high=_operand(high)))

    def is_in(self, values: Iterable[Any]) -> Term:
        """Return the condition that a value is one of several.

        Args:
            values: The values.

        Raises:
            BadParameter: If the values are one text, or none.

        Example:
            >>> print(column("ward").is_in(["A", "B"]))
            "ward" IN ('A', 'B')
        """
        if isinstance(values, str | bytes | Term) or not isinstance(values, Iterable):
            raise BadParameter("is_in", 'needs a list of values, such as ["A", "B"]')
        if not (listed := [_operand(value) for value in values]):
            raise BadParameter("is_in", "needs at least one value")
        return Term(exp.In(this=_operand(self), expressions=listed))

    def is_missing(self) -> Term:
        """Return the condition that there is no value.

        Example:
            >>> print(column("stay").is_missing())
            "stay" IS NULL
        """
        return Term(exp.Is(this=_operand(self), expression=exp.Null()))

    # Arithmetic

    def __add__(self, other: object) -> Term:
        return self._with(exp.Add, other)

    def __radd__(self, other: object) -> Term:
        return self._with(exp.Add, other, swapped=True)

    def __sub__(self, other: object) -> Term:
        return self._with(exp.Sub, other)

    def __rsub__(self, other: object) -> Term:
        return self._with(exp.Sub, other, swapped=True)

    def __mul__(self, other: object) -> Term:
        return self._with(exp.Mul, other)

    def __rmul__(self, other: object) -> Term:
        return self._with(exp.Mul, other, swapped=True)

    def __truediv__(self, other: object) -> Term:
        return self._with(exp.Div, other)

    def __rtruediv__(self, other: object) -> Term:
        return self._with(exp.Div, other, swapped=True)

    def __neg__(self) -> Term:
        return Term(exp.Neg(this=_operand(self)))

    def _with(self, kind: type[exp.Expr], other: object, *, swapped: bool = False) -> Term:
        left, right = (_operand(side, kind) for side in ((other, self) if swapped else (self, other)))
        return Term(kind(this=left, expression=right))


def _operand(value: object, kind: type[exp.Expr] | None = None) -> exp.Expr:
    """Return the tree of a term or a value, in brackets where it may need them inside of `kind`."""
    if not isinstance(value, Term):
        return _literal(value)
    chained = kind in (exp.And, exp.Or) and type(value._tree) is kind
    return value.tree if chained or isinstance(value._tree, _CLOSED) else exp.Paren(this=value.tree)


def all_of(conditions: Sequence[Term]) -> exp.Expr:
    """Return the tree of the condition that holds where all of one or more conditions do."""
    first, *others = conditions
    if not others:
        return first.tree
    return functools.reduce(
        lambda tree, other: exp.And(this=tree, expression=_operand(other)), others, _operand(first, exp.And)
    )


def _literal(value: object) -> exp.Expr:
    if value is None:
        raise BadParameter("value", "cannot be None. Write column(…).is_missing()")
    if isinstance(value, bool | np.bool_):
        return exp.Boolean(this=bool(value))
    if isinstance(value, str):
        return exp.Literal.string(str(value))
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise BadParameter("value", "has a time zone, and times of a policy have none. Leave it out")
        return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), "TIMESTAMP")
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
    if not isinstance(value, int | float | Decimal | Fraction | np.integer | np.floating):
        what = type(value).__name__[:60]
        raise BadParameter("value", f"is a {what}. Give a number, a text, a truth value, a date or a time")
    number = exact(value)  # type: ignore[arg-type]  # also of numpy
    literal = exp.Literal.number(digits(abs(number)))
    return exp.Paren(this=exp.Neg(this=literal)) if number < 0 else literal


def digits(number: Fraction) -> str:
    """Return a number as it is written in SQL: exactly, without an exponent."""
    decimals = next((n for n in range(_MOST_DECIMALS) if (number * 10**n).denominator == 1), None)
    if decimals is None:
        raise BadParameter("value", "has no short decimal form. Round it first")
    whole = str(int(number * 10**decimals)).rjust(decimals + 1, "0")
    return whole if decimals == 0 else f"{whole[:-decimals]}.{whole[-decimals:]}"


def quoted_name(value: object, argument: str, of: str = "that is not empty") -> exp.Identifier:
    """Return a name as it stands in SQL, or raise BadParameter about the argument."""
    if not isinstance(value, str) or not value:
        raise BadParameter(argument, f"must be a name {of}")
    return exp.to_identifier(str(value), quoted=True)


def require_term(value: object) -> Term:
    """Return a value that must be a term, or raise BadParameter."""
    if isinstance(value, Term):
        return value
    instead = "For a condition in SQL write the whole question as SQL: SELECT … WHERE …"
    raise BadParameter("condition", f"must be made of columns, such as {EXAMPLE}. {instead}")


def shown_sql(sql: str) -> str:
    """Return SQL for a message, cut if it is very long."""
    return sql if len(sql) <= _LONGEST_SHOWN else f"{sql[:_LONGEST_SHOWN]}…"


def column(name: str, *, table: str = "") -> Term:
    """Return a column.

    Args:
        name: Its name.
        table: The table that has it, needed only where two joined tables have a column of this name.

    Returns:
        The column, for conditions, keys, arithmetic and aggregates.

    Example:
        >>> from lapwing.questions import column, mean, table
        >>> question = table("visits").where(column("stay") >= 2).agg(days=mean("stay"))
    """
    of_table = {"table": quoted_name(table, "table")} if table else {}
    return Term(exp.Column(this=quoted_name(name, "column"), **of_table))
