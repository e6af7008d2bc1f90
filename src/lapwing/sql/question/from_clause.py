"""Binding of FROM, JOIN, WHERE, CTEs and sub-queries to relations with known bounds.

A private table is joined to a public one by public keys, and to a private one by the privacy unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from lapwing.sql.policy.kinds import Kind, Person
from lapwing.sql.question.analysis import narrow_to_blocks
from lapwing.sql.question.comparison import joint_kind, unified
from lapwing.sql.question.expression import Expression, Op, Reference
from lapwing.sql.question.grouping import bind_per_unit
from lapwing.sql.question.public_tables import can_join
from lapwing.sql.question.refusal import Refused, allow_only, name_of, refused
from lapwing.sql.question.relation import (
    UNIT,
    Filter,
    Join,
    Project,
    PublicScan,
    Relation,
    UnionAll,
    is_private,
    public_scans_of,
    scans_of,
)
from lapwing.sql.question.scalar import ExpressionBinder
from lapwing.sql.question.scope import (
    SAME_NAME,
    BoundSubquery,
    Catalog,
    FromItem,
    Scope,
    output_name,
    project,
    without_clashes,
)
from lapwing.sql.question.typed_expressions import apply, with_kind

Pair = tuple[Expression, Expression]


def bind_join(
    binder: RelationBinder, left: Relation, scope: Scope, node: exp.Join, ctes: Mapping[str, BoundSubquery]
) -> Relation:
    """Bind the join of the left relation to one more table, which is added to the scope."""
    allow_only(node, "this", "side", "kind", "on", "using")
    side, kind = node.side.upper(), node.kind.upper()
    if (side, kind) not in (("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")):
        what = " ".join(word for word in (side, kind, "JOIN") if word)
        instead = "Use JOIN or LEFT JOIN, the private table first"
        raise refused(node.this, f"{what} is not possible", instead)
    if not node.args.get("on") and not node.args.get("using"):
        raise refused(node.this, "a join has no keys", "Write JOIN … ON a.key = b.key")
    keeps_left = side == "LEFT"
    right, source = binder.table(node.this, ctes)
    if any(other.alias == source.alias for other in scope.sources):
        why = f'two tables are called "{source.alias}"'
        raise refused(node.this, why, "Give one of them another name with AS")
    joining = _Joining(binder, scope, node, keeps_left)
    if is_private(left):
        return joining.joined(left, right, source, swapped=False)
    if not is_private(right):
        why = "two public tables cannot be joined to each other first"
        raise refused(node.this, why, "Begin with a private one")
    if keeps_left:
        raise refused(node.this, "a private table is on the optional side of LEFT JOIN", "Put it first")
    return joining.joined(right, left, source, swapped=True)


@dataclass(slots=True)
class _Joining:
    """A join that is being bound."""

    binder: RelationBinder
    scope: Scope
    node: exp.Join
    keeps_left: bool

    def joined(self, left: Relation, right: Relation, source: FromItem, *, swapped: bool) -> Relation:
        """Return the join.

        `left` is private. `source` is the table in JOIN: the right relation, or the left if swapped.
        """
        scope = self.scope
        right, clash = without_clashes(self.binder.fresh, right, {name for name, _ in left.columns})
        if swapped:
            scope.sources = [_renamed(item, clash) for item in scope.sources]
            mine, other = Scope([source]), Scope(list(scope.sources))
        else:
            source = _renamed(source, clash)
            mine, other = Scope(list(scope.sources)), Scope([source])
        scope.sources.append(source)
        pairs, rest = _conditions(self.node, mine, other)
        keys = [pair for pair in pairs if not isinstance(pair[0].kind, Person)]
        by_unit = len(keys) < len(pairs)
        if is_private(right):
            self._require_unit(by_unit)
            if self.keeps_left:  # its unit is NULL in rows without a match
                joined = {name.name.lower() for name in self.node.args.get("using") or ()}
                for name, expression in list(source.columns.items()):
                    if isinstance(expression.kind, Person) and name not in joined:
                        del source.columns[name]
            return self._with_rest(self._to_private(left, right, keys), rest)
        if by_unit or not keys:
            why = "a public table is joined without a key of its own"
            raise self._refused(why, "Write ON a.key = b.key")
        return self._with_rest(self._to_public(left, right, keys), rest)

    def _refused(self, construct: str, instead: str) -> Refused:
        return refused(self.node.this, construct, instead)

    def _require_unit(self, by_unit: bool) -> None:
        if not by_unit:
            why = "two private tables are joined by something other than the unit"
            raise self._refused(why, "Write ON a.unit = b.unit, with more conditions after it")
        if self.binder.catalog.slices_rows:
            why = "private tables cannot be joined if blocks are periods of rows"
            raise self._refused(why, "There the privacy unit is a person in one period")

    def _with_rest(self, join: Join, rest: list[exp.Expr]) -> Relation:
        """Return an inner join with the other conditions of ON as a filter."""
        if not rest:
            return join
        if join.keeps_left:
            raise self._refused("ON of a LEFT JOIN has more than equal keys", "Filter in a sub-query first")
        binder = ExpressionBinder(self.scope)
        return Filter(join, apply(Op.AND, *[binder.truth(condition) for condition in rest]))

    def _to_private(self, left: Relation, right: Relation, keys: list[Pair]) -> Join:
        on: list[tuple[str, str]] = []
        for a, b in keys:
            first, second = unified([a, b])
            left, left_name = _key_name(self.binder, left, first)
            right, right_name = _key_name(self.binder, right, second)
            on.append((left_name, right_name))
        return Join(left, right, tuple(on), self.keeps_left, 0)

    def _to_public(self, left: Relation, right: Relation, keys: list[Pair]) -> Join:
        """Return the join to a public table, whose keys are coded as those of the private side."""
        if not isinstance(right, PublicScan):
            raise self._refused("a sub-query over public tables is not possible", "Join the table itself")
        on: list[tuple[str, str]] = []
        coded: list[tuple[str, Kind]] = []
        for a, b in keys:
            if not isinstance(b, Reference):
                raise self._refused("the key of a public table is computed", "Join by a column of it")
            position = [name for name, _ in right.columns].index(b.name)
            own, source = right.columns[position][1], right.sources[position]
            if not can_join(own, a.kind):
                why = "the keys of the join are of different types"
                raise self._refused(why, "Join columns of the same type")
            left, left_name = _key_name(self.binder, left, a)
            right_name = b.name
            if own != a.kind:
                right_name = self.binder.fresh()
                columns = (*right.columns, (right_name, a.kind))
                right = replace(right, columns=columns, sources=(*right.sources, source))
            on.append((left_name, right_name))
            coded.append((source, a.kind))
        most = self.binder.catalog.public[right.table].most(coded)
        return Join(left, right, tuple(on), self.keeps_left, most)


def _renamed(source: FromItem, names: Mapping[str, str]) -> FromItem:
    columns = {
        visible: Reference(names.get(expression.name, expression.name), expression.kind)
        if isinstance(expression, Reference)
        else expression
        for visible, expression in source.columns.items()
    }
    return replace(source, columns=columns)


def _conditions(node: exp.Join, mine: Scope, other: Scope) -> tuple[list[Pair], list[exp.Expr]]:
    """Return the pairs of equal keys, and the other conditions of ON."""
    pairs: list[Pair] = []
    rest: list[exp.Expr] = []
    for name in node.args.get("using") or ():
        column = exp.column(name.copy())
        pairs.append((mine.find(column), other.find(column)))
        for source in other.sources:  # USING makes one column: its name means the left one
            source.columns[name.name.lower()] = pairs[-1][0]
    on = node.args.get("on")
    conditions = [] if on is None else list(on.flatten()) if isinstance(on, exp.And) else [on]
    for condition in conditions:
        bare = condition.unnest()
        pair = _equal(bare, mine, other) if isinstance(bare, exp.EQ) else None
        if pair is None:
            rest.append(bare)
        else:
            pairs.append(pair)
    if any(isinstance(a.kind, Person) is not isinstance(b.kind, Person) for a, b in pairs):
        raise refused(node.this, "the unit is joined to another column", "Join it to the unit")
    return pairs, rest


def _equal(node: exp.EQ, mine: Scope, other: Scope) -> Pair | None:
    for first, second in ((node.this, node.expression), (node.expression, node.this)):
        if _only_of(first, mine) and _only_of(second, other):
            return ExpressionBinder(mine).bind(first), ExpressionBinder(other).bind(second)
    return None


def _only_of(node: exp.Expr, scope: Scope) -> bool:
    """Return whether the node has columns, and all of them belong to this side."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(
        any(column.name.lower() in item.columns for item in scope.named(column.table)) for column in columns
    )


