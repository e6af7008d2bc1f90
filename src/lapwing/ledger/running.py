"""Which requests are under way in this process, by their hashed keys."""

from __future__ import annotations

import threading


class Running:
    """Several threads may try the same key; only the one whose charge was taken stays in it."""

    def __init__(self) -> None:
        self._tries: dict[bytes, int] = {}
        self._given_up: list[int] = []  # charges that failed, of which the ledger does not know yet
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

    def give_up(self, key: bytes, position: int) -> None:
        """It has finished without an answer."""
        self.end(key)
        with self._counting:
            self._given_up.append(position)

    def given_up(self) -> tuple[int, ...]:
        """The charges that failed, of which the ledger does not know yet."""
        return tuple(self._given_up)

    def recorded(self, position: int) -> None:
        """The ledger knows of one of them. Several threads may say so."""
        with self._counting:
            if position in self._given_up:
                self._given_up.remove(position)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries
