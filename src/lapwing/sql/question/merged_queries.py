"""Merging of sub-queries in FROM into the SELECT around them: ibis writes a sub-query for each step.

Claim    a merged query has the result of the query as it was written.
Because  a sub-query that only filters and computes gives rows. What is computed from its columns is
         computed from what they stand for, and both conditions hold for the same rows. A SELECT over groups
         that has no aggregates computes, filters and orders them: so do SELECT, HAVING and ORDER BY of the
         groups, as long as they still have an aggregate or a key. Whatever else there is stays as it is
         written, windows above all: they relate rows, and WHERE would choose these first. The columns of a
         sub-query have names of their own: ibis sees to it.
Test     tests/sql/question/test_merged_queries.py

Text that an analyst wrote is never merged: its meaning is stored as it was asked. Nor is such text within
an expression of ibis, where a column has no table. Earlier versions merged nothing: what they stored for an
expression is looked up by the query as it is written (`bind_with_earlier`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

_ROW_CLAUSES = {"expressions", "from_", "joins", "where"}
_GROUP_CLAUSES = _ROW_CLAUSES | {"group", "having"}
_OVER_ROWS = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "with_"}
_OVER_GROUPS = {"expressions", "from_", "where", "order", "limit", "offset"}
# Expressions that need no brackets in another one.
_CLOSED = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Cast, exp.AggFunc, exp.Filter, exp.Paren)


def merged(query: exp.Query) -> exp.Query:
    """Return an equal query with as few sub-queries in FROM as this module can see through."""
    query = query.copy()
    for below in _sub_queries(query):
        below.set("this", merged(below.this))
    while isinstance(query, exp.Select):
        less = _with_rows_merged(query) or _with_groups_merged(query)
        if less is None:
            break
        query = less
    return query


def _sub_queries(query: exp.Query) -> list[exp.Expr]:
    """Return the nodes whose `this` is a query that a SELECT reads."""
    if isinstance(query, exp.SetOperation):
        return [side for side in (query.this, query.expression) if isinstance(side, exp.Subquery)]
    with_ = query.args.get("with_")
    read: list[exp.Expr] = list(with_.expressions) if with_ is not None else []
    from_ = query.args.get("from_")
    read += [node.this for node in (from_, *(query.args.get("joins") or ())) if node is not None]
    return [
        node
        for node in read
        if isinstance(node, exp.Subquery | exp.CTE) and isinstance(node.this, exp.Query)
    ]


def _only_has(node: exp.Expr, names: set[str]) -> bool:
    return all(name in names or not value for name, value in node.args.items())


def _star_of(item: exp.Expr) -> str | None:
    """Return the table of which an item of SELECT is all columns, or "" for all tables; else None."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star) or any(star.args.values()):  # with EXCLUDE or REPLACE
        return None
    return item.table if isinstance(item, exp.Column) else ""


def _aggregates(query: exp.Select) -> bool:
    if query.args.get("group") or query.args.get("having"):
        return True
    return any(item.find(exp.AggFunc) is not None for item in query.expressions)


def _inner(query: exp.Select, clauses: set[str]) -> exp.Select | None:
    """Return the sub-query that is all a SELECT reads, if it has no other clauses than these."""
    from_ = query.args.get("from_")
    source = from_.this if from_ is not None else None
    if not isinstance(source, exp.Subquery) or query.args.get("joins") or query.find(exp.Window):
        return None
    if not source.alias or source.alias_column_names or not _only_has(source, {"this", "alias"}):
        return None
    inner = source.this
    if not isinstance(inner, exp.Select) or not _only_has(inner, clauses):
        return None
    # Ibis names the table of each column. SQL in an expression of ibis may not, and such a name could be
    # that of another column elsewhere.
    return inner if all(column.table for column in inner.find_all(exp.Column)) else None


@dataclass(slots=True)
class _Columns:
    """The expressions that the columns of a sub-query stand for."""

    alias: str
    named: dict[str, exp.Expr] = field(default_factory=dict)
    rest: str | None = None  # the table of all other columns

    @classmethod
    def of(cls, inner: exp.Select, alias: str) -> _Columns | None:
        """Read the SELECT list; None if a name may stand for several things."""
        known, stars, from_ = cls(alias), [], inner.args.get("from_")
        for item in inner.expressions:
            if (table := _star_of(item)) is not None:
                stars.append(table)
            elif item.is_star or not (name := item.alias_or_name.lower()) or name in known.named:
                return None
            else:
                known.named[name] = item.unalias()
        if len(stars) > 1 or from_ is None:
            return None
        for table in stars:
            source = from_.this
            if not table and (inner.args.get("joins") or not isinstance(source, exp.Table)):
                return None
            known.rest = table or source.alias_or_name
        return known

    def replaced(self, node: exp.Expr) -> exp.Expr | None:
        """Return a node with what its columns stand for; None if that is not known."""
        replacement = node.copy()
        for column in list(replacement.find_all(exp.Column)):
            value = self.value(column)
            if value is None:
                return None
            if column is replacement:
                return value
            needs_brackets = not isinstance(value, _CLOSED)
            column.replace(exp.Paren(this=value) if needs_brackets else value)
        return replacement

    def value(self, column: exp.Column) -> exp.Expr | None:
        """Return what a column stands for; None if that is not known."""
        name = column.name.lower()
        if column.table.lower() != self.alias.lower() or isinstance(column.this, exp.Star):
            return None
        if name in self.named:
            value = self.named[name]
            # A number in GROUP BY or ORDER BY would be a position.
            return value.copy() if value.find(exp.Column, exp.Star) is not None else None
        if self.rest is None:
            return None
        return exp.Column(this=column.this.copy(), table=exp.to_identifier(self.rest, quoted=True))


