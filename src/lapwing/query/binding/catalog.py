"""What a question may speak of: the private tables of a policy, and the public ones with their rows."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from lapwing.query.binding.public import PublicTable
from lapwing.query.binding.refused import refused
from lapwing.query.binding.scope import Source
from lapwing.query.language.expression import Expression, Reference
from lapwing.query.language.kinds import Kind, Number, Person
from lapwing.query.language.relation import BLOCK, UNIT, PublicScan, Scan
from lapwing.query.policies.policy import Policy, Table


@dataclass(frozen=True)
class Catalog:
    """`rows` lowers a table's rows per unit for one question; it can never raise it."""

    policy: Policy
    public: Mapping[str, PublicTable] = field(default_factory=dict)
    rows: int | None = None
    undeclared: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def slices_rows(self) -> bool:
        """Whether what is protected is a person in one period."""
        return self.policy.blocks is not None and self.policy.blocks.by == "row"

    def find(self, node: exp.Table) -> Table:
        """The table of a name."""
        by_name = {name.lower(): table for name, table in self.policy.tables.items()}
        found = by_name.get(node.name.lower())
        if found is None:
            near = difflib.get_close_matches(node.name.lower(), by_name, 1)
            hint = f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(sorted(by_name))}"
            raise refused(node, f'there is no table "{node.name[:60]}"', hint)
        return found

    def private_scan(self, table: Table) -> Scan:
        """All rows of a private table that count."""
        rows = table.rows_per_unit if self.rows is None else min(self.rows, table.rows_per_unit)
        columns: list[tuple[str, Kind]] = [(name, column.kind) for name, column in table.columns.items()]
        blocks = self.policy.blocks
        if blocks is not None and blocks.by == "unit" and blocks.cohorts:
            columns.append((BLOCK, Number(Fraction(1), 0, blocks.cohorts - 1)))
        return Scan(table.name, tuple(columns), rows)

    def private_source(self, table: Table, scan: Scan, alias: str) -> Source:
        """How analysts call its columns."""
        names: dict[str, Expression] = {name.lower(): Reference(name, kind) for name, kind in scan.columns}
        blocks = self.policy.blocks
        if BLOCK in names:
            assert blocks is not None
            names[blocks.column.lower()] = names.pop(BLOCK)
        if table.unit is not None and table.unit.column:
            # A key into another table is not the unit: that is called as it is there.
            holder = self.policy.tables[table.unit.through].unit if table.unit.through else table.unit
            assert holder is not None
            names[holder.column.lower()] = Reference(UNIT, Person())
        hidden = self.undeclared.get(table.name, frozenset())
        return Source(alias, names, frozenset(name.lower() for name in hidden) - set(names))

    def public_scan(self, table: Table) -> PublicScan:
        """All columns of a public table."""
        found = self.public[table.name].kinds.items()
        kinds = {name: kind for name, kind in found if not name.lower().startswith("lapwing_")}  # ours
        return PublicScan(table.name, tuple(kinds.items()), tuple(kinds))
