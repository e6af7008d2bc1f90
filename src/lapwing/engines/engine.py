"""What an engine is to us: a place with tables that runs SQL of ours and gives Arrow.

How much of its machine an engine may use for one question: what is public, whatever the rows are.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from lapwing.engines.dialect import SqlDialect
from lapwing.errors import LapwingError, Unavailable

ReportProgress = Callable[[float], None]  # a share of the work, from 0 to 1
REPEAT_SECONDS = 0.05


def engine_cause(error: BaseException | None) -> BaseException | None:
    """Return the engine's own error behind one of ours, or None. It may show data: for the curator only."""
    while isinstance(error, LapwingError):
        error = error.__cause__ or error.__context__
    return error


class EngineFailed(Unavailable):
    """The engine gave no answer. The text is the same for every cause: the cause may depend on one row.

    The curator finds the engine's own error by `engine_cause`.
    """

    code = "engine-failed"

    def __init__(self) -> None:
        super().__init__("the engine could not answer")


class TimedOut(EngineFailed):
    """The engine was stopped at its time limit. Text and code are those of any other failure."""


class MissingRight(Unavailable):
    """The engine's role may not write where it should. Raised before anything is written."""

    code = "missing-right"


@contextmanager
def uniform_failure(is_late: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Raise `EngineFailed` for every error inside, or `TimedOut` if `is_late` says so."""
    try:
        yield
    except LapwingError:
        raise
    except Exception:
        raise (TimedOut() if is_late() else EngineFailed()) from None


@contextmanager
def repeated_meanwhile(work: Callable[[], None], *, first: float) -> Iterator[None]:
    """Call `work` after `first` seconds and then repeatedly, until the block ends."""
    done = threading.Event()

    def loop() -> None:
        wait = first
        while not done.wait(wait):
            work()
            wait = REPEAT_SECONDS

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def time_limit(timeout: float | None, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` after `timeout` seconds, and again until the block ends: an early call may be ignored.

    Every error inside is `EngineFailed`, or `TimedOut` after the timeout. None sets no limit.
    """
    late = threading.Event()

    def stop_late() -> None:
        late.set()
        stop()

    limit = nullcontext() if timeout is None else repeated_meanwhile(stop_late, first=timeout)
    with uniform_failure(late.is_set), limit:
        yield


@contextmanager
def undo_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block raises: what was opened is closed again."""
    try:
        yield
    except BaseException:
        undo()
        raise


def private_folder(name: str) -> tuple[str, Callable[[], None]]:
    """Create a folder that nobody else can read. Return its path and a function that removes it.

    It is removed at the latest when the process ends.
    """
    folder, owner = tempfile.mkdtemp(prefix=f"lapwing_{name}_"), os.getpid()

    def remove() -> None:
        atexit.unregister(remove)
        if os.getpid() == owner:  # not in a child process
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder, remove


class Engine(ABC):
    """One connection to a database that runs our SQL and returns Arrow.

    It is locked down: only the tables that it was opened for can be read. Every failure raises
    `EngineFailed`, whose text never shows data, SQL or the engine's own message (`engine_cause` has
    it, for the data's owner).
    """

    name: str  # "duckdb", "postgres" or "spark"
    dialect: SqlDialect

    @abstractmethod
    def columns(self, relation: str) -> Mapping[str, str]:
        """Return names and types (in the engine's words, lower case) of a FROM item. Reads no row."""

    @abstractmethod
    def bind(self, sql: str) -> None:
        """Resolve the names and types of a query without running it. Raise `EngineFailed` if it is invalid.

        This is the first part of every engine's planning. It ends before statistics are used: those come
        from rows, and an optimizer that uses them may raise an error that depends on rows.
        """

    @abstractmethod
    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        """Return all rows of a query. `timeout` is in seconds; None waits without limit."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield record batches of a query, for results too large to hold.

        One stream at a time: the next query waits until this one is read to its end or closed.
        """

    @abstractmethod
    def ship(self, name: str, table: pa.Table) -> None:
        """Store a public table under a name, for this connection only."""

    @abstractmethod
    def execute(self, sql: str, *, progress: ReportProgress | None = None) -> None:
        """Run a statement that writes. Only an engine that was opened for writing accepts it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection and remove temporary files."""


MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of one engine: bytes of memory, bytes of temporary files, threads. All are public.

    None means: for an engine in this process a fifth of the memory (several queries may run at once),
    half of the free disk, and every core; for a server, its own settings.
    """

    memory: int | None = None
    temporary: int | None = None
    threads: int | None = None

    def memory_here(self) -> int:
        """Return the bytes of memory that an engine in this process may use."""
        return self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 5

    def temporary_in(self, folder: str) -> int:
        """Return the bytes that the engine may write into a folder."""
        return self.temporary or shutil.disk_usage(folder).free // 2


DEFAULT_LIMITS = EngineLimits()
