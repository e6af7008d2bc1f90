"""Reading truncated tables: from the prepared copy, or from the source itself.

Claim    every statement reads truncated tables only: rows beyond the contribution bound are never seen.
Because  statements name nothing but the tables of the copy, which were ranked when it was made, or views
         that rank the source's rows at each query (with the same SELECT).
Test     tests/sql/reading/test_reader_neighbours.py runs both, on all engines

The results are arranged for the mechanisms: every declared group, every combination of sums. These numbers
are private. Only the mechanisms may get them.

Claim    threads that share a data set never share a connection, and a query reads to its end from the copy
         or source that it began with, even if there is a newer one by then.
Because  the pool lends a reader to one thread at a time, and closes readers of an old state on return.
Test     tests/sql/test_curator_threads.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.engines.engine import Engine, EngineFailed, undo_on_failure
from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import READ_BYTES, CheckedPolicy, CheckedTable
from lapwing.sql.question.bound_query import BoundQuery, has_declared_keys, number_of_groups
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.relation import BLOCK, RANK, UNIT, Relation, public_scans_of, scans_of
from lapwing.sql.reading.exact_numbers import CodeCounts, ExactGrouping, KeyTuple
from lapwing.sql.reading.open_sources import dialect_of, open_sources
from lapwing.sql.reading.prepared_copy import (
    PreparedCopy,
    copy_digest,
    current_copy,
    files_of,
    last_copy,
    open_copy,
)
from lapwing.sql.reading.render import (
    Statements,
    public_table_name,
    render,
    render_rows,
    render_where,
    scan_name,
    truncated_name,
    with_truncated,
)
from lapwing.sql.reading.truncated_table import TruncatedTable

_FITS = 1 << 61  # larger sums are Python's integers
Ints = NDArray[np.int64]


def lay_out(
    query: BoundQuery, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]
) -> ExactGrouping:
    """Arrange the results of one grouping for the mechanisms."""
    count = len(query.sets[grouping])
    sums = None if sums is None else _known(sums, count)
    spectra = [_known(table, count) for table in spectra]
    if has_declared_keys(query, grouping):
        return _declared(query, grouping, sums, spectra)
    assert sums is not None
    keys = _keys(sums, count)
    values = _combined(query, sums, len(keys), np.arange(len(keys)))
    places = {key: place for place, key in enumerate(keys)}
    cells = [[places.get(key, -1) for key in _keys(table, count)] for table in spectra]
    counted = [_counted(table, np.array(own, np.int64)) for table, own in zip(spectra, cells, strict=True)]
    return ExactGrouping(values, tuple(counted), keys, _whole(sums.column("units")))


def _known(table: pa.Table, count: int) -> pa.Table:
    """Return the groups whose keys are not NULL: rows with a NULL key are in no group."""
    for n in range(count):
        column = table.column(f"k{n}")
        if column.null_count:
            table = table.filter(column.is_valid())
    return table


def _declared(
    query: BoundQuery, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]
) -> ExactGrouping:
    cells = number_of_groups(query, grouping)
    counted = tuple(_counted(table, _places(query, grouping, table)) for table in spectra)
    if sums is None:
        return ExactGrouping(np.zeros((cells, 0), dtype=np.int64), counted)
    return ExactGrouping(_combined(query, sums, cells, _places(query, grouping, sums)), counted)


def _places(query: BoundQuery, grouping: int, table: pa.Table) -> Ints:
    """Return the position of each row's group among all declared groups, or -1."""
    places = np.zeros(table.num_rows, dtype=np.int64)
    for n, key in enumerate(query.sets[grouping]):
        codes = query.keys[key].codes
        assert codes is not None
        offset = _whole(table.column(f"k{n}")) - codes.start
        outside = (offset < 0) | (offset >= len(codes)) | (places < 0)
        places = np.where(outside, -1, places * len(codes) + offset)
    return places


def _combined(query: BoundQuery, table: pa.Table, groups: int, places: Ints) -> NDArray[Any]:
    """Return an array [groups, numbers of all sums]. Groups without rows are 0."""
    inside = places >= 0
    columns = [_numbers(table.column(f"s{n}")) for n in range(len(query.sums))]
    values: list[NDArray[Any]] = []
    for combination in (pairs for part in query.parts for pairs in part.numbers):
        wide = any(columns[place].dtype == object for _, place in combination)
        most = sum(abs(factor) * _size(columns[place]) for factor, place in combination)
        kind: Any = object if wide or most >= _FITS else np.int64
        column = np.zeros(groups, dtype=kind)
        total: NDArray[Any] = np.zeros(table.num_rows, dtype=kind)
        for factor, place in combination:
            total = total + factor * columns[place].astype(kind)
        column[places[inside]] = total[inside]
        values.append(column)
    return np.stack(values, axis=1) if values else np.zeros((groups, 0), dtype=np.int64)


