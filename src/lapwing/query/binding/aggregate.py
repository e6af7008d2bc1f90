"""Binding of one aggregate of the final SELECT: to parts that get noise, and a formula over them."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from lapwing.query.binding.build import number
from lapwing.query.binding.grouping import split_filter
from lapwing.query.binding.known import Names
from lapwing.query.binding.parts import Aggregates
from lapwing.query.binding.person import only_where
from lapwing.query.binding.refused import name_of, only, refused
from lapwing.query.binding.scalar import Binder, exact
from lapwing.query.language.expression import Expression
from lapwing.query.language.kinds import Person
from lapwing.query.language.question import Statistic

_VARIANCES: dict[type[exp.Expr], str] = {
    exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
}  # fmt: skip
_COVARIANCES: dict[type[exp.Expr], str] = {
    exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp", exp.Corr: "corr",
}  # fmt: skip
_ONE_COLUMN = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Median)
MOST_QUANTILES = 100


class AggregateBinder:
    """Binds aggregates over the rows that a binder knows."""

    def __init__(self, row: Binder, rows: int, known: Names, *, has_keys: bool) -> None:
        self.row = row
        self.found = Aggregates(rows, known, has_keys=has_keys)

    def statistic(self, node: exp.Expr) -> Statistic:
        """What an aggregate comes to."""
        inner, condition = split_filter(node)
        if isinstance(inner, exp.IgnoreNulls):
            inner = inner.this
        if isinstance(inner, exp.CountIf):
            only(inner, "this", "big_int")
            where = self._filtered(number(1), inner.this)
            return self.found.count(self._filtered(where, condition), "rows")
        if isinstance(inner, exp.Count):
            return self._count(inner, condition)
        if isinstance(inner, exp.WithinGroup) or fraction_node(inner) is not None:
            return self._one_quantile(inner, condition)
        if isinstance(inner.this, exp.Distinct):
            raise refused(node, f"DISTINCT is not possible in {name_of(inner)}", "Leave it out")
        if type(inner) in _COVARIANCES:
            only(inner, "this", "expression")
            x, y = (self._argument(one, condition) for one in (inner.this, inner.expression))
            return self.found.covariance(_COVARIANCES[type(inner)], x, y, _label(inner))
        return self._of_one(inner, condition)

    def _of_one(self, node: exp.Expr, condition: exp.Expr | None) -> Statistic:
        """An aggregate of one column."""
        if type(node) not in _ONE_COLUMN and type(node) not in _VARIANCES:
            raise refused(
                node,
                f"{name_of(node)} would show values of single rows, or is not known",
                "Use COUNT, SUM, AVG, VARIANCE, STDDEV, MEDIAN, QUANTILE, MIN, MAX, COVAR or CORR",
            )
        only(node, "this")
        value, label = self._argument(node.this, condition), _label(node)
        match node:
            case exp.Sum():
                return self.found.total(value, label)
            case exp.Avg():
                return self.found.average(value, label)
            case exp.Min() | exp.Max():
                return self.found.chosen("min" if isinstance(node, exp.Min) else "max", value, label, None)
            case exp.Median():
                return self.found.chosen("quantile", value, label, Fraction(1, 2))
        return self.found.variance(_VARIANCES[type(node)], value, label)

    def several(self, node: exp.Expr) -> list[tuple[Fraction, Statistic]] | None:
        """QUANTILE(x, [0.25, 0.75]): one statistic for each."""
        asked = fraction_node(node)
        if not isinstance(asked, exp.Array):
            return None
        if not 0 < len(asked.expressions) <= MOST_QUANTILES:
            raise refused(node, f"a list of quantiles has 1 to {MOST_QUANTILES} members", "Ask for fewer")
        only(node, "this", "quantile", "expression")
        fractions = [_fraction(one) for one in asked.expressions]
        return [(one, self._quantile(node, node.this, one)) for one in fractions]

    def _argument(self, node: exp.Expr, condition: exp.Expr | None) -> Expression:
        value = self._filtered(self.row.bind(node), condition)
        if isinstance(value.kind, Person):
            raise refused(node, "the unit can only be counted", "Write COUNT(DISTINCT unit)")
        return value

    def _filtered(self, value: Expression, condition: exp.Expr | None) -> Expression:
        return value if condition is None else only_where(value, self.row.truth(condition))

    def _count(self, node: exp.Count, condition: exp.Expr | None) -> Statistic:
        only(node, "this", "big_int")
        if isinstance(node.this, exp.Distinct):
            if len(node.this.expressions) != 1:
                raise refused(node, "COUNT(DISTINCT) of several columns", "Count one of them")
            value = self.row.bind(node.this.expressions[0])
            if isinstance(value.kind, Person):
                if condition is not None:
                    raise refused(node, "FILTER with COUNT(DISTINCT unit)", "Use WHERE")
                return self.found.count_units()
            return self.found.count_distinct(self._filtered(value, condition), _label(node))
        if isinstance(node.this, exp.Star):
            if condition is None:
                return self.found.count_rows()
            return self.found.count(self._filtered(number(1), condition), "rows")
        value = self.row.bind(node.this)
        if isinstance(value.kind, Person):
            value = number(1)
        return self.found.count(self._filtered(value, condition), _label(node))

    def _one_quantile(self, node: exp.Expr, condition: exp.Expr | None) -> Statistic:
        if isinstance(node, exp.WithinGroup):
            only(node, "this", "expression")
            ordered = node.expression.expressions
            if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
                raise refused(node, f"{name_of(node.this)} is not possible", "Use QUANTILE or MEDIAN")
            only(node.this, "this")
            if len(ordered) != 1 or ordered[0].args.get("desc"):
                raise refused(node, "WITHIN GROUP needs one rising order", "Write ORDER BY x")
            return self._quantile(node, ordered[0].this, _fraction(node.this.this), condition)
        only(node, "this", "quantile", "expression")
        asked = fraction_node(node)
        assert asked is not None
        return self._quantile(node, node.this, _fraction(asked), condition)

    def _quantile(
        self, node: exp.Expr, argument: exp.Expr, fraction: Fraction, condition: exp.Expr | None = None
    ) -> Statistic:
        value = self._argument(argument, condition)
        return self.found.chosen("quantile", value, _label(node), fraction)


def _label(node: exp.Expr) -> str:
    """What plans call it: the analyst's own text, in one line."""
    column = node.find(exp.Column)
    return column.name[:40] if column is not None else "rows"


def fraction_node(node: exp.Expr) -> exp.Expr | None:
    """The fraction, or the list of them, that a quantile asks for."""
    if isinstance(node, exp.Quantile | exp.ApproxQuantile):
        found = node.args.get("quantile")
    elif isinstance(node, exp.PercentileCont | exp.PercentileDisc):
        found = node.args.get("expression")
    else:
        return None
    return found if isinstance(found, exp.Expr) else None


def _fraction(node: exp.Expr) -> Fraction:
    if not isinstance(node, exp.Literal) or node.is_string:
        raise refused(node, "a quantile needs a public fraction", "Write QUANTILE(x, 0.5)")
    found = exact(node)
    if not 0 <= found <= 1 or found.denominator > 10**6:
        raise refused(node, "a quantile lies between 0 and 1, with at most six decimals", "Write 0.5")
    return found
