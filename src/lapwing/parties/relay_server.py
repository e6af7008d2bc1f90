"""The relay on a real port: mutual TLS, in a thread beside a member or in a process of its own.

Claim    strangers hold at most `most_unidentified` of the host's descriptors, and each for a few seconds,
         for any number of connections. They do not keep out clients from other addresses than theirs.
Because  a connection counts as unidentified until it has shown a member's certificate and said hello. When
         all places are taken, the address that holds most of them loses its oldest connection
         (`ConnectionGuard`).
Test     tests/faults/test_parties_flood.py
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.parties.identity import MemberKeys
from lapwing.parties.messages import FrameKind, ProgressCallback, ignore_progress
from lapwing.parties.relay_loop import MemberConnection, RelayLoop
from lapwing.parties.run_configuration import RunConfiguration, parse_address
from lapwing.web.connections import ConnectionGuard, ConnectionLimits

HANDSHAKE_SECONDS = 5.0
SHUTDOWN_SECONDS = 1.0
_BUFFER_BYTES = 1 << 20
_BACKLOG = 128
_FEWEST, _MOST = 16, 256
_PAUSE_SECONDS = 0.1  # when no descriptor is left to accept with
HandleConnection = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Awaitable[None]
]


def serve_relay(
    config: RunConfiguration,
    keys: MemberKeys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: ProgressCallback = ignore_progress,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Be the relay of one run, until it is over.

    After the end, the relay shows the sums to members that missed them, for as long as members had to
    arrive. If all members have them, it returns at once. `listen` is for hosts behind another address than
    the configuration's. `ready` is called when the relay listens. Raises `BadParameter` or `Unavailable`.
    """
    _require_host(config, keys)
    relay = RelayLoop(config, folder=folder, watch=watch)
    asyncio.run(_serve(relay, keys, listen or config.address, ready))


def _require_host(config: RunConfiguration, keys: MemberKeys) -> None:
    if keys.card.der != config.host.der:
        raise BadParameter("host", f"these are {keys.name}'s keys, but {config.host.name} is the host")


@contextmanager
def relay_in_thread(
    config: RunConfiguration,
    keys: MemberKeys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: ProgressCallback = ignore_progress,
    make: Callable[..., RelayLoop] = RelayLoop,
) -> Iterator[None]:
    """Run the relay in a thread during a `with` block.

    The end of the block waits until the run is over for all members, by its deadlines. If the block ends
    with an error while the others still wait in the lobby, the relay ends the lobby.
    """
    _require_host(config, keys)
    relay = make(config, folder=folder, watch=watch)
    has_started = threading.Event()
    failed: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def ready() -> None:
        loops.append(asyncio.get_running_loop())
        has_started.set()

    def run() -> None:
        try:
            asyncio.run(_serve(relay, keys, listen or config.address, ready))
        except BaseException as error:  # raised again in the thread of the `with` block
            failed.append(error)
        finally:
            has_started.set()

    thread = threading.Thread(target=run, name="relay", daemon=True)
    thread.start()
    has_started.wait()
    if failed:
        raise failed[0]
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise  # at once; the thread ends with the process
    except BaseException as error:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loops[0].call_soon_threadsafe(relay.give_up)
        thread.join()
        if failed and isinstance(error, Unavailable):  # the failed relay is why it could not be reached
            raise failed[0] from error
        raise
    thread.join()
    if failed:
        raise failed[0]


async def _serve(relay: RelayLoop, keys: MemberKeys, listen: str, ready: Callable[[], None]) -> None:
    members = {card.der: i for i, card in enumerate(relay.config.cards)}
    asyncio.get_running_loop().set_exception_handler(_ignore_connection_errors)
    try:
        if relay.is_finished:
            ready()
            return
        context = keys.tls(trusting=relay.config.cards, server=True)
        listener = RelayListener(context, partial(_handle, relay, members))
        await listener.open(listen)
        try:
            ready()
            await relay.run_to_end()
        finally:
            await listener.close()
    finally:
        relay.journal.close()


def _ignore_connection_errors(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report only errors that are not about a connection: any stranger can cause those."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


async def _handle(
    relay: RelayLoop,
    members: dict[bytes, int],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    is_known: Callable[[], None],
) -> None:
    """Identify the member by its certificate, and process its frames."""
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    try:
        if shown not in members:  # TLS admits only pinned certificates; this tells which member's it is
            return
        peer = MemberConnection(members[shown], reader, writer)
        try:
            await _process_frames(relay, peer, is_known)
        except (OSError, EOFError):
            relay.disconnected(peer)
        await peer.drain()
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


async def _process_frames(relay: RelayLoop, peer: MemberConnection, is_known: Callable[[], None]) -> None:
    """Process frames until the connection ends, or an impossible message comes."""
    try:
        kind, payload = await peer.receive(largest=relay.largest)
        if kind is not FrameKind.HELLO:
            raise BadValue("a connection must begin with a hello message")
        relay.arrive(peer, payload)
        is_known()
    except BadValue as error:  # such as a wrong number of the run, which does not concern this run
        relay.reject(peer, str(error))
        return
    try:
        while True:
            relay.hear(peer, *await peer.receive(largest=relay.largest))
    except BadValue as error:
        relay.expel(peer, str(error))


# Listening, and limits for unidentified connections


def most_unidentified() -> int:
    """Return how many unidentified connections are held at most.

    This is far below the host's number of descriptors: a member in the same process needs some, too.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if most == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, most // 8))


class RelayListener:
    """Accepts TLS connections and passes each to `handle`, which reports when it knows the member."""

    def __init__(self, context: ssl.SSLContext, handle: HandleConnection) -> None:
        self._context = context
        self._handle = handle
        most = most_unidentified()
        self._unidentified = ConnectionGuard(ConnectionLimits(connections=most, per_address=most))
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}  # accepted, and not yet handled
        self._listeners: list[socket.socket] = []

    async def open(self, listen: str) -> None:
        """Listen at an address. Raises `Unavailable`."""
        for listener in await _listening(listen):
            self._listeners.append(listener)
            self._watch(listener)

    async def close(self) -> None:
        """Stop listening. Members close their side when they have read the end; the rest is cut off."""
        loop, listeners = asyncio.get_running_loop(), self._listeners
        self._listeners = []
        for listener in listeners:
            loop.remove_reader(listener)
            listener.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SHUTDOWN_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _watch(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a connection. Not by `sock_accept`: if cancelled, it can lose an accepted connection."""
        loop = asyncio.get_running_loop()
        try:
            connection, address = listener.accept()
        except BlockingIOError:  # the client has gone again
            return
        except OSError:
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_SECONDS, self._watch, listener)
            return
        connection.setblocking(False)
        task = loop.create_task(self._talk(connection))
        self._waiting[task] = connection
        self._take_place(task, str(address[0]))

    def _take_place(self, task: asyncio.Task[None], address: str) -> None:
        self._unidentified.admit(task, address, end=task.cancel, has_ended=task.done)
        self._tasks.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._unidentified.remove(self._unidentified.of(task))
        self._tasks.discard(task)
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
        deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, task.cancel)

        def is_known() -> None:
            deadline.cancel()
            self._unidentified.remove(self._unidentified.of(task))

        try:
            await self._handle(reader, writer, is_known)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            deadline.cancel()


async def _streams(
    connection: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BUFFER_BYTES, loop=loop)
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
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, proto, _, address in dict.fromkeys(addresses):
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
