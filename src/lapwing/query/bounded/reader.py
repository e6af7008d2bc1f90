"""The private tables, bounded and ready to be asked: the prepared copy, or the source itself.

Claim    every statement reads bounded tables only: the rows of a unit beyond its bound are never seen.
Because  statements name nothing but the tables of the copy, which were ranked when it was made, or views
         that rank the source's rows on the way (the same SELECT).
Test     tests/query/test_neighbours.py runs both, on all engines
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed
from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.query.answering.noising import Exact
from lapwing.query.answering.shares import is_declared
from lapwing.query.binding.csv_types import typed
from lapwing.query.binding.public import PublicTable
from lapwing.query.binding.refused import Refused
from lapwing.query.bounded import prepared
from lapwing.query.bounded.coded import Bounded
from lapwing.query.bounded.exact_rows import lay_out
from lapwing.query.bounded.ids import Ids
from lapwing.query.bounded.names import bounded_name, rows_name, shipped_name, with_bounded
from lapwing.query.bounded.prepared import Prepared
from lapwing.query.bounded.render import Statements, render, render_rows, where_of
from lapwing.query.bounded.sources import (
    FILES,
    Opened,
    encodings_of,
    limits_of,
    open_server,
    open_sources,
    private_tables,
    spelling_of,
)
from lapwing.query.language.kinds import Kind
from lapwing.query.language.question import Question
from lapwing.query.language.relation import RANK, UNIT, Relation, Scan, public_scans_of, scans_of
from lapwing.query.policies.policy import Policy, Table

UNPLANNED = (
    "the engine cannot plan this question",
    "Nothing was read or charged. Ask in another way; if no question can be planned, tell the curator",
)


def row_key(ledger: Ledger) -> bytes:
    """The secret that decides which rows of a person are kept. Whoever knew it could choose them."""
    return hashlib.blake2b(key=ledger.keys.people, digest_size=32, person=b"lapwing rows").digest()


@dataclass(slots=True)
class Reader:
    """An engine with the bounded tables of a policy."""

    policy: Policy
    engine: Engine
    scans: Mapping[str, str]
    definitions: Mapping[str, str]  # of views over the source, with the key in them: never shown
    public: Mapping[str, PublicTable]
    sources: Mapping[str, Bounded] = field(default_factory=dict)  # where there is no copy

    @classmethod
    def open(
        cls, policy: Policy, key: bytes, public: Mapping[str, PublicTable], *,
        threads: int | None = None, from_source: bool = False,
    ) -> Reader:  # fmt: skip
        """The prepared copy if it is of the source as it is now, else (or if so wished) the source."""
        copy = None if from_source else prepared.current(policy, key)
        if (
            copy is None
            and not all(prepared.files_of(policy).values())
            and prepared.last(policy) is not None
        ):
            # People who came since would be read, and the ledger would not know them.
            raise BadParameter(
                "source",
                "lies in a server, which may differ from its copy by now. If the policy was changed, run "
                "`lapwing prepare`. What no copy holds (where_first, beyond, bounds and check) cannot be "
                "asked",
            )
        if copy is not None:
            engine = _opened(policy, copy, threads=threads)
            return cls(policy, engine, copy.scans(engine), {}, public)
        opened = open_sources(policy, threads=threads)
        try:
            tables = private_tables(policy)
            sources = {
                one.name: Bounded(policy, one, opened.engine, key, opened.relations) for one in tables
            }
            views = {name: bounded.ranked(bounded.codes()) for name, bounded in sources.items()}
        except BaseException:
            opened.engine.close()
            raise
        names = {table: opened.engine.spelling.name(bounded_name(table)) for table in views}
        return cls(policy, opened.engine, names, views, public, sources)

    @property
    def is_prepared(self) -> bool:
        """Whether answers come at the speed of the plain query."""
        return not self.definitions

    def statements(self, question: Question) -> Statements:
        """The SQL of a question, without secrets."""
        return render(question, self.scans, self.engine.spelling, by_row=_by_row(self.policy))

    def require_plan(self, question: Question) -> None:
        """Refuse a question whose statements the engine cannot bind.

        Claim    whether it is refused, and in which words, depends on no row: it may happen uncharged.
        Because  `Engine.bind` looks up names and types and reads no row, and there is one sentence.
        Test     tests/query/test_planned.py
        """
        statements, own = self.statements(question), self._own(question.source)
        every = [one for n, one in enumerate(statements.sums) if _has_sums(question, n)]
        every += [one for several in statements.spectra for one in several]
        self._bind(question.source, every, own)

    def require_plan_of_rows(self, relation: Relation) -> None:
        """The same for `rows`."""
        self._bind(relation, [self._rendered(relation)], {})

    def _bind(self, relation: Relation, statements: Iterable[str], own: Mapping[str, str]) -> None:
        self._ship(relation)
        try:
            for statement in statements:
                self.engine.bind(self._whole(statement, own))
        except EngineFailed:
            raise Refused(*UNPLANNED) from None

    def exact(self, question: Question) -> list[Exact]:
        """What the mechanisms get. Private: charge first."""
        self._ship(question.source)
        statements, own = self.statements(question), self._own(question.source)
        found = []
        for grouping, sums in enumerate(statements.sums):
            spectra = [self._run(several[grouping], own) for several in statements.spectra]
            summed = self._run(sums, own) if _has_sums(question, grouping) else None
            found.append(lay_out(question, grouping, summed, spectra))
        return found

    def rows(self, relation: Relation) -> pa.Table:
        """Bounded rows themselves (see `render_rows`), with blocks if there are any. Private: charge first.

        That a unit's rows meet within one block only changes nothing where a unit is in one block.
        """
        self._ship(relation)
        return self._run(self._rendered(relation), {})

    def _rendered(self, relation: Relation) -> str:
        sliced = self.policy.blocks is not None
        return render_rows(relation, self.scans, self.engine.spelling, by_row=sliced)

    def _ship(self, relation: Relation) -> None:
        for scan in public_scans_of(relation):
            self.engine.ship(shipped_name(scan), self.public[scan.table].shipped(scan))

    def _own(self, relation: Relation) -> dict[str, str]:
        """Bounded tables for one question alone: those whose WHERE comes before their ranks."""
        return dict(self._of_its_own(scan) for scan in scans_of(relation) if scan.where is not None)

    def _of_its_own(self, scan: Scan) -> tuple[str, str]:
        bounded = self.sources[scan.table]  # a copy has too few rows for that
        if scan.rows > bounded.table.rows_per_unit:  # rows beyond the bound are counted
            bounded = replace(bounded, table=replace(bounded.table, rows_per_unit=scan.rows))
        return rows_name(scan), bounded.ranked(bounded.codes(), where_of(scan, "z", self.engine.spelling))

    def _whole(self, statement: str, own: Mapping[str, str]) -> str:
        """A statement as the engine gets it, with the views that it reads."""
        used = {table: sql for table, sql in self.definitions.items() if self.scans[table] in statement}
        return with_bounded(statement, {**used, **own}, self.engine.spelling)

    def _run(self, statement: str, own: Mapping[str, str]) -> pa.Table:
        return self.engine.run(self._whole(statement, own), timeout=self.policy.timeout)

    def close(self) -> None:
        """Let go of the engine."""
        self.engine.close()


def _opened(policy: Policy, copy: Prepared, *, threads: int | None = None) -> Engine:
    if copy.engine == "duckdb":
        return copy.open(limits_of(policy, threads))
    return open_sources(policy, threads=threads).engine


def _has_sums(question: Question, grouping: int) -> bool:
    """A question of quantiles alone, over declared keys, has nothing to sum."""
    return bool(question.sums) or not is_declared(question, grouping)


def _by_row(policy: Policy) -> bool:
    return policy.blocks is not None and policy.blocks.by == "row"


def shown_statements(policy: Policy, question: Question) -> Statements:
    """The SQL of a question, before there is anything to run it on."""
    spelling = spelling_of(policy)
    names = {table.name: spelling.name(bounded_name(table.name)) for table in private_tables(policy)}
    return render(question, names, spelling, by_row=_by_row(policy))


def read_public(policy: Policy) -> dict[str, PublicTable]:
    """All public tables of a policy."""
    found = {}
    for table in policy.tables.values():
        if table.is_public:
            kinds: dict[str, Kind] = {name: column.kind for name, column in table.columns.items()}
            found[table.name] = PublicTable.of(table.name, _renamed(table, _rows(policy, table)), kinds)
    return found


def _renamed(table: Table, rows: pa.Table) -> pa.Table:
    """Rows with the names that questions use, where a column has another in the source."""
    names = {column.source.lower(): column.name for column in table.columns.values() if column.source}
    return rows.rename_columns([names.get(name.lower(), name) for name in rows.column_names])


def _rows(policy: Policy, table: Table) -> pa.Table:
    source = table.source
    if source.engine != "duckdb":
        opened = open_server([table], policy.limits, writes=False)
        with_engine, relation = opened.engine, opened.relations[table.name]
    else:
        files = [source.location] if source.form in FILES else []
        databases = {} if files else {"public": source.location}
        encodings = encodings_of({source.location: source} if files else {})
        local = DuckDbEngine.open(files, databases, limits=policy.limits, encodings=encodings)
        location = source.location if files else "public"
        with_engine, relation = local, local.relation_of(source.form, location, source.table, source.csv)
    try:
        rows = with_engine.run(f"SELECT * FROM {relation}")  # noqa: S608 (a FROM item of ours)
        return typed(rows, source.csv) if source.form == "csv" else rows
    finally:
        with_engine.close()


def unit_ids(policy: Policy, copy: Prepared | None = None) -> Iterator[Any]:
    """Everybody who can be read, in the copy or else in the source, for the ledger's sketch. Nobody else
    sees them. Texts one by one, or whole numbers in arrays: as units are in all tables. Ids are folded, as
    they always were in sketches: who is known is known again, and at most more accounts are joined."""
    tables = [table for table in private_tables(policy) if table.unit and table.unit.column]
    opened = open_sources(policy) if copy is None else Opened(_opened(policy, copy), {})
    engine, relations = opened.engine, opened.relations
    try:
        if copy is not None:
            types, rows = copy.types, copy.relations(engine, [table.name for table in tables])
        else:
            types = {name: engine.columns(relation) for name, relation in relations.items()}
            sources = [Bounded(policy, table, engine, bytes(32), relations) for table in tables]
            rows = {source.table.name: f"({source.codes()}) AS c" for source in sources}
        unit = Ids.of(policy, engine.spelling, types).folded(UNIT)
        # In the copy, everybody has one row of rank 1 in each slice: few rows, which lie together.
        first = f" WHERE {RANK} = 1" if copy is not None else ""
        for relation in rows.values():
            for batch in engine.stream(f"SELECT DISTINCT {unit} AS u FROM {relation}{first}"):  # noqa: S608
                column = batch.column(0)
                if pa.types.is_integer(column.type):
                    yield column.to_numpy(zero_copy_only=False)
                else:
                    yield from column.to_pylist()
    finally:
        engine.close()
