"""The log of requests: JSON lines with time, person, method, route, status and receipt, and nothing else.

Claim    no line has SQL, a value, a token, an address of a client, or a moment finer than the slot.
Because  a line is made of these six things alone: the route is the pattern of the address, not the address,
         a method that is not known is "OTHER", and the time is that of the slot's beginning.
Test     tests/server/test_logs.py
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lapwing.errors import Unavailable
from lapwing.server.api.route import RECEIPT, ROUTE
from lapwing.server.guards import PERSON
from lapwing.server.metrics import Counts, known_method
from lapwing.server.people.person import Requester

UNKNOWN = "(unknown)"  # the route of an address that there is not
_NEW = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
WriteLine = Callable[[dict[str, Any]], None]


class LineLog:
    """Writes lines to a file that only its owner reads, or to standard error. Processes may share the file.

    Args:
        path: The file; None for standard error.

    Raises:
        Unavailable: If the file cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        try:
            self._handle = sys.stderr.fileno() if path is None else os.open(path, _NEW, 0o600)
        except (OSError, ValueError) as error:
            raise Unavailable(f"the log cannot be written ({error})") from None

    def write(self, line: dict[str, Any]) -> None:
        """Write one line, at once. A full disk stops no request."""
        content = json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n"
        try:
            os.write(self._handle, content.encode())
        except OSError:
            return


def slot_text(slot: float, now: float) -> str:
    """Return the beginning of the slot of a moment, as text."""
    return datetime.fromtimestamp(now - now % slot, UTC).isoformat(timespec="milliseconds")


class RequestLog:
    """Middleware that writes a line for each request, and counts it."""

    def __init__(self, app: ASGIApp, *, write: WriteLine, counts: Counts, slot: float) -> None:
        self._app, self._write, self._counts, self._slot = app, write, counts, slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            self._note(scope, status)

    def _note(self, scope: Scope, status: int) -> None:
        person, route = scope.get(PERSON), route_of(scope)
        method, receipt = known_method(scope["method"]), scope.get(RECEIPT)
        self._counts.add(method, route, status, has_receipt=receipt is not None)
        self._write(
            {
                "time": slot_text(self._slot, time.time()),
                "person": person.name if isinstance(person, Requester) else None,
                "method": method,
                "route": route,
                "status": status,
                "receipt": receipt,
            }
        )


def route_of(scope: Scope) -> str:
    """Return the pattern of the address that was asked, never the address."""
    own = scope.get(ROUTE)
    if own is None:
        own = getattr(scope.get("route"), "path", None)
    return own if isinstance(own, str) else UNKNOWN
