"""Anchors: records of the history outside the database, so that an old or edited copy of it is noticed.

A database that is restored from a backup is consistent in itself. Only a record elsewhere can show that it
once had more entries. An anchor keeps lines of text: marks of single entries and heads of the whole
history.

    mark  m <entry number> <digest>                                     after each commit
    head  h <number> <last> <size> <root> <previous> <signature>        with each seal

Every anchor gives back its newest head and all marks after it. A head stands for all entries up to its last
one, so the marks of those entries may be dropped.

`FileAnchor` keeps the lines in a file to which many processes append. No line is lost or read half:

1. A process that changes the file holds its exclusive lock (flock). Under the lock it has seen that the
   file is as it left it, or still has a name; a file that was replaced is empty and has none. So there is
   one writer at a time.
2. A file that has grown large is replaced by a short one. The process that replaces it holds the lock of
   the old file from before reading it until after the rename. Nobody appends meanwhile. Processes that
   waited see by rule 1 that their file has no name, and open the new one. The old file is never written
   again.
3. The new file is complete and on disk before the rename, so a crash leaves the old or the new file. It is
   locked until the rename itself is on disk: no line is appended that a lost rename would take along. An
   unfinished new file has another name, and the next process that replaces the file begins it again.
4. A crash can leave a line without its end. No reader accepts it, and the next writer removes it under the
   lock, before it appends a line of its own.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from lapwing.errors import BadParameter, Tampered, Unavailable
from lapwing.storage.private_file import sync_to_disk

_PATIENCE = 10.0
_MOST = (1 << 63) - 1
_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_DIGEST = rb"([0-9a-f]{64})"
_MARK = re.compile(rb"m %b %b" % (_NUMBER, _DIGEST))
_HEAD = re.compile(rb"h %b %b %b %b %b ([0-9a-f]{128})" % (_NUMBER, _NUMBER, _NUMBER, _DIGEST, _DIGEST))

_BEGUN = re.compile(rb"([mh]( [0-9a-f ]*)?)?")
_LONGEST_LINE = 2 + 3 * 20 + 2 * 65 + 128


def _require_number(value: int, name: str) -> None:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise BadParameter(name, "must be a whole number of 63 bits")


def _require_bytes(value: bytes, name: str, length: int) -> None:
    if type(value) is not bytes or len(value) != length:
        raise BadParameter(name, f"must be {length} bytes")


class _Mark(NamedTuple):
    seq: int
    digest: bytes


class Mark(_Mark):
    """A record that entry `seq` exists with this digest.

    Every charge makes one, so it is made in one call.
    """

    __slots__ = ()

    def __new__(cls, seq: int, digest: bytes) -> Self:
        """Return a mark after checking its values."""
        if type(seq) is not int or type(digest) is not bytes or len(digest) != 32 or not 0 <= seq <= _MOST:
            _require_number(seq, "seq")
            _require_bytes(digest, "digest", 32)
        return tuple.__new__(cls, (seq, digest))

    @property
    def last(self) -> int:
        """The number of the last entry that the line is about, as of a head: `seq`."""
        return self[0]

    @property
    def line(self) -> str:
        """The text of the mark, without the end of the line."""
        return f"m {self[0]} {self[1].hex()}"


@dataclass(frozen=True, slots=True)
class Head:
    """A record that the entries up to number `last` are the `size` leaves under this Merkle root."""

    number: int
    last: int
    size: int
    root: bytes
    previous: bytes
    signature: bytes

    def __post_init__(self) -> None:
        for name in ("number", "last", "size"):
            _require_number(getattr(self, name), name)
        _require_bytes(self.root, "root", 32)
        _require_bytes(self.previous, "previous", 32)
        _require_bytes(self.signature, "signature", 64)

    @property
    def line(self) -> str:
        """The text of the head, without the end of the line."""
        numbers = f"h {self.number} {self.last} {self.size}"
        return f"{numbers} {self.root.hex()} {self.previous.hex()} {self.signature.hex()}"


class Anchor(ABC):
    """A place outside the database that keeps marks and heads.

    Threads, processes and forked children may use the same anchor at once.
    """

    # Whether all writers hold another lock already. Then a removed file is noticed with the next head.
    is_guarded = False

    def __init__(self, where: str) -> None:
        self.where = where  # for messages: no password is in it
        self._inside = threading.Lock()  # held by the one thread that is using it
        _FORK_GUARD.anchors.add(self)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether anything was ever kept there."""

    @abstractmethod
    def read(self) -> tuple[Mark | Head, ...]:
        """Return at least the newest head and all marks after it. A new anchor returns nothing."""

    @abstractmethod
    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Keep these lines, or raise.

        Marks survive a crash of the process; a head survives a power loss.
        """

    def prepare(self, marks: Sequence[Mark]) -> Callable[[], None]:
        """Prepare to write marks, and return the function that writes them once they are true."""
        return partial(self.write, marks)

    def close(self) -> None:  # noqa: B027 (some keep nothing open)
        """Close files and connections. A later call opens them again."""

    def detach_in_child(self) -> None:  # noqa: B027 (most have nothing to do)
        """Drop the parent's files and connections in a forked child, without sending anything."""