def _both(kind: type[exp.Expr], *clauses: exp.Expr | None) -> exp.Expr | None:
    """Return a WHERE or HAVING whose condition holds where all of the given ones do."""
    sides = [clause.this.copy() for clause in clauses if clause is not None]
    if len(sides) == 2:
        first, second = (side if isinstance(side, exp.And) else exp.Paren(this=side) for side in sides)
        sides = [exp.And(this=first, expression=second)]
    return kind(this=sides[0]) if sides else None


def _replaced_clauses(
    query: exp.Select, columns: _Columns, names: tuple[str, ...]
) -> dict[str, exp.Expr] | None:
    """Return the clauses of a SELECT over what its columns stand for; None if one cannot be said so."""
    clauses: dict[str, exp.Expr] = {}
    for name in names:
        clause = query.args.get(name)
        if clause is None:
            continue
        replaced = None if clause.find(exp.Query) else columns.replaced(clause)
        if replaced is None:
            return None
        clauses[name] = replaced
    return clauses


def _replaced_items(query: exp.Select, columns: _Columns, inner: exp.Select) -> list[exp.Expr] | None:
    """Return the SELECT list over what its columns stand for, under the same names."""
    items: list[exp.Expr] = []
    for item in query.expressions:
        if _star_of(item) in ("", columns.alias):
            items += [column.copy() for column in inner.expressions]
            continue
        replaced = None if item.find(exp.Query) else columns.replaced(item)
        if replaced is None:
            return None
        if not isinstance(item, exp.Alias) and replaced.alias_or_name != item.alias_or_name:
            replaced = exp.alias_(replaced, item.alias_or_name, quoted=True)
        items.append(replaced)
    return items


def _with_rows_merged(query: exp.Select) -> exp.Select | None:
    """Return a SELECT over the source of its sub-query, if that gives rows; else None."""
    inner = _inner(query, _ROW_CLAUSES)
    if inner is None or _aggregates(inner) or not _only_has(query, _OVER_ROWS):
        return None
    columns = _Columns.of(inner, query.args["from_"].this.alias)
    if columns is None or (query.args.get("group") and any(item.is_star for item in query.expressions)):
        return None
    items = _replaced_items(query, columns, inner)
    clauses = _replaced_clauses(query, columns, ("where", "group", "having", "order"))
    if items is None or clauses is None:
        return None
    merged = query.copy()
    _set(merged, {**clauses, "where": _both(exp.Where, inner.args.get("where"), clauses.get("where"))})
    merged.set("expressions", items)
    merged.set("from_", inner.args["from_"].copy())
    merged.set("joins", [join.copy() for join in inner.args.get("joins") or ()])
    return merged


def _with_groups_merged(query: exp.Select) -> exp.Select | None:
    """Return the groups of a sub-query, computed, filtered and ordered as the SELECT over them does."""
    inner = _inner(query, _GROUP_CLAUSES)
    if inner is None or not _aggregates(inner) or _aggregates(query) or not _only_has(query, _OVER_GROUPS):
        return None
    columns = _Columns.of(inner, query.args["from_"].this.alias)
    if columns is None or columns.rest is not None:
        return None
    items = _replaced_items(query, columns, inner)
    clauses = _replaced_clauses(query, columns, ("where", "order"))
    if items is None or clauses is None:
        return None
    merged = inner.copy()
    group = merged.args.get("group")
    if group is not None:  # positions are those of the list that goes
        if not _only_has(group, {"expressions"}) or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
            return None
        group.set("expressions", [_at(inner, item) for item in group.expressions])
    having = _both(exp.Having, inner.args.get("having"), clauses.get("where"))
    _set(merged, {"having": having, "order": clauses.get("order")})
    _set(merged, {name: query.args[name].copy() for name in ("limit", "offset") if query.args.get(name)})
    merged.set("expressions", items)
    return merged if _aggregates(merged) else None  # else it would give rows, not the one group of them


def _at(query: exp.Select, item: exp.Expr) -> exp.Expr:
    """Return what an item of GROUP BY stands for, if it is a position."""
    place = int(item.name) if isinstance(item, exp.Literal) and item.is_int else 0
    return query.expressions[place - 1].unalias().copy() if place else item.copy()


def _set(query: exp.Select, clauses: Mapping[str, exp.Expr | None]) -> None:
    for name, clause in clauses.items():
        query.set(name, clause)
