"""DuckDB in this process. It is opened for some files and can reach no others, whatever SQL it is given."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa

from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm, read_header, recode
from lapwing.engines.dialects import DuckDbDialect
from lapwing.engines.engine import (
    DEFAULT_LIMITS,
    REPEAT_SECONDS,
    Engine,
    EngineFailed,
    EngineLimits,
    ReportProgress,
    private_folder,
    repeated_meanwhile,
    uniform_failure,
)
from lapwing.errors import BadParameter

WRITABLE = "prepared"  # the name under which the database that may be written is known
ROWS_AT_ONCE = 1 << 16
# What could reach out of this process, or bring something else into it, is off before anything is opened.
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
# Files tell the least and the greatest number of a column without its NaN. What an optimizer concludes from
# that is not true of all rows: one person's number could change what another's NaN counts as. DuckDB's own
# tables know of their NaN, and are added up faster with it.
_BY_ROWS_ALONE = "disabled_optimizers = 'statistics_propagation'"
_WRITES = {
    duckdb.StatementType.CREATE, duckdb.StatementType.INSERT, duckdb.StatementType.UPDATE,
    duckdb.StatementType.DELETE, duckdb.StatementType.DROP, duckdb.StatementType.ALTER,
    duckdb.StatementType.TRANSACTION,
}  # fmt: skip


class DuckDbEngine(Engine):
    """A database in memory, with files to read and databases attached.

    Statements are told by their kind: what is asked can only be a SELECT, and one. (`query('...')` within
    a SELECT is one too: hidden SQL reads what any other reads here, and is refused before it comes here.)
    """

    name = "duckdb"
    dialect: DuckDbDialect

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, files: Mapping[str, list[str]],
        remove: Callable[[], None], *, writes: bool,
    ) -> None:  # fmt: skip
        self.dialect = DuckDbDialect()
        self._connection = connection
        self._files = files
        self._remove = remove
        self._writes = writes

    @classmethod
    def open(
        cls, files: Iterable[str | Path] = (), databases: Mapping[str, str | Path] | None = None, *,
        writable: str | Path | None = None, limits: EngineLimits = DEFAULT_LIMITS,
        encodings: Mapping[str, str] | None = None,
    ) -> Self:  # fmt: skip
        """Open for files, folders and patterns of files, and for databases, each known by a name.

        `writable` is a database that is made if need be, known as `prepared`. Files are those that are
        there now. `encodings` are of CSV files that are not in UTF-8: they are read from a private copy,
        since DuckDB fails over a file in which one byte is no letter.
        """
        if limits.threads is not None and limits.threads < 1:
            raise BadParameter("threads", "must be at least 1")
        found = {str(one): _files_of(str(one)) for one in files}
        text, name = DuckDbDialect().text, DuckDbDialect().name
        spills, remove = private_folder("duckdb")  # for what does not fit into memory
        connection: duckdb.DuckDBPyConnection | None = None
        try:
            with uniform_failure():
                for location, encoding in (encodings or {}).items():
                    found[location] = _recoded(found[location], encoding, Path(spills))
                config: dict[str, Any] = {
                    **_CLOSED,
                    "temp_directory": spills,
                    "max_temp_directory_size": f"{limits.temporary_in(spills)}B",
                    "memory_limit": f"{limits.memory_here()}B",
                }
                if limits.threads is not None:
                    config["threads"] = limits.threads
                connection = duckdb.connect(":memory:", config=config)
                for alias, path in (databases or {}).items():
                    connection.execute(f"ATTACH {text(str(path))} AS {name(alias)} (READ_ONLY)")
                if writable is not None:
                    connection.execute(f"ATTACH {text(str(writable))} AS {name(WRITABLE)}")
                # A path is checked as it is written in SQL, and again as the file that is found.
                paths = {path for listed in found.values() for path in listed}
                allowed = ", ".join(map(text, sorted(paths | set(map(glob.escape, paths)))))
                for setting in (
                    *([_BY_ROWS_ALONE] if found else []),
                    "TimeZone = 'UTC'",
                    "arrow_large_buffer_size = true",  # else texts of 2 GB in a batch are an error
                    "enable_progress_bar = true",  # counts, and does not print
                    "enable_progress_bar_print = false",
                    "progress_bar_time = 0",
                    f"allowed_paths = [{allowed}]",
                    "enable_external_access = false",
                    "lock_configuration = true",  # the last: no setting changes any more
                ):
                    connection.execute(f"SET {setting}")
                return cls(connection, found, remove, writes=writable is not None)
        except BaseException:
            if connection is not None:
                connection.close()
            remove()
            raise

    def relation_of(
        self, form: str, location: str | Path, table: str = "", csv: CsvForm = DEFAULT_CSV
    ) -> str:
        """A FROM item: of files (form `parquet` or `csv`) at a location that this was opened for, or of a
        table, maybe with its schema, in a database by its name (form `duckdb`)."""
        if form == "duckdb":
            return ".".join(self.dialect.name(part) for part in (str(location), *table.split(".")))
        paths = self._files.get(str(location))
        if paths is None:
            raise BadParameter("location", "is none that this engine was opened for")
        listed = f"[{', '.join(self.dialect.text(glob.escape(path)) for path in paths)}]"
        if form == "parquet":
            # By name, with types that hold those of all files: no row must be cast and fail.
            return f"read_parquet({listed}, union_by_name = true, hive_partitioning = false)"
        if form == "csv":
            return self._csv(listed, paths, csv)
        raise BadParameter("form", "must be parquet, csv or duckdb")

    def _csv(self, listed: str, paths: list[str], form: CsvForm) -> str:
        """All columns as text, by the header alone: how rows are read depends on no row.

        Rows that are too short are filled with NULL, what is too much is left out, and what is not UTF-8
        is no row. Only reading in one thread knows for sure where rows with line breaks begin.
        """
        separator, names = read_header(paths, form)
        text = self.dialect.text
        quote, null = text(form.quote), f"[{', '.join(map(text, form.null))}]"
        columns = ", ".join(f"{self.dialect.text(name)}: 'VARCHAR'" for name in names)
        return (
            f"read_csv({listed}, auto_detect = false, columns = {{{columns}}}, header = true, "
            f"delim = {text(separator)}, quote = {quote}, escape = {quote}, nullstr = {null}, "
            "strict_mode = false, null_padding = true, ignore_errors = true, parallel = false)"
        )

    def columns(self, relation: str) -> Mapping[str, str]:
        with uniform_failure():
            found = self._asked(f"SELECT * FROM {relation} LIMIT 0")  # noqa: S608
            return {
                name: str(type_).lower() for name, type_ in zip(found.columns, found.types, strict=True)
            }

    def bind(self, sql: str) -> None:
        with uniform_failure():
            self._asked(sql)  # a relation: it is bound now, optimized and run when its rows are asked for

    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        with self._limited(timeout):
            return self._asked(sql).to_arrow_table(batch_size=ROWS_AT_ONCE)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        with uniform_failure():
            yield from self._asked(sql).to_arrow_reader(batch_size=ROWS_AT_ONCE)

    def ship(self, name: str, table: pa.Table) -> None:
        with uniform_failure():
            self._connection.register("lapwing shipped", table)
            try:
                named = self.dialect.name(name)
                self._connection.execute(
                    f'CREATE OR REPLACE TEMP TABLE {named} AS SELECT * FROM "lapwing shipped"'  # noqa: S608
                )
            finally:
                self._connection.unregister("lapwing shipped")

    def execute(self, sql: str, *, progress: ReportProgress | None = None) -> None:
        with uniform_failure(), self._watched(progress):
            statements = self._connection.extract_statements(sql)
            if not self._writes or len(statements) != 1 or statements[0].type not in _WRITES:
                raise EngineFailed
            self._connection.execute(statements[0])

    def close(self) -> None:
        with suppress(duckdb.Error):
            self._connection.close()
        self._remove()

    def _asked(self, sql: str) -> duckdb.DuckDBPyRelation:
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
            raise EngineFailed
        return self._connection.sql(statements[0])  # a text would be parsed again

    @contextmanager
    def _limited(self, timeout: float | None) -> Iterator[None]:
        """Interrupt what runs within after so many seconds, and again until it has stopped: an interrupt
        before the engine has begun is forgotten."""
        if timeout is None:
            with uniform_failure():
                yield
            return
        late = threading.Event()

        def interrupt() -> None:
            late.set()
            self._connection.interrupt()

        with uniform_failure(late.is_set), repeated_meanwhile(interrupt, first=timeout):
            yield

    @contextmanager
    def _watched(self, progress: ReportProgress | None) -> Iterator[None]:
        if progress is None:
            yield
            return
        most = 0.0

        def look() -> None:
            nonlocal most
            most = min(max(most, self._connection.query_progress() / 100), 1.0)
            progress(most)

        progress(0.0)
        with repeated_meanwhile(look, first=REPEAT_SECONDS):
            yield
        progress(1.0)


def _recoded(paths: list[str], encoding: str, folder: Path) -> list[str]:
    """Copies in UTF-8, in a folder that goes with the engine."""
    made = []
    for path in paths:
        copy = folder / f"recoded-{len(list(folder.iterdir()))}.csv"
        recode(path, encoding, copy)
        made.append(str(copy))
    return made


def _files_of(location: str) -> list[str]:
    """The files of a path, a pattern, or a folder (its Parquet files, else its CSV files)."""
    if os.path.isfile(location):
        return [os.path.abspath(location)]
    patterns = [location]
    if os.path.isdir(location):
        patterns = [os.path.join(glob.escape(location), "**", end) for end in ("*.parquet", "*.csv")]
    for pattern in patterns:
        found = sorted(
            os.path.abspath(path) for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path)
        )
        if found:
            return found
    raise BadParameter("source", "there is no such file")
