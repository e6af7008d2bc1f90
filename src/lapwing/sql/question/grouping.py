"""GROUP BY, FILTER and aggregation per unit.

A sub-query that aggregates gives one row for each unit, with new bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from lapwing.sql.policy.kinds import Kind, Moment, Numeric, Period, Person, Truth
from lapwing.sql.question.expression import Constant, Expression, Op, Reference
from lapwing.sql.question.refusal import Refused, allow_only, name_of, refused
from lapwing.sql.question.relation import UNIT, Filter, PerUnit, Relation, contribution_bound
from lapwing.sql.question.scalar import ExpressionBinder
from lapwing.sql.question.scope import SAME_NAME, BoundSubquery, Catalog, Fresh, Scope, output_name, project
from lapwing.sql.question.typed_expressions import (
    apply,
    as_number,
    null_of,
    number,
    numeric,
    require_small_codes,
)

MOST_SETS = 64
Place = Callable[[exp.Expr], int]  # the position of an item among all that are grouped by


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether the node itself is an aggregate, with or without FILTER or WITHIN GROUP."""
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) or (
        isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AggFunc)
    )


def split_filter(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return an aggregate and the condition of its FILTER, or None."""
    if isinstance(node, exp.Filter):
        allow_only(node, "this", "expression")
        return node.this, node.expression.this
    return node, None


def grouping_sets(node: exp.Select, scope: Scope) -> tuple[list[exp.Expr], list[tuple[int, ...]]]:
    """Return the items of GROUP BY, and the positions of the items in each grouping."""
    group = node.args.get("group")
    if group is None:
        return [], [()]
    allow_only(group, "expressions", "all")
    if group.args.get("all"):
        plain = [output.unalias() for output in node.expressions if output.find(exp.AggFunc) is None]
        return plain, [tuple(range(len(plain)))]
    items: list[exp.Expr] = []

    def place(item: exp.Expr) -> int:
        resolved = _resolved(node, item.unnest(), scope)
        if resolved not in items:
            items.append(resolved)
        return items.index(resolved)

    factors = [_sets(item, place) for item in group.expressions]
    if math.prod(map(len, factors)) > MOST_SETS:
        raise refused(group, f"there are more than {MOST_SETS} groupings", "Ask for fewer")
    sets = [
        tuple(sorted({position for part in chosen for position in part}))
        for chosen in itertools.product(*factors)
    ]
    return items, list(dict.fromkeys(sets))


def _sets(item: exp.Expr, place: Place) -> list[tuple[int, ...]]:
    if isinstance(item, exp.Rollup | exp.Cube):
        groups = [_members(member, place) for member in item.expressions]
        sizes = range(len(groups), -1, -1)
        if isinstance(item, exp.Rollup):
            return [tuple(itertools.chain(*groups[:size])) for size in sizes]
        if len(groups) > 6:
            raise refused(item, "CUBE of more than six columns", "Use GROUPING SETS")
        chosen = (some for size in sizes for some in itertools.combinations(groups, size))
        return [tuple(itertools.chain(*some)) for some in chosen]
    if isinstance(item, exp.GroupingSets):
        return [grouping for part in item.expressions for grouping in _sets(part, place)]
    return [_members(item, place)]


def _members(item: exp.Expr, place: Place) -> tuple[int, ...]:
    return tuple(place(member) for member in (item.expressions if isinstance(item, exp.Tuple) else [item]))


def _resolved(node: exp.Select, item: exp.Expr, scope: Scope) -> exp.Expr:
    """Return the expression that a number or an alias of the SELECT list stands for.

    A name that is both a column and an alias stands for the column, as in the engines.
    """
    if isinstance(item, exp.Literal) and not item.is_string:
        return output_at(node, item)
    if isinstance(item, exp.Column) and not item.table and not scope.has(item.name):
        for output in node.expressions:
            named = isinstance(output, exp.Alias) and output.alias.lower() == item.name.lower()
            if named and output.find(exp.AggFunc) is None:
                expression: exp.Expr = output.this
                return expression
    return item


def output_at(node: exp.Select, item: exp.Expr) -> exp.Expr:
    """Return the expression of the SELECT list that a position stands for."""
    text = item.name[:20]
    position = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= position <= len(node.expressions):
        raise refused(item, f"{text} names no column of SELECT", "Count from 1")
    expression: exp.Expr = node.expressions[position - 1].unalias()
    return expression


def _group_items(node: exp.Select, binder: ExpressionBinder) -> list[Expression]:
    """Return the bound items of a GROUP BY with one grouping."""
    items, sets = grouping_sets(node, binder.scope)
    if len(sets) != 1:
        raise refused(node.args["group"], "a sub-query has one grouping", "Use ROLLUP in the last SELECT")
    bound = [binder.bind(item) for item in items]
    if any(isinstance(expression, Constant) for expression in bound):
        raise refused(node.args["group"], "GROUP BY has a constant", "Leave it out")
    return bound


AVERAGE_DIGITS = 1000  # a unit's average is rounded down to a thousandth of a step
Aggregate = tuple[str, str, Expression | None, Kind]


def bind_per_unit(
    catalog: Catalog, fresh: Fresh, node: exp.Select, relation: Relation, scope: Scope
) -> BoundSubquery:
    """Bind a sub-query with GROUP BY: aggregates of each unit's rows."""
    if catalog.slices_rows:
        why = "sub-queries cannot aggregate if blocks are periods of rows"
        raise refused(node, why, "There the privacy unit is a person in one period")
    items = _group_items(node, ExpressionBinder(scope))
    if not any(isinstance(expression.kind, Person) for expression in items):
        why = "a sub-query aggregates rows of different people"
        raise refused(node.args.get("group") or node, why, "Group it by the unit, or ask for it alone")
    binder = _PerUnitBinder(scope, fresh, items, contribution_bound(relation))
    columns: dict[str, Expression] = {}
    for item in node.expressions:
        name = output_name(item)
        if name in columns:
            raise refused(node, *SAME_NAME)
        columns[name] = binder.aliases[name] = binder.bind(item.unalias())
    having = node.args.get("having")
    condition = binder.truth(having.this) if having is not None else None  # it may add aggregates
    grouped: Relation = PerUnit(relation, tuple(binder.keys), tuple(binder.aggregates))
    if condition is not None:
        grouped = Filter(grouped, condition)
    return project(fresh, grouped, columns)


class _PerUnitBinder(ExpressionBinder):
    """A binder over the result of a grouping: keys and aggregates are its columns."""

    def __init__(self, scope: Scope, fresh: Fresh, items: list[Expression], most: int) -> None:
        super().__init__(scope)
        self._row = ExpressionBinder(scope)
        self._most = most
        self._fresh = fresh
        self.keys: list[tuple[str, Expression]] = []
        self.aggregates: list[Aggregate] = []
        self.aliases: dict[str, Expression] = {}
        self._columns: dict[Expression, Reference] = {}
        self._places: dict[tuple[str, Expression | None], Reference] = {}
        for item in items:
            if isinstance(item.kind, Person):
                self._columns[item] = Reference(UNIT, Person())
            elif item not in self._columns:
                name = self._fresh()
                self.keys.append((name, item))
                self._columns[item] = Reference(name, item.kind)

    def bind(self, node: exp.Expr) -> Expression:
        """Bind a key, an aggregate, or an expression over them."""
        if is_aggregate(node):
            return self._aggregate(node)
        if node.find(exp.AggFunc) is None and node.find(exp.Column) is not None:
            grouped = self._grouped(node)
            if grouped is not None:
                return grouped
            if isinstance(node, exp.Column):
                raise refused(node, f'"{node.name[:60]}" is neither grouped nor aggregated', "Group by it")
        return super().bind(node)

    def _grouped(self, node: exp.Expr) -> Expression | None:
        """Return the key that a node stands for, or the output that HAVING names; None if it is neither."""
        try:
            return self._columns.get(self._row.bind(node))
        except Refused:
            if isinstance(node, exp.Column) and not node.table and node.name.lower() in self.aliases:
                return self.aliases[node.name.lower()]
            if any(column.name.lower() in self.aliases for column in node.find_all(exp.Column)):
                return None
            raise

    def _aggregate(self, node: exp.Expr) -> Expression:
        inner, condition = split_filter(node)
        if isinstance(inner, exp.Count):
            return self._count(inner, condition)
        if isinstance(inner.this, exp.Distinct):
            raise refused(node, f"DISTINCT is not possible in {name_of(inner)}", "Leave it out")
        if not isinstance(inner, exp.Sum | exp.Min | exp.Max | exp.Avg):
            why = f"{name_of(inner)} is not possible within a person's rows"
            raise refused(node, why, "Use COUNT, SUM, AVG, MIN or MAX there")
        allow_only(inner, "this")
        value = filtered(self._row, self._row.bind(inner.this), condition)
        if isinstance(inner, exp.Min | exp.Max):
            value = as_number(value) if isinstance(value.kind, Truth) else value
            if not isinstance(value.kind, Numeric | Moment | Period):
                raise Refused("MIN and MAX need numbers or times", "Use them on a column with bounds")
            return self._add("min" if isinstance(inner, exp.Min) else "max", value, value.kind)
        value = as_number(value)
        kind = numeric(value)
        if not kind.is_bounded:
            instead = "Bound it with CLAMP(x, low, high)"
            raise refused(node, "a number without bounds cannot be summed", instead)
        first, last = kind.bounds
        ends = min(first, self._most * first), max(last, self._most * last)
        summed = Numeric(kind.step, *ends)
        require_small_codes(summed)
        total = self._add("sum", value, summed)
        if isinstance(inner, exp.Sum):
            return total
        count = self._add("count", value, Numeric(Fraction(1), 0, self._most))
        average = Numeric(kind.step / AVERAGE_DIGITS, AVERAGE_DIGITS * first, AVERAGE_DIGITS * last)
        for end in ends:  # the greatest intermediate results
            require_small_codes(Numeric(average.step, AVERAGE_DIGITS * end, AVERAGE_DIGITS * end))
        return apply(Op.QUOTIENT, total, count, kind=average, parameter=AVERAGE_DIGITS)

    def _count(self, node: exp.Count, condition: exp.Expr | None) -> Expression:
        kind = Numeric(Fraction(1), 0, self._most)
        distinct, value = count_argument(self._row, node)
        if value is None and condition is None:
            return self._add("rows", None, kind)
        value = number(1) if value is None else value
        if isinstance(value.kind, Person):
            raise refused(node, "a person's rows have one unit", "Use COUNT(*)")
        return self._add("distinct" if distinct else "count", filtered(self._row, value, condition), kind)

    def _add(self, function: str, value: Expression | None, kind: Kind) -> Reference:
        known = self._places.get((function, value))
        if known is None:
            known = self._places[function, value] = Reference(self._fresh(), kind)
            self.aggregates.append((known.name, function, value, kind))
        return known


def filtered(binder: ExpressionBinder, value: Expression, condition: exp.Expr | None) -> Expression:
    """Return the value where the condition of FILTER holds, else NULL. None is no condition."""
    if condition is None:
        return value
    return apply(Op.CASE, binder.truth(condition), value, null_of(value.kind), kind=value.kind)


def count_argument(binder: ExpressionBinder, node: exp.Count) -> tuple[bool, Expression | None]:
    """Return whether COUNT is DISTINCT, and its argument; None for COUNT(*)."""
    allow_only(node, "this", "big_int")
    if isinstance(node.this, exp.Star):
        return False, None
    if isinstance(node.this, exp.Distinct):
        if len(node.this.expressions) != 1:
            raise refused(node, "COUNT(DISTINCT) has several columns", "Count one of them")
        return True, binder.bind(node.this.expressions[0])
    value = binder.bind(node.this)
    return False, number(1) if isinstance(value.kind, Person) else value
