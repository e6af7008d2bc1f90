"""Waiting for the same question: in this process, and in others that share the ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lapwing.errors import InProgress

PATIENCE = 60.0  # seconds that a release waits for the same question elsewhere
_FIRST_WAIT, _LONGEST_WAIT = 0.01, 0.25  # seconds between two looks
T = TypeVar("T")


def waited_for(release: Callable[[], T], patience: float = PATIENCE) -> T:
    """Return what a release returns, once nobody else works on the same; raise InProgress at the end."""
    deadline, wait = time.monotonic() + patience, _FIRST_WAIT
    while True:
        try:
            return release()
        except InProgress:
            if time.monotonic() + wait > deadline:
                raise
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


class OneAtATime:
    """Lets one thread at a time work on one thing. The others wait, and find the work done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[object, tuple[threading.Lock, int]] = {}

    @contextmanager
    def alone(self, thing: object, patience: float) -> Iterator[None]:
        """Wait until no other thread works on this thing; raise InProgress if that takes too long."""
        with self._lock:
            mine, waiting = self._known.get(thing, (threading.Lock(), 0))
            self._known[thing] = mine, waiting + 1
        try:
            if not mine.acquire(timeout=patience):
                raise InProgress
            try:
                yield
            finally:
                mine.release()
        finally:
            with self._lock:
                mine, waiting = self._known[thing]
                self._known[thing] = mine, waiting - 1
                if waiting == 1:
                    del self._known[thing]