class _ForkGuard:
    """A guard that lets a process fork only while none of its threads is inside an anchor.

    Otherwise the child would inherit a lock that no thread opens, and SQLite's memory of a transaction that
    no thread ends.
    """

    def __init__(self) -> None:
        self.anchors: weakref.WeakSet[Anchor] = weakref.WeakSet()
        self._one_at_a_time = threading.Lock()
        self._held: list[Anchor] = []
        os.register_at_fork(before=self._wait, after_in_parent=self._release, after_in_child=self._detach)

    def _wait(self) -> None:
        self._one_at_a_time.acquire()
        # Not for ever: a signal handler may fork while its own thread is inside.
        self._held = [anchor for anchor in list(self.anchors) if anchor._inside.acquire(timeout=_PATIENCE)]

    def _release(self) -> None:
        held, self._held = self._held, []
        for anchor in held:
            anchor._inside.release()
        self._one_at_a_time.release()

    def _detach(self) -> None:
        self._one_at_a_time, self._held = threading.Lock(), []
        for anchor in list(self.anchors):
            anchor._inside = threading.Lock()
            anchor.detach_in_child()


_FORK_GUARD = _ForkGuard()


def parse_line(line: bytes | str, where: str = "an anchor", place: int = 1) -> Mark | Head:
    """Return the mark or head of a line. Raises Tampered unless the line is exactly as `line` writes it."""
    content = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    try:
        if match := _MARK.fullmatch(content):
            return Mark(int(match[1]), bytes.fromhex(match[2].decode()))
        if match := _HEAD.fullmatch(content):
            root, previous, signature = (bytes.fromhex(text.decode()) for text in match.groups()[3:])
            return Head(int(match[1]), int(match[2]), int(match[3]), root, previous, signature)
    except BadParameter:  # a number beyond 63 bits
        pass
    raise Tampered([f"line {place} of {where} is neither a mark nor a head"])


def parse_lines(content: bytes, where: str) -> tuple[Mark | Head, ...]:
    """Return the marks and heads of all lines except an unfinished last line, which was never confirmed."""
    complete = enumerate(content[: content.rfind(b"\n") + 1].split(b"\n")[:-1], 1)
    # Pages reach the disk in any order: zeros are lines that a power loss kept from it.
    return tuple([parse_line(line, where, place) for place, line in complete if b"\0" not in line])


def is_torn(tail: bytes) -> bool:
    """Return whether this can be the beginning of a line, perhaps with zeros that a power loss leaves."""
    begun = tail.rstrip(b"\0")
    return len(begun) <= _LONGEST_LINE and _BEGUN.fullmatch(begun) is not None


