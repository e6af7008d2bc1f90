"""Running the server: no access log, no address or time in any log, plain HTTP on this machine only."""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from lapwing.errors import BadParameter
from lapwing.server.connections import BACKLOG, Door, Limits, Listening, Patient, with_files
from lapwing.server.headers import all_headers

QUIET = 60.0  # seconds between two lines about failures of the same kind


def require_private(host: str, *, has_tls: bool, behind_tls_proxy: bool) -> None:
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
    limits: Limits | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. `ready` is told the address once the port is taken."""
    if (certificate is None) != (key is None):
        raise BadParameter("tls", "a certificate and its key go together")
    require_private(host, has_tls=certificate is not None, behind_tls_proxy=behind_tls_proxy)
    allowed = with_files(limits or Limits())
    if behind_tls_proxy:  # all come from its address
        allowed = replace(allowed, per_address=allowed.connections)
    door = Door(allowed)
    config = _config(app, certificate, key, door)
    with _listening(host, port) as listening:
        listening.door = door
        scheme = "http" if certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        ready(f"{scheme}://{shown}:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])


class Terse(logging.Handler):
    """Failures, for who runs the server: their kind, and not again within a minute. Never their text."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._told: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One line at most."""
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__name__ if error else record.name
        now = time.monotonic()
        if now - self._told.get(kind, -QUIET) >= QUIET:
            self._told[kind] = now
            print(f"lapwing: the server had a failure ({kind})", file=sys.stderr, flush=True)


def _config(app: FastAPI, certificate: Path | None, key: Path | None, door: Door) -> uvicorn.Config:
    terse = Terse()
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        logger.handlers = [terse]
        logger.propagate = False
    protocol: Any = partial(Patient, door, all_headers(has_tls=certificate is not None))
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


def _listening(host: str, port: int) -> Listening:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio send at once what is short, instead of waiting for 40 ms.
    listening = Listening(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
