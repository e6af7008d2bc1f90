"""Binding of a whole query: its final SELECT with keys, aggregates and released values.

Values that are computed from released values cost no budget.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lapwing.sql.policy.kinds import Choice, Person, Truth, codes_of
from lapwing.sql.question.aggregates import AggregateBinder, with_average_pairs
from lapwing.sql.question.analysis import ColumnNames, never_null_columns, require_small_query
from lapwing.sql.question.bound_query import (
    BoundQuery,
    Computed,
    Key,
    KeyValue,
    Order,
    Output,
    Plain,
    Released,
    Spectrum,
    Sum,
)
from lapwing.sql.question.expression import Apply, Constant, Expression, Op
from lapwing.sql.question.from_clause import RelationBinder
from lapwing.sql.question.grouping import grouping_sets, is_aggregate, output_at
from lapwing.sql.question.parse import normal_form, parse, parse_with_earlier
from lapwing.sql.question.refusal import (
    MAX_WORK,
    Refused,
    allow_only,
    limited_work,
    name_of,
    refusals_at,
    refused,
)
from lapwing.sql.question.relation import Filter, Relation, contribution_bound, expressions_of, is_private
from lapwing.sql.question.relation import where_first as with_where_first
from lapwing.sql.question.scalar import ExpressionBinder, exact_number
from lapwing.sql.question.scope import Catalog, Scope, output_name
from lapwing.sql.question.typed_expressions import apply, as_number

NamedQuery = tuple[str, BoundQuery]  # with its text in normal form, which stored answers name
_CLAUSES = (
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "with_",
)  # fmt: skip
MOST_CELLS = 2_000_000
MOST_NUMBERS = 20_000_000  # noisy numbers, over all groupings, groups and sums
MOST_SIZE, DEEPEST = 10_000, 100  # parts and nesting of a released value
MOST_COLUMNS = 200
_ARGUMENTS = ("this", "expression", "decimals")
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Neg: "neg",
    exp.Abs: "abs", exp.Round: "round", exp.Sqrt: "sqrt", exp.Least: "least", exp.Greatest: "greatest",
    exp.Coalesce: "coalesce", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">",
    exp.GTE: ">=", exp.And: "and", exp.Or: "or", exp.Not: "not",
}  # fmt: skip


def bind(question: Any, catalog: Catalog) -> BoundQuery:
    """Return the bound query that a question means. Nothing is read.

    Raises Refused if the query cannot be answered.
    """
    return bind_with_text(question, catalog)[1]


def bind_with_text(question: Any, catalog: Catalog, *, where_first: bool = False) -> NamedQuery:
    """Return the text of a question in its normal form, and the bound query. Nothing is read.

    With `where_first`, rows are chosen among those that WHERE keeps. Raises Refused if the query cannot be
    answered.
    """
    return _bound_tree(parse(question), catalog, where_first=where_first)


def bind_with_earlier(
    question: Any, catalog: Catalog, *, where_first: bool = False
) -> tuple[NamedQuery, ...]:
    """Return what `bind_with_text` does, and the query that earlier versions made of the same question.

    Only stored answers are looked up by the earlier one. There is none if they refused the question.
    """
    tree, *earlier = parse_with_earlier(question)
    found = [_bound_tree(tree, catalog, where_first=where_first)]
    for one in earlier:
        with suppress(Refused):
            found.append(_bound_tree(one, catalog, where_first=where_first))
    return tuple(found)


def _bound_tree(tree: exp.Query, catalog: Catalog, *, where_first: bool) -> NamedQuery:
    if not isinstance(tree, exp.Select):
        instead = "Ask one query at a time, or unite rows in FROM"
        raise refused(tree, "UNION of several answers is not possible", instead)
    if tree.args.get("distinct"):
        names = ", ".join(column.name for column in tree.expressions if isinstance(column, exp.Column))
        instead = f"Write GROUP BY {names[:80]}" if names else "Use GROUP BY"
        raise refused(tree, "SELECT DISTINCT shows values of single rows", instead)
    allow_only(tree, *_CLAUSES)
    with limited_work():
        query = _bound(tree, catalog)
    if sum(call.size for call in _calls(query)) > MAX_WORK:
        raise Refused("the query has too many parts", "Ask a shorter one")
    require_small_query(query, catalog.policy, catalog.public)
    if where_first:
        query = replace(query, source=with_where_first(query.source))
    return normal_form(tree), query


def _bound(tree: exp.Select, catalog: Catalog) -> BoundQuery:
    rows = RelationBinder(catalog)
    relation, scope = rows.rows(tree, rows.ctes(tree, {}))
    if not is_private(relation):
        raise refused(tree, "the query reads no private table", "Query public tables directly")
    known = never_null_columns(relation, catalog.policy)
    return _SelectBinder(tree, scope, contribution_bound(relation), known).bound(tree, relation)


def _calls(query: BoundQuery) -> list[Apply]:
    """Return the operations of all expressions in the query."""
    parts: list[Key | Sum | Spectrum] = [*query.keys, *query.sums, *query.spectra]
    expressions = [*expressions_of(query.source), *(part.expression for part in parts)]
    return [expression for expression in expressions if isinstance(expression, Apply)]


class _SelectBinder:
    """A binder of the SELECT list, HAVING and ORDER BY over the groups."""

    def __init__(self, tree: exp.Select, scope: Scope, most: int, known: ColumnNames) -> None:
        self.row = ExpressionBinder(scope)
        items, self.sets = grouping_sets(tree, scope)
        self.keys: list[Key] = []
        self.places: dict[Expression, int] = {}
        for item in items:
            self._add_key(item)
        self.aggregates = AggregateBinder(self.row, most, known, has_keys=any(self.sets))
        self.aliases: dict[str, Released] = {}

    def bound(self, tree: exp.Select, relation: Relation) -> BoundQuery:
        """Return the bound query over the rows of a relation."""
        outputs = []
        if len(tree.expressions) > MOST_COLUMNS:
            raise refused(tree, f"there are more than {MOST_COLUMNS} columns", "Ask for fewer")
        for item in tree.expressions:
            for name, value in self._outputs(item):
                self.aliases[name] = value
                outputs.append(Output(name, value))
        having = tree.args.get("having")
        kept = self.released(having.this) if having is not None else None
        order = self._order(tree)
        aggregates = self.aggregates.found
        if not aggregates.parts and not aggregates.spectra:
            if not self.keys:
                raise refused(tree, "the query has no aggregate, and rows are never shown", "Ask COUNT(*)")
            aggregates.count_units()  # the list of keys is an answer, too
        keys = self._with_codes()
        self._require_few(tree, keys, max(len(aggregates.parts), 1))
        bound = BoundQuery(
            source=self._with_known_keys(relation),
            keys=keys,
            sets=tuple(self.sets),
            sums=tuple(aggregates.sums),
            parts=tuple(aggregates.parts),
            spectra=tuple(aggregates.spectra),
            outputs=tuple(outputs),
            rows=aggregates.rows,
            having=kept,
            order=order,
            limit=_whole(tree, "limit"),
            offset=_whole(tree, "offset") or 0,
        )
        return with_average_pairs(bound, aggregates.pairs)

    # Keys

    def _with_known_keys(self, relation: Relation) -> Relation:
        """Leave out rows with NULL keys if there are several groupings, so that all have the same total."""
        if len(self.sets) == 1:
            return relation
        known = [apply(Op.NOT, apply(Op.IS_NULL, key.expression)) for key in self.keys]
        return Filter(relation, apply(Op.AND, *known))

    def _add_key(self, item: exp.Expr) -> None:
        if item.find(exp.AggFunc) is not None:
            raise refused(item, "an aggregate cannot be grouped by", "Group by columns")
        bound = self.row.bind(item)
        if isinstance(bound.kind, Person):
            instead = "Group a sub-query by it and aggregate that"
            raise refused(item, "the answer cannot be grouped by the unit", instead)
        if isinstance(bound, Constant):
            raise refused(item, "GROUP BY has a constant", "Leave it out")
        self.places.setdefault(bound, len(self.keys))
        coded = bound
        if isinstance(bound.kind, Truth):
            coded = apply(Op.SCALE, as_number(bound), kind=Choice((False, True)), parameter=1)
        name = item.name if isinstance(item, exp.Column) else f"key{len(self.keys) + 1}"
        self.keys.append(Key(name.lower(), coded, None))

    def _with_codes(self) -> tuple[Key, ...]:
        """Return the keys with their codes.

        If keys are undeclared or too many, they are selected privately.
        """
        ranges = [codes_of(key.kind) for key in self.keys]
        cells = math.prod(len(codes) for codes in ranges if codes is not None)
        if any(codes is None for codes in ranges) or cells > MOST_CELLS:
            return tuple(self.keys)
        return tuple(replace(key, codes=codes) for key, codes in zip(self.keys, ranges, strict=True))

    def _require_few(self, tree: exp.Select, keys: tuple[Key, ...], parts: int) -> None:
        """Refuse too many groups: all declared groups are answered, and each takes work."""
        groups = sum(math.prod(len(keys[key].codes or ()) for key in members) for members in self.sets)
        if groups * parts > MOST_NUMBERS:
            raise refused(tree, "the answer has too many groups and columns", "Ask for fewer")

    # Released values

    def _outputs(self, item: exp.Expr) -> list[tuple[str, Released]]:
        value = item.unalias()
        several = self.aggregates.several(value)
        if several is None:
            return [(output_name(item), self.released(value))]
        name = output_name(item) if isinstance(item, exp.Alias) else "quantile"
        return [(f"{name}_{float(fraction):g}", statistic) for fraction, statistic in several]

    def released(self, node: exp.Expr) -> Released:
        """Return the released value that a node of the answer stands for."""
        with refusals_at(node):
            value = self._of(node)
            if isinstance(value, Computed) and (value.size > MOST_SIZE or value.depth > DEEPEST):
                raise refused(node, "a column of the answer has too many parts", "Compute it afterwards")
            return value

    def _of(self, node: exp.Expr) -> Released:
        if is_aggregate(node) or isinstance(node, exp.CountIf):
            return self.aggregates.statistic(node)
        if isinstance(node, exp.Paren):
            return self.released(node.this)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null):
            return _plain(node)
        key = self._key(node)
        return self._computed(node) if key is None else key

    def _computed(self, node: exp.Expr) -> Released:
        """Bind arithmetic, comparisons and CASE on released values."""
        match node:
            case exp.Column():
                return self._alias(node)
            case exp.Case():
                return self._case(node)
            case exp.Star():
                raise refused(node, "rows are never shown", "Ask for COUNT(*) and other aggregates")
            case exp.Is() if isinstance(node.expression, exp.Null):
                allow_only(node, "this", "expression")
                return Computed("is_null", (self.released(node.this),))
            case exp.Between():
                allow_only(node, "this", "low", "high")
                value = self.released(node.this)
                low, high = (self.released(node.args[end]) for end in ("low", "high"))
                return Computed("and", (Computed(">=", (value, low)), Computed("<=", (value, high))))
        if type(node) not in _OPERATORS:
            why = f"{name_of(node)} is not possible on released values"
            raise refused(node, why, "Compute it afterwards")
        return Computed(
            _OPERATORS[type(node)], tuple(self.released(argument) for argument in _arguments(node))
        )

    def _alias(self, node: exp.Column) -> Released:
        if not node.table and node.name.lower() in self.aliases:
            return self.aliases[node.name.lower()]
        why = f'"{node.name[:60]}" is neither grouped nor aggregated: rows are never shown'
        raise refused(node, why, "Group by it")

    def _case(self, node: exp.Case) -> Released:
        allow_only(node, "this", "ifs", "default")
        args: list[Released] = []
        operand = self.released(node.this) if node.this is not None else None
        for branch in node.args["ifs"]:
            allow_only(branch, "this", "true")
            condition = self.released(branch.this)
            if operand is not None:
                condition = Computed("=", (operand, condition))
            args += [condition, self.released(branch.args["true"])]
        default = node.args.get("default")
        args.append(self.released(default) if default is not None else Plain(None))
        return Computed("case", tuple(args))

    def _key(self, node: exp.Expr) -> KeyValue | None:
        """Return the key that a node stands for, or None."""
        if node.find(exp.AggFunc) is not None or node.find(exp.Column) is None:
            return None
        try:
            bound = self.row.bind(node)
        except Refused:
            if any(column.name.lower() in self.aliases for column in node.find_all(exp.Column)):
                return None  # ORDER BY and HAVING may use names of the answer
            raise
        place = self.places.get(bound)
        return None if place is None else KeyValue(place)

    # Order and limit

    def _order(self, tree: exp.Select) -> tuple[Order, ...]:
        order = tree.args.get("order")
        if order is None:
            return ()
        allow_only(order, "expressions")
        orders = []
        for item in order.expressions:
            allow_only(item, "this", "desc", "nulls_first")
            node = item.this
            if isinstance(node, exp.Literal) and not node.is_string:
                node = output_at(tree, node)
            # In ORDER BY an alias has precedence over a column.
            is_name = isinstance(node, exp.Column) and not node.table
            named = self.aliases.get(node.name.lower()) if is_name else None
            value = self.released(node) if named is None else named
            orders.append(Order(value, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        return tuple(orders)


def _whole(tree: exp.Select, name: str) -> int | None:
    clause = tree.args.get(name)
    if clause is None:
        return None
    allow_only(clause, "expression")
    text = clause.expression.name
    is_number = isinstance(clause.expression, exp.Literal) and not clause.expression.is_string
    if not is_number or not re.fullmatch("[0-9]{1,9}", text):
        raise refused(clause, f"{name.upper()} needs a whole number", "Write it in digits")
    return int(text)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.And | exp.Or):
        return list(node.flatten())
    allow_only(node, *_ARGUMENTS, "expressions", "typed", "safe", "ignore_nulls", "is_null")
    arguments = [*(node.args.get(name) for name in _ARGUMENTS), *node.expressions]
    return [argument for argument in arguments if argument is not None]


def _plain(node: exp.Expr) -> Plain:
    if isinstance(node, exp.Null):
        return Plain(None)
    if isinstance(node, exp.Boolean):
        return Plain(bool(node.this))
    if node.is_string:
        return Plain(node.name)
    value = exact_number(node)
    return Plain(int(value) if value.denominator == 1 and abs(value) < 1 << 53 else float(value))
