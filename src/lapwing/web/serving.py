"""Run an HTTP server: TLS, limits of connections, and logs without addresses or times.

Plain HTTP is served to this machine only. Nobody can keep others out by holding connections open: a
request must be complete, with its headers, within seconds, and `ConnectionGuard` limits their number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, MissingExtra
from lapwing.web.connections import ConnectionGuard, ConnectionLimits, OpenConnection, is_loopback

try:
    import h11
    import uvicorn
    from fastapi import FastAPI
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtra("server", "Serving a survey") from None
from lapwing.web.replies import uncached_headers  # needs the extra, too

BACKLOG = 128  # connections that wait to be accepted
RESERVED = 512  # file descriptors for everything but connections, and for a burst of new ones
MOST_FILES = 1 << 16
_NOT_HTTP = json.dumps({"error": "this is not a request that is understood here"}).encode()


class GuardedSocket(socket.socket):
    """A listening socket whose new connections are counted before TLS or anything else is done."""

    guard: ConnectionGuard | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection and count it."""
        connection, address = super().accept()
        if self.guard is not None:
            guard_socket(self.guard, connection, str(address[0]))
        return connection, address


def guard_socket(guard: ConnectionGuard, connection: socket.socket, address: str) -> None:
    """Count a connection under its file descriptor. To end it, shut it down: its reader then closes it."""

    def end() -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    guard.admit(connection.fileno(), address, end=end, has_ended=lambda: connection.fileno() < 0)


class DeadlineProtocol(H11Protocol):
    """One HTTP connection, with a deadline for each request head and security headers on every reply."""

    def __init__(self, guard: ConnectionGuard, headers: list[tuple[bytes, bytes]], **more: Any) -> None:
        super().__init__(**more)
        self._guard = guard
        self._headers = headers
        self._entry: OpenConnection | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        self._entry = self._guard.of(transport.get_extra_info("socket").fileno())
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place."""
        self._stop_watching()
        self._guard.remove(self._entry)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read data; the deadline stays until the request head is complete."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Reply to a malformed request with all headers, without quoting it."""
        kind = (b"content-type", b"application/json"), (b"connection", b"close")
        with suppress(h11.LocalProtocolError):  # another reply is being sent
            for event in (
                h11.Response(status_code=400, headers=[*kind, *self._headers], reason=b"Bad Request"),
                h11.Data(data=_NOT_HTTP),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Set or cancel the deadline. Data that arrives does not extend it."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self._entry is not None:
            self._entry.has_asked = is_answering and not self.cycle.more_body
        if is_answering or self.transport.is_closing():
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._guard.limits.seconds, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def limited_by_open_files(limits: ConnectionLimits) -> ConnectionLimits:
    """Raise this process's limit of open files, and return limits that fit into it."""
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
    """Raise BadParameter unless requests are encrypted: TLS here, or in a proxy in front."""
    if has_tls or behind_tls_proxy or is_loopback(host):
        return
    raise BadParameter(
        "host",
        "plain HTTP is for this machine only (127.0.0.1). Give --tls-cert and --tls-key; or, if a proxy "
        "with TLS stands in front and only it can reach this port, --behind-tls-proxy",
    )


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
    bound: socket.socket | None = None,
) -> None:
    """Serve until a signal ends it. `ready` is called with the address once the port is open.

    Args:
        app: The application.
        host: The address to listen at.
        port: The port; 0 for a free one.
        certificate: A certificate, for https.
        key: Its key.
        behind_tls_proxy: Whether a proxy with TLS stands in front.
        limits: The limits of connections.
        ready: Called with the address, such as "http://127.0.0.1:8000/".
        bound: A socket that is bound to host and port already (`bound_socket`); processes may share it.
    """
    if (certificate is None) != (key is None):
        raise BadParameter("tls", "a certificate and its key go together")
    require_encrypted(host, has_tls=certificate is not None, behind_tls_proxy=behind_tls_proxy)
    allowed = limited_by_open_files(limits or ConnectionLimits())
    if behind_tls_proxy:  # all connections come from its address
        allowed = replace(allowed, per_address=allowed.connections)
    guard = ConnectionGuard(allowed)
    config = _config(app, certificate, key, guard)
    with bound_socket(host, port) if bound is None else GuardedSocket(fileno=bound.detach()) as listening:
        listening.guard = guard
        listening.listen(BACKLOG)
        scheme = "http" if certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        address = f"{scheme}://{shown}:{listening.getsockname()[1]}/"
        ToldServer(config, lambda: ready(address)).run(sockets=[listening])


class ToldServer(uvicorn.Server):
    """A server that says when it serves: a signal that comes then ends it as at any later time."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()


class FailureKindHandler(logging.Handler):
    """A log handler for the operator: the kind of a failure, once a minute. Never its text."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._reported: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print at most one line."""
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error else record.name
        now = time.monotonic()
        if now - self._reported.get(kind, -REPEAT_AFTER) >= REPEAT_AFTER:
            self._reported[kind] = now
            print(f"lapwing: the server had a failure ({kind})", file=sys.stderr, flush=True)


def _config(
    app: FastAPI, certificate: Path | None, key: Path | None, guard: ConnectionGuard
) -> uvicorn.Config:
    handler = FailureKindHandler()
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        logger.handlers = [handler]
        logger.propagate = False
    protocol: Any = partial(DeadlineProtocol, guard, uncached_headers(has_tls=certificate is not None))
    config = uvicorn.Config(
        app,
        http=protocol,
        loop="asyncio",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # the addresses that a proxy reports are not wanted
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
    """Switch TLS session resumption off: it would show that two connections are one person's.

    Claim    the TLS session of a report's connection tells nothing about the connection of its credential.
    Because  TLS 1.3 resumes by tickets alone, and the server gives none. TLS 1.2 is not accepted: there,
             OpenSSL also resumes by session ids, which Python cannot switch off.
    Test     tests/web/test_serving.py::TestTls::test_no_connection_resumes_another
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0


def bound_socket(host: str, port: int) -> GuardedSocket:
    """Return a socket at an address, not listening yet. Raises BadParameter if there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With TCP named, asyncio sends short messages at once instead of waiting for 40 ms.
    listening = GuardedSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError, ValueError, TypeError) as error:
        listening.close()
        shown = host if host.isprintable() and host.isascii() else "this host"
        what = "the port must be 0 to 65535" if isinstance(error, OverflowError) else "it is no address"
        why = getattr(error, "strerror", None) or what
        raise BadParameter("host", f"{shown}:{port} cannot be served: {why}") from None
    return listening
