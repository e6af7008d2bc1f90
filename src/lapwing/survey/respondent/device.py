"""The device's own file: what it has sent, to which survey, and at what price.

Claim    whatever the owner of a survey does, and wherever the device crashes, a stored report is never
         replaced, and the prices of all stored reports are counted.
Because  a change is one new file, synced and renamed over the old one; whoever changes it holds the lock.
         A second file, the seal, has the hash of the newest content and is written after it. On opening,
         the content must be the sealed one, or its direct successor (a crash came between the two).
Test     tests/survey/test_respondent.py::test_a_kill_at_any_point_forgets_nothing

A file that was edited, put back from a backup, or lost is refused, never replaced by an empty one. So is a
copy of the folder: the content names the seal's own place on the disk. Who puts *both* files back in
place, or starts with a new folder, deceives only themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lapwing.errors import BadParameter, Tampered, Unavailable

UNIT: Final = 10**9  # prices are whole billionths of ε, rounded up
VERSION = 1
_LARGEST_SEAL = 256

Memo = dict[str, Any]


class Device:
    """A folder with the content (`account.json`) and its seal (`account.seal`)."""

    def __init__(self, folder: str | Path, lifetime: int | None) -> None:
        """`lifetime` (billionths) is fixed when the folder is first used; None: what is fixed, or 8."""
        self.folder = Path(folder)
        self._content, self._seal = self.folder / "account.json", self.folder / "account.seal"
        self._lock = threading.Lock()
        with _plainly():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.turn() as state:
            if state.lifetime is None:
                state.lifetime = 8 * UNIT if lifetime is None else lifetime
                state.store()
            elif lifetime not in (None, state.lifetime):
                raise BadParameter(
                    "lifetime", "was fixed when this folder was first used, and never changes"
                )

    @contextlib.contextmanager
    def turn(self) -> Iterator[State]:
        """The state, while nobody else can change it. `store` makes changes last."""
        with self._lock, _plainly():
            seal = os.open(self._seal, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(seal, fcntl.LOCK_EX)
                yield State(self._content, seal)
            finally:
                os.close(seal)


class State:
    """What the device remembers: `lifetime` (billionths of ε), and a memo for each survey's digest."""

    def __init__(self, path: Path, seal: int) -> None:
        self._path, self._seal = path, seal
        sealed = os.pread(seal, _LARGEST_SEAL, 0).decode("ascii", "replace")
        self._newest = sealed
        self.lifetime: int | None = None
        self.memos: dict[str, Memo] = {}
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if sealed:
                raise Tampered([f"{path} is lost, but its seal is there"]) from None
            return
        self._read(raw, sealed)

    def _read(self, raw: bytes, sealed: str) -> None:
        newest = hashlib.sha256(raw).hexdigest()
        content = _object(raw)
        if content.get("version", VERSION) != VERSION:
            raise Tampered([f"{self._path} is of another version of Lapwing"])
        if newest != sealed and content.get("before") != sealed:
            raise Tampered(
                [f"{self._path} is not what was last written: edited, or put back from a backup"]
            )
        if content.get("seal") != os.fstat(self._seal).st_ino:
            raise Tampered([f"{self._path} is a copy: one device has one account. Move the folder instead"])
        self.lifetime, self.memos = content["lifetime"], content["memos"]
        if newest != sealed:  # the crash came after the content and before the seal
            self._stamp(newest)
        self._newest = newest

    @property
    def spent(self) -> int:
        """The prices of all reports, in billionths of ε."""
        return sum(memo.get("price", 0) for memo in self.memos.values())

    def store(self) -> None:
        """Make this the state: it is on the disk when this returns."""
        content = {
            "version": VERSION, "before": self._newest, "seal": os.fstat(self._seal).st_ino,
            "lifetime": self.lifetime, "memos": self.memos,
        }  # fmt: skip
        raw = json.dumps(content, indent=1).encode()
        beside = self._path.with_suffix(".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as writing:
            writing.write(raw)
            writing.flush()
            os.fsync(writing.fileno())
        os.replace(beside, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._stamp(hashlib.sha256(raw).hexdigest())

    def _stamp(self, newest: str) -> None:
        os.pwrite(self._seal, newest.encode(), 0)  # 64 letters in place of 64, in one sector
        os.fsync(self._seal)
        self._newest = newest


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"before": None}


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"the device's account cannot be used: {error.strerror}") from None
