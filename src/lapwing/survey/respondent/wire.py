"""One HTTP request over a connection of its own, which ends in time and is not longer than it may be.

The server is not trusted: it may send a byte a second, a reply without end, or a redirect. One moment
bounds all that is awaited, from the connection on; more bytes than allowed are an error; nothing is
followed and nothing is unpacked.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from lapwing.errors import BadParameter, BadValue, MissingExtra, Unavailable

try:
    import httpcore
    import httpx
except ImportError:
    raise MissingExtra("server", "Sending a report") from None

_LOCAL = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_UNQUOTED = "/%:@!$&'()*+,;=~"
_BROKEN = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ConnectionNotAvailable,
    OSError,
)


@dataclass(frozen=True)
class Place:
    """Where a survey is served. Only https, except on the same machine."""

    scheme: str
    host: str
    port: int | None
    path: str  # ends with /

    @classmethod
    def of(cls, link: str) -> Place:
        """What a link says before its #. `BadParameter` if nothing can be there."""
        try:
            parts = urlsplit(link)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:  # UnicodeError is one
            raise BadParameter("url", "is not an address that can exist") from None
        local = parts.scheme == "http" and host in _LOCAL
        if not host or not (parts.scheme == "https" or local):
            raise BadParameter("url", "must begin with https://")
        if not _HOST.fullmatch(host) or "@" in parts.netloc:
            raise BadParameter("url", "is not an address that can exist")
        return cls(parts.scheme, host, port, quote(parts.path.rstrip("/"), safe=_UNQUOTED) + "/")

    def url(self, name: str) -> httpcore.URL:
        """The address of a page beside the survey."""
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=self.path + name)


def request(
    place: Place, name: str, body: dict[str, str] | None, *, most: int, deadline: float
) -> tuple[int, bytes]:
    """The status and the content of a reply, by `deadline` (monotonic seconds), of at most `most` bytes."""
    secure = httpx.create_ssl_context(trust_env=False) if place.scheme == "https" else None
    content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
    headers = [
        ("Host", f"[{place.host}]" if ":" in place.host else place.host),
        ("User-Agent", "lapwing"),  # the same for all devices
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    if place.port is not None:
        headers[0] = ("Host", f"{headers[0][1]}:{place.port}")
    if content is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
    method = "GET" if content is None else "POST"
    try:
        with (
            httpcore.ConnectionPool(ssl_context=secure, network_backend=_InTime(deadline)) as pool,
            pool.stream(method, place.url(name), headers=headers, content=content) as reply,
        ):
            return reply.status, _content(reply, most)
    except _BROKEN:
        raise Unavailable("the survey's server cannot be reached, or is too slow") from None


def _content(reply: httpcore.Response, most: int) -> bytes:
    pieces, size = [], 0
    for piece in reply.iter_stream():
        size += len(piece)
        if size > most:
            raise BadValue("the server's answer is not in order: it is too long")
        pieces.append(piece)
    return b"".join(pieces)


class _InTime(httpcore.NetworkBackend):
    """Connections on which every wait ends at one moment, however the bytes trickle in."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._real = httpcore.SyncBackend()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        made = self._real.connect_tcp(host, port, self._left(), local_address, socket_options)
        return _Stream(made, self._left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, real: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._real, self._left = real, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._real.read(max_bytes, self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._real.write(buffer, self._left())

    def close(self) -> None:
        self._real.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._real.start_tls(ssl_context, server_hostname, self._left()), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._real.get_extra_info(info)
