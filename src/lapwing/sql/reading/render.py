"""Rendering: a bound query as SQL. Only exact whole numbers per group leave the engine.

Claim    the statements compute `BoundQuery.sums` and `spectra` over the relation as its classes define it.
Because  a relation becomes a SELECT whose every column has a name of Lapwing's or is a quoted policy
         column; a unit is never NULL, since truncated tables have no NULL and a join keeps the unit of its
         left side.
Test     tests/sql/reading/test_render.py

Where blocks are periods of rows (`by_row`), a unit is a person in one period: its rows are then aggregated
and joined within one block only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from lapwing.engines.dialect import SqlDialect
from lapwing.sql.policy.kinds import Kind, Person, Text, Truth
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.expression import Apply, Constant, Expression, Reference, conjuncts
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.relation import (
    BLOCK,
    RANK,
    UNIT,
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
    is_private,
)
from lapwing.sql.reading.render_expression import LONGEST, ExpressionWriter, reach_of, render_membership

LONGEST_NAME = 63  # bytes of a name in PostgreSQL


def public_table_name(scan: PublicScan) -> str:
    """Return the name of the coded rows of a public table in the engine."""
    digest = hashlib.blake2b(repr(scan).encode(), digest_size=12, person=b"lapwing public")
    return f"lapwing_public_{digest.hexdigest()}"


def truncated_name(table: str) -> str:
    """Return the name of a truncated table that is computed in the query itself."""
    name = f"the truncated table {table}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"the truncated table {hashlib.blake2b(table.encode(), digest_size=16).hexdigest()}"


def scan_name(scan: Scan) -> str:
    """Return the name of the rows that a scan reads: the table, or the table after its own WHERE."""
    if scan.where is None:
        return scan.table
    digest = hashlib.blake2b(repr(scan.where).encode(), digest_size=4, person=b"lapwing where")
    return f"{scan.table} after WHERE {digest.hexdigest()}"


def with_truncated(statement: str, definitions: Mapping[str, str], dialect: SqlDialect) -> str:
    """Return a statement with the definitions of truncated tables, by `scan_name`.

    They contain the key: never show it.
    """
    views = [f"{dialect.name(truncated_name(table))} AS ({sql})" for table, sql in definitions.items()]
    return f"WITH {', '.join(views)} {statement}" if views else statement


_OUR_UNIT, _OUR_BLOCK = "u", "b"


@dataclass(frozen=True, slots=True)
class Statements:
    """SQL for each grouping set, and for each spectrum and each grouping set.

    `sums` give k0, k1, … (the keys of the set, in its order), s0, s1, … (all of `BoundQuery.sums`) and, if
    a key of the set is selected privately, `units`. `spectra` give the keys, `code` and `n`. Rows come in
    no order. Groups without rows are missing. A key can be NULL; `lay_out` leaves such groups out.
    """

    sums: tuple[str, ...]
    spectra: tuple[tuple[str, ...], ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All statements."""
        return self.sums + tuple(statement for several in self.spectra for statement in several)


def render(query: BoundQuery, scans: Mapping[str, str], dialect: SqlDialect, *, by_row: bool) -> Statements:
    """Return the statements of a query. `scans` are FROM items, without an alias, of truncated tables."""
    renderer = _Renderer(scans, dialect, by_row=by_row)
    return Statements(
        tuple(_short(renderer.sums(query, keys)) for keys in query.sets),
        tuple(
            tuple(_short(renderer.spectrum(query, keys, spectrum.expression)) for keys in query.sets)
            for spectrum in query.spectra
        ),
    )


def render_rows(relation: Relation, scans: Mapping[str, str], dialect: SqlDialect, *, by_row: bool) -> str:
    """Return the rows of a private relation as SQL.

    Units are u, columns c0, c1, …, and with `by_row` blocks are b.
    """
    own = _Renderer(scans, dialect, by_row=by_row, aliases=count())
    return _short(own._flat(own._select(relation, frozenset(name for name, _ in relation.columns))))


def _short(sql: str) -> str:
    if len(sql) > LONGEST:
        raise Refused("the SQL of the query is too long", "Ask a shorter one")
    return sql


def render_where(scan: Scan, alias: str, dialect: SqlDialect) -> str:
    """Return the WHERE of a scan as a condition on coded rows under an alias."""
    assert scan.where is not None
    columns = {name: f"{alias}.{dialect.name(name)}" for name, _ in scan.columns}
    writer = ExpressionWriter(dialect, {**columns, UNIT: f"{alias}.{UNIT}"})
    return " AND ".join(writer.plain(part) for part in conjuncts(scan.where))


@dataclass(frozen=True, slots=True)
class _Select:
    """A FROM and a WHERE clause, and the SQL of the columns (by name) over them."""

    source: str
    columns: dict[str, str]
    unit: str = ""  # "" for public tables
    block: str = ""
    where: tuple[str, ...] = ()

    @property
    def tail(self) -> str:
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f" FROM {self.source}{where}"


