"""A bound sub-query, and how its columns get names of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from lapwing.query.language.expression import Expression, Reference
from lapwing.query.language.kinds import Person
from lapwing.query.language.relation import Project, PublicScan, Relation

Fresh = Callable[[], str]  # gives a name that was not given before


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound sub-query: its rows, and how its columns are called."""

    relation: Relation
    columns: dict[str, Expression]


def project(fresh: Fresh, relation: Relation, columns: Mapping[str, Expression]) -> Bound:
    """Columns under names of ours. A column that is only renamed stays itself."""
    own = {name for name, _ in relation.columns}
    outputs: list[tuple[str, Expression]] = []
    visible: dict[str, Expression] = {}
    for name, expression in columns.items():
        if isinstance(expression.kind, Person):
            visible[name] = expression
            continue
        kept = isinstance(expression, Reference) and expression.name in own
        new = expression.name if kept and isinstance(expression, Reference) else fresh()
        if all(new != other for other, _ in outputs):
            outputs.append((new, expression))
        visible[name] = Reference(new, expression.kind)
    return Bound(Project(relation, tuple(outputs)), visible)


def renamed(fresh: Fresh, relation: Relation, taken: set[str]) -> tuple[Relation, dict[str, str]]:
    """The relation with columns that are not among those that are taken."""
    clash = {name: fresh() for name, _ in relation.columns if name in taken}
    if not clash:
        return relation, {}
    if isinstance(relation, PublicScan):
        columns = tuple((clash.get(name, name), kind) for name, kind in relation.columns)
        return replace(relation, columns=columns), clash
    outputs = tuple((clash.get(name, name), Reference(name, kind)) for name, kind in relation.columns)
    return Project(relation, outputs), clash


def output_name(item: exp.Expr) -> str:
    """What a column of a SELECT is called: its alias, or the text that asks for it."""
    named = isinstance(item, exp.Alias | exp.Column)
    name = item.alias_or_name if named else item.sql("duckdb")[:60]
    return "".join([letter if letter.isprintable() else " " for letter in name]).lower()  # of texts in it
