"""The private tables, bounded and ready to be asked: the prepared copy, or the source itself.

Claim    every statement reads bounded tables only: the rows of a unit beyond its bound are never seen.
Because  statements name nothing but the tables of the copy, which were ranked when it was made, or views
         that rank the source's rows on the way (the same SELECT).
Test     tests/query/test_neighbours.py runs both, on all engines

Readers for threads: each has one to itself, and none is closed while it is used.

Claim    threads that share a data set never share a connection, and a question reads to its end from the
         copy or source that it began with, also if there is a newer one by then.
Because  a reader is lent to one thread at a time; one of another state is closed when it comes back.
Test     tests/query/test_threads.py

What an engine found, laid out for the mechanisms: every declared group, every sum combined.

The numbers here are private. They go to `noise` and nowhere else.

Generated rows of a policy's schema, so that dashboards can be built without spending.

They are drawn uniformly from what the policy declares: nothing of the data is in them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.core.noise import uniform_int
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed
from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.sql.binding.public_tables import PublicTable, typed_csv
from lapwing.sql.binding.refusal import Refused
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.expression import Kind, Text, Truth, codes_of
from lapwing.sql.noising import CodeCounts, ExactGrouping, KeyTuple, has_declared_keys, number_of_groups
from lapwing.sql.policy import Policy, Table, codes_of_blocks
from lapwing.sql.relation import BLOCK, RANK, UNIT, Relation, Scan, public_scans_of, scans_of
from lapwing.sql.truncated import prepared_copy
from lapwing.sql.truncated.column_codes import UnitIds
from lapwing.sql.truncated.open_sources import (
    FILES,
    OpenedSources,
    dialect_of,
    encodings_of,
    limits_of,
    open_server,
    open_sources,
    private_tables,
)
from lapwing.sql.truncated.prepared_copy import PreparedCopy
from lapwing.sql.truncated.render import (
    Statements,
    public_table_name,
    render,
    render_rows,
    render_where,
    scan_name,
    truncated_name,
    with_truncated,
)
from lapwing.sql.truncated.truncated_table import TruncatedTable

_FITS = 1 << 61  # beyond, sums are Python's integers
Ints = NDArray[np.int64]


def lay_out(
    question: BoundQuery, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]
) -> ExactGrouping:
    """One grouping of a question, from the tables that its statements gave."""
    count = len(question.sets[grouping])
    sums = None if sums is None else _known(sums, count)
    spectra = [_known(table, count) for table in spectra]
    if has_declared_keys(question, grouping):
        return _declared(question, grouping, sums, spectra)
    assert sums is not None
    keys = _keys(sums, count)
    values = _combined(question, sums, len(keys), np.arange(len(keys)))
    places = {key: place for place, key in enumerate(keys)}
    counted = []
    for table in spectra:
        cells = [places.get(key, -1) for key in _keys(table, count)]
        counted.append(_counted(table, np.array(cells, dtype=np.int64)))
    return ExactGrouping(values, tuple(counted), keys, _whole(sums.column("units")))


def _known(table: pa.Table, count: int) -> pa.Table:
    """The groups whose keys are all known: rows without a key are in no group."""
    for n in range(count):
        column = table.column(f"k{n}")
        if column.null_count:
            table = table.filter(column.is_valid())
    return table


def _declared(
    question: BoundQuery, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]
) -> ExactGrouping:
    cells = number_of_groups(question, grouping)
    counted = tuple(_counted(table, _places(question, grouping, table)) for table in spectra)
    if sums is None:
        return ExactGrouping(np.zeros((cells, 0), dtype=np.int64), counted)
    return ExactGrouping(_combined(question, sums, cells, _places(question, grouping, sums)), counted)


def _places(question: BoundQuery, grouping: int, table: pa.Table) -> Ints:
    """The position of each row's group among all declared ones, or -1."""
    places = np.zeros(table.num_rows, dtype=np.int64)
    for n, key in enumerate(question.sets[grouping]):
        codes = question.keys[key].codes
        assert codes is not None
        offset = _whole(table.column(f"k{n}")) - codes.start
        outside = (offset < 0) | (offset >= len(codes)) | (places < 0)
        places = np.where(outside, -1, places * len(codes) + offset)
    return places