@dataclass(slots=True)
class _Renderer:
    scans: Mapping[str, str]
    dialect: SqlDialect
    by_row: bool
    aliases: Iterable[int] = ()

    def sums(self, query: BoundQuery, keys: Sequence[int]) -> str:
        wanted = [total.expression for total in query.sums if total.expression is not None]
        select, writer, items = self._grouped(query, keys, wanted)
        alone = not self.by_row and _is_one_row_each(query.source)
        units = "count(*)" if alone else f"count(DISTINCT {select.unit})"
        for n, total in enumerate(query.sums):
            sql = (
                units if total.function == "units" else self._sum(total.function, total.expression, writer)
            )
            items.append(f"{sql} AS s{n}")
        if any(query.keys[key].codes is None for key in keys):
            items.append(f"{units} AS units")
        return f"SELECT {', '.join(items)}{select.tail}{_group_by(len(keys))}"

    def spectrum(self, query: BoundQuery, keys: Sequence[int], expression: Expression) -> str:
        select, writer, items = self._grouped(query, keys, [expression])
        code = writer.code(expression)
        items += [f"{code} AS code", "count(*) AS n"]
        select = replace(select, where=(*select.where, f"{code} IS NOT NULL"))
        return f"SELECT {', '.join(items)}{select.tail}{_group_by(len(keys) + 1)}"

    def _grouped(
        self, query: BoundQuery, keys: Sequence[int], wanted: Sequence[Expression]
    ) -> tuple[_Select, ExpressionWriter, list[str]]:
        """Return the source, its writer and the keys.

        Groups with NULL keys are left out later, in `lay_out`: here it would cost a tenth of a sum by
        100,000 groups.
        """
        self.aliases = count()
        grouped = [query.keys[key].expression for key in keys]
        select = self._select(query.source, _names_in([*grouped, *wanted]))
        writer = self._writer(select)
        items = [f"{writer.code(expression)} AS k{n}" for n, expression in enumerate(grouped)]
        return select, writer, items

    def _sum(self, function: str, argument: Expression | None, writer: ExpressionWriter) -> str:
        if argument is None:
            assert function == "rows", function
            return "count(*)"
        if function == "sum":
            return self.dialect.total(writer.code(argument), reach_of(argument.kind))
        if function == "count":
            return f"count({writer.plain(argument)})"
        assert function == "distinct", function
        return f"count(DISTINCT {writer.compared(argument)})"

    def _select(self, relation: Relation, names: frozenset[str]) -> _Select:  # noqa: PLR0911
        """Return the relation with at least the named columns."""
        match relation:
            case Scan():
                return self._scan(relation)
            case PublicScan():
                return self._public(relation)
            case Filter(source, predicate):
                inner = self._select(source, names | _names_in([predicate]))
                writer = self._writer(inner)
                where = tuple(writer.plain(part) for part in conjuncts(predicate))
                return replace(inner, where=inner.where + where)
            case Project(source, outputs):
                return self._project(source, [output for output in outputs if output[0] in names])
            case Join():
                return self._join(relation, names)
            case UnionAll(sources):
                return self._union(sources, [name for name, _ in relation.columns if name in names])
            case PerUnit():
                return self._per_unit(relation, names)

    def _writer(self, select: _Select) -> ExpressionWriter:
        return ExpressionWriter(self.dialect, {**select.columns, UNIT: select.unit})

    def _alias(self) -> str:
        return f"t{next(iter(self.aliases))}"

    def _scan(self, scan: Scan) -> _Select:
        alias = self._alias()
        unit, block = f"{alias}.{UNIT}", f"{alias}.{BLOCK}"
        columns = {name: f"{alias}.{self.dialect.name(name)}" for name, _ in scan.columns}
        where = [f"{alias}.{RANK} <= {scan.rows}"]
        if scan.blocks is not None:
            where.append(render_membership(block, scan.blocks) if scan.blocks else "(1 = 0)")
        name = self.scans[scan.table]
        if scan.where is not None:
            name = self.dialect.name(truncated_name(scan_name(scan)))
        return _Select(f"{name} AS {alias}", columns, unit, block, tuple(where))

    def _public(self, scan: PublicScan) -> _Select:
        alias = self._alias()
        columns = {name: f"{alias}.{self.dialect.name(name)}" for name, _ in scan.columns}
        return _Select(f"{self.dialect.name(public_table_name(scan))} AS {alias}", columns)

    def _project(self, source: Relation, outputs: Sequence[tuple[str, Expression]]) -> _Select:
        inner = self._select(source, _names_in([expression for _, expression in outputs]))
        writer = self._writer(inner)
        columns = {name: writer.plain(expression) for name, expression in outputs}
        renamed = replace(inner, columns=columns)
        if all(isinstance(expression, Reference | Constant) for _, expression in outputs):
            return renamed
        return self._nested(renamed)  # so that each computed column is written once

    def _nested(self, select: _Select, *, group_by: int = 0) -> _Select:
        """Return the same as a sub-query, with columns c0, c1 and so on."""
        return self._wrapped([self._flat(select, group_by=group_by)], select)

    def _flat(self, select: _Select, *, group_by: int = 0) -> str:
        items = [f"{select.unit} AS {_OUR_UNIT}"] if select.unit else []
        if select.unit and self.by_row:
            items.append(f"{select.block} AS {_OUR_BLOCK}")
        items += [f"{sql} AS c{n}" for n, sql in enumerate(select.columns.values())]
        return f"SELECT {', '.join(items) or '1 AS one'}{select.tail}{_group_by(group_by)}"

    def _wrapped(self, parts: Sequence[str], select: _Select) -> _Select:
        alias = self._alias()
        columns = {name: f"{alias}.c{n}" for n, name in enumerate(select.columns)}
        unit = f"{alias}.{_OUR_UNIT}" if select.unit else ""
        return _Select(f"({' UNION ALL '.join(parts)}) AS {alias}", columns, unit, f"{alias}.{_OUR_BLOCK}")

    def _side(self, relation: Relation, names: frozenset[str]) -> _Select:
        """Return one side of a join as a FROM item without conditions."""
        names &= frozenset(name for name, _ in relation.columns)
        select = self._select(relation, names)
        if isinstance(relation, PublicScan):
            return select
        columns = {name: sql for name, sql in select.columns.items() if name in names}
        return self._nested(replace(select, columns=columns))

    def _join(self, join: Join, names: frozenset[str]) -> _Select:
        names |= {name for pair in join.on for name in pair}
        left, right = self._side(join.left, names), self._side(join.right, names)
        kinds = dict(join.columns)
        on = []
        if is_private(join.right):
            on.append(f"{left.unit} = {right.unit}")
            if self.by_row:
                on.append(f"{left.block} = {right.block}")
        for a, b in join.on:
            left_sql, right_sql = (
                self.dialect.compared_text(sql) if isinstance(kinds[name], Text) else sql
                for name, sql in ((a, left.columns[a]), (b, right.columns[b]))
            )
            on.append(f"{left_sql} = {right_sql}")
        word = "LEFT JOIN" if join.keeps_left else "INNER JOIN"
        source = f"{left.source} {word} {right.source} ON {' AND '.join(on)}"
        return _Select(source, left.columns | right.columns, left.unit, left.block)

    def _union(self, sources: Sequence[Relation], names: Sequence[str]) -> _Select:
        """Return UNION ALL. Columns are matched by position, and named as in the first relation."""
        places = [n for n, (name, _) in enumerate(sources[0].columns) if name in names]
        selects = []
        for source in sources:
            wanted = [source.columns[place][0] for place in places]
            select = self._select(source, frozenset(wanted))
            selects.append(replace(select, columns={name: select.columns[name] for name in wanted}))
        return self._wrapped([self._flat(select) for select in selects], selects[0])

    def _per_unit(self, per: PerUnit, names: frozenset[str]) -> _Select:
        keys = [expression for _, expression in per.keys]
        arguments = [argument for _, _, argument, _ in per.aggregates if argument is not None]
        inner = self._select(per.source, _names_in([*keys, *arguments]))
        writer = self._writer(inner)
        persons = [name for name, expression in per.keys if isinstance(expression.kind, Person)]
        columns = {name: writer.compared(key) for name, key in per.keys if name not in persons}
        grouped = 1 + self.by_row + len(columns)
        for name, function, argument, kind in per.aggregates:
            if name in names:
                columns[name] = self._of_unit(function, argument, kind, writer)
        nested = self._nested(replace(inner, columns=columns), group_by=grouped)
        return replace(nested, columns=nested.columns | dict.fromkeys(persons, nested.unit))

    def _of_unit(
        self, function: str, argument: Expression | None, kind: Kind, writer: ExpressionWriter
    ) -> str:
        if argument is not None and function in ("min", "max"):
            extreme = f"{function}({writer.code(argument)})"
            return f"({extreme} = 1)" if isinstance(argument.kind, Truth) else extreme
        sql = self._sum(function, argument, writer)
        if argument is None or function != "sum":
            return sql
        # In few bytes again, so that summing it is fast. The sum of no values is NULL.
        total = self.dialect.whole(sql, reach_of(kind))
        return f"CASE WHEN count({writer.plain(argument)}) > 0 THEN {total} END"


def _group_by(columns: int) -> str:
    """Return GROUP BY with positions.

    A name could be a column's, and an expression could look like a position.
    """
    return f" GROUP BY {', '.join(str(n + 1) for n in range(columns))}" if columns else ""


def _names_in(expressions: Iterable[Expression]) -> frozenset[str]:
    """Return the columns that expressions use."""
    names = set()
    waiting = list(expressions)
    while waiting:
        match waiting.pop():
            case Reference(name):
                names.add(name)
            case Apply(args=args):
                waiting += args
    return frozenset(names)


def _is_one_row_each(relation: Relation) -> bool:
    """Return whether each unit has at most one row, so that counting rows counts units."""
    match relation:
        case PerUnit(keys=keys):
            return all(isinstance(expression.kind, Person) for _, expression in keys)
        case Filter(source) | Project(source):
            return _is_one_row_each(source)
        case _:
            return False
