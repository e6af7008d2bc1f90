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
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lapwing.engines.dialect import SqlDialect
from lapwing.errors import LapwingError, Unavailable

ReportProgress = Callable[[float], None]  # a share of the work, from 0 to 1
REPEAT_SECONDS = 0.05  # seconds


class EngineFailed(Unavailable):
    """The engine gave no answer. One text for every cause: why it failed may depend on one row."""

    def __init__(self) -> None:
        super().__init__("the engine could not answer")


class TimedOut(EngineFailed):
    """The engine was stopped after the time that it was given. It reads like any other failure."""


@contextmanager
def uniform_failure(is_late: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Whatever goes wrong within is `EngineFailed`, or `TimedOut` if it is late."""
    try:
        yield
    except LapwingError:
        raise
    except Exception:
        raise (TimedOut() if is_late() else EngineFailed()) from None


@contextmanager
def repeated_meanwhile(work: Callable[[], None], *, first: float) -> Iterator[None]:
    """Do something after a while, and then again and again, for as long as what is within takes."""
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


def private_folder(name: str) -> tuple[str, Callable[[], None]]:
    """A new folder that nobody else can read, and what removes it; at the latest when the process ends."""
    folder, owner = tempfile.mkdtemp(prefix=f"lapwing_{name}_"), os.getpid()

    def remove() -> None:
        atexit.unregister(remove)
        if os.getpid() == owner:  # and not a child of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder, remove


class Engine(ABC):
    """One connection. It is locked down: nothing but the tables that it was opened for can be read.

    Whatever fails raises `EngineFailed`, whose text never shows data, SQL or the engine's own words
    (those are in `__context__`, for whoever holds the data).
    """

    name: str  # "duckdb", "postgres" or "spark"
    dialect: SqlDialect

    @abstractmethod
    def columns(self, relation: str) -> Mapping[str, str]:
        """Names and types (the engine's words, lower case) of a FROM item's columns. Reads no row."""

    @abstractmethod
    def bind(self, sql: str) -> None:
        """Look up the names and types of a query, and run nothing: `EngineFailed` if it makes no sense.

        This is where every engine's own planning begins, and it ends before statistics are used: those come
        from rows, and what an optimizer makes of them may be an error."""

    @abstractmethod
    def run(self, sql: str, *, timeout: float | None = None) -> pa.Table:
        """All rows of a query."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Record batches of a query, for results too large to hold. One at a time: the next question
        waits until it is read to its end or let go of."""

    @abstractmethod
    def ship(self, name: str, table: pa.Table) -> None:
        """Make a (public) table of ours known under a name, for this connection only."""

    @abstractmethod
    def execute(self, sql: str, *, progress: ReportProgress | None = None) -> None:
        """Run a statement that writes. Only an engine that was opened to write does."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bytes of memory and of temporary files, and threads.

    None is, of an engine within this process, a fifth of the memory (several questions may run at once),
    half of the free disk, and every core; of a server, what its owner gave it.
    """

    memory: int | None = None
    temporary: int | None = None
    threads: int | None = None

    def memory_here(self) -> int:
        """Return the bytes of memory that an engine within this process may use."""
        return self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 5

    def temporary_in(self, folder: str) -> int:
        """Return the bytes that it may write into a folder."""
        return self.temporary or shutil.disk_usage(folder).free // 2


DEFAULT_LIMITS = EngineLimits()
