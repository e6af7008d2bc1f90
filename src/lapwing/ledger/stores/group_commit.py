"""Threads that share commits: whoever comes while another commits waits, and the next commit takes all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lapwing.errors import Unavailable

_LOOK_AGAIN = 0.5  # seconds; a wake-up is lost only if an interrupt hits whoever was about to give it

_UNKNOWN = "a commit was interrupted. What became of it is unknown, and counts as spent"


class Waiting:
    """Work that waits for a commit, and then its outcome."""

    __slots__ = ("done", "error", "result", "woken", "work")

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.woken: threading.Lock | None = None  # only who waits needs to be woken
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def wake(self) -> None:
        """Let it look whether it is done, or leads."""
        if self.woken is not None and self.woken.locked():
            self.woken.release()


class GroupCommit:
    """One thread at a time leads: it commits the work of all that wait, and wakes them.

    `commit` must leave in each of them its result or its error. What it raises itself is the error of
    all that have none of their own. An interrupt may hit the main thread between any two steps: then
    it leaves what it waits for, and passes the lead on if it had it.
    """

    def __init__(self, commit: Callable[[list[Waiting]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._queue: list[Waiting] = []
        self._leader: Waiting | None = None
        self._thread = 0  # in which the leader runs
        self._group: list[Waiting] = []

    def do(self, work: Callable[[Any], Any]) -> Any:
        """The result of the work, once it is committed."""
        waiting = Waiting(work)
        try:
            with self._turn:
                if self._leader is None:
                    self._queue.append(waiting)
                    self._leader = waiting
                elif self._thread == threading.get_ident():
                    raise RuntimeError("a transaction within a transaction would wait for itself for ever")
                else:
                    waiting.woken = threading.Lock()
                    waiting.woken.acquire()
                    self._queue.append(waiting)
            if waiting.woken is not None:
                while not (waiting.done or self._leader is waiting):
                    waiting.woken.acquire(timeout=_LOOK_AGAIN)
            if not waiting.done:
                self._lead(waiting)
        except BaseException:
            self._leave(waiting)
            raise
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def _lead(self, leader: Waiting) -> None:
        self._thread = threading.get_ident()
        with self._turn:
            self._group = group = [waiting for waiting in self._queue if not waiting.done]
            self._queue = []
        try:
            self._commit(group)
        except BaseException as error:  # nobody of the group may be left without an outcome
            for waiting in group:
                own = isinstance(error, Exception) or waiting is leader  # an interrupt is for its thread
                waiting.error = waiting.error or (error if own else Unavailable(_UNKNOWN))
        self._hand_over(leader)

    def _hand_over(self, leader: Waiting) -> None:
        """Give everybody of the group their outcome, and the lead to the first who waits now."""
        for waiting in self._group:
            waiting.done = True
            if waiting is not leader:
                waiting.wake()
        with self._turn:
            self._group, self._thread = [], 0
            successor = self._leader = self._queue[0] if self._queue else None
        if successor is not None:
            successor.wake()

    def _leave(self, waiting: Waiting) -> None:
        """After an interrupt. Who of the group does not know yet what it came to will not learn it."""
        with self._turn:
            if waiting in self._queue:
                self._queue.remove(waiting)
            leads = self._leader is waiting
        if leads:
            for other in self._group:
                if not other.done and other.error is None:
                    other.error = Unavailable(_UNKNOWN)
            self._hand_over(waiting)
