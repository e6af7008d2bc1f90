"""The device's side of HTTP: fetch a survey, have a blinded token signed, send the report.

Requests have no cookies, no time and nothing about the device; for one survey all have one size. Each
request goes over a connection of its own: the report does not arrive on the connection of the credential.

The server is not trusted: it may send a byte a second, a reply without end, or a redirect. One deadline
bounds all waiting, from the connection on. A reply of more bytes than allowed is an error. No redirect is
followed, and nothing is decompressed.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from lapwing.errors import BadParameter, BadValue, MissingExtra, Unavailable
from lapwing.survey.credentials import Blinding, PublicKey, blind_token, prepare_token
from lapwing.survey.designing import LARGEST_SURVEY
from lapwing.survey.offered import has_exact_fields, parse_exact_json, read_offered

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
class SurveyAddress:
    """The address of a survey. Only https, except on the same machine."""

    scheme: str
    host: str
    port: int | None
    path: str  # ends with /

    @classmethod
    def of(cls, link: str) -> SurveyAddress:
        """Return the address in a link, before its #. Raise `BadParameter` if it is impossible."""
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
        """Return the address of a page of the survey."""
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=self.path + name)


def send_request(
    place: SurveyAddress, name: str, body: dict[str, str] | None, *, most: int, deadline: float
) -> tuple[int, bytes]:
    """Send a request. Return the status and the content of the reply, of at most `most` bytes.

    Raises `Unavailable` if it is not there by `deadline` (monotonic seconds), `BadValue` if it is too long.
    """
    secure = httpx.create_ssl_context(trust_env=False) if place.scheme == "https" else None
    content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
    host = f"[{place.host}]" if ":" in place.host else place.host
    headers = [
        ("Host", host if place.port is None else f"{host}:{place.port}"),
        ("User-Agent", "lapwing"),  # the same for all devices
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    if content is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
    method = "GET" if content is None else "POST"
    try:
        with (
            httpcore.ConnectionPool(ssl_context=secure, network_backend=_DeadlineBackend(deadline)) as pool,
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


class _DeadlineBackend(httpcore.NetworkBackend):
    """Connections on which every wait ends at the deadline, however slowly the bytes come."""

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
        return _DeadlineStream(made, self._left)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, real: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._real, self._left = real, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._real.read(max_bytes, self._left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._real.write(buffer, self._left())

    def close(self) -> None:
        self._real.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _DeadlineStream(self._real.start_tls(ssl_context, server_hostname, self._left()), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._real.get_extra_info(info)


DEFAULT_PATIENCE: Final = 60.0  # seconds, for all calls of a client together
_LARGEST_REPLY = 64 << 10


class SurveyClient:
    """A client of one survey's server. `patience` (seconds) bounds all its calls together."""

    def __init__(self, url: str, *, patience: float = DEFAULT_PATIENCE) -> None:
        self._place = SurveyAddress.of(url)
        self._deadline = time.monotonic() + patience

    def survey(self) -> tuple[dict[str, Any], PublicKey]:
        """Fetch the survey's public part, checked against its digest, and the key."""
        reply = self._call("survey.json", most=LARGEST_SURVEY)
        if not has_exact_fields(reply, ("survey", "digest", "key", "version")) or reply["version"] != 1:
            raise BadValue("the server's survey is not in order: it is not of a known kind")
        public = reply["survey"]
        if read_offered(public).digest != reply["digest"]:
            raise BadValue("the server's survey is not in order: it is not what its digest says")
        return public, PublicKey.from_json(reply["key"])

    def new_token(self, key: PublicKey) -> dict[str, str]:
        """Return a fresh token and its blinding, for the device's own storage."""
        return blind_token(key, prepare_token()).to_json()

    def sign(self, key: PublicKey, token: dict[str, str], invitation: str) -> str:
        """Fetch the signature of the token for this invitation. Return it, checked, in hexadecimal."""
        reply = self._call("sign", {"invitation": invitation, "blinded": token["blinded"]})
        try:
            signature = bytes.fromhex(reply["signature"])
        except (KeyError, TypeError, ValueError):
            raise BadValue("the server's signature is not in order") from None
        return Blinding.from_json(key, token).finish(signature).hex()

    def report(self, survey: str, memo: Mapping[str, Any]) -> None:
        """Send the report of a memo under its credential."""
        body = {
            "digest": survey, "token": memo["token"]["prepared"], "signature": memo["signature"],
            "report": memo["report"],
        }  # fmt: skip
        if self._call("report", body).get("accepted") is not True:
            raise Unavailable("the server did not say that it has the report: send it again")

    def _call(
        self, path: str, body: dict[str, str] | None = None, most: int = _LARGEST_REPLY
    ) -> dict[str, Any]:
        status, content = send_request(self._place, path, body, most=most, deadline=self._deadline)
        if status == HTTPStatus.OK:
            reply = parse_exact_json(content)
            if isinstance(reply, dict):
                return reply
            raise BadValue("the server's answer is not in order")
        malformed = path == "sign" and status == HTTPStatus.UNPROCESSABLE_ENTITY
        raise _refused(403 if malformed else status)


def _refused(status: int) -> Exception:
    match status:
        case 403 | 404:
            return BadParameter("invitation", "is not known to this survey")
        case 409:
            return BadParameter(
                "invitation", "was used on another device, or before this one lost its memory"
            )
        case 410:
            return Unavailable("the survey is closed: it takes no more reports")
        case 422:
            return BadValue("the server did not accept the request: it is not of the form that it takes")
    return Unavailable(f"the survey's server answered with the code {status}: try again later")
