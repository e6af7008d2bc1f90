"""The relay: carries posts between members, keeps the time, and learns nothing that it may not.

The relay on a real port: mutual TLS, in a thread beside a member or in a process of its own.

The relay's door: who has connected, and has not yet shown who it is.

Claim    strangers hold at most `most_unidentified` of the host's descriptors, and each for a few seconds, however many
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
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import FrameKind, ProgressCallback, ignore_progress
from lapwing.parties.relay_loop import MemberConnection, RelayLoop
from lapwing.parties.run_configuration import RunConfiguration, parse_address

HANDSHAKE_SECONDS = 5.0
SHUTDOWN_SECONDS = 1.0
_BUFFER = 1 << 20
_BACKLOG = 128
_FEWEST, _MOST = 16, 256
_PAUSE = 0.1  # seconds, when no descriptor is left to accept with
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HandleConnection = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Awaitable[None]
]


def most_unidentified() -> int:
    """Far fewer than the host's descriptors: a member in the same process needs some, too."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if most == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, most // 8))


class RelayListener:
    """Listens, and lets `meet` talk to whoever comes over TLS; `meet` says when it knows who that is."""

    def __init__(self, context: ssl.SSLContext, meet: HandleConnection) -> None:
        self._context = context
        self._meet = meet
        self._places = most_unidentified()
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
    host, port = parse_address(listen)
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


RelayFactory = Callable[..., RelayLoop]


def serve_relay(
    table: RunConfiguration,
    keys: MemberKeys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: ProgressCallback = ignore_progress,
    ready: Callable[[], None] = lambda: None,
    make: RelayFactory = RelayLoop,
) -> None:
    """Be the relay of one run, until it is over. `listen` is for hosts behind another address.

    After the end, it shows the sums to those who missed them, for as long as members had to come; if all
    have them, it does nothing.
    """
    if keys.card.der != table.host.der:
        raise BadParameter("host", f"these are {keys.name}'s keys, but {table.host.name} is the host")
    with asyncio.Runner() as runner:
        runner.run(_serve(make(table, folder=folder, watch=watch), keys, listen or table.address, ready))


@contextmanager
def relay_in_thread(
    table: RunConfiguration,
    keys: MemberKeys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: ProgressCallback = ignore_progress,
    make: RelayFactory = RelayLoop,
) -> Iterator[None]:
    """The relay in a thread. Leaving waits until the run is over for everybody, by its deadlines.

    Left with an error while the others still wait in the lobby, it sends them home.
    """
    begun = threading.Event()
    failed: list[BaseException] = []
    conducted: list[tuple[asyncio.AbstractEventLoop, RelayLoop]] = []
    made: list[RelayLoop] = []

    def remember(*args: Any, **options: Any) -> RelayLoop:
        made.append(make(*args, **options))
        return made[0]

    def ready() -> None:
        conducted.append((asyncio.get_running_loop(), made[0]))
        begun.set()

    def run() -> None:
        try:
            serve_relay(table, keys, folder=folder, listen=listen, watch=watch, ready=ready, make=remember)
        except BaseException as error:  # handed to whoever waits
            failed.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=run, name="relay", daemon=True)
    thread.start()
    begun.wait()
    if failed:
        raise failed[0]
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise  # at once; the thread ends with the process
    except BaseException as error:
        for loop, relay in conducted:
            with suppress(RuntimeError):  # its loop is closed: it is over
                loop.call_soon_threadsafe(relay.give_up)
        thread.join()
        _blame(failed, error)
        raise
    thread.join()
    if failed:
        raise failed[0]


def _blame(failed: list[BaseException], error: BaseException) -> None:
    """A relay that failed is why it could not be reached."""
    if failed and isinstance(error, Unavailable):
        raise failed[0] from error


async def _serve(relay: RelayLoop, keys: MemberKeys, listen: str, ready: Callable[[], None]) -> None:
    members = {card.der: i for i, card in enumerate(relay.table.cards)}

    async def meet(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_known: Callable[[], None]
    ) -> None:
        await _meet(relay, members, reader, writer, is_known)

    asyncio.get_running_loop().set_exception_handler(_quietly)
    try:
        if relay.is_finished:
            ready()
            return
        door = RelayListener(keys.tls(trusting=relay.table.cards, server=True), meet)
        await door.open(listen)
        try:
            ready()
            await relay.run_to_end()
        finally:
            await door.close()
    finally:
        relay.memory.close()


def _quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What goes wrong on a connection is nothing to fill a terminal with; anybody can make it happen."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


async def _meet(
    relay: RelayLoop,
    members: dict[bytes, int],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    is_known: Callable[[], None],
) -> None:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    try:
        if shown not in members:  # TLS lets only pinned certificates in; this says whose it is
            return
        peer = MemberConnection(members[shown], reader, writer)
        try:
            await _talk(relay, peer, is_known)
        except (OSError, EOFError):
            relay.disconnected(peer)
        await peer.drain()
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


async def _talk(relay: RelayLoop, peer: MemberConnection, is_known: Callable[[], None]) -> None:
    """Until the connection ends, or what cannot be is sent over it."""
    try:
        kind, payload = await peer.receive(largest=relay.largest)
        if kind is not FrameKind.HELLO:
            raise BadValue("a connection must begin with a greeting")
        relay.arrive(peer, payload)
        is_known()
    except BadValue as error:  # such as a wrong number of the run: nothing that the run has to know of
        relay.reject(peer, str(error))
        return
    try:
        while True:
            relay.hear(peer, *await peer.receive(largest=relay.largest))
    except BadValue as error:
        relay.refuse(peer, str(error))


__all__ = ["RelayLoop", "serve_relay", "relay_in_thread"]
