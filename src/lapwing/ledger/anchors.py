"""What anchors are and keep: marks of single entries and heads of the whole history, as lines of text.

mark  m <entry number> <digest>                                     after each commit
head  h <number> <last> <size> <root> <previous> <signature>        with each seal

Whatever the form, an anchor gives back its newest head and every mark after it: a head stands for all
entries up to its last one, so the marks of those may go.

An anchor in a file that many processes append to.

Why no line is lost, and none is half believed:

1. Whoever changes the file holds its exclusive lock (flock) and has seen, under the lock, that the file
   is as they left it or still has a name: one that was replaced is empty and has none. So there is one
   writer at a time.
2. A file that has grown large is replaced by a short one. The one who replaces it holds the lock of the old
   file from before reading it until after the rename. Nobody appends meanwhile; those who waited see by
   rule 1 that theirs has no name any more, and open the new one. The old one is never written again.
3. The new file is complete and on disk before the rename, so a crash leaves the old or the new one. It is
   locked until the rename itself is on disk: nothing is appended that a lost rename would take along.
   What is left of an unfinished new file has another name, and the next one to replace starts it afresh.
4. A crash can leave a line without its end. No reader believes it, and the next writer removes it under
   the lock, before a line of its own could grow together with it.
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

_PATIENCE = 10.0
_LARGEST = (1 << 63) - 1
_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_DIGEST = rb"([0-9a-f]{64})"
_MARK = re.compile(rb"m %b %b" % (_NUMBER, _DIGEST))
_HEAD = re.compile(rb"h %b %b %b %b %b ([0-9a-f]{128})" % (_NUMBER, _NUMBER, _NUMBER, _DIGEST, _DIGEST))

_BEGUN = re.compile(rb"([mh]( [0-9a-f ]*)?)?")
_LONGEST_LINE = 2 + 3 * 20 + 2 * 65 + 128


def _require_number(value: int, name: str) -> None:
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise BadParameter(name, "must be a whole number of 63 bits")


def _require_bytes(value: bytes, name: str, length: int) -> None:
    if type(value) is not bytes or len(value) != length:
        raise BadParameter(name, f"must be {length} bytes")


class _Mark(NamedTuple):
    seq: int
    digest: bytes


class Mark(_Mark):
    """Entry number `seq` exists, and has this digest. Every charge makes one, so it is made in one call."""

    __slots__ = ()

    def __new__(cls, seq: int, digest: bytes) -> Self:
        if (
            type(seq) is not int
            or type(digest) is not bytes
            or len(digest) != 32
            or not 0 <= seq <= _LARGEST
        ):
            _require_number(seq, "seq")
            _require_bytes(digest, "digest", 32)
        return tuple.__new__(cls, (seq, digest))

    @property
    def line(self) -> str:
        """Its text, without the end of the line."""
        return f"m {self[0]} {self[1].hex()}"


@dataclass(frozen=True, slots=True)
class Head:
    """All entries up to number `last` are the `size` leaves of a tree with this root."""

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
        """Its text, without the end of the line."""
        numbers = f"h {self.number} {self.last} {self.size}"
        return f"{numbers} {self.root.hex()} {self.previous.hex()} {self.signature.hex()}"


class Anchor(ABC):
    """A place outside the database that remembers what the database must not lose.

    Threads, processes and forked children may use the same one at once.
    """

    def __init__(self, where: str) -> None:
        self.where = where  # for messages: no password is in it
        self._inside = threading.Lock()  # held by the one thread that is using it
        _FORKS.anchors.add(self)

    @abstractmethod
    def exists(self) -> bool:
        """Whether anything was ever kept there."""

    @abstractmethod
    def read(self) -> tuple[Mark | Head, ...]:
        """At least the newest head and all marks after it; nothing if there is nothing yet."""

    @abstractmethod
    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Keep these, or raise. Marks outlive the process; with a head, all outlives a power loss."""

    def ready(self, marks: Sequence[Mark]) -> Callable[[], None]:
        """What is left to do for these marks once they are true. All that can be done before is done."""
        return partial(self.write, marks)

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. A later call takes them up again."""

    def start_afresh(self) -> None:  # noqa: B027 (most have nothing to do)
        """In a forked child: let go of what is the parent's, without a word to the other side."""