def _combined(question: BoundQuery, table: pa.Table, groups: int, places: Ints) -> NDArray[Any]:
    """[groups, numbers of all parts]: groups without rows are 0."""
    inside = places >= 0
    columns = [_numbers(table.column(f"s{n}")) for n in range(len(question.sums))]
    values: list[NDArray[Any]] = []
    for combination in (one for part in question.parts for one in part.numbers):
        wide = any(columns[place].dtype == object for _, place in combination)
        most = sum(abs(factor) * _size(columns[place]) for factor, place in combination)
        kind: Any = object if wide or most >= _FITS else np.int64
        column = np.zeros(groups, dtype=kind)
        total: NDArray[Any] = np.zeros(table.num_rows, dtype=kind)
        for factor, place in combination:
            total = total + factor * columns[place].astype(kind)
        column[places[inside]] = total[inside]
        values.append(column)
    if not values:
        return np.zeros((groups, 0), dtype=np.int64)
    return np.stack(values, axis=1)


def _size(column: NDArray[Any]) -> int:
    return max((abs(int(column.min())), abs(int(column.max()))), default=0) if len(column) else 0


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Whole numbers of any width."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        return _whole(column)
    found = [0 if value is None else int(Decimal(value)) for value in column.to_pylist()]
    return np.array(found, dtype=object)


def _whole(column: pa.ChunkedArray) -> Ints:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_integer(column.type):
        return np.array([int(value) for value in column.to_pylist()], dtype=np.int64)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _keys(table: pa.Table, count: int) -> list[KeyTuple]:
    columns = [table.column(f"k{n}").to_pylist() for n in range(count)]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _counted(table: pa.Table, cells: Ints) -> CodeCounts:
    inside = cells >= 0
    return CodeCounts(
        cells[inside], _whole(table.column("code"))[inside], _whole(table.column("n"))[inside]
    )


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
    sources: Mapping[str, TruncatedTable] = field(default_factory=dict)  # where there is no copy

    @classmethod
    def open(
        cls, policy: Policy, key: bytes, public: Mapping[str, PublicTable], *,
        threads: int | None = None, from_source: bool = False,
    ) -> Reader:  # fmt: skip
        """The prepared copy if it is of the source as it is now, else (or if so wished) the source."""
        copy = None if from_source else prepared_copy.current_copy(policy, key)
        if (
            copy is None
            and not all(prepared_copy.files_of(policy).values())
            and prepared_copy.last_copy(policy) is not None
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
                one.name: TruncatedTable(policy, one, opened.engine, key, opened.relations)
                for one in tables
            }
            views = {name: bounded.ranked(bounded.codes()) for name, bounded in sources.items()}
        except BaseException:
            opened.engine.close()
            raise
        names = {table: opened.engine.dialect.name(truncated_name(table)) for table in views}
        return cls(policy, opened.engine, names, views, public, sources)

    @property
    def is_prepared(self) -> bool:
        """Whether answers come at the speed of the plain query."""
        return not self.definitions

    def statements(self, question: BoundQuery) -> Statements:
        """The SQL of a question, without secrets."""
        return render(question, self.scans, self.engine.dialect, by_row=_by_row(self.policy))

    def require_plan(self, question: BoundQuery) -> None:
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

    def exact(self, question: BoundQuery) -> list[ExactGrouping]:
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
        return render_rows(relation, self.scans, self.engine.dialect, by_row=sliced)

    def _ship(self, relation: Relation) -> None:
        for scan in public_scans_of(relation):
            self.engine.ship(public_table_name(scan), self.public[scan.table].shipped(scan))

    def _own(self, relation: Relation) -> dict[str, str]:
        """Bounded tables for one question alone: those whose WHERE comes before their ranks."""
        return dict(self._of_its_own(scan) for scan in scans_of(relation) if scan.where is not None)

    def _of_its_own(self, scan: Scan) -> tuple[str, str]:
        bounded = self.sources[scan.table]  # a copy has too few rows for that
        if scan.rows > bounded.table.rows_per_unit:  # rows beyond the bound are counted
            bounded = replace(bounded, table=replace(bounded.table, rows_per_unit=scan.rows))
        return scan_name(scan), bounded.ranked(
            bounded.codes(), render_where(scan, "z", self.engine.dialect)
        )

    def _whole(self, statement: str, own: Mapping[str, str]) -> str:
        """A statement as the engine gets it, with the views that it reads."""
        used = {table: sql for table, sql in self.definitions.items() if self.scans[table] in statement}
        return with_truncated(statement, {**used, **own}, self.engine.dialect)

    def _run(self, statement: str, own: Mapping[str, str]) -> pa.Table:
        return self.engine.run(self._whole(statement, own), timeout=self.policy.timeout)

    def close(self) -> None:
        """Let go of the engine."""
        self.engine.close()


def _opened(policy: Policy, copy: PreparedCopy, *, threads: int | None = None) -> Engine:
    if copy.engine == "duckdb":
        return copy.open(limits_of(policy, threads))
    return open_sources(policy, threads=threads).engine


