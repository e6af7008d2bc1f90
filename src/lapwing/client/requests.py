"""Requests to a server: verified TLS, one host, limits of time and size, repeats that cost nothing.

Claim    a request that is repeated after a lost connection is charged once.
Because  only requests are repeated that name what they are about: reading, planning (which is free), and
         the release of a plan under its id, which the server charges once however often it comes.
Test     tests/client/test_requests.py, tests/client/test_remote_dataset.py

Claim    the token goes to the host that was named, and to no other.
Because  no redirect is followed, cookies are neither kept nor sent, and for the loopback no proxy of the
         environment is used. Certificates are always verified.
Test     tests/client/test_requests.py
"""

from __future__ import annotations

import json
import ssl
import time
import weakref
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

from lapwing.client.address import ServerAddress
from lapwing.client.credentials import ClientToken
from lapwing.client.replied_errors import RequestRefused, error_of
from lapwing.errors import BadParameter, InProgress, LapwingError, MissingExtra, Unavailable

try:
    import httpx
except ImportError:
    raise MissingExtra("client", "Connecting to a server") from None

CONNECT_SECONDS = 10.0
MOST_BYTES = 256 << 20  # of one reply
JSON = "application/json"
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0  # seconds between two tries
_AGAIN = {"too-many", "unavailable", "in-progress"}
_OF_A_PROXY = {502, 503, 504}


class Requests:
    """Requests to one server with one token. Threads may share it.

    Args:
        address: The server.
        token: The token.
        ca: A file with the certificates to trust instead of the machine's own.
        timeout: The most seconds to wait for one reply.
        patience: The most seconds to repeat a request that failed on its way.
    """

    def __init__(
        self,
        address: ServerAddress,
        token: ClientToken,
        *,
        ca: str | Path | None,
        timeout: float,
        patience: float,
    ) -> None:
        self.origin, self.patience = address.origin, patience
        if ca is not None and not address.origin.startswith("https:"):
            raise BadParameter("ca", "is for https:// only")
        self._token = token
        self._http = httpx.Client(
            base_url=address.origin,
            verify=_trusted(ca),
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            follow_redirects=False,
            trust_env=not address.is_loopback,  # a proxy would see plain HTTP
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"User-Agent": "lapwing", "Accept-Encoding": "identity"},
        )

        self._end = weakref.finalize(self, self._http.close)  # nobody closes what a notebook forgets

    def get(self, path: str, *, patience: float | None = None, **options: Any) -> Any:
        """Return the JSON value of a page."""
        return _value(self._send("GET", path, options=options, patience=patience))

    def content(self, path: str, accept: str, **options: Any) -> bytes:
        """Return the content of a page in a form."""
        return self._send("GET", path, options=options, accept=accept)

    def post(self, path: str, body: Any = None, *, is_repeatable: bool = True) -> Any:
        """Send a value, and return the JSON value of the reply.

        Args:
            path: The page.
            body: The value; None for an empty request.
            is_repeatable: Whether the server does the same thing once, however often the request comes.
        """
        return _value(self._send("POST", path, body=body, patience=None if is_repeatable else 0.0))

    def close(self) -> None:
        """Close all connections."""
        self._end()

    def __repr__(self) -> str:
        return f"<requests to {self.origin}>"

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        options: dict[str, Any] | None = None,
        accept: str = JSON,
        patience: float | None = None,
    ) -> bytes:
        """Send a request until there is a reply that a repeat would not change."""
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        wait = _FIRST_WAIT
        while True:
            error, after = self._try(method, path, body, options, accept)
            if isinstance(error, bytes):
                return error
            pause = wait if after is None else min(max(after, wait), 60.0)
            if time.monotonic() + pause > deadline or not _may_pass(error):
                raise error from None
            time.sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _try(
        self, method: str, path: str, body: Any, options: dict[str, Any] | None, accept: str
    ) -> tuple[bytes | LapwingError, float | None]:
        """Send a request once. Return the content, or the error and the seconds to wait that it tells."""
        given = {name: value for name, value in (options or {}).items() if value is not None}
        request = self._http.build_request(
            method,
            path,
            params=given or None,
            json=body,
            headers={"Accept": accept, "Authorization": self._token.header},
        )
        try:
            reply = self._http.send(request, stream=True)
            try:
                content = _limited(reply)
            finally:
                reply.close()
        except httpx.TransportError as error:
            return _lost(error, self.origin), None
        if reply.status_code < 300:
            return content, None
        if reply.status_code < 400:
            return (
                RequestRefused("the server sends to another address, which is not followed. Give its own "
                               "address", reply.status_code),
                None,
            )  # fmt: skip
        return _refusal(reply.status_code, content, self.origin), _seconds(reply.headers.get("Retry-After"))


def _trusted(ca: str | Path | None) -> ssl.SSLContext:
    if ca is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError):
        raise BadParameter("ca", f"{ca} cannot be read as certificates (PEM)") from None


def _limited(reply: httpx.Response) -> bytes:
    pieces, size = [], 0
    for piece in reply.iter_raw():
        size += len(piece)
        if size > MOST_BYTES:
            raise httpx.ReadError("too long")
        pieces.append(piece)
    return b"".join(pieces)


def _lost(error: httpx.TransportError, origin: str) -> LapwingError:
    """Return the error of a connection that broke. Its own text may have parts of the request."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return BadParameter(  # which a repeat does not change
                "ca",
                f"the certificate of {origin} is not trusted here ({cause.verify_message}). If the server "
                "has a CA of its own, give its certificate with ca=…",
            )
        cause = cause.__cause__ or cause.__context__
    slow = " in time" if isinstance(error, httpx.TimeoutException) else ""
    return Unavailable(f"{origin} cannot be reached, or did not reply{slow}")


def _refusal(status: int, content: bytes, origin: str) -> LapwingError:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    error = error_of(status, value)
    if status in _OF_A_PROXY and isinstance(error, RequestRefused) and error.code == RequestRefused.code:
        return Unavailable(f"{origin} cannot be reached through the proxy in front of it")
    return error


def _may_pass(error: LapwingError) -> bool:
    """Return whether a repeat of the request may end otherwise."""
    return isinstance(error, InProgress) or error.code in _AGAIN


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


def _value(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):
        raise Unavailable(
            "the server's reply is not JSON: the address may be that of something else"
        ) from None
