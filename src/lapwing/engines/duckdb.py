"""DuckDB in this process. It is opened for some files and can reach no others, whatever SQL it is given."""

from __future__ import annotations

import glob
import os
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
    time_limit,
    undo_on_failure,
    uniform_failure,
)
from lapwing.errors import BadParameter

WRITABLE = "prepared"  # the name of the database that may be written
ROWS_AT_ONCE = 1 << 16
# Features that reach out of this process, or load code into it, are off before anything is opened.
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
# Statistics of files leave NaN out of the least and greatest number of a column. An optimizer that trusts
# them is wrong about rows with NaN: one person's number could change how another's NaN is counted. DuckDB's
# own tables count their NaN, and their sums are faster with statistics.
_BY_ROWS_ALONE = "disabled_optimizers = 'statistics_propagation'"
_WRITES = {
    duckdb.StatementType.CREATE, duckdb.StatementType.INSERT, duckdb.StatementType.UPDATE,
    duckdb.StatementType.DELETE, duckdb.StatementType.DROP, duckdb.StatementType.ALTER,
    duckdb.StatementType.TRANSACTION,
}  # fmt: skip


class DuckDbEngine(Engine):
    """A database in memory, with files to read and databases attached.

    Only one SELECT statement is accepted as a query. (`query('...')` within a SELECT counts as one:
    hidden SQL can read no more than any other SQL here, and it is refused before it comes here.)
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
        """Open for files, folders and patterns of files, and for databases, each under a name.

        Only the files that exist now can be read. `writable` is a database, made if need be, under the
        name `prepared`. `encodings` are those of CSV files that are not in UTF-8: they are read from a
        private copy, since DuckDB fails on a file in which one byte is no letter.
        """
        if limits.threads is not None and limits.threads < 1:
            raise BadParameter("threads", "must be at least 1")
        listings = {str(file): _list_files(str(file)) for file in files}
        text, name = DuckDbDialect().text, DuckDbDialect().name
        spills, remove = private_folder("duckdb")  # temporary files, and recoded copies
        with undo_on_failure(remove), uniform_failure():
            for location, encoding in (encodings or {}).items():
                listings[location] = _recoded(listings[location], encoding, Path(spills))
            config: dict[str, Any] = {
                **_CLOSED,
                "temp_directory": spills,
                "max_temp_directory_size": f"{limits.temporary_in(spills)}B",
                "memory_limit": f"{limits.memory_here()}B",
            }
            if limits.threads is not None:
                config["threads"] = limits.threads
            connection = duckdb.connect(":memory:", config=config)
            with undo_on_failure(connection.close):
                for alias, path in (databases or {}).items():
                    connection.execute(f"ATTACH {text(str(path))} AS {name(alias)} (READ_ONLY)")
                if writable is not None:
                    connection.execute(f"ATTACH {text(str(writable))} AS {name(WRITABLE)}")
                # DuckDB checks a path as it is written in SQL, and again as the file that it finds.
                paths = {path for listed in listings.values() for path in listed}
                allowed = ", ".join(map(text, sorted(paths | set(map(glob.escape, paths)))))
                _hide_progress(connection, measure=writable is not None)
                for setting in (
                    *([_BY_ROWS_ALONE] if listings else []),
                    "TimeZone = 'UTC'",
                    "arrow_large_buffer_size = true",  # else texts of 2 GB in a batch are an error
                    f"allowed_paths = [{allowed}]",
                    "enable_external_access = false",
                    "lock_configuration = true",  # last: after this no setting can change
                ):
                    connection.execute(f"SET {setting}")
                return cls(connection, listings, remove, writes=writable is not None)

    def relation_of(
        self, form: str, location: str | Path, table: str = "", csv: CsvForm = DEFAULT_CSV
    ) -> str:
        """Return a FROM item for files or for a table.

        Files (form `parquet` or `csv`) must be at a location that this engine was opened for. A table
        (form `duckdb`), perhaps with its schema, is in the database under the name `location`.
        """
        if form == "duckdb":
            return ".".join(self.dialect.name(part) for part in (str(location), *table.split(".")))
        paths = self._files.get(str(location))
        if paths is None:
            raise BadParameter("location", "is none that this engine was opened for")
        listed = f"[{', '.join(self.dialect.text(glob.escape(path)) for path in paths)}]"
        if form == "parquet":
            # Columns match by name, with types wide enough for all files: no cast of a row can fail.
            return f"read_parquet({listed}, union_by_name = true, hive_partitioning = false)"
        if form == "csv":
            return self._csv(listed, paths, csv)
        raise BadParameter("form", "must be parquet, csv or duckdb")

    def _csv(self, listed: str, paths: list[str], form: CsvForm) -> str:
        """Return a FROM item with all columns as text, named by the header alone.

        How rows are read depends on no row. Rows that are too short are filled with NULL, surplus cells
        are left out, and a line that is not UTF-8 is no row. Only reading in one thread knows for sure
        where rows with line breaks begin.
        """
        separator, names = read_header(paths, form)
        text = self.dialect.text
        quote, null = text(form.quote), f"[{', '.join(map(text, form.null))}]"
        columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
        return (
            f"read_csv({listed}, auto_detect = false, columns = {{{columns}}}, header = true, "
            f"delim = {text(separator)}, quote = {quote}, escape = {quote}, nullstr = {null}, "
            "strict_mode = false, null_padding = true, ignore_errors = true, parallel = false)"
        )

    def columns(self, relation: str) -> Mapping[str, str]:
        """Return names and types of the columns. Reads no row."""
        with uniform_failure():
            result = self._select(f"SELECT * FROM {relation} LIMIT 0")  # noqa: S608
            typed = zip(result.columns, result.types, strict=True)
            return {name: str(type_).lower() for name, type_ in typed}

    def bind(self, sql: str) -> None:
        """Resolve names and types without running the query."""
        with uniform_failure():
            self._select(sql)  # it is bound now, and optimized and run only when rows are read

    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        """Return all rows."""
        with time_limit(timeout, self._connection.interrupt):
            return self._select(sql).to_arrow_table(batch_size=ROWS_AT_ONCE)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield record batches."""
        with uniform_failure():
            yield from self._select(sql).to_arrow_reader(batch_size=ROWS_AT_ONCE)

    def ship(self, name: str, table: pa.Table) -> None:
        """Store a public table for this connection."""
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
        """Run a statement that writes."""
        with uniform_failure(), self._reporting(progress):
            statements = self._connection.extract_statements(sql)
            if not self._writes or len(statements) != 1 or statements[0].type not in _WRITES:
                raise EngineFailed
            self._connection.execute(statements[0])

    def close(self) -> None:
        """Close the connection."""
        with suppress(duckdb.Error):
            self._connection.close()
        self._remove()

    def _select(self, sql: str) -> duckdb.DuckDBPyRelation:
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
            raise EngineFailed
        return self._connection.sql(statements[0])  # a text would be parsed again

    @contextmanager
    def _reporting(self, progress: ReportProgress | None) -> Iterator[None]:
        if progress is None:
            yield
            return
        most = 0.0

        def report() -> None:
            nonlocal most
            most = min(max(most, self._connection.query_progress() / 100), 1.0)
            progress(most)

        progress(0.0)
        with repeated_meanwhile(report, first=REPEAT_SECONDS):
            yield
        progress(1.0)


