"""Connections: how many there may be, how long one may wait, and who goes when there is no room.

Nobody can keep others out by holding connections open. A request must be there, headers and all, within
seconds; and where there is no room, whoever has waited longest without a whole request makes room for
whoever comes. Addresses are counted while their connections are open, in memory, and nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import resource
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128  # as many are let in before the first of them is looked at
RESERVED = 512  # file numbers that connections leave to everything else, a burst of newcomers among it
MOST_FILES = 1 << 16
_NOT_HTTP = json.dumps({"error": "this is not a request that is understood here"}).encode()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server lets happen."""

    connections: int = 4096
    per_address: int = 512  # many people may share one: a school, an office
    seconds: float = 10.0  # from the opening of a connection, or the last reply, to a whole head


@dataclass(eq=False, slots=True)
class Visitor:
    """An open connection."""

    connection: socket.socket
    number: int  # of its file
    address: str
    has_asked: bool = False  # a whole request came, and the reply is under way


class Door:
    """All open connections, by the number of their file, oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: dict[int, Visitor] = {}
        self._alike: Counter[str] = Counter()

    def enter(self, connection: socket.socket, address: str) -> None:
        """Let one in, if need be in the place of one that only waits; if nobody does, it goes itself."""
        visitor = Visitor(connection, connection.fileno(), _group(address))
        if before := self._open.get(visitor.number):
            self.leave(before)  # a number is given again only after its connection was closed
        if not self._has_room(visitor.address):
            for other in list(self._open.values()):
                if other.connection.fileno() < 0:  # closed before it got to a request
                    self.leave(other)
        while not self._has_room(visitor.address):
            if not self._end_oldest(visitor.address):
                _end(connection)
                return
        self._open[visitor.number] = visitor
        self._alike[visitor.address] += 1

    def of(self, number: int) -> Visitor | None:
        """Who has this file."""
        return self._open.get(number)

    def leave(self, visitor: Visitor) -> None:
        """One is gone."""
        if self._open.get(visitor.number) is visitor:
            del self._open[visitor.number]
            self._alike[visitor.address] -= 1
            if not self._alike[visitor.address]:
                del self._alike[visitor.address]  # an address is known as long as it is here

    def _has_room(self, address: str) -> bool:
        return len(self._open) < self.limits.connections and self._has_share(address)

    def _has_share(self, address: str) -> bool:
        return self._alike[address] < self.limits.per_address

    def _end_oldest(self, address: str) -> bool:
        """End who has waited longest: of this address if it has its share, else of any."""
        is_full = self._has_share(address)
        for visitor in self._open.values():
            if not visitor.has_asked and (is_full or visitor.address == address):
                _end(visitor.connection)
                self.leave(visitor)
                return True
        return False


def _end(connection: socket.socket) -> None:
    """Whoever reads it finds its end, and closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _group(address: str) -> str:
    """An address, or the network of 2^64 that one household gets."""
    with suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if found.version == 6 and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
    return address


class Listening(socket.socket):
    """A socket whose newcomers pass the door, before TLS or anything else is done for them."""

    door: Door | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self.door is not None:
            self.door.enter(connection, str(address[0]))
        return connection, address


class Patient(H11Protocol):
    """One connection, with a deadline for each head, and headers on the replies of the protocol itself."""

    def __init__(self, door: Door, headers: list[tuple[bytes, bytes]], **more: Any) -> None:
        super().__init__(**more)
        self._door = door
        self._headers = headers
        self._visitor: Visitor | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._visitor = self._door.of(transport.get_extra_info("socket").fileno())
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        if self._visitor is not None:
            self._door.leave(self._visitor)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """As every reply, also what is no request gets the headers; what it was is not repeated."""
        kind = (b"content-type", b"application/json"), (b"connection", b"close")
        with suppress(h11.LocalProtocolError):  # in the middle of another reply: nothing can be said
            for event in (
                h11.Response(status_code=400, headers=[*kind, *self._headers], reason=b"Bad Request"),
                h11.Data(data=_NOT_HTTP),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """A head that has begun does not get more time by each letter of it."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self._visitor is not None:
            self._visitor.has_asked = is_answering and not self.cycle.more_body
        if is_answering or self.transport.is_closing():
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._door.limits.seconds, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def with_files(limits: Limits) -> Limits:
    """As many open files as the system allows this process, and no more connections than that bears."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if wanted > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = max(16, min(limits.connections, soft - RESERVED))
    return Limits(most, min(limits.per_address, most), limits.seconds)
