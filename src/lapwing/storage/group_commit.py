"""Group commit: threads that write at the same time share one commit.

A thread that arrives while another thread commits waits. The next commit takes the work of all that wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from lapwing.errors import Unavailable

_LOOK_AGAIN = 0.5  # seconds; a wake-up is lost only if an interrupt hits the waking thread

_UNKNOWN = "a commit was interrupted. What became of it is unknown, and counts as spent"


class PendingCommit:
    """A piece of work that waits for a commit, and its outcome afterwards."""

    work: Any  # in a form that `commit` understands
    woken: threading.Lock | None = None  # only a waiting thread needs it
    done = False
    result: Any = None
    error: BaseException | None = None

    def wake(self) -> None:
        """Wake the waiting thread, so that it sees that its work is done or that it leads now."""
        if self.woken is not None and self.woken.locked():
            self.woken.release()


class GroupCommit:
    """A queue in which one thread at a time leads and commits the work of all waiting threads.

    `commit` must set a result or an error in each piece of work. An error that `commit` itself raises
    becomes the error of every piece of work that has none. An interrupt may hit the main thread between any
    two steps. Then the thread gives up its place and, if it led, passes the lead on.
    """

    def __init__(self, commit: Callable[[list[PendingCommit]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._queue: list[PendingCommit] = []
        self._leader: PendingCommit | None = None
        self._thread = 0  # in which the leader runs
        self._group: list[PendingCommit] = []

    def do(self, work: Any) -> Any:
        """Commit the work and return its result."""
        waiting = PendingCommit()
        waiting.work = work
        try:
            with self._turn:
                if self._leader is None:  # then no thread waits either
                    self._leader, self._thread, self._group = waiting, get_ident(), [waiting]
                elif self._thread == get_ident():
                    raise RuntimeError("a transaction within a transaction would wait for itself for ever")
                else:
                    waiting.woken = threading.Lock()
                    waiting.woken.acquire()
                    self._queue.append(waiting)
            if waiting.woken is not None:
                self._wait(waiting, waiting.woken)
            if not waiting.done:
                try:
                    self._commit(self._group)
                except BaseException as error:  # every piece of work must get an outcome
                    self._set_errors(error, waiting)
                self._hand_over(waiting)
        except BaseException:
            self._leave(waiting)
            raise
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def _wait(self, waiting: PendingCommit, woken: threading.Lock) -> None:
        """Wait until the work is done or this thread leads.

        A new leader takes over all work that waits by now.
        """
        while not (waiting.done or self._leader is waiting):
            woken.acquire(timeout=_LOOK_AGAIN)
        if not waiting.done:
            self._thread = get_ident()
            with self._turn:
                self._group = [waiting for waiting in self._queue if not waiting.done]
                self._queue = []

    def _set_errors(self, error: BaseException, leader: PendingCommit) -> None:
        for waiting in self._group:
            own = isinstance(error, Exception) or waiting is leader  # an interrupt is for its thread
            waiting.error = waiting.error or (error if own else Unavailable(_UNKNOWN))

    def _hand_over(self, leader: PendingCommit) -> None:
        """Report the group's work as done, and give the lead to the first waiting thread."""
        leader.done = True
        if len(self._group) > 1:
            for waiting in self._group:
                waiting.done = True
                waiting.wake()
        with self._turn:
            self._group, self._thread = [], 0
            successor = self._leader = self._queue[0] if self._queue else None
        if successor is not None:
            successor.wake()

    def _leave(self, waiting: PendingCommit) -> None:
        """Leave the queue after an interrupt.

        Work of the group without an outcome gets "unknown" as its error.
        """
        with self._turn:
            if waiting in self._queue:
                self._queue.remove(waiting)
            leads = self._leader is waiting
        if leads:
            for other in self._group:
                if not other.done and other.error is None:
                    other.error = Unavailable(_UNKNOWN)
            self._hand_over(waiting)
