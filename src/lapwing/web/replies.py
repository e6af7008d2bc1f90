"""What every reply carries, and what is left of an error that nobody foresaw.

The page may load and talk to nothing but the server that it came from; nothing may frame it; nothing of it
is sent on to others. No reply sets a cookie, names the software or tells the time.

The files of the page: read once, served from memory, each with a fixed content type.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(
        f"{feature}=()"
        for feature in (
            "accelerometer", "autoplay", "camera", "display-capture", "geolocation", "gyroscope",
            "idle-detection", "magnetometer", "microphone", "midi", "payment", "serial", "usb",
            "browsing-topics",
        )
    ),
}  # fmt: skip
NO_STORE = (b"cache-control", b"no-store")
ONLY_TLS = "max-age=31536000"
CLOSE = (b"connection", b"close")
# After these, something may follow that nobody wants to read.
CLOSING_STATUSES = frozenset({400, 404, 405, 408, 413, 415})
# A report must not come over the connection by which somebody with an invitation came.
CLOSING_PATHS = frozenset({"/survey.json", "/sign"})


def uncached_headers(*, has_tls: bool) -> list[tuple[bytes, bytes]]:
    """As they go over the wire, on replies that must not be kept."""
    return [*_wire(has_tls=has_tls), NO_STORE]


def _wire(*, has_tls: bool) -> list[tuple[bytes, bytes]]:
    wanted = {**HEADERS, **({"Strict-Transport-Security": ONLY_TLS} if has_tls else {})}
    return [(name.lower().encode(), value.encode()) for name, value in wanted.items()]


class SecureReplies:
    """Adds the headers to every reply, and answers for whatever went wrong without saying what."""

    def __init__(self, app: ASGIApp, *, has_tls: bool) -> None:
        self._app = app
        self._headers = _wire(has_tls=has_tls)  # made once: every reply has them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                own = message["headers"]
                is_cached = any(name == b"cache-control" for name, _ in own)
                message["headers"] = [*own, *self._headers, *([] if is_cached else [NO_STORE])]
                if message["status"] in CLOSING_STATUSES or scope["path"] in CLOSING_PATHS:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            # Its text might quote a request. Whoever runs the server sees that there was one, and its kind.
            print(f"lapwing: a request failed ({type(error).__name__})", file=sys.stderr, flush=True)
            if not has_begun:
                await JSONResponse({"error": "the server failed"}, 500)(scope, receive, sending)


PAGES = Path(__file__).parent / "pages"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A new version of the page must reach whoever has an old one; nothing personal is in it.
_CACHED = {"Cache-Control": "no-cache"}


def page_routes(folder: Path = PAGES) -> list[Route]:
    """`/` is index.html, `/by-hand` is by_hand.html, and everything else has its own name."""
    return [
        Route(_address(path), partial(_file, path.read_bytes(), TYPES[path.suffix]), methods=["GET"])
        for path in sorted(folder.iterdir())
        if path.suffix in TYPES
    ]


def _address(path: Path) -> str:
    if path.suffix != ".html":
        return f"/{path.name}"
    return "/" if path.stem == "index" else f"/{path.stem.replace('_', '-')}"


async def _file(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=None, headers={**_CACHED, "Content-Type": kind})


def json_route(address: str, content: bytes, headers: Mapping[str, str] | None = None) -> Route:
    """A fixed JSON text."""

    async def reply(_: Request) -> Any:
        return Response(content, headers={"Content-Type": "application/json", **(headers or {})})

    return Route(address, reply, methods=["GET"])