def _size(column: NDArray[Any]) -> int:
    return max((abs(int(column.min())), abs(int(column.max()))), default=0) if len(column) else 0


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return whole numbers of any width."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        return _whole(column)
    numbers = [0 if value is None else int(Decimal(value)) for value in column.to_pylist()]
    return np.array(numbers, dtype=object)


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
    codes, counts = (_whole(table.column(name))[inside] for name in ("code", "n"))
    return CodeCounts(cells[inside], codes, counts)


UNPLANNED = (
    "the engine cannot plan this query",
    "Nothing was read or charged. Ask in another way; if no query can be planned, tell the curator",
)


@dataclass(slots=True)
class Reader:
    """An engine with the truncated tables of a policy."""

    policy: CheckedPolicy
    engine: Engine
    scans: Mapping[str, str]  # FROM items of the truncated tables
    definitions: Mapping[str, str]  # views over the source; they contain the key: never show them
    public: Mapping[str, PublicTable]
    sources: Mapping[str, TruncatedTable] = field(default_factory=dict)  # empty if there is a copy

    @classmethod
    def open(
        cls, policy: CheckedPolicy, key: bytes, public: Mapping[str, PublicTable], *,
        threads: int | None = None, from_source: bool = False,
    ) -> Reader:  # fmt: skip
        """Open the prepared copy if it is current, else (or with `from_source`) the source.

        Raises BadParameter if the source is a server that may differ from its copy.
        """
        opened = partial(cls._open, policy, key, public, threads=threads, from_source=from_source)
        try:
            return opened()
        except EngineFailed:  # `prepare` may have removed the copy that was current a moment ago
            return opened()

    @classmethod
    def _open(
        cls, policy: CheckedPolicy, key: bytes, public: Mapping[str, PublicTable], *,
        threads: int | None, from_source: bool,
    ) -> Reader:  # fmt: skip
        copy = None if from_source else current_copy(policy, key)
        if copy is not None:
            return cls.of_copy(policy, key, public, copy, open_copy(policy, copy, threads=threads))
        if not all(files_of(policy).values()) and last_copy(policy) is not None:
            # New units could be read that the ledger does not know.
            raise BadParameter(
                "source",
                "lies in a server, which may differ from its copy by now. If the policy was changed, run "
                "`lapwing prepare`. where_first, beyond, bounds and check need the source itself",
            )
        opened = open_sources(policy, threads=threads)
        with undo_on_failure(opened.engine.close):
            sources = {
                table.name: TruncatedTable(policy, table, opened.engine, key, opened.relations)
                for table in policy.private_tables
            }
            views = {name: _ranked(table) for name, table in sources.items()}
        names = {table: opened.engine.dialect.name(truncated_name(table)) for table in views}
        return cls(policy, opened.engine, names, views, public, sources)

    @classmethod
    def of_copy(
        cls, policy: CheckedPolicy, key: bytes, public: Mapping[str, PublicTable], copy: PreparedCopy,
        engine: Engine,
    ) -> Reader:  # fmt: skip
        """Make it of an engine that `open_copy` opened for a copy."""
        is_old = copy.digest != copy_digest(policy, key)
        relations = copy.relations(engine, copy.types)
        for table in policy.private_tables:
            if is_old or table.coded_bytes > READ_BYTES:
                relations[table.name] = _with_cut_texts(policy, table, relations[table.name], engine)
        return cls(policy, engine, relations, {}, public)

    @property
    def is_prepared(self) -> bool:
        """True if there is a copy, so that answers are as fast as the plain query."""
        return not self.definitions

    def statements(self, query: BoundQuery) -> Statements:
        """Return the SQL of a query, without secrets."""
        return render(query, self.scans, self.engine.dialect, by_row=_by_row(self.policy))

    def require_plan(self, query: BoundQuery) -> None:
        """Raise Refused if the engine cannot bind the statements of a query.

        Claim    the refusal and its words depend on no row: it needs no charge.
        Because  `Engine.bind` looks up names and types and reads no row, and the words are always the same.
        Test     tests/sql/reading/test_reader_planned.py
        """
        statements, own = self.statements(query), self._own(query.source)
        every = [sql for n, sql in enumerate(statements.sums) if _has_sums(query, n)]
        every += [sql for several in statements.spectra for sql in several]
        self._bind(query.source, every, own)

    def require_plan_of_rows(self, relation: Relation) -> None:
        """Raise Refused if the engine cannot bind the statement of `rows`."""
        self._bind(relation, [self._rendered(relation)], {})

    def _bind(self, relation: Relation, statements: Iterable[str], own: Mapping[str, str]) -> None:
        self._ship(relation)
        try:
            for statement in statements:
                self.engine.bind(self._whole(statement, own))
        except EngineFailed:
            raise Refused(*UNPLANNED) from None

    def exact(self, query: BoundQuery) -> list[ExactGrouping]:
        """Return the exact numbers of each grouping, for the mechanisms. They are private: charge first."""
        self._ship(query.source)
        statements, own = self.statements(query), self._own(query.source)
        groupings = []
        for grouping, sums in enumerate(statements.sums):
            spectra = [self._run(several[grouping], own) for several in statements.spectra]
            summed = self._run(sums, own) if _has_sums(query, grouping) else None
            groupings.append(lay_out(query, grouping, summed, spectra))
        return groupings

    def rows(self, relation: Relation) -> pa.Table:
        """Return truncated rows (see `render_rows`), with blocks if there are any.

        They are private: charge first.

        A unit's rows are joined within one block only. That changes nothing if a unit is in one block.
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
        """Return the truncated tables of one query alone: those whose WHERE comes before truncation."""
        tables = {}
        for scan in (scan for scan in scans_of(relation) if scan.where is not None):
            own = self.sources[scan.table]  # never a copy: it has too few rows
            if scan.rows > own.table.rows_per_unit:  # rows beyond the bound are counted
                own = replace(own, table=replace(own.table, rows_per_unit=scan.rows))
            tables[scan_name(scan)] = _ranked(own, render_where(scan, "z", self.engine.dialect))
        return tables

    def _whole(self, statement: str, own: Mapping[str, str]) -> str:
        """Return a statement with the views that it reads."""
        used = {table: sql for table, sql in self.definitions.items() if self.scans[table] in statement}
        return with_truncated(statement, {**used, **own}, self.engine.dialect)

    def _run(self, statement: str, own: Mapping[str, str]) -> pa.Table:
        return self.engine.run(self._whole(statement, own), timeout=self.policy.timeout)

    def close(self) -> None:
        """Close the engine."""
        self.engine.close()


def _ranked(table: TruncatedTable, passing: str = "") -> str:
    """Return a SELECT of a source's ranked rows, with texts as short as questions read them."""
    ranked = table.ranked(table.codes(), passing)
    if table.table.coded_bytes == READ_BYTES:
        return ranked
    return f"SELECT * FROM {_with_cut_texts(table.policy, table.table, f'({ranked})', table.engine)} AS c"  # noqa: S608