def _hide_progress(connection: duckdb.DuckDBPyConnection, *, measure: bool) -> None:
    """Print no progress bar. Measure progress where something is written: `query_progress` tells it.

    In a Jupyter kernel without ipywidgets DuckDB refuses each of these settings, and measures nothing.
    """
    try:
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute("SET progress_bar_time = 0")
        connection.execute(f"SET enable_progress_bar = {measure}")
    except duckdb.InvalidInputException:
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchone() != (False,):
            raise


def _recoded(paths: list[str], encoding: str, folder: Path) -> list[str]:
    """Write copies in UTF-8 into the engine's own folder. Return their paths."""
    made = []
    for path in paths:
        copy = folder / f"recoded-{len(list(folder.iterdir()))}.csv"
        recode(path, encoding, copy)
        made.append(str(copy))
    return made


def _list_files(location: str) -> list[str]:
    """Return the files of a path, a pattern, or a folder (its Parquet files, else its CSV files)."""
    if os.path.isfile(location):
        return [os.path.abspath(location)]
    patterns = [location]
    if os.path.isdir(location):
        patterns = [os.path.join(glob.escape(location), "**", end) for end in ("*.parquet", "*.csv")]
    for pattern in patterns:
        paths = glob.iglob(pattern, recursive=True)
        if existing := sorted(os.path.abspath(path) for path in paths if os.path.isfile(path)):
            return existing
    raise BadParameter("source", "there is no such file")