class _Forks:
    """A process forks while none of its threads is inside an anchor.

    Otherwise the child would inherit a lock that nobody opens, and SQLite's memory of a transaction that
    nobody ends.
    """

    def __init__(self) -> None:
        self.anchors: weakref.WeakSet[Anchor] = weakref.WeakSet()
        self._one_at_a_time = threading.Lock()
        self._held: list[Anchor] = []
        os.register_at_fork(
            before=self._wait, after_in_parent=self._go_on, after_in_child=self._start_afresh
        )

    def _wait(self) -> None:
        self._one_at_a_time.acquire()
        # Not for ever: a signal handler may fork while its own thread is inside.
        self._held = [anchor for anchor in list(self.anchors) if anchor._inside.acquire(timeout=_PATIENCE)]

    def _go_on(self) -> None:
        held, self._held = self._held, []
        for anchor in held:
            anchor._inside.release()
        self._one_at_a_time.release()

    def _start_afresh(self) -> None:
        self._one_at_a_time, self._held = threading.Lock(), []
        for anchor in list(self.anchors):
            anchor._inside = threading.Lock()
            anchor.start_afresh()


_FORKS = _Forks()


def parse_line(line: bytes | str, where: str = "an anchor", place: int = 1) -> Mark | Head:
    """The mark or head in a line, which must be written exactly as `line` writes it."""
    content = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    try:
        if found := _MARK.fullmatch(content):
            return Mark(int(found[1]), bytes.fromhex(found[2].decode()))
        if found := _HEAD.fullmatch(content):
            root, previous, signature = (bytes.fromhex(text.decode()) for text in found.groups()[3:])
            return Head(int(found[1]), int(found[2]), int(found[3]), root, previous, signature)
    except BadParameter:  # a number beyond 63 bits
        pass
    raise Tampered([f"line {place} of {where} is neither a mark nor a head"])


def parse_lines(content: bytes, where: str) -> tuple[Mark | Head, ...]:
    """Every line, but for a last one without its end: it was torn by a crash, and never confirmed."""
    complete = content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]
    # Pages reach the disk in any order: zeros are lines that a power loss kept from it.
    return tuple(
        [parse_line(line, where, place) for place, line in enumerate(complete, 1) if b"\0" not in line]
    )


def is_torn(tail: bytes) -> bool:
    """Whether this can be the beginning of a line, perhaps with the zeros that a power loss leaves."""
    begun = tail.rstrip(b"\0")
    return len(begun) <= _LONGEST_LINE and _BEGUN.fullmatch(begun) is not None


def newest(lines: Iterable[Mark | Head]) -> tuple[Mark | Head, ...]:
    """The newest head and the marks after it, each once.

    Of two heads with the same number one is false. Both stay, and the marks after the earlier: what
    could show that something is wrong must not be tidied away.
    """
    distinct = tuple(dict.fromkeys(lines))
    number = max((line.number for line in distinct if isinstance(line, Head)), default=0)
    heads = [line for line in distinct if isinstance(line, Head) and line.number == number]
    last = min((head.last for head in heads), default=-1)
    return (*heads, *(line for line in distinct if isinstance(line, Mark) and line.seq > last))


def text_of(lines: Iterable[Mark | Head]) -> bytes:
    """The lines as they stand in an anchor, each with its end."""
    text = ""
    for line in lines:  # every charge writes a mark, so that is done without a further call
        text += f"m {line[0]} {line[1].hex()}\n" if type(line) is Mark else f"{line.line}\n"
    return text.encode("ascii")


COMPACT_ABOVE = 1 << 16  # bytes: whoever opens a ledger reads all of it

_NO_FILE = -1
_MODE = 0o666  # less the umask: what is in it is public, and who may write is the owner's choice