def _with_cut_texts(policy: CheckedPolicy, table: CheckedTable, relation: str, engine: Engine) -> str:
    """Return a FROM item whose texts have at most `READ_BYTES`, where the policy gives no `longest`."""
    if not table.open_texts:
        return relation
    name, cut = engine.dialect.name, engine.dialect.cut_text
    items = [UNIT, RANK, *([BLOCK] if policy.blocks else [])]
    for column in table.columns:
        own = name(column)
        items.append(f"{cut(own, READ_BYTES)} AS {own}" if column in table.open_texts else own)
    return f"(SELECT {', '.join(items)} FROM {relation} AS w)"  # noqa: S608


def _has_sums(query: BoundQuery, grouping: int) -> bool:
    """Return whether there are sums: a query of quantiles alone, over declared keys, has none."""
    return bool(query.sums) or not has_declared_keys(query, grouping)


def _by_row(policy: CheckedPolicy) -> bool:
    return policy.blocks is not None and policy.blocks.by == "row"


def shown_statements(policy: CheckedPolicy, query: BoundQuery) -> tuple[str, ...]:
    """Return the SQL of a query for display. Nothing is opened."""
    dialect = dialect_of(policy)
    names = {table.name: dialect.name(truncated_name(table.name)) for table in policy.private_tables}
    return render(query, names, dialect, by_row=_by_row(policy)).all


MAX_READERS = 4  # each may use the engine's whole memory limit; further threads wait
MAX_PLANNERS = 4  # they read no row


class ReaderPool:
    """A pool of readers of one data set, all of its latest state.

    Claim    who plans a question never waits for work on rows: the moment at which that work ends is seen
             in charged questions alone, which are padded if the policy says so.
    Because  planning has places of its own, and reads no row.
    Test     tests/sql/test_curator_threads.py
    """

    def __init__(self) -> None:
        self._idle: list[Reader] = []
        self._state: object = None
        self._changing = threading.Lock()
        self._places = threading.Semaphore(MAX_READERS)
        self._planners = threading.Semaphore(MAX_PLANNERS)

    @contextmanager
    def lent(self, state: object, make: Callable[[], Reader], *, plans: bool = False) -> Iterator[Reader]:
        """Lend a reader of this state to the caller. `plans`: no row will be read."""
        with self._planners if plans else self._places:
            with self._changing:
                self._turn_to(state)
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

    def keep(self, state: object, reader: Reader) -> None:
        """Lend a reader of this state to who asks next: it was opened for other work, which has ended."""
        with self._changing:
            self._turn_to(state)
            self._idle.append(reader)

    def _turn_to(self, state: object) -> None:
        if state != self._state:
            self._close_idle()
            self._state = state

    def close(self) -> None:
        """Close idle readers. Readers in use are closed when they are returned."""
        with self._changing:
            self._close_idle()
            self._state = None

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
