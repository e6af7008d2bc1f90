"""Names in a query: the tables and columns that it may use, and the expressions that they stand for."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from lapwing.sql.policy.kinds import Kind, Numeric, Person
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable
from lapwing.sql.question.expression import Expression, Reference
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.refusal import refused
from lapwing.sql.question.relation import BLOCK, UNIT, Project, PublicScan, Relation, Scan


@dataclass(frozen=True, slots=True)
class FromItem:
    """A table, sub-query or CTE in FROM, under the name that the analyst gave it.

    Names are in lower case.
    """

    alias: str
    columns: dict[str, Expression]
    undeclared: frozenset[str] = frozenset()  # columns that exist in the source but are not declared
    renamed: Mapping[str, str] = field(default_factory=dict)  # the names of columns by those in the source


@dataclass(slots=True)
class Scope:
    """All FROM items of one SELECT."""

    sources: list[FromItem] = field(default_factory=list)

    def named(self, table: str) -> list[FromItem]:
        """Return the items of a name, or all of them for ""."""
        return [source for source in self.sources if not table or source.alias == table.lower()]

    def has(self, name: str) -> bool:
        """Return whether a name is a column of one of the items."""
        return any(name.lower() in (*source.columns, *source.undeclared) for source in self.sources)

    def find(self, column: exp.Column) -> Expression:
        """Return the expression that a column of the query stands for.

        Raises Refused if there is none, or several.
        """
        for part in ("db", "catalog"):
            if column.args.get(part):
                raise refused(column, "schema names are not possible", "Write table.column")
        if isinstance(column.this, exp.Star):
            raise refused(column, "* is not possible here", "Name the columns")
        name, sources = column.name.lower(), self.named(column.table)
        if column.table and not sources:
            known = ", ".join(source.alias for source in self.sources)
            raise refused(column, f"there is no table {_shown(column.table)} here", f"Known are {known}")
        matching = [source.columns[name] for source in sources if name in source.columns]
        if len(set(matching)) > 1:
            raise refused(column, f"{_shown(column.name)} is in several tables", "Write table.column")
        if matching:
            return matching[0]
        if any(name in source.undeclared for source in sources):
            why = f"{_shown(column.name)} is not declared in the policy"
            raise refused(column, why, "Ask the curator to declare its bounds or values")
        columns = sorted({known for source in sources for known in source.columns})
        hint = _hint(name, columns, most=20)
        for source in sources:
            if name in source.renamed:
                hint = f'The policy calls it "{source.renamed[name]}"'
        raise refused(column, f"there is no column {_shown(column.name)}", hint)


def _hint(name: str, known: Sequence[str], most: int | None = None) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(known[:most])}"


def _shown(name: str) -> str:
    return f'"{name[:60]}"'  # the parser admits printable names only


@dataclass(frozen=True)
class Catalog:
    """The private tables of a policy, and the public tables with their rows.

    `rows` lowers the contribution bound of all tables for one query; it can never raise it. `undeclared`
    are the columns of each table that exist in the source but are not declared.
    """

    policy: CheckedPolicy
    public: Mapping[str, PublicTable] = field(default_factory=dict)
    rows: int | None = None
    undeclared: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def slices_rows(self) -> bool:
        """True if blocks are periods of rows, so that the privacy unit is a person in one period."""
        return self.policy.blocks is not None and self.policy.blocks.by == "row"

    def find(self, node: exp.Table) -> CheckedTable:
        """Return the table that a syntax node names. Raises Refused if there is none."""
        by_name = {name.lower(): table for name, table in self.policy.tables.items()}
        bound = by_name.get(node.name.lower())
        if bound is None:
            hint = _hint(node.name.lower(), sorted(by_name))
            raise refused(node, f"there is no table {_shown(node.name)}", hint)
        return bound

    def private_scan(self, table: CheckedTable) -> Scan:
        """Return the scan of a private table, truncated to its contribution bound."""
        rows = table.rows_per_unit if self.rows is None else min(self.rows, table.rows_per_unit)
        columns: list[tuple[str, Kind]] = [(name, column.kind) for name, column in table.columns.items()]
        blocks = self.policy.blocks
        if blocks is not None and blocks.by == "unit" and blocks.cohorts:
            columns.append((BLOCK, Numeric(Fraction(1), 0, blocks.cohorts - 1)))
        return Scan(table.name, tuple(columns), rows)

    def private_source(self, table: CheckedTable, scan: Scan, alias: str) -> FromItem:
        """Return a private table as a FROM item, with the names that analysts use."""
        names: dict[str, Expression] = {name.lower(): Reference(name, kind) for name, kind in scan.columns}
        blocks = self.policy.blocks
        if BLOCK in names:
            assert blocks is not None
            names[blocks.column.lower()] = names.pop(BLOCK)
        if table.unit is not None and table.unit.column:
            # A key into another table is not the unit: the unit has the name that it has there.
            holder = self.policy.tables[table.unit.through].unit if table.unit.through else table.unit
            assert holder is not None
            names[holder.column.lower()] = Reference(UNIT, Person())
        renamed = {column.in_source.lower(): column.name for column in table.columns.values()}
        if table.unit is not None and table.unit.source:
            renamed[table.unit.source.lower()] = table.unit.column
        hidden = self.undeclared.get(table.name, frozenset())
        return FromItem(alias, names, frozenset(name.lower() for name in hidden) - set(names), renamed)

    def public_scan(self, table: CheckedTable) -> PublicScan:
        """Return the scan of all columns of a public table."""
        declared = self.public[table.name].kinds.items()
        kinds = {
            name: kind for name, kind in declared if not name.lower().startswith("lapwing_")
        }  # reserved
        return PublicScan(table.name, tuple(kinds.items()), tuple(kinds))


Fresh = Callable[[], str]  # returns a new name at each call
SAME_NAME = ("two columns have the same name", "Give one of them another name with AS")


@dataclass(frozen=True, slots=True)
class BoundSubquery:
    """A bound sub-query: its rows, and the expressions that its column names stand for."""

    relation: Relation
    columns: dict[str, Expression]


def project(fresh: Fresh, relation: Relation, columns: Mapping[str, Expression]) -> BoundSubquery:
    """Return a sub-query with computed columns under new names. A column that is only renamed is kept."""
    own = {name for name, _ in relation.columns}
    outputs: dict[str, Expression] = {}
    visible: dict[str, Expression] = {}
    for name, expression in columns.items():
        if isinstance(expression.kind, Person):
            visible[name] = expression
            continue
        kept = expression.name if isinstance(expression, Reference) else ""
        new = kept if kept in own else fresh()
        outputs.setdefault(new, expression)
        visible[name] = Reference(new, expression.kind)
    return BoundSubquery(Project(relation, tuple(outputs.items())), visible)


def without_clashes(fresh: Fresh, relation: Relation, taken: set[str]) -> tuple[Relation, dict[str, str]]:
    """Return the relation with new names for columns in `taken`, and the new name of each old one."""
    clash = {name: fresh() for name, _ in relation.columns if name in taken}
    if not clash:
        return relation, {}
    if isinstance(relation, PublicScan):
        columns = tuple((clash.get(name, name), kind) for name, kind in relation.columns)
        return replace(relation, columns=columns), clash
    outputs = tuple((clash.get(name, name), Reference(name, kind)) for name, kind in relation.columns)
    return Project(relation, outputs), clash


def output_name(item: exp.Expr) -> str:
    """Return the name of a column of a SELECT: its alias, or else its text."""
    named = isinstance(item, exp.Alias | exp.Column)
    name = item.alias_or_name if named else item.sql("duckdb")[:60]
    # Literals in the text can be unprintable.
    return "".join(letter if letter.isprintable() else " " for letter in name).lower()
