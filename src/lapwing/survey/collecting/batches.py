"""Many who wait share one commit: whatever comes while the disk is busy goes into the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from lapwing.errors import Unavailable

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
MOST = 512


class Batches(Generic[Item, Outcome]):
    """A thread that hands everything that waits to `commit`, and each its outcome once that returns.

    A future that has a result stands for something durable. If `commit` raises, nobody of the batch
    knows more than that it failed; whoever asks again with the same learns what became of it.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Outcome]], name: str) -> None:
        self._commit = commit
        self._waiting: list[tuple[Item, Future[Outcome]]] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> Future[Outcome]:
        """Wait for the next commit."""
        future: Future[Outcome] = Future()
        with self._changed:
            if self._is_closed:
                raise Unavailable("the survey's server is stopping; ask again later")
            self._waiting.append((item, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Commit what waits, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            if not batch:
                return
            for (
                _,
                future,
            ) in batch:  # whoever hung up is stored all the same: it was sent, and may come again
                future.set_running_or_notify_cancel()
            try:
                outcomes = self._commit([item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if not future.cancelled():
                        future.set_result(outcome)
            except Exception as error:  # also one that nobody foresaw: no caller may be left waiting
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