class FileAnchor(Anchor):
    """Lines in a file. A mark costs a few microseconds, a head one wait for the disk."""

    def __init__(self, path: str | Path) -> None:
        # A link is followed now, so that replacing the file does not replace the link.
        self._path = os.path.realpath(path)
        self._seen = False
        # Whether all who write hold a lock of their own meanwhile. That the file was removed is then
        # noticed with the next head.
        self.is_guarded = False
        self._file = _NO_FILE
        self._identity = (0, 0)
        self._clean_end = -1  # where this object itself ended a line
        super().__init__(self._path)

    def exists(self) -> bool:
        """Whether the file is there."""
        try:
            os.stat(self._path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failure("read", error) from error
        return True

    def read(self) -> tuple[Mark | Head, ...]:
        """Every line in the file. Leave to read it is enough."""
        try:
            content = self._read()
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._seen:
                return ()
            raise self._failure("read", error) from error
        self._seen = True
        return parse_lines(content, self.where)

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Append. When this raises, an unknown part of it may have been kept, in whole lines."""
        self._keep(text_of(marks if head is None else (*marks, head)), to_disk=head is not None)

    def ready(self, marks: Sequence[Mark]) -> Callable[[], None]:
        """The text is made before, so that only the file is left."""
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
        """Close the file; a later write opens it again."""
        with self._inside:
            self._close()

    def start_afresh(self) -> None:
        """A lock belongs to an open file: parent and child would hold it together."""
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
            _let_go(file)

    def _add_to_unchanged(self, content: bytes) -> bool:
        """Append if the file is as this object left it: the way of nearly every mark, and a short one."""
        file, end = self._file, self._clean_end
        if file == _NO_FILE:
            return False
        if not self.is_guarded:
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            # Not fstat: a file whose times were asked for has its inode rewritten at the next write, which
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
        """Open and lock the file that the path leads to now (rule 1). Its size."""
        while True:
            if self._file == _NO_FILE:
                self._open()
            fcntl.flock(self._file, fcntl.LOCK_EX)
            current = os.fstat(self._file)
            if current.st_nlink:  # it has a name, so it was not replaced
                return current.st_size
            file, self._file = self._file, _NO_FILE
            _let_go(file)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags)
        except FileNotFoundError:
            if self._seen:  # making a new one would hide that the old one is gone
                raise
            file = os.open(self._path, flags | os.O_CREAT, _MODE)
            _sync_folder(self._path)
        try:
            status = _require_plain(file)
        except BaseException:
            os.close(file)
            raise
        self._take(file, status, clean_end=-1)

    def _take(self, file: int, status: os.stat_result, clean_end: int) -> None:
        self._file, self._identity = file, (status.st_dev, status.st_ino)
        self._seen, self._clean_end = True, clean_end

    def _without_torn_line(self, size: int) -> int:
        """The size, after what follows the last end of a line was cut off (rule 4)."""
        if not size or os.pread(self._file, 1, size - 1) == b"\n":
            return size
        content = _content(self._file)
        end = content.rfind(b"\n") + 1
        if not is_torn(content[end:]):  # perhaps the path is that of somebody's letter
            raise Tampered([f"{self.where} does not end as an anchor can end"])
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
            before, status = os.fstat(old), os.fstat(new)
            os.fchown(new, -1, before.st_gid)
            os.fchmod(new, stat.S_IMODE(before.st_mode))
            _write_all(new, kept)
            os.fsync(new)
            fcntl.flock(new, fcntl.LOCK_EX)
            os.rename(beside, self._path)
            self._take(new, status, clean_end=len(kept))
            os.ftruncate(old, 0)  # whoever has it open sees at once that it is not as they left it
        except OSError:
            return
        finally:
            _let_go(old if self._file == new else new)
            if self._file == old:
                with suppress(OSError):
                    os.unlink(beside)
        _sync_folder(self._path)


def _require_plain(file: int) -> os.stat_result:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a plain file")
    return status


def _let_go(file: int) -> None:
    """Unlock and close. Closing alone would keep the lock if another thread forked just now."""
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


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
