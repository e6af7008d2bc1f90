"""What an engine is to us: a place with tables that runs SQL of ours and gives Arrow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from lapwing.engines.spelling import Spelling
from lapwing.errors import LapwingError, Unavailable

Progress = Callable[[float], None]  # a share of the work, from 0 to 1
LOOK_EVERY = 0.05  # seconds


class EngineFailed(Unavailable):
    """The engine gave no answer. One text for every cause: why it failed may depend on one row."""

    def __init__(self) -> None:
        super().__init__("the engine could not answer")


class TimedOut(EngineFailed):
    """The engine was stopped after the time that it was given. It reads like any other failure."""


@contextmanager
def failing_alike(is_late: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Whatever goes wrong within is `EngineFailed`, or `TimedOut` if it is late."""
    try:
        yield
    except LapwingError:
        raise
    except Exception:
        raise (TimedOut() if is_late() else EngineFailed()) from None


@contextmanager
def beside(work: Callable[[], None], *, first: float) -> Iterator[None]:
    """Do something after a while, and then again and again, for as long as what is within takes."""
    done = threading.Event()

    def loop() -> None:
        wait = first
        while not done.wait(wait):
            work()
            wait = LOOK_EVERY

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
    spelling: Spelling

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
    def execute(self, sql: str, *, progress: Progress | None = None) -> None:
        """Run a statement that writes. Only an engine that was opened to write does."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""
