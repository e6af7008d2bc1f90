"""What sub-queries and final questions share about aggregation: GROUP BY items, FILTER, aggregates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

from sqlglot import exp

from lapwing.query.binding.refused import only, refused
from lapwing.query.binding.scalar import Binder
from lapwing.query.binding.scope import Scope
from lapwing.query.language.expression import Constant, Expression

MOST_SETS = 64
Place = Callable[[exp.Expr], int]  # the position of an item among all that are grouped by


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node itself is an aggregate, with or without FILTER or WITHIN GROUP."""
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) or (
        isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AggFunc)
    )


def split_filter(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """An aggregate and the condition of its FILTER."""
    if isinstance(node, exp.Filter):
        only(node, "this", "expression")
        return node.this, node.expression.this
    return node, None


def grouping_sets(node: exp.Select, scope: Scope) -> tuple[list[exp.Expr], list[tuple[int, ...]]]:
    """The items of GROUP BY, and which of them stand in each grouping."""
    group = node.args.get("group")
    if group is None:
        return [], [()]
    only(group, "expressions", "all")
    if group.args.get("all"):
        plain = [one.unalias() for one in node.expressions if one.find(exp.AggFunc) is None]
        return plain, [tuple(range(len(plain)))]
    items: list[exp.Expr] = []

    def place(item: exp.Expr) -> int:
        resolved = _resolved(node, item.unnest(), scope)
        for position, other in enumerate(items):
            if other == resolved:
                return position
        items.append(resolved)
        return len(items) - 1

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
        groups = [_members(one, place) for one in item.expressions]
        if isinstance(item, exp.Rollup):
            return [_flat(groups[:length]) for length in range(len(groups), -1, -1)]
        if len(groups) > 6:
            raise refused(item, "CUBE of more than six columns", "Use GROUPING SETS")
        return [
            _flat(some)
            for size in range(len(groups), -1, -1)
            for some in itertools.combinations(groups, size)
        ]
    if isinstance(item, exp.Tuple):
        return [_members(item, place)]
    if isinstance(item, exp.GroupingSets):
        return [one for part in item.expressions for one in _sets_of_set(part, place)]
    return [(place(item),)]


def _sets_of_set(item: exp.Expr, place: Place) -> list[tuple[int, ...]]:
    if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
        return _sets(item, place)
    return [_members(item, place)]


def _members(item: exp.Expr, place: Place) -> tuple[int, ...]:
    if isinstance(item, exp.Tuple):
        return tuple(place(one) for one in item.expressions)
    return (place(item),)


def _flat(groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(position for group in groups for position in group)


def _resolved(node: exp.Select, item: exp.Expr, scope: Scope) -> exp.Expr:
    """A number or an alias of the SELECT list stands for what it names. A column's name stands for the
    column, also if it is an alias as well: the engines do so."""
    if isinstance(item, exp.Literal) and not item.is_string:
        return output_at(node, item)
    if isinstance(item, exp.Column) and not item.table and not scope.has(item.name):
        for output in node.expressions:
            named = isinstance(output, exp.Alias) and output.alias.lower() == item.name.lower()
            if named and output.find(exp.AggFunc) is None:
                found: exp.Expr = output.this
                return found
    return item


def output_at(node: exp.Select, item: exp.Expr) -> exp.Expr:
    """The column of the SELECT list that a number stands for."""
    text = item.name[:20]
    position = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= position <= len(node.expressions):
        raise refused(item, f"{text} names no column of SELECT", "Count from 1")
    found: exp.Expr = node.expressions[position - 1].unalias()
    return found


def group_items(node: exp.Select, binder: Binder) -> list[Expression]:
    """The bound items of a plain GROUP BY."""
    items, sets = grouping_sets(node, binder.scope)
    if len(sets) != 1:
        raise refused(node.args["group"], "a sub-query has one grouping", "Use ROLLUP in the last SELECT")
    bound = [binder.bind(item) for item in items]
    if any(isinstance(one, Constant) for one in bound):
        raise refused(node.args["group"], "GROUP BY a constant", "Leave it out")
    return bound
