"""Running the server: no access log, no address or time in any log, plain HTTP on this machine only."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from lapwing.errors import BadParameter, Unavailable

BACKLOG = 2048


def require_private(host: str, *, has_tls: bool, behind_tls_proxy: bool) -> None:
    """What respondents send must be unreadable on its way: TLS here, or in front of here."""
    if has_tls or behind_tls_proxy or _is_loopback(host):
        return
    raise BadParameter(
        "host",
        "plain HTTP is for this machine only (127.0.0.1). Give --tls-cert and --tls-key; or, if a proxy "
        "with TLS stands in front and only it can reach this port, --behind-tls-proxy",
    )


def _is_loopback(host: str) -> bool:
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
    ready: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. `ready` is told the address once the port is taken."""
    if (certificate is None) != (key is None):
        raise BadParameter("tls", "a certificate and its key go together")
    require_private(host, has_tls=certificate is not None, behind_tls_proxy=behind_tls_proxy)
    config = _config(app, certificate, key)
    with _listening(host, port) as listening:
        scheme = "http" if certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        ready(f"{scheme}://{shown}:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])


def _config(app: FastAPI, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
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
    return config


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio send at once what is short, instead of waiting for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or "the port must be 0 to 65535"
        raise Unavailable(f"{host}:{port} cannot be served: {why}") from None
    return listening
