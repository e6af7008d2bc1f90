"""What anchors are and keep: marks of single entries and heads of the whole history, as lines of text.

mark  m <entry number> <digest>                                     after each commit
head  h <number> <last> <size> <root> <previous> <signature>        with each seal

Whatever the form, an anchor gives back its newest head and every mark after it: a head stands for all
entries up to its last one, so the marks of those may go.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

from lapwing.errors import BadParameter, Tampered

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