def newest(lines: Iterable[Mark | Head]) -> tuple[Mark | Head, ...]:
    """Return the newest head and the marks after it, each once.

    Of two heads with the same number, one is false. Both stay, and so do the marks after the earlier one,
    because they are evidence of the error.
    """
    distinct = tuple(dict.fromkeys(lines))
    number = max((line.number for line in distinct if isinstance(line, Head)), default=0)
    heads = [line for line in distinct if isinstance(line, Head) and line.number == number]
    last = min((head.last for head in heads), default=-1)
    return (*heads, *(line for line in distinct if isinstance(line, Mark) and line.seq > last))


def text_of(lines: Iterable[Mark | Head]) -> bytes:
    """Return the lines as they stand in an anchor, each with its end."""
    text = ""
    for line in lines:  # every charge writes a mark, so that is done without a further call
        text += f"m {line[0]} {line[1].hex()}\n" if type(line) is Mark else f"{line.line}\n"
    return text.encode("ascii")


COMPACT_ABOVE = 1 << 16  # bytes; opening a ledger reads the whole file

_NO_FILE = -1
_MODE = 0o666  # less the umask: its content is public, and the owner decides who may write


class FileAnchor(Anchor):
    """An anchor in a file. A mark costs a few microseconds, a head one wait for the disk."""

    def __init__(self, path: str | Path, *, mode: int | None = None) -> None:
        # A link is followed now, so that replacing the file does not replace the link.
        self._path, self._mode = os.path.realpath(path), mode  # None: as the umask says
        self._seen = False
        self._file = _NO_FILE
        self._clean_end = -1  # where this object itself ended a line
        super().__init__(self._path)

    def exists(self) -> bool:
        """Return whether the file exists."""
        try:
            os.stat(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failure("read", error) from error
        return True

    def read(self) -> tuple[Mark | Head, ...]:
        """Return every line of the file. Read permission is enough."""
        try:
            content = self._read()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._seen:
                return ()
            raise self._failure("read", error) from error
        self._seen = True
        return parse_lines(content, self.where)

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Append lines. When this raises, some of the lines may have been kept, each of them whole."""
        self._keep(text_of(marks if head is None else (*marks, head)), to_disk=head is not None)

    def prepare(self, marks: Sequence[Mark]) -> Callable[[], None]:
        """Encode the marks now, so that only the write to the file is left."""
        return partial(self._keep, text_of(marks))

    def _keep(self, content: bytes, *, to_disk: bool = False) -> None:
        if not content:
            return
        try:
            with self._inside:
                if to_disk or not self._add_to_unchanged(content):
                    self._write(content, to_disk=to_disk)
        except OSError as error:
            raise self._failure("written", error) from error

    def close(self) -> None:
        """Close the file. A later write opens it again."""
        with self._inside:
            self._close()

    def detach_in_child(self) -> None:
        """Close the file in a forked child: parent and child would hold its lock together."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, _NO_FILE
        if file != _NO_FILE:
            os.close(file)

    def __del__(self) -> None:
        if getattr(self, "_file", _NO_FILE) != _NO_FILE:
            os.close(self._file)

    def _failure(self, done: str, error: OSError) -> Unavailable:
        why = error.strerror or str(error)
        if isinstance(error, FileNotFoundError):
            why = "it was removed while in use" if self._seen else "its folder does not exist"
        return Unavailable(f"the anchor {self.where} cannot be {done}: {why}")

    def _read(self) -> bytes:
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _require_plain(file)
            fcntl.flock(file, fcntl.LOCK_SH)
            return _content(file)
        finally:
            _unlock_and_close(file)

    def _add_to_unchanged(self, content: bytes) -> bool:
        """Append if the file is as this object left it: the short way, which nearly every mark takes."""
        file, end = self._file, self._clean_end
        if file == _NO_FILE:
            return False
        if not self.is_guarded:
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            # Not fstat: after its times were read, the next write also rewrites the inode of a file, which
            # costs a database beside it a third of its commit (measured on ext4).
            if os.lseek(file, 0, os.SEEK_END) != end:
                return False
            if not self.is_guarded and not os.access(self._path, os.F_OK):
                return False
            if os.write(file, content) != len(content):
                os.ftruncate(file, end)
                return False
            self._clean_end = end + len(content)
            return True
        finally:
            if not self.is_guarded:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _write(self, content: bytes, *, to_disk: bool) -> None:
        try:
            size = self._lock_the_current()
            if size != self._clean_end:
                size = self._without_torn_line(size)
            self._append(content, size)
            if to_disk:
                os.fsync(self._file)
                if self._clean_end > COMPACT_ABOVE:
                    self._compact()
        finally:
            if self._file != _NO_FILE:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _lock_the_current(self) -> int:
        """Open and lock the file that the path names now (rule 1), and return its size."""
        while True:
            if self._file == _NO_FILE:
                self._open()
            fcntl.flock(self._file, fcntl.LOCK_EX)
            current = os.fstat(self._file)
            if current.st_nlink:  # it has a name, so it was not replaced
                return current.st_size
            file, self._file = self._file, _NO_FILE
            _unlock_and_close(file)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags)
        except FileNotFoundError:
            if self._seen:  # making a new one would hide that the old one is gone
                raise
            file = os.open(self._path, flags | os.O_CREAT, _MODE)
            if self._mode is not None:
                os.fchmod(file, self._mode)
            sync_to_disk(os.path.dirname(self._path))
        try:
            _require_plain(file)
        except BaseException:
            os.close(file)
            raise
        self._file, self._seen, self._clean_end = file, True, -1

    def _without_torn_line(self, size: int) -> int:
        """Cut off an unfinished last line (rule 4), and return the new size."""
        if not size or os.pread(self._file, 1, size - 1) == b"\n":
            return size
        content = _content(self._file)
        end = content.rfind(b"\n") + 1
        if not is_torn(content[end:]):  # the path may name another kind of file
            raise Tampered([f"{self.where} is no anchor: its last line is not one of an anchor"])
        os.ftruncate(self._file, end)
        return end

    def _append(self, content: bytes, size: int) -> None:
        try:
            _write_all(self._file, content)
        except OSError:
            os.ftruncate(self._file, size)  # should this fail too, rule 4 is left
            raise
        self._clean_end = size + len(content)

    def _compact(self) -> None:
        """Replace the file by its newest head and the marks after it (rules 2 and 3)."""
        beside = f"{self._path}.new"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            new = os.open(beside, flags, _MODE)
        except OSError:
            return  # the lines are safe where they are; only the folder takes no new file
        old = self._file
        try:
            kept = text_of(newest(parse_lines(_content(old), self.where)))
            before = os.fstat(old)
            os.fchown(new, -1, before.st_gid)
            os.fchmod(new, stat.S_IMODE(before.st_mode))
            _write_all(new, kept)
            os.fsync(new)
            fcntl.flock(new, fcntl.LOCK_EX)
            os.rename(beside, self._path)
            self._file, self._clean_end = new, len(kept)
            os.ftruncate(old, 0)  # processes that have it open see at once that it changed
        except OSError:
            return
        finally:
            _unlock_and_close(old if self._file == new else new)
            if self._file == old:
                with suppress(OSError):
                    os.unlink(beside)
        sync_to_disk(os.path.dirname(self._path))


def _require_plain(file: int) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("it is not a plain file")


def _unlock_and_close(file: int) -> None:
    """Unlock and close a file. Closing alone would keep the lock if another thread forked just now."""
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _write_all(file: int, content: bytes) -> None:
    written = os.write(file, content)
    while written < len(content):  # a disk that is nearly full takes a part
        written += os.write(file, content[written:])


def _content(file: int) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while piece := os.pread(file, 1 << 20, at):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)
