"""Binding of joins: private to public by public keys, private to private by the unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from lapwing.query.binding.bound import Bound, renamed
from lapwing.query.binding.build import apply
from lapwing.query.binding.public import can_be
from lapwing.query.binding.refused import Refused, only, refused
from lapwing.query.binding.scalar import Binder
from lapwing.query.binding.scope import Scope, Source
from lapwing.query.binding.unify import unified
from lapwing.query.language.expression import Expression, Op, Reference
from lapwing.query.language.kinds import Kind, Person
from lapwing.query.language.relation import Filter, Join, Project, PublicScan, Relation, is_private

if TYPE_CHECKING:
    from lapwing.query.binding.rows import RowBinder

Pair = tuple[Expression, Expression]


def joined(
    binder: RowBinder, left: Relation, scope: Scope, node: exp.Join, ctes: Mapping[str, Bound]
) -> Relation:
    """The left joined to one more table, which enters the scope."""
    only(node, "this", "side", "kind", "on", "using")
    side, kind = node.side.upper(), node.kind.upper()
    if (side, kind) not in (("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")):
        what = " ".join(word for word in (side, kind, "JOIN") if word)
        raise refused(
            node.this, f"{what} is not possible", "Use JOIN or LEFT JOIN, the private table first"
        )
    if not node.args.get("on") and not node.args.get("using"):
        raise refused(node.this, "a join has no keys", "Write JOIN … ON a.key = b.key")
    keeps_left = side == "LEFT"
    right, source = binder.table(node.this, ctes)
    if any(other.alias == source.alias for other in scope.sources):
        raise refused(node.this, f'"{source.alias}" stands twice', "Give one of them another name with AS")
    if not is_private(left) and is_private(right):
        if keeps_left:
            raise refused(node.this, "a private table on the optional side", "Put it first")
        return _Joining(binder, scope, node, False).joined(right, left, source, swapped=True)
    if not is_private(left):
        raise refused(node.this, "two public tables cannot be joined to each other first",
                      "Begin with a private one")  # fmt: skip
    return _Joining(binder, scope, node, keeps_left).joined(left, right, source, swapped=False)


@dataclass(slots=True)
class _Joining:
    """One join on its way."""

    binder: RowBinder
    scope: Scope
    node: exp.Join
    keeps_left: bool

    def joined(self, left: Relation, right: Relation, source: Source, *, swapped: bool) -> Relation:
        """`left` is private. `source` names what was joined last: the right, or when swapped the left."""
        scope = self.scope
        right, clash = renamed(self.binder.fresh, right, {name for name, _ in left.columns})
        if swapped:
            scope.sources = [_renamed(one, clash) for one in scope.sources]
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
            if self.keeps_left:  # where nothing was joined, its unit would be NULL
                joined = {name.name.lower() for name in self.node.args.get("using") or ()}
                for name, one in list(source.columns.items()):
                    if isinstance(one.kind, Person) and name not in joined:
                        del source.columns[name]
            return self._with_rest(self._to_private(left, right, keys), rest)
        if by_unit or not keys:
            raise self._refused("a public table is not joined by a column of it", "Write ON a.key = b.key")
        return self._with_rest(self._to_public(left, right, keys), rest)

    def _refused(self, construct: str, instead: str) -> Refused:
        return refused(self.node.this, construct, instead)

    def _require_unit(self, by_unit: bool) -> None:
        if not by_unit:
            raise self._refused(
                "two private tables are joined by something other than the unit",
                "Write ON a.unit = b.unit, with more conditions after it",
            )
        if self.binder.catalog.slices_rows:
            raise self._refused(
                "private tables cannot be joined where rows are sliced by time",
                "A person in one period is protected there, not the person",
            )

    def _with_rest(self, join: Join, rest: list[exp.Expr]) -> Relation:
        """What else ON says is a filter of an inner join."""
        if not rest:
            return join
        if join.keeps_left:
            raise self._refused(
                "ON of a LEFT JOIN holds more than equal keys", "Filter in a sub-query first"
            )
        binder = Binder(self.scope)
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
        """The public side's keys are coded as the private side's are."""
        if not isinstance(right, PublicScan):
            raise self._refused("a sub-query over public tables is not possible", "Join the table itself")
        on: list[tuple[str, str]] = []
        coded: list[tuple[str, Kind]] = []
        for a, b in keys:
            if not isinstance(b, Reference):
                raise self._refused("the key of a public table is computed", "Join by a column of it")
            position = [name for name, _ in right.columns].index(b.name)
            own, source = right.columns[position][1], right.sources[position]
            if not can_be(own, a.kind):
                raise self._refused("the keys of the join are of different types", "Join like with like")
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


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    columns = {
        visible: Reference(names.get(one.name, one.name), one.kind) if isinstance(one, Reference) else one
        for visible, one in source.columns.items()
    }
    return replace(source, columns=columns)


def _conditions(node: exp.Join, mine: Scope, other: Scope) -> tuple[list[Pair], list[exp.Expr]]:
    """Pairs of equal keys, and what is left of ON."""
    pairs: list[Pair] = []
    rest: list[exp.Expr] = []
    for name in node.args.get("using") or ():
        column = exp.column(name.copy())
        pairs.append((mine.find(column), other.find(column)))
        for source in other.sources:  # the joined column is one: whoever names it means the left one
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
            return Binder(mine).bind(first), Binder(other).bind(second)
    return None


def _only_of(node: exp.Expr, scope: Scope) -> bool:
    """Whether all columns in it, of which there is at least one, are of this side."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(_holds(scope, column) for column in columns)


def _holds(scope: Scope, column: exp.Column) -> bool:
    table, name = column.table.lower(), column.name.lower()
    return any(name in one.columns and (not table or one.alias == table) for one in scope.sources)


def _key_name(binder: RowBinder, relation: Relation, expression: Expression) -> tuple[Relation, str]:
    """A column of the relation that holds a key, computed if need be."""
    if isinstance(expression, Reference):
        return relation, expression.name
    name = binder.fresh()
    kept = tuple((column, Reference(column, kind)) for column, kind in relation.columns)
    return Project(relation, (*kept, (name, expression))), name
