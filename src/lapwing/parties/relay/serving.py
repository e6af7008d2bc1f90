"""The relay on a real port: mutual TLS, in a thread beside a member or in a process of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.parties.identity import Keys
from lapwing.parties.messages.frames import Kind
from lapwing.parties.messages.progress import Watch, nobody_watches
from lapwing.parties.messages.table import Table
from lapwing.parties.relay.conducting import Relay
from lapwing.parties.relay.door import Door
from lapwing.parties.relay.peer import Peer

Make = Callable[..., Relay]


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
    """Be the relay of one run, until it is over. `listen` is for hosts behind another address.

    After the end, it shows the sums to those who missed them, for as long as members had to come; if all
    have them, it does nothing.
    """
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


async def _serve(relay: Relay, keys: Keys, listen: str, ready: Callable[[], None]) -> None:
    members = {card.der: i for i, card in enumerate(relay.table.cards)}

    async def meet(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_known: Callable[[], None]
    ) -> None:
        await _meet(relay, members, reader, writer, is_known)

    asyncio.get_running_loop().set_exception_handler(_quietly)
    try:
        if relay.is_through:
            ready()
            return
        door = Door(keys.tls(trusting=relay.table.cards, server=True), meet)
        await door.open(listen)
        try:
            ready()
            await relay.conduct()
        finally:
            await door.close()
    finally:
        relay.memory.close()


def _quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What goes wrong on a connection is nothing to fill a terminal with; anybody can make it happen."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


async def _meet(
    relay: Relay,
    members: dict[bytes, int],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    is_known: Callable[[], None],
) -> None:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    try:
        if shown not in members:  # TLS lets only pinned certificates in; this says whose it is
            return
        peer = Peer(members[shown], reader, writer)
        try:
            await _talk(relay, peer, is_known)
        except (OSError, EOFError):
            relay.depart(peer)
        await peer.drain()
    finally:
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


async def _talk(relay: Relay, peer: Peer, is_known: Callable[[], None]) -> None:
    """Until the connection ends, or what cannot be is sent over it."""
    try:
        kind, payload = await peer.receive(largest=relay.largest)
        if kind is not Kind.HELLO:
            raise BadValue("a connection must begin with a greeting")
        relay.arrive(peer, payload)
        is_known()
    except BadValue as error:  # such as a wrong number of the run: nothing that the run has to know of
        relay.turn_away(peer, str(error))
        return
    try:
        while True:
            relay.hear(peer, *await peer.receive(largest=relay.largest))
    except BadValue as error:
        relay.refuse(peer, str(error))