def _key_name(binder: RelationBinder, relation: Relation, expression: Expression) -> tuple[Relation, str]:
    """Return the relation with a column that holds a key, and the column's name."""
    if isinstance(expression, Reference):
        return relation, expression.name
    name = binder.fresh()
    kept = tuple((column, Reference(column, kind)) for column, kind in relation.columns)
    return Project(relation, (*kept, (name, expression))), name


_MOST_TABLES = 20
_MOST_QUERIES = 40  # nested ones: each takes stack of Python and of the engine


@dataclass(slots=True)
class RelationBinder:
    """A binder of the parts of a query below its final aggregation."""

    catalog: Catalog
    names: int = 0  # new names that were given
    tables: int = 0  # tables that are read
    queries: int = 0  # sub-queries

    def fresh(self) -> str:
        """Return a new column name. The names of analysts never reach the engine."""
        self.names += 1
        return f"lapwing_c{self.names}"  # policies cannot have columns that begin so

    def ctes(self, query: exp.Query, outer: Mapping[str, BoundSubquery]) -> dict[str, BoundSubquery]:
        """Return the outer CTEs and those of the query. Each may use the CTEs before it."""
        known = dict(outer)
        with_ = query.args.get("with_")
        if with_ is None:
            return known
        allow_only(with_, "expressions", "recursive")
        if with_.args.get("recursive"):
            raise refused(with_, "WITH RECURSIVE is not possible", "Write each step as a CTE of its own")
        for cte in with_.expressions:
            allow_only(cte, "this", "alias")
            allow_only(cte.args["alias"], "this")
            known[cte.alias.lower()] = self.query(cte.this, known)
        return known

    def query(self, node: exp.Expr, ctes: Mapping[str, BoundSubquery]) -> BoundSubquery:
        """Bind a sub-query or a CTE to rows, or to one row for each unit."""
        self.queries += 1
        if self.queries > _MOST_QUERIES:
            raise refused(node, f"there are more than {_MOST_QUERIES} sub-queries", "Use fewer")
        if isinstance(node, exp.Subquery):
            allow_only(node, "this", "with_")
            return self.query(node.this, self.ctes(node, ctes))
        if isinstance(node, exp.Union):
            return self.union(node, self.ctes(node, ctes))
        if not isinstance(node, exp.Select):
            raise refused(node, f"{name_of(node)} is not possible here", "Use SELECT or UNION ALL")
        if node.args.get("distinct"):
            why = "SELECT DISTINCT compares rows of different people"
            raise refused(node, why, "Use GROUP BY with the unit")
        if node.args.get("order") or node.args.get("limit"):
            why = "ORDER BY and LIMIT relate rows of different people"
            raise refused(node, why, "Use them in the last SELECT")
        allow_only(node, "expressions", "from_", "joins", "where", "group", "having", "with_")
        relation, scope = self.rows(node, self.ctes(node, ctes))
        if node.args.get("group") or any(
            output.find(exp.AggFunc) is not None for output in node.expressions
        ):
            return bind_per_unit(self.catalog, self.fresh, node, relation, scope)
        if node.args.get("having"):
            raise refused(node.args["having"], "HAVING needs GROUP BY", "Use WHERE")
        return self.projected(node, relation, scope)

    def rows(self, node: exp.Select, ctes: Mapping[str, BoundSubquery]) -> tuple[Relation, Scope]:
        """Bind FROM, JOIN and WHERE."""
        from_ = node.args.get("from_")
        if from_ is None:
            raise refused(node, "there is no FROM", "Ask about a table")
        allow_only(from_, "this")
        relation, source = self.table(from_.this, ctes)
        scope = Scope([source])
        for join in node.args.get("joins") or ():
            relation = bind_join(self, relation, scope, join, ctes)
        where = node.args.get("where")
        if where is not None:
            predicate = ExpressionBinder(scope).truth(where.this)
            relation = Filter(narrow_to_blocks(relation, predicate, self.catalog.policy.blocks), predicate)
        return relation, scope

    def table(self, node: exp.Expr, ctes: Mapping[str, BoundSubquery]) -> tuple[Relation, FromItem]:
        """Bind one item of FROM or JOIN."""
        if isinstance(node, exp.Subquery):
            if not node.alias:
                raise refused(node, "a sub-query has no name", "Write (SELECT …) AS name")
            allow_only(node, "this", "alias", "with_")
            allow_only(node.args["alias"], "this")
            bound = self.query(node.this, self.ctes(node, ctes))
            return bound.relation, FromItem(node.alias.lower(), bound.columns)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            called = node.this if isinstance(node, exp.Table) and isinstance(node.this, exp.Expr) else node
            raise refused(node, f"{name_of(called)} is not possible in FROM", "Name a table of the policy")
        if node.args.get("db") or node.args.get("catalog"):
            raise refused(node, "schema names are not possible", "Name a table of the policy")
        allow_only(node, "this", "alias")
        if node.args.get("alias"):
            allow_only(node.args["alias"], "this")
        alias = (node.alias or node.name).lower()
        if node.name.lower() in ctes:
            bound = ctes[node.name.lower()]
            self._count(node, len(scans_of(bound.relation)) + len(public_scans_of(bound.relation)))
            return bound.relation, FromItem(alias, bound.columns)
        self._count(node, 1)
        table = self.catalog.find(node)
        if table.is_public:
            public = self.catalog.public_scan(table)
            columns: dict[str, Expression] = {n.lower(): Reference(n, kind) for n, kind in public.columns}
            return public, FromItem(alias, columns)
        scan = self.catalog.private_scan(table)
        return scan, self.catalog.private_source(table, scan, alias)

    def _count(self, node: exp.Expr, tables: int) -> None:
        """Count tables and refuse too many: each can multiply the engine's work.

        A CTE counts at each use.
        """
        self.tables += tables
        if self.tables > _MOST_TABLES:
            raise refused(node, f"there are more than {_MOST_TABLES} tables", "Use fewer")

    def projected(self, node: exp.Select, relation: Relation, scope: Scope) -> BoundSubquery:
        """Bind the columns of a SELECT without aggregates."""
        if not is_private(relation):
            raise refused(node, "a sub-query over public tables is not possible", "Join the table itself")
        binder = ExpressionBinder(scope)
        columns: dict[str, Expression] = {}
        for name, expression in [pair for item in node.expressions for pair in _selected(item, binder)]:
            if columns.get(name, expression) != expression:
                raise refused(node, *SAME_NAME)
            columns[name] = expression
        return project(self.fresh, relation, columns)

    def union(self, node: exp.Union, ctes: Mapping[str, BoundSubquery]) -> BoundSubquery:
        """Bind UNION ALL. The contribution bounds of both sides add."""
        if node.args.get("distinct"):
            raise refused(node, "UNION compares rows of different people", "Write UNION ALL")
        allow_only(node, "this", "expression", "distinct", "with_")
        parts = [self.query(side, ctes) for side in (node.this, node.expression)]
        names = list(parts[0].columns)
        if len(names) != len(parts[1].columns):
            raise refused(node, "the sides of UNION ALL have different columns", "Select the same columns")
        together = zip(*(part.columns.values() for part in parts), strict=True)
        pairs = [_unified_or_person(node, a, b) for a, b in together]
        sides: list[list[tuple[str, Expression]]] = [[], []]
        columns: dict[str, Expression] = {}
        for name, pair in zip(names, pairs, strict=True):
            if isinstance(pair[0].kind, Person):
                columns[name] = Reference(UNIT, pair[0].kind)
                continue
            united = columns[name] = Reference(self.fresh(), joint_kind(pair))
            for side, expression in zip(sides, pair, strict=True):
                side.append((united.name, with_kind(expression, united.kind)))
        made = [Project(part.relation, tuple(side)) for part, side in zip(parts, sides, strict=True)]
        return BoundSubquery(UnionAll(tuple(made)), columns)


def _selected(item: exp.Expr, binder: ExpressionBinder) -> Iterable[tuple[str, Expression]]:
    """Return the name and the expression of an item of SELECT, or of all columns that its * means."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return [(output_name(item), binder.bind(item.unalias()))]
    allow_only(star)
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    meant = binder.scope.named(table)
    if not meant:
        raise refused(item, f'there is no table "{table[:60]}" here', "Name one of FROM")
    return [pair for source in meant for pair in source.columns.items()]


def _unified_or_person(node: exp.Expr, left: Expression, right: Expression) -> list[Expression]:
    """Return both expressions with one kind. A unit can be united with a unit only."""
    if isinstance(left.kind, Person) is not isinstance(right.kind, Person):
        why = "the unit of one side is matched with another column"
        raise refused(node, why, "Select it at the same position")
    return [left, right] if isinstance(left.kind, Person) else unified([left, right])