def _has_sums(question: BoundQuery, grouping: int) -> bool:
    """A question of quantiles alone, over declared keys, has nothing to sum."""
    return bool(question.sums) or not has_declared_keys(question, grouping)


def _by_row(policy: Policy) -> bool:
    return policy.blocks is not None and policy.blocks.by == "row"


def shown_statements(policy: Policy, question: BoundQuery) -> Statements:
    """The SQL of a question, before there is anything to run it on."""
    spelling = dialect_of(policy)
    names = {table.name: spelling.name(truncated_name(table.name)) for table in private_tables(policy)}
    return render(question, names, spelling, by_row=_by_row(policy))


def read_public_tables(policy: Policy) -> dict[str, PublicTable]:
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
        return typed_csv(rows, source.csv) if source.form == "csv" else rows
    finally:
        with_engine.close()


def unit_ids(policy: Policy, copy: PreparedCopy | None = None) -> Iterator[Any]:
    """Everybody who can be read, in the copy or else in the source, for the ledger's sketch. Nobody else
    sees them. Texts one by one, or whole numbers in arrays: as units are in all tables. Ids are folded, as
    they always were in sketches: who is known is known again, and at most more accounts are joined."""
    tables = [table for table in private_tables(policy) if table.unit and table.unit.column]
    opened = open_sources(policy) if copy is None else OpenedSources(_opened(policy, copy), {})
    engine, relations = opened.engine, opened.relations
    try:
        if copy is not None:
            types, rows = copy.types, copy.relations(engine, [table.name for table in tables])
        else:
            types = {name: engine.columns(relation) for name, relation in relations.items()}
            sources = [TruncatedTable(policy, table, engine, bytes(32), relations) for table in tables]
            rows = {source.table.name: f"({source.codes()}) AS c" for source in sources}
        unit = UnitIds.of(policy, engine.dialect, types).folded(UNIT)
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


MAX_READERS = 4  # each may take the memory that an engine is allowed; further threads wait


class ReaderPool:
    """Readers of one data set, all of its latest state."""

    def __init__(self) -> None:
        self._idle: list[Reader] = []
        self._state: object = None
        self._changing = threading.Lock()
        self._places = threading.Semaphore(MAX_READERS)

    @contextmanager
    def lent(self, state: object, make: Callable[[], Reader]) -> Iterator[Reader]:
        """A reader of this state, for whoever is within."""
        with self._places:
            with self._changing:
                if state != self._state:
                    self._close_idle()
                    self._state = state
                reader = self._idle.pop() if self._idle else make()
            try:
                yield reader
            except BaseException:  # its connection may be broken
                reader.close()
                raise
            with self._changing:
                if state == self._state:
                    self._idle.append(reader)
                else:
                    reader.close()

    def close(self) -> None:
        """Close those that nobody uses now; the others are closed when they come back."""
        with self._changing:
            self._close_idle()
            self._state = None

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()


PEOPLE = 1000
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def fake_reader(policy: Policy, public: Mapping[str, PublicTable]) -> Reader:
    """Bounded tables of generated people."""
    engine = DuckDbEngine.open(limits=policy.limits)
    scans = {}
    for table in private_tables(policy):
        name = f"lapwing_fake_{table.name}"
        engine.ship(name, fake_rows(policy, table))
        scans[table.name] = engine.dialect.name(name)
    return Reader(policy, engine, scans, {}, public)


def fake_rows(policy: Policy, table: Table) -> pa.Table:
    """At most a few rows of each generated person."""
    each = min(table.rows_per_unit, 5)
    size = PEOPLE * each
    columns: dict[str, Any] = {
        UNIT: np.repeat(np.arange(PEOPLE), each),
        RANK: np.tile(np.arange(1, each + 1), PEOPLE),
    }
    if policy.blocks is not None:
        codes = codes_of_blocks(policy.blocks) or range(1)
        columns[BLOCK] = np.repeat(_draw(codes.start, codes.stop, PEOPLE), each)
    for column in table.columns.values():
        columns[column.name] = _values(column.kind, size)
    return pa.table(columns)


def _values(kind: Kind, size: int) -> Any:
    if isinstance(kind, Text):
        return [_WORDS[place] for place in _draw(0, len(_WORDS), size)]
    codes = codes_of(kind)
    assert codes is not None, "every declared column but a text has bounds"
    drawn = _draw(codes.start, codes.stop, size)
    return drawn.astype(bool) if isinstance(kind, Truth) else drawn


def _draw(start: int, stop: int, size: int) -> NDArray[np.int64]:
    return np.asarray(uniform_int(start, stop, size))
