"""Which names an expression may use, and what they stand for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from sqlglot import exp

from lapwing.query.binding.refused import refused
from lapwing.query.language.expression import Expression


@dataclass(frozen=True, slots=True)
class Source:
    """A table, sub-query or CTE under the name that the analyst gave it. Names are in lower case."""

    alias: str
    columns: dict[str, Expression]
    undeclared: frozenset[str] = frozenset()  # names that exist but may not be used


@dataclass(slots=True)
class Scope:
    """All sources of one SELECT."""

    sources: list[Source] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Tell whether a name is a column's."""
        return any(name.lower() in (*one.columns, *one.undeclared) for one in self.sources)

    def find(self, column: exp.Column) -> Expression:
        """What a column of the question stands for."""
        for part in ("db", "catalog"):
            if column.args.get(part):
                raise refused(column, "names of schemas are not needed", "Write table.column")
        if isinstance(column.this, exp.Star):
            raise refused(column, "* is not possible here", "Name the columns")
        name, table = column.name.lower(), column.table.lower()
        sources = [source for source in self.sources if not table or source.alias == table]
        if table and not sources:
            raise refused(column, f"there is no table {_shown(column.table)} here", self._tables())
        found = [source.columns[name] for source in sources if name in source.columns]
        if len(set(found)) > 1:
            raise refused(column, f"{_shown(column.name)} stands in several tables", "Write table.column")
        if found:
            return found[0]
        if any(name in source.undeclared for source in sources):
            raise refused(
                column,
                f"{_shown(column.name)} is not declared in the policy",
                "Ask the curator to declare its bounds or values",
            )
        known = sorted({known for source in sources for known in source.columns})
        near = difflib.get_close_matches(name, known, 1)
        hint = f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(known[:20])}"
        raise refused(column, f"there is no column {_shown(column.name)}", hint)

    def _tables(self) -> str:
        return f"Known are {', '.join(source.alias for source in self.sources)}"


def _shown(name: str) -> str:
    return f'"{name[:60]}"'  # printable, as the parser sees to
