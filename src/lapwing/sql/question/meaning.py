"""Digests of what a question means: of all that decides its result, except the private rows.

Stored answers, joint runs and attempts of pipelines belong together only if these digests are equal. Their
bytes are stored: they must never change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable
from lapwing.sql.question.bound_query import BoundQuery, without_names
from lapwing.sql.question.expression import Apply, Expression, Reference
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.relation import (
    Relation,
    expressions_of,
    joined_on,
    pruned,
    public_scans_of,
    scans_of,
)

PublicTables = Mapping[str, PublicTable]
_JOINT_FORM = b"lapwing joint question 1\n"


def query_digests(
    policy: CheckedPolicy, query: BoundQuery, public: PublicTables, *, earlier_ranks: bool = False
) -> tuple[str, str]:
    """Return two digests of everything that decides the mechanisms' input, except the private rows.

    They include the bound query, the declared columns of its tables, the form of CSV files and the rows of
    public tables. The second one leaves out names: it is the same for texts that differ only in aliases.

    Which rows of a unit are used decides the result as well. Digests with `earlier_ranks` are those of rows
    that were chosen before equal rows of a unit were numbered.
    """
    return query_digests_by_ranks(policy, query, public)[earlier_ranks]


def query_digests_by_ranks(
    policy: CheckedPolicy, query: BoundQuery, public: PublicTables
) -> dict[bool, tuple[str, str]]:
    """Return `query_digests` by `earlier_ranks`. Both are the same where no rows are numbered."""
    read = list(_tables_read(policy, query.source))
    tables: list[tuple[Any, ...]] = [(*_declared(table), *table.source.reading) for table in read]
    is_numbered = any(table.numbers_equal_rows for table in read)
    texts = repr(query), repr(without_names(query))
    rows = _public_rows(query.source, public)

    def digests(*more: tuple[Any, ...]) -> tuple[str, str]:
        others = ", ".join(map(repr, ([*tables, *more], *_ids(policy))))
        named, unnamed = (
            hashlib.sha256(f"({text}, {others}){rows}".encode()).hexdigest() for text in texts
        )
        return named, unnamed

    earlier = digests()
    return {True: earlier, False: digests(("equal rows are numbered",)) if is_numbered else earlier}


def public_rows_digest(relation: Relation, public: PublicTables) -> str:
    """Return a digest of the rows of the public tables that a relation reads."""
    return hashlib.sha256(_public_rows(relation, public).encode()).hexdigest()


def rows_digest(policy: CheckedPolicy, question: object, relation: Relation, public: PublicTables) -> str:
    """Return a digest of all that decides which rows a row question reads, except the private rows."""
    tables = [_declared(table) for table in _tables_read(policy, relation)]
    words = repr((question, tables, policy.protects, policy.blocks, *_ids(policy)))
    return hashlib.sha256((words + _public_rows(relation, public)).encode()).hexdigest()


def joint_digest(policy: CheckedPolicy, question: BoundQuery, public: PublicTables) -> str:
    """Return a digest of all that is public and must be the same at all members of a joint question."""
    used = _names_in(question)
    tables = sorted(
        (scan.table, sorted((c.name, *c.coding) for c in own.columns.values() if c.name in used))
        for scan in scans_of(question.source)
        if (own := policy.tables[scan.table])
    )
    alike = replace(question, source=pruned(question.source, used))
    words = repr((alike, tables, policy.protects, *_ids(policy))) + _public_rows(question.source, public)
    return hashlib.sha256(_JOINT_FORM + words.encode()).hexdigest()


def _tables_read(policy: CheckedPolicy, relation: Relation) -> Iterator[CheckedTable]:
    """Yield the private tables that are read, and those that hold their units, by name."""
    names = {scan.table for scan in scans_of(relation)}
    names |= {unit.through for name in names if (unit := policy.tables[name].unit) and unit.through}
    return (table for name, table in sorted(policy.tables.items()) if name in names)


def _declared(table: CheckedTable) -> tuple[Any, ...]:
    return table.name, table.unit, table.primary_key, sorted(table.columns.items())


def _ids(policy: CheckedPolicy) -> tuple[str, ...]:
    return ("folded",) if policy.folds_ids else ()  # exact ids are the default, and not mentioned


def _public_rows(relation: Relation, public: PublicTables) -> str:
    return "".join(repr(public[scan.table].coded(scan)) for scan in public_scans_of(relation))


def _names_in(question: BoundQuery) -> frozenset[str]:
    """Return the columns that the question uses, and maybe others of the same name."""
    names: set[str] = set()
    waiting: list[Expression | None] = [*expressions_of(question.source)]
    waiting += [key.expression for key in question.keys]
    waiting += [total.expression for total in question.sums]
    while waiting:
        expression = waiting.pop()
        if isinstance(expression, Reference):
            names.add(expression.name)
        elif isinstance(expression, Apply):
            waiting += expression.args
    return frozenset(names | joined_on(question.source))
