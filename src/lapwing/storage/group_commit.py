"""Threads that share commits: whoever comes while another commits waits, and the next commit takes all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from lapwing.errors import Unavailable

_LOOK_AGAIN = 0.5  # seconds; a wake-up is lost only if an interrupt hits whoever was about to give it

_UNKNOWN = "a commit was interrupted. What became of it is unknown, and counts as spent"


class PendingCommit:
    """Work that waits for a commit, and then its outcome."""

    work: Any  # whatever `commit` knows how to do
    woken: threading.Lock | None = None  # only who waits needs to be woken
    done = False
    result: Any = None
    error: BaseException | None = None

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

    def __init__(self, commit: Callable[[list[PendingCommit]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._queue: list[PendingCommit] = []
        self._leader: PendingCommit | None = None
        self._thread = 0  # in which the leader runs
        self._group: list[PendingCommit] = []

    def do(self, work: Any) -> Any:
        """The result of the work, once it is committed."""
        waiting = PendingCommit()
        waiting.work = work
        try:
            with self._turn:
                if self._leader is None:  # then nobody waits either
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
                except BaseException as error:  # nobody of the group may be left without an outcome
                    self._blame(error, waiting)
                self._hand_over(waiting)
        except BaseException:
            self._leave(waiting)
            raise
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def _wait(self, waiting: PendingCommit, woken: threading.Lock) -> None:
        """Until it is done, or leads: then it leads all that wait by now."""
        while not (waiting.done or self._leader is waiting):
            woken.acquire(timeout=_LOOK_AGAIN)
        if not waiting.done:
            self._thread = get_ident()
            with self._turn:
                self._group = [waiting for waiting in self._queue if not waiting.done]
                self._queue = []

    def _blame(self, error: BaseException, leader: PendingCommit) -> None:
        for waiting in self._group:
            own = isinstance(error, Exception) or waiting is leader  # an interrupt is for its thread
            waiting.error = waiting.error or (error if own else Unavailable(_UNKNOWN))

    def _hand_over(self, leader: PendingCommit) -> None:
        """Give everybody of the group their outcome, and the lead to the first who waits now."""
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
