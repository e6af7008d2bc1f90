"""The relay on a real port: mutual TLS, in a thread beside a member or in a process of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.parties.identity import Keys
from lapwing.parties.messages.frames import Kind
from lapwing.parties.messages.progress import Watch, nobody_watches
from lapwing.parties.messages.table import Table, where
from lapwing.parties.relay.conducting import Relay
from lapwing.parties.relay.peer import Peer

_HANDSHAKE_SECONDS = 10.0
_BUFFER = 1 << 20
_SHUTDOWN_SECONDS = 1.0
Make = Callable[..., Relay]
Meet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def serve(
    table: Table,
    keys: Keys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: Watch = nobody_watches,
    ready: Callable[[], None] = lambda: None,
    make: Make = Relay,
) -> None:
    """Be the relay of one run, until it is over. `listen` is for hosts behind another address."""
    if keys.card.der != table.host.der:
        raise BadParameter("host", f"these are {keys.name}'s keys, but {table.host.name} is the host")
    with asyncio.Runner() as runner:
        runner.run(_serve(make(table, folder=folder, watch=watch), keys, listen or table.address, ready))


@contextmanager
def serving(
    table: Table,
    keys: Keys,
    *,
    folder: Path,
    listen: str | None = None,
    watch: Watch = nobody_watches,
    make: Make = Relay,
) -> Iterator[None]:
    """The relay in a thread. Leaving waits until the run is over for everybody, by its deadlines.

    Left with an error while the others still wait in the lobby, it sends them home.
    """
    begun = threading.Event()
    failed: list[BaseException] = []
    conducted: list[tuple[asyncio.AbstractEventLoop, Relay]] = []
    made: list[Relay] = []

    def remember(*args: Any, **options: Any) -> Relay:
        made.append(make(*args, **options))
        return made[0]

    def ready() -> None:
        conducted.append((asyncio.get_running_loop(), made[0]))
        begun.set()

    def run() -> None:
        try:
            serve(table, keys, folder=folder, listen=listen, watch=watch, ready=ready, make=remember)
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
    except BaseException:
        for loop, relay in conducted:
            with suppress(RuntimeError):  # its loop is closed: it is over
                loop.call_soon_threadsafe(relay.give_up)
        thread.join()
        raise
    thread.join()
    if failed:
        raise failed[0]


async def _serve(relay: Relay, keys: Keys, listen: str, ready: Callable[[], None]) -> None:
    meetings: set[asyncio.Task[None]] = set()
    members = {card.der: i for i, card in enumerate(relay.table.cards)}

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        meetings.add(task)
        try:
            await _meet(relay, members, reader, writer)
        finally:
            meetings.discard(task)

    try:
        if relay.memory.has_ended():
            ready()
            return
        server = await _listening(meet, listen, keys.tls(trusting=relay.table.cards, server=True))
        try:
            ready()
            await relay.conduct()
        finally:
            server.close()
            if meetings:  # members close their side when they have read the end; who hangs is cut off
                await asyncio.wait(meetings, timeout=_SHUTDOWN_SECONDS)
            for task in list(meetings):
                task.cancel()
            await asyncio.gather(*meetings, return_exceptions=True)
    finally:
        relay.memory.close()


async def _listening(meet: Meet, listen: str, context: ssl.SSLContext) -> asyncio.Server:
    host, port = where(listen)
    try:
        return await asyncio.start_server(
            meet,
            host,
            port,
            ssl=context,
            limit=_BUFFER,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
        )
    except OSError as error:
        raise Unavailable(f"the relay cannot listen at {listen}: {error.strerror}") from error


async def _meet(
    relay: Relay, members: dict[bytes, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    try:
        if shown not in members:  # TLS lets only pinned certificates in; this says whose it is
            return
        peer = Peer(members[shown], reader, writer)
        try:
            await _talk(relay, peer)
        except (OSError, EOFError):
            relay.depart(peer)
        await peer.drain()
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


async def _talk(relay: Relay, peer: Peer) -> None:
    """Until the connection ends, or what cannot be is sent over it."""
    try:
        kind, payload = await peer.receive(largest=relay.largest)
        if kind is not Kind.HELLO:
            raise BadValue("a connection must begin with a greeting")
        relay.arrive(peer, payload)
    except BadValue as error:  # such as a wrong number of the run: nothing that the run has to know of
        relay.turn_away(peer, str(error))
        return
    try:
        while True:
            relay.hear(peer, *await peer.receive(largest=relay.largest))
    except BadValue as error:
        relay.refuse(peer, str(error))
