"""A lock file through which processes share one SQLite database.

It gives processes turns, shows which sessions are still alive, and requires one path to the database file.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from struct import pack

from lapwing.core.noise import random_bytes
from lapwing.errors import Unavailable


class LockFile:
    """A file with one `flock` for the turn to write, and one locked byte for each open session.

    The kernel releases both locks when a process ends for any reason. A file lock wakes the next process at
    once; SQLite alone would sleep and try again. A forked child would keep both locks, so it closes the
    file: the session belongs to its parent.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.session = int.from_bytes(random_bytes(8), "big") >> 2
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _bytes(self.session, 1, fcntl.F_WRLCK))
        # Wait until no other process writes; let the next one write. Every charge does both, so they call
        # the kernel without a method in between.
        self.take_turn: Callable[[], None] = partial(fcntl.flock, self._file, fcntl.LOCK_EX)
        self.end_turn: Callable[[], None] = partial(fcntl.flock, self._file, fcntl.LOCK_UN)
        _open_lock_files.add(self)

    def is_alive(self, session: int) -> bool:
        """Return whether some process still holds this session open."""
        return session == self.session or _is_locked(self._file, session, 1)

    @property
    def identity(self) -> bytes:
        """The identity of this file: the same value on every path that leads to it."""
        status = os.fstat(self._file)
        return sha256(f"{status.st_dev} {status.st_ino}".encode()).digest()

    def close(self) -> None:
        """End the session. In a forked child, leave the session to the parent."""
        self.take_turn = self.end_turn = _refuse  # first: the file's number may soon be another's
        file, self._file = self._file, _NO_FILE
        if file != _NO_FILE:
            os.close(file)


def _refuse() -> None:
    raise Unavailable("the ledger is closed, or was opened by another process. Nothing was changed")


_NO_FILE = -1
_open_lock_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _bytes(first: int, count: int, kind: int) -> bytes:
    return pack("hhqqi4x", kind, os.SEEK_SET, first, count, 0)


def _is_locked(file: int, first: int, count: int) -> bool:
    """Return whether another process holds a lock on any of these bytes."""
    if not count:  # which would mean all bytes to the end
        return False
    answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _bytes(first, count, fcntl.F_WRLCK))
    return bool(answer[:2] != pack("h", fcntl.F_UNLCK))


@dataclass(slots=True)
class _Claim:
    """A database file that this process has open, once for all its stores."""

    file: int
    place: int
    stores: int = 0


class SinglePath:
    """A claim that every process has opened the database file by the same path.

    Claim    no two processes write to one SQLite file through two write-ahead logs.
    Because  SQLite finds the log, its index and the lock file by the *path* of the database. A file with
             two names (hard links) is refused. A second path without a second name (a bind mount, a file
             that was moved meanwhile) leads to another lock file. So each process that opens the database
             locks one byte of it, beyond all bytes that SQLite uses. The identity of the lock file chooses
             the byte. Then the process looks for other locked bytes: of two processes with different
             paths, at least the later one sees the other. Processes with the same path share the byte. A
             hard link that is made later needs no check at every charge: opening by it is refused.
    Test     tests/faults/test_ledger_paths.py

    Closing *any* descriptor of a file drops all locks that SQLite holds on it in this process. So all
    stores of a process share one descriptor, which is closed after the last store.
    """

    _FIRST, _COUNT = 1 << 61, 1 << 61  # SQLite's files end before 2^48
    _claims: dict[tuple[int, int], _Claim] = {}  # noqa: RUF012 (of the whole process)
    _changing = threading.Lock()

    def __init__(self, path: Path, lock: LockFile) -> None:
        place = self._FIRST + int.from_bytes(lock.identity, "big") % self._COUNT
        with self._changing:
            status = os.stat(path)
            self._inode = (status.st_dev, status.st_ino)
            if self._inode not in self._claims:
                self._claims[self._inode] = _Claim(os.open(path, os.O_RDONLY | os.O_CLOEXEC), place)
            self._claim = self._claims[self._inode]
            self._claim.stores += 1
        try:
            self._require(path, self._claim, place)
        except BaseException:
            self.close()
            raise

    def _require(self, path: Path, claim: _Claim, place: int) -> None:
        fcntl.fcntl(claim.file, fcntl.F_OFD_SETLK, _bytes(claim.place, 1, fcntl.F_RDLCK))
        before, after = place - self._FIRST, self._FIRST + self._COUNT - place - 1
        other = _is_locked(claim.file, self._FIRST, before) or _is_locked(claim.file, place + 1, after)
        if place != claim.place or other:
            raise Unavailable(
                f"the ledger {path} is open by another path (it is mounted twice, or it or its lock file "
                "was moved while in use). Open it by the others' path, or after they have closed it"
            )
        names = os.fstat(claim.file).st_nlink
        if names != 1:
            raise Unavailable(
                f"the ledger {path} has {names} names (hard links), and each would spend by itself. "
                f"Keep one: `find / -samefile {path}` shows them. Make copies with `cp`, not with `ln`"
            )

    def close(self) -> None:
        """Release the claim. Call it after SQLite has closed the file."""
        with self._changing:
            if self._claims.get(self._inode) is not self._claim:  # of a process that forked this one off
                return
            self._claim.stores -= 1
            if not self._claim.stores:
                del self._claims[self._inode]
                os.close(self._claim.file)

    @classmethod
    def release_in_child(cls) -> None:
        """Release everything in a forked child, which holds no SQLite lock."""
        cls._changing = threading.Lock()
        for claim in cls._claims.values():
            os.close(claim.file)
        cls._claims.clear()


def _release_all_in_child() -> None:
    for lock in list(_open_lock_files):
        lock.close()
    SinglePath.release_in_child()


os.register_at_fork(after_in_child=_release_all_in_child)
