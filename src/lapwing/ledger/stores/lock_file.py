"""The file beside an SQLite ledger by which processes take turns, and by which one sees who still lives."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from struct import pack

from lapwing.errors import Unavailable
from lapwing.noise import random_bytes


class LockFile:
    """`flock` on the whole file for turns; one locked byte per open session, for as long as it lives.

    The kernel lets go of both when a process ends, however it ends. A file lock wakes the next process
    at once, where SQLite would have it sleep and try again. A forked child would hold both on, so it
    lets go: the ledger is its parent's.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.session = int.from_bytes(random_bytes(8), "big") >> 2
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _byte(self.session))
        # Wait until no other process writes; let the next one write. Every charge does both, so they call
        # the kernel without a method in between.
        self.take_turn: Callable[[], None] = partial(fcntl.flock, self._file, fcntl.LOCK_EX)
        self.end_turn: Callable[[], None] = partial(fcntl.flock, self._file, fcntl.LOCK_UN)
        _everywhere.add(self)

    def is_alive(self, session: int) -> bool:
        """Whether some process holds this session open."""
        if session == self.session:
            return True
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, _byte(session))
        return bool(answer[:2] != pack("h", fcntl.F_UNLCK))

    def close(self) -> None:
        """End the session. In a forked child, leave it to the parent."""
        self.take_turn = self.end_turn = _refuse  # first: the file's number may soon be another's
        file, self._file = self._file, _NO_FILE
        if file != _NO_FILE:
            os.close(file)


def _refuse() -> None:
    raise Unavailable("the ledger is closed, or was opened by another process. Nothing was changed")


_NO_FILE = -1
_everywhere: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _leave_all_to_the_parent() -> None:
    for lock in list(_everywhere):
        lock.close()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)


def _byte(session: int) -> bytes:
    return pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, session, 1, 0)
