"""A PostgreSQL server. Queries run in read-only transactions; only aggregates come back.

Lapwing reads whatever the role of the URL may read: give it SELECT on the declared tables and no more.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import csv

from lapwing.engines.dialects import PostgresDialect
from lapwing.engines.engine import (
    DEFAULT_LIMITS,
    Engine,
    EngineFailed,
    EngineLimits,
    MissingRight,
    ReportProgress,
    undo_on_failure,
    uniform_failure,
)
from lapwing.errors import BadParameter, MissingExtra

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise MissingExtra("postgres", "Data in PostgreSQL") from None

OLDEST_SERVER = 14
_SHARES = 32  # of the memory, one for each sort or hash table
LOCK_SECONDS = 10
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "lapwing",
    "client_encoding": "UTF8",
}
_SETTINGS = {
    "default_transaction_read_only": "on",
    "search_path": "pg_catalog",  # all names are qualified; temporary tables come before it
    "standard_conforming_strings": "on",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": "0",
    "jit": "off",  # compiling takes longer than most queries
    "client_min_messages": "error",
}
_NAMES = "SELECT format_type(oid, nullif(modifier, -1)), typtype FROM unnest(%s::oid[], %s::int[]) \
WITH ORDINALITY AS asked(id, modifier, place) JOIN pg_type ON oid = id ORDER BY place"
_TYPES: dict[int, pa.DataType] = {
    16: pa.bool_(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 700: pa.float32(), 701: pa.float64(),
    1082: pa.date32(), 1114: pa.timestamp("us"),
}  # fmt: skip
_NUMERIC = 1700
_SHIPPED = {pa.bool_(): "boolean", pa.float32(): "real", pa.float64(): "double precision"}
_SET = "SELECT set_config(%s, %s, false)"
_SERVER = "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding')"
_RIGHTS = "SELECT pg_is_in_recovery(), current_user::text, current_database()::text, \
CASE WHEN to_regnamespace(%s) IS NULL THEN NULL ELSE has_schema_privilege(to_regnamespace(%s), 'USAGE') \
AND has_schema_privilege(to_regnamespace(%s), 'CREATE') END, \
has_database_privilege(current_database(), 'CREATE')"
_COPIES = "`prepare` stores its copy in a schema of the database"
_LEAST_WORK, _MOST_WORK = 4 << 20, (1 << 31) - 1024  # bytes
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type: int
    modifier: int

    @property
    def arrow(self) -> pa.DataType:
        if self.type == _NUMERIC and self.modifier >= 0:  # numeric(width, scale)
            return pa.decimal128(38, (self.modifier - 4) & 0x7FF)
        return _TYPES.get(self.type, pa.string())


def _limit_settings(limits: EngineLimits) -> dict[str, str]:
    """Return the settings for the limits. Each sort or hash table has its share of the memory."""
    settings = {}
    if limits.memory is not None:
        work = min(max(limits.memory // _SHARES, _LEAST_WORK), _MOST_WORK)
        settings["work_mem"] = f"{work // 1024}kB"
    if limits.threads is not None:
        settings["max_parallel_workers_per_gather"] = str(limits.threads - 1)
    return settings


class PostgresEngine(Engine):
    """One connection. With `writable`, `execute` may write, in transactions of its own."""

    name = "postgres"
    dialect: PostgresDialect

    def __init__(self, url: str, *, writable: bool = False, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        self.dialect = PostgresDialect()
        self._writable = writable
        self._inlined: dict[str, str] = {}  # shipped tables, if the server stores none
        try:
            parameters = conninfo_to_dict(url.partition("#")[0])
        except psycopg.Error:  # its message may quote a piece of the password
            raise BadParameter("source", "is not a PostgreSQL URL") from None
        with uniform_failure():
            self._connection = psycopg.connect(autocommit=True, **{**_DEFAULTS, **parameters})
        with undo_on_failure(self._connection.close), uniform_failure():
            for name, value in (_SETTINGS | _limit_settings(limits)).items():
                self._connection.execute(_SET, (name, value))
            if limits.temporary is not None:
                with suppress(psycopg.errors.InsufficientPrivilege):  # the server's own limit holds
                    self._connection.execute(_SET, ("temp_file_limit", f"{limits.temporary // 1024}kB"))
            row: Any = self._connection.execute(_SERVER).fetchone()
            version, encoding = row
            if version < OLDEST_SERVER:
                raise BadParameter("source", f"the server is older than PostgreSQL {OLDEST_SERVER}")
            if encoding != "UTF8":
                raise BadParameter("source", "the database's encoding is not UTF8")

    def relation_of(self, table: str) -> str:
        """Return a FROM item for a table; its schema is `public` if none is given."""
        parts = table.split(".")
        return ".".join(map(self.dialect.name, parts if len(parts) > 1 else ["public", *parts]))

    def columns(self, relation: str) -> Mapping[str, str]:
        """Return names and types of the columns. Reads no row."""
        with uniform_failure(), self._transaction(_READ):
            _, described = self._described(f"SELECT * FROM {relation} LIMIT 0")  # noqa: S608
            asked = [column.type for column in described], [column.modifier for column in described]
            names = self._connection.execute(_NAMES, asked).fetchall()
            return {
                column.name: "enum" if kind == "e" else type_name.lower()
                for column, (type_name, kind) in zip(described, names, strict=True)
            }

    def bind(self, sql: str) -> None:
        """Resolve names and types without running the query."""
        with uniform_failure(), self._transaction(_READ):
            self._described(sql)

    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        """Return all rows."""
        late = threading.Event()
        with uniform_failure(late.is_set), self._transaction(_READ, timeout, late):
            sql, columns = self._described(sql)
            return _table_of(b"".join(self._copy_out(sql)), columns)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield record batches."""
        with uniform_failure(), self._transaction(_READ):
            sql, columns = self._described(sql)
            for part in _batched(self._copy_out(sql)):
                yield from _table_of(part, columns).to_batches()

    def ship(self, name: str, table: pa.Table) -> None:
        """Store a public table for this connection."""
        named, self._inlined = self.dialect.name(name), {**self._inlined}
        self._inlined.pop(name, None)
        types = [_shipped_type(field.type) for field in table.schema]
        typed = zip(table.column_names, types, strict=True)
        columns = ", ".join(f"{self.dialect.name(column)} {type_}" for column, type_ in typed)
        with uniform_failure():
            try:
                with self._transaction(_WRITE):
                    self._connection.execute(f"DROP TABLE IF EXISTS pg_temp.{named}".encode())
                    self._connection.execute(f"CREATE TEMP TABLE {named} ({columns})".encode())
                    target = f"COPY pg_temp.{named} FROM STDIN".encode()
                    with self._connection.cursor().copy(target) as copy:
                        for row in _rows_of(table):
                            copy.write_row(row)
                    self._connection.execute(f"ANALYZE pg_temp.{named}".encode())
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction,
                    psycopg.errors.FeatureNotSupported):  # fmt: skip
                # There is no right to temporary tables, or the server is a standby.
                self._inlined[name] = self._values_of(table, types)

    def _values_of(self, table: pa.Table, types: list[str]) -> str:
        def literal(value: Any) -> str:
            return "NULL" if value is None else self.dialect.text(str(value))

        given_rows = list(_rows_of(table)) or [(None,) * len(types)]
        rows = ", ".join(f"({', '.join(map(literal, row))})" for row in given_rows)
        names = [self.dialect.name(name) for name in table.column_names]
        typed = zip(names, types, strict=True)
        cast = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in typed)
        given = f"SELECT {cast} FROM (VALUES {rows}) AS given ({', '.join(names)})"  # noqa: S608
        return given if table.num_rows else f"{given} LIMIT 0"

    def execute(self, sql: str, *, progress: ReportProgress | None = None) -> None:
        """Run a statement that writes."""
        if not self._writable:
            raise EngineFailed
        report = progress or (lambda _: None)
        report(0.0)
        with uniform_failure(), self._transaction(_WRITE):
            self._connection.execute(sql.encode(), prepare=True)  # prepared: only one statement
        report(1.0)

    def require_writable(self, schema: str) -> None:
        """Raise MissingRight unless this role can store tables in a schema, which it makes if needed."""
        name = self.dialect.name
        with uniform_failure():
            row: Any = self._connection.execute(_RIGHTS, [name(schema)] * 3).fetchone()
        is_standby, role, database, may_write, may_make = row
        if is_standby:
            why = "the server is a standby, which stores nothing. Name the primary server in `source`"
            raise MissingRight(f"{_COPIES}, and {why}. Nothing was done")
        if may_write or (may_write is None and may_make):
            return
        right, place = "CREATE", f"DATABASE {name(database)}"
        if may_write is not None:
            right, place = "USAGE, CREATE", f"SCHEMA {name(schema)}"
        raise MissingRight(
            f"{_COPIES}, and the role {role} lacks the right to write it. Nothing was done. Let an "
            f"administrator run: GRANT {right} ON {place} TO {name(role)}"
        )

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg.Error):
            self._connection.close()

    @contextmanager
    def _transaction(
        self, begin: str, timeout: float | None = None, late: threading.Event | None = None
    ) -> Iterator[None]:
        connection = self._connection
        connection.execute(begin.encode())
        try:
            if timeout is not None:
                connection.execute(f"SET LOCAL statement_timeout = {max(int(timeout * 1000), 1)}".encode())
            yield
            connection.execute("COMMIT")
        except BaseException as error:
            if late is not None and isinstance(error, psycopg.errors.QueryCanceled):
                late.set()
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise

    def _described(self, sql: str) -> tuple[str, list[_Column]]:
        """Return a query, with shipped tables in it if the server stores none, and its columns.

        More than one statement is an error, and is not run.
        """
        if self._inlined:
            named = [f"{self.dialect.name(name)} AS ({values})" for name, values in self._inlined.items()]
            sql = f"WITH {', '.join(named)} SELECT * FROM (\n{sql}\n) AS asked"  # noqa: S608
        link = self._connection.pgconn
        for result in (link.prepare(b"", sql.encode()), link.describe_prepared(b"")):
            if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.ProgrammingError(result.error_message.decode(errors="replace"))
        return sql, [
            _Column((result.fname(place) or b"").decode(), result.ftype(place), result.fmod(place))
            for place in range(result.nfields)
        ]

    def _copy_out(self, sql: str) -> Iterator[bytes]:
        with self._connection.cursor().copy(f"COPY (\n{sql}\n) TO STDOUT (FORMAT csv)".encode()) as copy:
            for part in copy:
                yield bytes(part)


