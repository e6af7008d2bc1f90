"""Running the server: no access log, no address or time in any log, plain HTTP on this machine only.

Connections: how many there may be, how long one may wait, and who goes when there is no room.

Nobody can keep others out by holding connections open. A request must be there, headers and all, within
seconds; and where there is no room, whoever has waited longest without a whole request makes room for
whoever comes. Addresses are counted while their connections are open, in memory, and nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import resource
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from lapwing.errors import BadParameter
from lapwing.web.replies import uncached_headers

BACKLOG = 128  # as many are let in before the first of them is looked at
RESERVED = 512  # file numbers that connections leave to everything else, a burst of newcomers among it
MOST_FILES = 1 << 16
_NOT_HTTP = json.dumps({"error": "this is not a request that is understood here"}).encode()


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a server lets happen."""

    connections: int = 4096
    per_address: int = 512  # many people may share one: a school, an office
    seconds: float = 10.0  # from the opening of a connection, or the last reply, to a whole head


@dataclass(eq=False, slots=True)
class OpenConnection:
    """An open connection."""

    connection: socket.socket
    number: int  # of its file
    address: str
    has_asked: bool = False  # a whole request came, and the reply is under way


class ConnectionTable:
    """All open connections, by the number of their file, oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[int, OpenConnection] = {}
        self._alike: Counter[str] = Counter()

    def enter(self, connection: socket.socket, address: str) -> None:
        """Let one in, if need be in the place of one that only waits; if nobody does, it goes itself."""
        visitor = OpenConnection(connection, connection.fileno(), _group(address))
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

    def of(self, number: int) -> OpenConnection | None:
        """Who has this file."""
        return self._open.get(number)

    def leave(self, visitor: OpenConnection) -> None:
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


class GuardedSocket(socket.socket):
    """A socket whose newcomers pass the door, before TLS or anything else is done for them."""

    door: ConnectionTable | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self.door is not None:
            self.door.enter(connection, str(address[0]))
        return connection, address


class DeadlineProtocol(H11Protocol):
    """One connection, with a deadline for each head, and headers on the replies of the protocol itself."""

    def __init__(self, door: ConnectionTable, headers: list[tuple[bytes, bytes]], **more: Any) -> None:
        super().__init__(**more)
        self._door = door
        self._headers = headers
        self._visitor: OpenConnection | None = None
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


def limited_by_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """As many open files as the system allows this process, and no more connections than that bears."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if wanted > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = max(16, min(limits.connections, soft - RESERVED))
    return ConnectionLimits(most, min(limits.per_address, most), limits.seconds)


REPEAT_AFTER = 60.0  # seconds between two lines about failures of the same kind


def require_encrypted(host: str, *, has_tls: bool, behind_tls_proxy: bool) -> None:
    """What respondents send must be unreadable on its way: TLS here, or in front of here."""
    if has_tls or behind_tls_proxy or is_loopback(host):
        return
    raise BadParameter(
        "host",
        "plain HTTP is for this machine only (127.0.0.1). Give --tls-cert and --tls-key; or, if a proxy "
        "with TLS stands in front and only it can reach this port, --behind-tls-proxy",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    app: FastAPI,
    *,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    behind_tls_proxy: bool = False,
    limits: ConnectionLimits | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. `ready` is told the address once the port is taken."""
    if (certificate is None) != (key is None):
        raise BadParameter("tls", "a certificate and its key go together")
    require_encrypted(host, has_tls=certificate is not None, behind_tls_proxy=behind_tls_proxy)
    allowed = limited_by_open_files(limits or ConnectionLimits())
    if behind_tls_proxy:  # all come from its address
        allowed = replace(allowed, per_address=allowed.connections)
    door = ConnectionTable(allowed)
    config = _config(app, certificate, key, door)
    with _listening(host, port) as listening:
        listening.door = door
        scheme = "http" if certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        ready(f"{scheme}://{shown}:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])


class FailureKindHandler(logging.Handler):
    """Failures, for who runs the server: their kind, and not again within a minute. Never their text."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One line at most."""
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error else record.name
        now = time.monotonic()
        if now - self._told.get(kind, -REPEAT_AFTER) >= REPEAT_AFTER:
            self._told[kind] = now
            print(f"lapwing: the server had a failure ({kind})", file=sys.stderr, flush=True)


def _config(
    app: FastAPI, certificate: Path | None, key: Path | None, door: ConnectionTable
) -> uvicorn.Config:
    terse = FailureKindHandler()
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        logger.handlers = [terse]
        logger.propagate = False
    protocol: Any = partial(DeadlineProtocol, door, uncached_headers(has_tls=certificate is not None))
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # whom a proxy speaks for is nobody's business here
        ws="none",
        lifespan="on",
        timeout_keep_alive=10,
        timeout_graceful_shutdown=10,
        h11_max_incomplete_event_size=1 << 14,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except OSError as error:
        raise BadParameter("tls", f"the certificate or its key cannot be used ({error.strerror})") from None
    if config.ssl is not None:
        _resume_nothing(config.ssl)
    return config


def _resume_nothing(context: ssl.SSLContext) -> None:
    """Every connection begins anew: one that resumed another would show that both are one person's.

    Claim    the TLS session of a report's connection tells nothing about the one its credential came by.
    Because  TLS 1.3 resumes by tickets alone, and the server gives none. TLS 1.2 is not spoken: there,
             OpenSSL also resumes by session ids, which Python cannot switch off.
    Test     tests/server/test_running.py::TestTls::test_no_connection_resumes_another
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0


def _listening(host: str, port: int) -> GuardedSocket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio send at once what is short, instead of waiting for 40 ms.
    listening = GuardedSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError, ValueError, TypeError) as error:
        listening.close()
        shown = host if host.isprintable() and host.isascii() else "this host"
        what = "the port must be 0 to 65535" if isinstance(error, OverflowError) else "it is no address"
        why = getattr(error, "strerror", None) or what
        raise BadParameter("host", f"{shown}:{port} cannot be served: {why}") from None
    return listening
