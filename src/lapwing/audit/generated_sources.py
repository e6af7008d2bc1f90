"""Sources of generated people: files that are read, coded and ranked as the policy's own data would be.

Claim    an audit reads no private row, and reads generated rows by the code that reads private ones.
Because  a copy of the policy names Parquet files in a temporary folder instead of its sources. `Reader`
         opens, codes, ranks and truncates them as always. The policy's own sources are never opened.
Test     tests/audit/test_generated_sources.py

Generated sources are Parquet files with ids as texts, whatever the policy's own sources are. Their numbers
are stored in each type that a source may have (`NUMBER_TYPES`), since each type has its own clamping.
"""

from __future__ import annotations

import math
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.audit.case import CannotGenerate
from lapwing.audit.generated_people import (
    NUMBER_TYPES,
    QUICK,
    GeneratedPerson,
    NeighbourPeople,
    neighbours,
    rows_of_table,
)
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Period, Person, Truth
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column, Source, has_blocks_by_arrival
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.relation import needs_new_ranks
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader

AUDITOR = "auditor"  # the analyst of all audits
KEY = bytes(range(32))  # decides which rows of a unit count; an audit's results are the same each time
TODAY = date(2026, 1, 1)  # on which people arrive
People = tuple[GeneratedPerson, ...]


class WatchedEngine:
    """An engine that notes the statements that it runs. Paths of generated files are left out."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self._engine, self._folder = engine, str(folder)
        self.statements: list[str] = []

    def run(self, statement: str, **options: Any) -> pa.Table:
        """Run a statement, as the engine does."""
        self.statements.append(statement.replace(self._folder, "FOLDER"))
        return self._engine.run(statement, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class GeneratedSources:
    """Readers of generated people, one for each set of people. They are opened when they are needed.

    Args:
        policy: The policy whose tables are generated.
        public: The public tables, by name.
        read_as: Returns the policy by which the generated tables are read. None: the same policy.
    """

    def __init__(
        self,
        policy: CheckedPolicy,
        public: Mapping[str, PublicTable],
        *,
        read_as: Callable[[CheckedPolicy], CheckedPolicy] | None = None,
    ) -> None:
        self.policy, self.public, self._read_as = policy, public, read_as
        self._folder = Path(mkdtemp(prefix="lapwing-audit-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._readers: dict[tuple[Any, ...], Reader] = {}
        self._numbers = count()  # of folders: no name is used again
        self._neighbours: list[NeighbourPeople] = []  # kept, so that an id() stays that of its people

    def neighbours(self, *, is_thorough: bool) -> list[NeighbourPeople]:
        """Return neighbours of the policy, fewer of them if the audit is not thorough."""
        if not self._neighbours:
            self._neighbours = neighbours(self.policy)
        return self._neighbours if is_thorough else self._neighbours[:QUICK]

    def reader(
        self,
        people: People,
        *,
        is_reversed: bool = False,
        question: BoundQuery | None = None,
        prepared: bool = False,
    ) -> Reader:
        """Return a reader of the truncated tables of these people.

        Args:
            people: The generated people, from `neighbours`.
            is_reversed: Whether their rows are stored in the other order.
            question: The question to be read. Some need rows that are ranked anew for them.
            prepared: Whether rows are read from a prepared copy.
        """
        is_copied = prepared or has_blocks_by_arrival(self.policy)  # else all is read from the source
        from_source = is_copied and question is not None and not self.has_copy(question)
        key = (id(people), is_reversed, from_source, prepared)
        if key not in self._readers:
            folder = self._folder / str(next(self._numbers))
            try:
                folder.mkdir()
                policy = stored_people(self.policy, people, folder, is_reversed=is_reversed)
            except (pa.ArrowException, ArithmeticError, ValueError, OSError) as error:
                raise CannotGenerate(f"{type(error).__name__}: {error}") from error
            if self._read_as is not None:
                policy = self._read_as(policy)
            if is_copied:
                prepare(policy, KEY, today=TODAY)
            reader = Reader.open(policy, KEY, self.public, threads=1, from_source=from_source)
            reader.engine = WatchedEngine(reader.engine, folder)  # type: ignore[assignment]
            self._readers[key] = reader
        return self._readers[key]

    @staticmethod
    def has_copy(question: BoundQuery) -> bool:
        """Return whether a prepared copy can answer a question. Else rows are ranked anew for it."""
        return not needs_new_ranks(question.source)

    def dataset(self, people: People = (), *, is_reversed: bool = False) -> Dataset:
        """Return the auditor's session with these people. It has no ledger, and reads no source."""
        return Dataset(_GeneratedCurator(self, people, is_reversed=is_reversed), analyst=AUDITOR)

    def close(self) -> None:
        """Close all readers and remove the files."""
        while self._readers:
            self._readers.popitem()[1].close()
        self._remove()


class _GeneratedCurator(Curator):
    """A curator whose reader reads generated people."""

    def __init__(self, sources: GeneratedSources, people: People, *, is_reversed: bool) -> None:
        super().__init__(sources.policy)
        self._public = dict(sources.public)
        self._sources, self._people, self._is_reversed = sources, people, is_reversed

    @contextmanager
    def reading(self, question: BoundQuery | None = None, *, plans: bool = False) -> Iterator[Reader]:
        """Lend a reader of generated people."""
        del plans  # all their rows are invented
        yield self._sources.reader(self._people, is_reversed=self._is_reversed, question=question)


def stored_people(
    policy: CheckedPolicy, people: People, folder: Path, *, is_reversed: bool = False
) -> CheckedPolicy:
    """Store people as the tables of a policy, and return the policy with these tables."""
    tables: dict[str, CheckedTable] = dict(policy.tables)
    for table in policy.private_tables:
        path = folder / f"{table.name}.parquet"
        stored = _table(policy, table, people)
        if is_reversed:
            stored = stored.take(pa.array(range(stored.num_rows - 1, -1, -1), pa.int64()))
        pq.write_table(stored, path)
        tables[table.name] = replace(table, source=Source("duckdb", str(path), "", "parquet"))
    return replace(policy, path=folder / "audit.toml", tables=tables, ledger=str(folder / "none.ledger"))


def _table(policy: CheckedPolicy, table: CheckedTable, people: People) -> pa.Table:
    """Return the rows of a table as its source would have them: ids, keys and values."""
    rows, unit = list(rows_of_table(people, table)), table.unit
    assert unit is not None
    columns: dict[str, pa.Array] = {}

    def add(name: str, values: pa.Array) -> None:
        if name.lower() not in {known.lower() for known in columns}:  # engines ignore the case
            columns[name] = values

    if unit.column:
        ids = [_key_of(person, 0) if unit.through else person.id_at(place) for person, place, _ in rows]
        add(unit.in_source, pa.array(ids, pa.string()))
    for other in policy.private_tables:  # keys by which other tables find the unit
        if other.unit is not None and other.unit.through == table.name:
            add(
                other.unit.key, pa.array([_key_of(person, place) for person, place, _ in rows], pa.string())
            )
    for column in table.columns.values():
        if not isinstance(column.kind, Person):
            values = [row[column.name] for _, _, row in rows]
            add(column.in_source, _array(column, values, people[0].numbers if people else NUMBER_TYPES[0]))
    for name in table.primary_key:
        add(name, pa.array([f"{person.id}/{place}" for person, place, _ in rows], pa.string()))
    return pa.table(columns)


def _key_of(person: GeneratedPerson, place: int) -> str | None:
    return None if person.id is None else f"key {person.id}/{place}"


def _array(column: Column, values: list[Any], numbers: str) -> pa.Array:
    kind = _type(column.kind, numbers)
    if pa.types.is_timestamp(kind):
        values = [_moment(value) for value in values]
    elif pa.types.is_string(kind):
        values = [None if value is None else str(value) for value in values]
    elif pa.types.is_integer(kind):
        most = (1 << (kind.bit_width - 1)) - 1
        values = [_within(value, most) for value in values]
    elif pa.types.is_decimal(kind):
        most = 10 ** (kind.precision - kind.scale) - 1
        values = [_decimal(value, most, kind.scale) for value in values]
    elif pa.types.is_floating(kind):  # Arrow rounds a float to the type, and refuses a whole number
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)


def _within(value: Any, most: int) -> int | None:
    """Return the nearest whole number of a type. There is none of NaN."""
    if value is None or math.isnan(value):
        return None
    return (
        most if value > most else max(math.floor(value), -most - 1) if math.isfinite(value) else -most - 1
    )


def _decimal(value: Any, most: int, scale: int) -> Decimal | None:
    if value is None or math.isnan(value):
        return None
    clipped = min(max(value, -most), most)
    return Decimal(round(Fraction(clipped) * 10**scale)).scaleb(-scale)


def _moment(value: Any) -> Any:
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    return datetime.combine(value, time(), UTC) if is_day else value


_STORED = {
    "double": pa.float64(), "float": pa.float32(), "smallint": pa.int16(), "integer": pa.int32(),
    "bigint": pa.int64(), "decimal": pa.decimal128(18, 4), "text": pa.string(),
}  # fmt: skip


def _type(kind: Kind, numbers: str) -> pa.DataType:
    match kind:
        case Numeric():
            return _STORED[numbers]
        case Moment(seconds) if seconds % SECONDS["day"]:
            return pa.timestamp("us", "UTC")
        case Moment() | Period():
            return pa.date32()
        case Truth():
            return pa.bool_()
        case Choice(values) if all(isinstance(value, int) for value in values):
            return pa.bool_() if all(isinstance(value, bool) for value in values) else pa.int64()
    return pa.string()