def _table_of(content: bytes, columns: list[_Column]) -> pa.Table:
    """Read the rows that COPY sent. Columns are known by number: a name may occur twice."""
    keys = [str(place) for place in range(len(columns))]
    types = dict(zip(keys, (column.arrow for column in columns), strict=True))
    if not content:
        return _named_columns(pa.schema(types.items()).empty_table(), columns)
    options: dict[str, Any] = {
        "read_options": csv.ReadOptions(  # a row longer than two blocks is an error
            column_names=keys, use_threads=False, block_size=min(max(len(content), 1 << 20), 1 << 30)
        ),
        "parse_options": csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        "convert_options": csv.ConvertOptions(  # an empty cell is NULL only without quotes
            column_types=types,
            null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            true_values=["t"], false_values=["f"],
        ),
    }  # fmt: skip
    return _named_columns(csv.read_csv(io.BytesIO(content), **options), columns)


def _named_columns(table: pa.Table, columns: list[_Column]) -> pa.Table:
    for place, column in enumerate(columns):
        if column.type == _NUMERIC and column.modifier < 0:  # of any scale: as few decimals as needed
            texts = table.column(place).to_pylist()
            values = [None if text is None else Decimal(text) for text in texts]
            known = [value for value in values if value is not None]
            if all(value.is_finite() for value in known):
                whole = all(value == value.to_integral_value() for value in known)
                array = pa.array(values, pa.decimal128(38, 0) if whole else None)
                table = table.set_column(place, str(place), array)
    return table.rename_columns([column.name for column in columns])


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _batched(parts: Iterable[bytes], size: int = 1 << 22) -> Iterator[bytes]:
    """Join rows to batches that are worth reading. PostgreSQL sends a row at a time."""
    rows = iter(parts)
    while batch := list(itertools.islice(rows, size >> 6)):
        yield b"".join(batch)


def _shipped_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "integer" if kind.bit_width <= 32 and pa.types.is_signed_integer(kind) else "bigint"
    if pa.types.is_decimal(kind):
        return "numeric"
    return _SHIPPED.get(kind, "date" if pa.types.is_date(kind) else "text")
