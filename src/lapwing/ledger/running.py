"""Which requests are under way in this process, by their hashed keys."""

from __future__ import annotations

import threading
from collections import Counter


class Running:
    """Several threads may try the same key; only the one whose charge was taken stays in it."""

    def __init__(self) -> None:
        self._tries: Counter[bytes] = Counter()
        self._counting = threading.Lock()

    def begin(self, key: bytes) -> None:
        """A thread tries this key."""
        with self._counting:
            self._tries[key] += 1

    def end(self, key: bytes) -> None:
        """It did not get it, or has finished."""
        with self._counting:
            self._tries[key] -= 1
            if self._tries[key] <= 0:
                del self._tries[key]

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries
