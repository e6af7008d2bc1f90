"""An anchor on a web server: GET gives the newest head and the marks after it, PUT replaces them.

Several writers need a server that gives strong ETags and heeds If-Match (most object stores and WebDAV
servers do). Without them the last writer wins, and marks of the others can go.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.anchors.lines import Anchor, Head, Mark, newest, parse_lines, text_of

TIMEOUT = 10.0
TRIES = 10

_LARGEST_ANSWER = 1 << 26
_KEPT = (200, 201, 204)  # 202 would be a promise only
_SOMEBODY_ELSE_WROTE = (409, 412)
_NOT_THERE = (404, 410)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the server had."""

    lines: tuple[Mark | Head, ...]
    condition: dict[str, str]  # the header under which it may be replaced


class UrlAnchor(Anchor):
    """Text under a http or https address. Each write is a round trip or two, and keeps no connection."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number, or a bracket is open
            reachable = False
        if not reachable or not url.isascii() or not url.isprintable() or " " in url:
            raise BadParameter("url", "must be a http or https address")
        host = parts.netloc.rpartition("@")[2]
        # Names, passwords and access tokens are for the server only.
        super().__init__(f"{parts.scheme}://{host}{parts.path}")
        self._url = parts._replace(netloc=host, fragment="").geturl()
        self._headers = _authorization(parts)
        self._seen = self._proven = False
        self._opener = OpenerDirector()
        # Not the usual ones: those would also open files, and follow redirects to wherever. The answer must
        # come from where the curator said.
        speaking = (ProxyHandler(), HTTPHandler(), HTTPSHandler())
        for handler in (*speaking, HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
            self._opener.add_handler(handler)

    def exists(self) -> bool:
        """Whether the server has something there."""
        return self._get() is not None

    def read(self) -> tuple[Mark | Head, ...]:
        """What the server has."""
        found = self._get()
        return found.lines if found else ()

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Read, add, and replace if nobody else wrote meanwhile; otherwise begin again."""
        fresh: list[Mark | Head] = [*marks, *([head] if head else [])]
        if not fresh:
            return
        for attempt in range(TRIES):
            found = self._get() or _Found((), {"If-None-Match": "*"})
            if self._put(text_of(newest((*found.lines, *fresh))), found.condition):
                self._seen = True
                self._prove(fresh)
                return
            time.sleep(0.01 * attempt)
        raise Unavailable(
            f"the anchor {self.where} was always changed by others before it could be written"
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _prove(self, fresh: Sequence[Mark | Head]) -> None:
        """Once, see that what was taken is there: some servers say yes to everything and keep nothing."""
        if not self._proven:
            kept = newest(self.read())
            if newest((*kept, *fresh)) != kept:
                raise Unavailable(f"the anchor {self.where} was written, but does not give it back")
            self._proven = True

    def _get(self) -> _Found | None:
        status, headers, content = self._ask("GET")
        if status in _NOT_THERE and not self._seen:
            return None
        if status != 200:
            raise Unavailable(f"the anchor {self.where} could not be read: HTTP status {status}")
        lines = parse_lines(content, self.where)
        self._seen = True
        etag = headers.get("ETag", "")
        return _Found(lines, {"If-Match": etag} if etag.startswith('"') else {})

    def _put(self, content: bytes, condition: dict[str, str]) -> bool:
        """Whether it was taken; not if somebody else was faster."""
        status, _, _ = self._ask(
            "PUT", content, {"Content-Type": "text/plain; charset=us-ascii", **condition}
        )
        if status in _KEPT:
            return True
        if status in _SOMEBODY_ELSE_WROTE:
            return False
        raise Unavailable(f"the anchor {self.where} could not be written: HTTP status {status}")

    def _ask(
        self, method: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Message, bytes]:
        # No answer out of a cache: it could be older than what was written.
        sent = {"Cache-Control": "no-cache", **self._headers, **(headers or {})}
        request = Request(self._url, content, sent, method=method)  # noqa: S310 (http and https only, see above)
        try:
            try:
                response = self._opener.open(request, timeout=TIMEOUT)
            except HTTPError as error:
                with error:
                    return error.code, error.headers, b""
            with response:
                body = self._whole(response) if method == "GET" else b""
                return response.status, response.headers, body
        except (
            OSError,
            HTTPException,
            ValueError,
        ) as error:  # ValueError: it was led to a malformed address
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise Unavailable(f"the anchor {self.where} could not be reached: {reason}") from error

    def _whole(self, response: Any) -> bytes:
        """The body. One that was cut off on the way would make us overwrite the rest of it."""
        if response.length is None and not response.chunked:
            raise Unavailable(f"the anchor {self.where} does not say how long its answer is")
        content: bytes = response.read(_LARGEST_ANSWER)
        if response.length or (response.chunked and response.read(1)):
            raise Unavailable(f"the anchor {self.where} gave an answer that is cut off or too long")
        return content


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
