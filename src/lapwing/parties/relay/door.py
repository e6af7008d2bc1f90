"""The relay's door: who has connected, and has not yet shown who it is.

Claim    strangers hold at most `places` of the host's descriptors, and each for a few seconds, however many
         connections they open. Who comes from another address than they do is not kept out by them.
Because  a connection has its place until it has shown a member's certificate and has greeted. When all are
         taken, the address that has most of them gives up its oldest.
Test     tests/faults/test_parties_flood.py
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

from lapwing.errors import Unavailable
from lapwing.parties.messages.table import where

HANDSHAKE_SECONDS = 5.0
SHUTDOWN_SECONDS = 1.0
_BUFFER = 1 << 20
_BACKLOG = 128
_FEWEST, _MOST = 16, 256
_PAUSE = 0.1  # seconds, when no descriptor is left to accept with
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Meet = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Awaitable[None]]


def places() -> int:
    """Far fewer than the host's descriptors: a member in the same process needs some, too."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if most == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, most // 8))


class Door:
    """Listens, and lets `meet` talk to whoever comes over TLS; `meet` says when it knows who that is."""

    def __init__(self, context: ssl.SSLContext, meet: Meet) -> None:
        self._context = context
        self._meet = meet
        self._places = places()
        self._unknown: dict[asyncio.Task[None], str] = {}  # the address of each, the oldest first
        self._meetings: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}  # who has not been talked to yet
        self._listeners: list[socket.socket] = []

    async def open(self, listen: str) -> None:
        """Raises `Unavailable`."""
        for listener in await _listening(listen):
            self._listeners.append(listener)
            self._watch(listener)

    async def close(self) -> None:
        """Members close their side when they have read the end; who hangs is cut off."""
        loop, listeners = asyncio.get_running_loop(), self._listeners
        self._listeners = []
        for listener in listeners:
            loop.remove_reader(listener)
            listener.close()
        if self._meetings:
            await asyncio.wait(self._meetings, timeout=SHUTDOWN_SECONDS)
        for task in list(self._meetings):
            task.cancel()
        await asyncio.gather(*self._meetings, return_exceptions=True)

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Somebody is at the door. Not by `sock_accept`: cancelled, it can lose who just came in."""
        loop = asyncio.get_running_loop()
        try:
            connection, address = listener.accept()
        except BlockingIOError:  # gone again
            return
        except OSError:
            loop.remove_reader(listener)
            loop.call_later(_PAUSE, self._watch, listener)
            return
        connection.setblocking(False)
        task = loop.create_task(self._talk(connection))
        self._waiting[task] = connection
        self._take_place(task, str(address[0]))

    def _take_place(self, task: asyncio.Task[None], address: str) -> None:
        if len(self._unknown) >= self._places:
            [(crowded, _)] = Counter(self._unknown.values()).most_common(1)
            oldest = next(each for each, came_from in self._unknown.items() if came_from == crowded)
            oldest.cancel()
            del self._unknown[oldest]
        self._unknown[task] = address
        self._meetings.add(task)
        task.add_done_callback(self._has_gone)

    def _has_gone(self, task: asyncio.Task[None]) -> None:
        self._unknown.pop(task, None)
        self._meetings.discard(task)
        if task in self._waiting:  # it was cancelled before it began
            self._waiting.pop(task).close()
        if not task.cancelled() and task.exception() is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a connection to the relay failed", "exception": task.exception()}
            )

    async def _talk(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._waiting[task]  # from here on `_streams` closes it
        try:
            reader, writer = await _streams(connection, self._context)
        except OSError:  # no TLS, or no certificate of a member
            return
        finally_known = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, task.cancel)

        def is_known() -> None:
            finally_known.cancel()
            self._unknown.pop(task, None)

        try:
            await self._meet(reader, writer, is_known)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            finally_known.cancel()


async def _streams(connection: socket.socket, context: ssl.SSLContext) -> Streams:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
    except BaseException:
        connection.close()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _listening(listen: str) -> list[socket.socket]:
    host, port = where(listen)
    listeners: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, proto, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, proto)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise Unavailable(f"the relay cannot listen at {listen}: {error.strerror}") from error
    return listeners
