"""Binding of sub-queries that aggregate: one row for each unit, with new bounds."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from lapwing.query.binding.bound import output_name, project
from lapwing.query.binding.build import apply, as_number, null_of, number, require_small
from lapwing.query.binding.grouping import group_items, is_aggregate, split_filter
from lapwing.query.binding.refused import Refused, name_of, only, refused
from lapwing.query.binding.scalar import Binder
from lapwing.query.binding.scope import Scope
from lapwing.query.language.expression import Expression, Op, Reference
from lapwing.query.language.kinds import Choice, Kind, Moment, Number, Period, Person, Truth
from lapwing.query.language.relation import UNIT, Filter, PerUnit, Relation, rows_of

if TYPE_CHECKING:
    from lapwing.query.binding.rows import RowBinder

AVERAGE_DIGITS = 1000  # a person's average is rounded down to a thousandth of a step
Aggregate = tuple[str, str, Expression | None, Kind]


def bind_person(
    rows: RowBinder, node: exp.Select, relation: Relation, scope: Scope
) -> tuple[Relation, dict[str, Expression]]:
    """A sub-query with GROUP BY: what each unit's rows come to."""
    if rows.catalog.slices_rows:
        raise refused(
            node, "sub-queries cannot aggregate where rows are sliced by time",
            "A person in one period is protected there, not the person",
        )  # fmt: skip
    items = group_items(node, Binder(scope))
    if not any(isinstance(one.kind, Person) for one in items):
        raise refused(
            node.args.get("group") or node, "a sub-query aggregates rows of different people",
            "Group it by the unit, or ask for it alone",
        )  # fmt: skip
    binder = _PersonBinder(scope, rows, items, rows_of(relation))
    columns: dict[str, Expression] = {}
    for item in node.expressions:
        name = output_name(item)
        if name in columns:
            raise refused(node, "two columns have the same name", "Name them apart with AS")
        columns[name] = binder.aliases[name] = binder.bind(item.unalias())
    having = node.args.get("having")
    condition = binder.truth(having.this) if having is not None else None
    grouped: Relation = PerUnit(relation, tuple(binder.keys), tuple(binder.aggregates))
    if condition is not None:
        grouped = Filter(grouped, condition)
    bound = project(rows.fresh, grouped, columns)
    return bound.relation, bound.columns


class _PersonBinder(Binder):
    """Binds over the result of a grouping: keys and aggregates become columns."""

    def __init__(self, scope: Scope, rows: RowBinder, items: list[Expression], most: int) -> None:
        super().__init__(scope)
        self._row = Binder(scope)
        self._most = most
        self._fresh = rows.fresh
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
        if is_aggregate(node):
            return self._aggregate(node)
        if node.find(exp.AggFunc) is None and node.find(exp.Column) is not None:
            found = self._grouped(node)
            if found is not None:
                return found
            if isinstance(node, exp.Column):
                raise refused(node, f'"{node.name[:60]}" is neither grouped nor aggregated', "Group by it")
        return super().bind(node)

    def _grouped(self, node: exp.Expr) -> Expression | None:
        """What is grouped by, or a name of the SELECT list, which HAVING may use."""
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
        distinct = inner.this if isinstance(inner.this, exp.Distinct) else None
        if isinstance(inner, exp.Count):
            return self._count(inner, distinct, condition)
        if distinct is not None:
            raise refused(node, f"DISTINCT is not possible in {name_of(inner)}", "Leave it out")
        if not isinstance(inner, exp.Sum | exp.Min | exp.Max | exp.Avg):
            raise refused(
                node, f"{name_of(inner)} is not possible within a person's rows",
                "Use COUNT, SUM, AVG, MIN or MAX there",
            )  # fmt: skip
        only(inner, "this")
        value = self._filtered(self._row.bind(inner.this), condition)
        if isinstance(inner, exp.Min | exp.Max):
            return self._extreme("min" if isinstance(inner, exp.Min) else "max", value)
        value = as_number(value)
        kind = value.kind
        assert isinstance(kind, Number)
        if kind.first is None or kind.last is None:
            raise refused(
                node, "a number without bounds cannot be summed", "Bound it with CLAMP(x, low, high)"
            )
        ends = min(kind.first, self._most * kind.first), max(kind.last, self._most * kind.last)
        require_small(Number(kind.step, *ends))
        total = self._add("sum", value, Number(kind.step, *ends))
        if isinstance(inner, exp.Sum):
            return total
        count = self._add("count", value, Number(Fraction(1), 0, self._most))
        bounds = AVERAGE_DIGITS * kind.first, AVERAGE_DIGITS * kind.last
        average = Number(kind.step / AVERAGE_DIGITS, *bounds)
        for end in ends:  # on the way it is as large as that
            require_small(Number(average.step, AVERAGE_DIGITS * end, AVERAGE_DIGITS * end))
        return apply(Op.QUOTIENT, total, count, kind=average, parameter=AVERAGE_DIGITS)

    def _count(
        self, node: exp.Count, distinct: exp.Distinct | None, condition: exp.Expr | None
    ) -> Expression:
        only(node, "this", "big_int")
        kind = Number(Fraction(1), 0, self._most)
        if distinct is not None:
            if len(distinct.expressions) != 1:
                raise refused(node, "COUNT(DISTINCT) of several columns", "Count one of them")
            value = self._row.bind(distinct.expressions[0])
            if isinstance(value.kind, Person):
                raise refused(node, "a person's rows have one unit", "Use COUNT(*)")
            return self._add("distinct", self._filtered(value, condition), kind)
        if isinstance(node.this, exp.Star):
            if condition is None:
                return self._add("rows", None, kind)
            return self._add("count", self._filtered(number(1), condition), kind)
        value = self._row.bind(node.this)
        if isinstance(value.kind, Person):
            value = number(1)
        return self._add("count", self._filtered(value, condition), kind)

    def _filtered(self, value: Expression, condition: exp.Expr | None) -> Expression:
        return value if condition is None else only_where(value, self._row.truth(condition))

    def _extreme(self, function: str, value: Expression) -> Expression:
        if isinstance(value.kind, Truth):
            value = as_number(value)
        if isinstance(value.kind, Choice) or not isinstance(value.kind, Number | Moment | Period):
            raise Refused("MIN and MAX need numbers or times", "Use them on a column with bounds")
        return self._add(function, value, value.kind)

    def _add(self, function: str, value: Expression | None, kind: Kind) -> Reference:
        known = self._places.get((function, value))
        if known is None:
            known = self._places[function, value] = Reference(self._fresh(), kind)
            self.aggregates.append((known.name, function, value, kind))
        return known


def only_where(value: Expression, condition: Expression) -> Expression:
    """The value where the condition holds, else unknown."""
    return apply(Op.CASE, condition, value, null_of(value.kind), kind=value.kind)
