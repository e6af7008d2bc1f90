"""The requests that run in this process: a charge without an outcome is either among them, or has ended."""

from __future__ import annotations

import threading


class RunningRequests:
    """The requests that run in this process, by their hashed keys.

    Several threads may try the same key. Only the thread whose charge was accepted stays in it.
    """

    def __init__(self) -> None:
        self._tries: dict[bytes, int] = {}
        self._unrecorded: list[int] = []  # failed charges that the ledger has not recorded
        self._counting = threading.Lock()

    def begin(self, key: bytes) -> None:
        """Note that a thread tries this key."""
        with self._counting:
            self._tries[key] = self._tries.get(key, 0) + 1

    def end(self, key: bytes) -> None:
        """Note that a thread has finished, or did not get the key."""
        with self._counting:
            tries = self._tries.get(key, 0) - 1
            if tries > 0:
                self._tries[key] = tries
            else:
                self._tries.pop(key, None)

    def give_up(self, key: bytes, position: int) -> None:
        """Note that a charge has failed without an answer."""
        self.end(key)
        with self._counting:
            self._unrecorded.append(position)

    def unrecorded_failures(self) -> tuple[int, ...]:
        """Return the failed charges that are not recorded in the ledger yet."""
        return tuple(self._unrecorded)

    def recorded(self, position: int) -> None:
        """Note that a failed charge is recorded. Several threads may call it for the same charge."""
        with self._counting:
            if position in self._unrecorded:
                self._unrecorded.remove(position)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries
