"""Which requests are under way in this process, by their hashed keys."""

from __future__ import annotations

import threading


class Running:
    """Several threads may try the same key; only the one whose charge was taken stays in it."""

    def __init__(self) -> None:
        self._tries: dict[bytes, int] = {}
        self._counting = threading.Lock()

    def begin(self, key: bytes) -> None:
        """A thread tries this key."""
        with self._counting:
            self._tries[key] = self._tries.get(key, 0) + 1

    def end(self, key: bytes) -> None:
        """It did not get it, or has finished."""
        with self._counting:
            tries = self._tries.get(key, 0) - 1
            if tries > 0:
                self._tries[key] = tries
            else:
                self._tries.pop(key, None)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries
