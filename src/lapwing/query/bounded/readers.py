"""Readers for threads: each has one to itself, and none is closed while it is used.

Claim    threads that share a data set never share a connection, and a question reads to its end from the
         copy or source that it began with, also if there is a newer one by then.
Because  a reader is lent to one thread at a time; one of another state is closed when it comes back.
Test     tests/query/test_threads.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lapwing.query.bounded.reader import Reader

AT_ONCE = 4  # each may take the memory that an engine is allowed; further threads wait


class Readers:
    """Readers of one data set, all of its latest state."""

    def __init__(self) -> None:
        self._idle: list[Reader] = []
        self._state: object = None
        self._changing = threading.Lock()
        self._places = threading.Semaphore(AT_ONCE)

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
