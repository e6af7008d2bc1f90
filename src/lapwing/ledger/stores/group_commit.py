"""Threads that share commits: whoever comes while another commits waits, and the next commit takes all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_LOOK_AGAIN = 0.05  # seconds


class Waiting:
    """Work that waits for a commit, and then its outcome."""

    __slots__ = ("done", "error", "leads", "result", "woken", "work")

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work
        self.woken: threading.Lock | None = None  # only who waits needs to be woken
        self.done = False
        self.leads = False  # whether it was woken to lead
        self.result: Any = None
        self.error: BaseException | None = None


class GroupCommit:
    """One thread at a time leads: it commits the work of all that wait, and wakes them.

    `commit` must leave in each of them its result or its error. What it raises itself is the error of
    all that have none of their own.
    """

    def __init__(self, commit: Callable[[list[Waiting]], None]) -> None:
        self._commit = commit
        self._turn = threading.Lock()
        self._queue: list[Waiting] = []
        self._is_led = False
        self._leader = 0  # the thread that leads

    def do(self, work: Callable[[Any], Any]) -> Any:
        """The result of the work, once it is committed."""
        waiting = Waiting(work)
        with self._turn:
            if self._is_led and self._leader == threading.get_ident():
                raise RuntimeError("a transaction within a transaction would wait for itself for ever")
            self._queue.append(waiting)
            if self._is_led:
                waiting.woken = threading.Lock()
                waiting.woken.acquire()
            self._is_led = True
        if waiting.woken is not None:
            self._await(waiting, waiting.woken)
        if not waiting.done:
            self._lead(waiting)
        if waiting.error is not None:
            raise waiting.error
        return waiting.result

    def _await(self, waiting: Waiting, woken: threading.Lock) -> None:
        """Until it is done, or until it is this thread's turn to lead."""
        try:
            woken.acquire()
        except BaseException:  # an interrupt; those who wait for this thread to lead must not wait for ever
            while not (waiting.done or waiting.leads):  # it may have come just after the lock was had
                woken.acquire(timeout=_LOOK_AGAIN)
            if not waiting.done:
                self._lead(waiting)
            raise

    def _lead(self, leader: Waiting) -> None:
        self._leader = threading.get_ident()
        with self._turn:
            group, self._queue = self._queue, []
        try:
            self._commit(group)
        except BaseException as error:  # nobody of the group may be left without an outcome
            for waiting in group:
                waiting.error = waiting.error or error
        finally:
            with self._turn:
                successor = self._queue[0] if self._queue else None
                self._is_led, self._leader = successor is not None, 0
            for waiting in group:
                waiting.done = True
                if waiting is not leader and waiting.woken is not None:
                    waiting.woken.release()
            if successor is not None and successor.woken is not None:
                successor.leads = True
                successor.woken.release()
