"""Binding of FROM, JOIN, WHERE, CTEs and sub-queries to a relation with known bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from lapwing.query.binding.bound import Bound, output_name, project
from lapwing.query.binding.build import with_kind
from lapwing.query.binding.catalog import Catalog
from lapwing.query.binding.joining import joined
from lapwing.query.binding.narrow import narrowed
from lapwing.query.binding.person import bind_person
from lapwing.query.binding.refused import name_of, only, refused
from lapwing.query.binding.scalar import Binder
from lapwing.query.binding.scope import Scope, Source
from lapwing.query.binding.unify import joint_kind, unified
from lapwing.query.language.expression import Expression, Reference
from lapwing.query.language.kinds import Person
from lapwing.query.language.relation import (
    UNIT,
    Filter,
    Project,
    Relation,
    UnionAll,
    is_private,
    public_scans_of,
    rows_of,
    scans_of,
)

_MOST_TABLES = 20
_MOST_ROWS_OF_A_UNIT = 1 << 20
_MOST_QUERIES = 40  # one in the other: Python's stack and the engines' go down with each


@dataclass(slots=True)
class RowBinder:
    """Binds what stands below the final aggregation."""

    catalog: Catalog
    names: int = 0
    tables: int = 0
    queries: int = 0

    def fresh(self) -> str:
        """A name of ours: analysts' names never reach the engine."""
        self.names += 1
        return f"lapwing_c{self.names}"  # no policy has a column that begins so

    def ctes(self, query: exp.Query, outer: Mapping[str, Bound]) -> dict[str, Bound]:
        """The outer CTEs and the query's own, in order: each may use those before it."""
        known = dict(outer)
        with_ = query.args.get("with_")
        if with_ is None:
            return known
        only(with_, "expressions", "recursive")
        if with_.args.get("recursive"):
            raise refused(with_, "WITH RECURSIVE is not possible", "Write each step as a CTE of its own")
        for cte in with_.expressions:
            only(cte, "this", "alias")
            only(cte.args["alias"], "this")
            known[cte.alias.lower()] = self.query(cte.this, known)
        return known

    def query(self, node: exp.Expr, ctes: Mapping[str, Bound]) -> Bound:
        """A sub-query or CTE: rows, or one row for each unit."""
        self.queries += 1
        if self.queries > _MOST_QUERIES:
            raise refused(node, f"there are more than {_MOST_QUERIES} sub-queries", "Use fewer")
        if isinstance(node, exp.Subquery):
            only(node, "this", "with_")
            return self.query(node.this, self.ctes(node, ctes))
        if isinstance(node, exp.Union):
            return self.union(node, self.ctes(node, ctes))
        if not isinstance(node, exp.Select):
            raise refused(node, f"{name_of(node)} is not possible here", "Use SELECT or UNION ALL")
        if node.args.get("distinct"):
            raise refused(
                node, "SELECT DISTINCT compares rows of different people", "Use GROUP BY with the unit"
            )
        if node.args.get("order") or node.args.get("limit"):
            raise refused(
                node, "ORDER BY and LIMIT relate rows of different people", "Leave them to the last SELECT"
            )
        only(node, "expressions", "from_", "joins", "where", "group", "having", "with_")
        known = self.ctes(node, ctes)
        relation, scope = self.rows(node, known)
        if node.args.get("group") or any(_aggregates(one) for one in node.expressions):
            relation, columns = bind_person(self, node, relation, scope)
            return Bound(relation, columns)
        if node.args.get("having"):
            raise refused(node.args["having"], "HAVING needs GROUP BY", "Use WHERE")
        return self.projected(node, relation, scope)

    def rows(self, node: exp.Select, ctes: Mapping[str, Bound]) -> tuple[Relation, Scope]:
        """FROM, JOIN and WHERE."""
        from_ = node.args.get("from_")
        if from_ is None:
            raise refused(node, "there is no FROM", "Ask about a table")
        only(from_, "this")
        scope = Scope()
        relation, source = self.table(from_.this, ctes)
        scope.sources.append(source)
        for join in node.args.get("joins") or ():
            relation = joined(self, relation, scope, join, ctes)
        where = node.args.get("where")
        if where is not None:
            predicate = Binder(scope).truth(where.this)
            relation = Filter(narrowed(relation, predicate, self.catalog.policy.blocks), predicate)
        # Also in a sub-query that makes few rows of them: one person's rows must not keep an engine busy.
        if is_private(relation) and rows_of(relation) > _MOST_ROWS_OF_A_UNIT:
            raise refused(node, "one person could have too many rows after the joins", "Join fewer tables")
        return relation, scope

    def table(self, node: exp.Expr, ctes: Mapping[str, Bound]) -> tuple[Relation, Source]:
        """One item of FROM or JOIN."""
        if isinstance(node, exp.Subquery):
            if not node.alias:
                raise refused(node, "a sub-query has no name", "Write (SELECT …) AS name")
            only(node, "this", "alias", "with_")
            only(node.args["alias"], "this")
            bound = self.query(node.this, self.ctes(node, ctes))
            return bound.relation, Source(node.alias.lower(), bound.columns)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            called = node.this if isinstance(node, exp.Table) and isinstance(node.this, exp.Expr) else node
            raise refused(node, f"{name_of(called)} is not possible in FROM", "Name a table of the policy")
        if node.args.get("db") or node.args.get("catalog"):
            raise refused(node, "names of schemas are not needed", "Name a table of the policy")
        only(node, "this", "alias")
        if node.args.get("alias"):
            only(node.args["alias"], "this")
        alias = (node.alias or node.name).lower()
        if node.name.lower() in ctes:
            bound = ctes[node.name.lower()]
            self._count(node, len(scans_of(bound.relation)) + len(public_scans_of(bound.relation)))
            return bound.relation, Source(alias, bound.columns)
        self._count(node, 1)
        table = self.catalog.find(node)
        if table.is_public:
            public = self.catalog.public_scan(table)
            columns: dict[str, Expression] = {n.lower(): Reference(n, kind) for n, kind in public.columns}
            return public, Source(alias, columns)
        scan = self.catalog.private_scan(table)
        return scan, self.catalog.private_source(table, scan, alias)

    def _count(self, node: exp.Expr, tables: int) -> None:
        """Each may multiply the engine's work; a CTE is computed as often as it is named."""
        self.tables += tables
        if self.tables > _MOST_TABLES:
            raise refused(node, f"there are more than {_MOST_TABLES} tables", "Use fewer")

    def projected(self, node: exp.Select, relation: Relation, scope: Scope) -> Bound:
        """The columns of a SELECT without aggregates."""
        if not is_private(relation):
            raise refused(node, "a sub-query over public tables is not possible", "Join the table itself")
        binder = Binder(scope)
        columns: dict[str, Expression] = {}
        for name, expression in self.selected(node, binder, scope):
            if columns.get(name, expression) != expression:
                raise refused(node, "two columns have the same name", "Name them apart with AS")
            columns[name] = expression
        return project(self.fresh, relation, columns)

    def selected(self, node: exp.Select, binder: Binder, scope: Scope) -> list[tuple[str, Expression]]:
        """Names and values, with * written out."""
        found: list[tuple[str, Expression]] = []
        for item in node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                only(star)
                table = item.table.lower() if isinstance(item, exp.Column) else ""
                meant = [source for source in scope.sources if not table or source.alias == table]
                if not meant:
                    raise refused(item, f'there is no table "{table[:60]}" here', "Name one of FROM")
                found += [pair for source in meant for pair in source.columns.items()]
                continue
            value = item.unalias()
            found.append((output_name(item), binder.bind(value)))
        return found

    def union(self, node: exp.Union, ctes: Mapping[str, Bound]) -> Bound:
        """UNION ALL: rows of a unit add up."""
        if node.args.get("distinct"):
            raise refused(node, "UNION compares rows of different people", "Write UNION ALL")
        only(node, "this", "expression", "distinct", "with_")
        parts = [self.query(side, ctes) for side in (node.this, node.expression)]
        names = list(parts[0].columns)
        if len(names) != len(parts[1].columns):
            raise refused(node, "the sides of UNION ALL have different columns", "Select the same columns")
        together = [list(part.columns.values()) for part in parts]
        pairs = [unified_or_person(node, a, b) for a, b in zip(*together, strict=True)]
        fresh = [UNIT if isinstance(pair[0].kind, Person) else self.fresh() for pair in pairs]
        sides: list[Relation] = []
        kinds = [pair[0].kind if isinstance(pair[0].kind, Person) else joint_kind(pair) for pair in pairs]
        for side, part in enumerate(parts):
            together_now = zip(fresh, pairs, kinds, strict=True)
            outputs = tuple(
                (new, with_kind(pair[side], kind)) for new, pair, kind in together_now if new != UNIT
            )
            sides.append(Project(part.relation, outputs))
        columns: dict[str, Expression] = {
            name: Reference(new, kind) for name, new, kind in zip(names, fresh, kinds, strict=True)
        }
        return Bound(UnionAll(tuple(sides)), columns)


def unified_or_person(node: exp.Expr, left: Expression, right: Expression) -> list[Expression]:
    """Both of one kind; the unit only with the unit."""
    if isinstance(left.kind, Person) is not isinstance(right.kind, Person):
        raise refused(node, "the unit of one side stands beside another column", "Put it in the same place")
    return [left, right] if isinstance(left.kind, Person) else unified([left, right])


def _aggregates(node: exp.Expr) -> bool:
    return node.find(exp.AggFunc) is not None
