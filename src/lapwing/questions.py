"""Questions in Python, for those who write no SQL: aggregates, columns, and the table to begin with.

What these functions make is a question for `plan` and `ask`, like its SQL: the same price, the same stored
answer. Whatever they cannot say needs SQL, and the error says so.

Example:
    >>> from lapwing.questions import count, mean, table
    >>> question = table("visits").group_by("ward").agg(n=count(), days=mean("stay"))
    >>> plan = dataset.plan(question, epsilon="0.5")
"""

from __future__ import annotations

from sqlglot import exp

from lapwing.core.exact import Number, exact
from lapwing.errors import BadParameter
from lapwing.sql.question.built_question import BuiltQuestion
from lapwing.sql.question.terms import EXAMPLE, Term, column, digits, require_term

__all__ = [
    "BuiltQuestion",
    "Term",
    "column",
    "count",
    "count_distinct",
    "max",
    "mean",
    "median",
    "min",
    "quantile",
    "sum",
    "table",
]


def table(name: str) -> BuiltQuestion:
    """Begin a question about a table.

    Args:
        name: A table of the policy.

    Returns:
        The question, which has no aggregates yet.

    Raises:
        BadParameter: If the name is not a text.

    Example:
        >>> from lapwing.questions import count, table
        >>> question = table("visits").group_by("ward").agg(n=count())
    """
    return BuiltQuestion(name)


def _value(value: str | Term) -> exp.Expr:
    """Return the tree of a term, or of the column of a name."""
    return value.tree if isinstance(value, Term) else column(value).tree


def _where(aggregate: exp.Expr, where: Term | None) -> Term:
    if where is None:
        return Term(aggregate)
    return Term(exp.Filter(this=aggregate, expression=exp.Where(this=require_term(where).tree)))


def count(value: str | Term | None = None, *, where: Term | None = None) -> Term:
    """Count rows.

    Args:
        value: A column: only rows with a value in it count. None: all rows.
        where: Count only rows for which this holds.

    Returns:
        The aggregate COUNT.

    Raises:
        BadParameter: If a condition is given as the column.

    Example:
        >>> from lapwing.questions import column, count, table
        >>> question = table("visits").agg(visits=count(), long=count(where=column("stay") > 7))
    """
    counted = exp.Star() if value is None else _value(value)
    if not isinstance(counted, exp.Star | exp.Column):
        raise BadParameter(
            "count", f"counts rows. Write count(where={EXAMPLE}) for those that meet a condition"
        )
    return _where(exp.Count(this=counted), where)


def count_distinct(value: str | Term, *, where: Term | None = None) -> Term:
    """Count different values. Of the unit's column it counts people.

    Args:
        value: The column.
        where: Use only rows for which this holds. For people write `where` of the question instead.

    Returns:
        The aggregate COUNT(DISTINCT …).

    Example:
        >>> from lapwing.questions import count_distinct, table
        >>> question = table("visits").agg(people=count_distinct("patient_id"))
    """
    return _where(exp.Count(this=exp.Distinct(expressions=[_value(value)])), where)


def sum(value: str | Term, *, where: Term | None = None) -> Term:  # noqa: A001
    """Add values up.

    Args:
        value: A column with bounds, or what is computed from some.
        where: Use only rows for which this holds.

    Returns:
        The aggregate SUM.

    Example:
        >>> from lapwing import questions
        >>> question = questions.table("visits").group_by("ward").agg(days=questions.sum("stay"))
    """
    return _where(exp.Sum(this=_value(value)), where)


def mean(value: str | Term, *, where: Term | None = None) -> Term:
    """Average values.

    Args:
        value: A column with bounds, what is computed from some, or a condition: then the share of rows.
        where: Use only rows for which this holds.

    Returns:
        The aggregate AVG.

    Example:
        >>> from lapwing.questions import column, mean, table
        >>> question = table("visits").agg(days=mean("stay"), long=mean(column("stay") > 7))
    """
    return _where(exp.Avg(this=_value(value)), where)


def median(value: str | Term, *, where: Term | None = None) -> Term:
    """Choose the middle value.

    Args:
        value: A column of numbers or times with bounds.
        where: Use only rows for which this holds.

    Returns:
        The aggregate MEDIAN.

    Example:
        >>> from lapwing.questions import median, table
        >>> question = table("visits").group_by("ward").agg(days=median("stay"))
    """
    return _where(exp.Median(this=_value(value)), where)


def quantile(value: str | Term, fraction: Number, *, where: Term | None = None) -> Term:
    """Choose the value that a share of the rows reaches.

    Args:
        value: A column of numbers or times with bounds.
        fraction: The share of rows that are not above it, from 0 to 1.
        where: Use only rows for which this holds.

    Returns:
        The aggregate QUANTILE.

    Raises:
        BadParameter: If the fraction is not a number. Several quantiles need an aggregate each.

    Example:
        >>> from lapwing.questions import quantile, table
        >>> question = table("visits").agg(days=quantile("stay", 0.9))
    """
    share = exp.Literal.number(digits(exact(fraction, "fraction")))
    return _where(exp.Quantile(this=_value(value), quantile=share), where)


def min(value: str | Term, *, where: Term | None = None) -> Term:  # noqa: A001
    """Choose a low value: one that only few rows are below.

    Args:
        value: A column of numbers or times with bounds.
        where: Use only rows for which this holds.

    Returns:
        The aggregate MIN.

    Example:
        >>> from lapwing import questions
        >>> question = questions.table("visits").agg(shortest=questions.min("stay"))
    """
    return _where(exp.Min(this=_value(value)), where)


def max(value: str | Term, *, where: Term | None = None) -> Term:  # noqa: A001
    """Choose a high value: one that only few rows are above.

    Args:
        value: A column of numbers or times with bounds.
        where: Use only rows for which this holds.

    Returns:
        The aggregate MAX.

    Example:
        >>> from lapwing import questions
        >>> question = questions.table("visits").agg(longest=questions.max("stay"))
    """
    return _where(exp.Max(this=_value(value)), where)
