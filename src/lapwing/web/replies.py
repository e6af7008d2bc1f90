"""Replies: security headers, fixed files, and a plain reply for unexpected errors.

A page may load from and talk to its own server only. Nothing may frame it, and nothing of it is sent to
others. No reply names the software or tells the time, or sets a cookie that its server did not declare: a
survey declares none. Files are read once and served from memory.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

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
# After these replies, unread content of the request may follow, so the connection ends.
CLOSING_STATUSES = frozenset({400, 404, 405, 408, 413, 415})


def uncached_headers(*, has_tls: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers, as they are sent, of replies that must not be stored."""
    return [*_wire(has_tls=has_tls), NO_STORE]


def _wire(*, has_tls: bool) -> list[tuple[bytes, bytes]]:
    wanted = {**HEADERS, **({"Strict-Transport-Security": ONLY_TLS} if has_tls else {})}
    return [(name.lower().encode(), value.encode()) for name, value in wanted.items()]


class SecureReplies:
    """Middleware that adds the headers to every reply, and replies to unexpected errors without detail.

    Replies to `closing_paths` end their connection. Cookies that are not in `cookies` are taken out.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        has_tls: bool,
        closing_paths: Collection[str] = (),
        cookies: Collection[str] = (),
    ) -> None:
        self._app = app
        self._closing_paths = closing_paths
        self._cookies = tuple(f"{name}=".encode() for name in cookies)
        self._headers = _wire(has_tls=has_tls)  # made once: every reply has them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                own = [
                    (name, value)
                    for name, value in message["headers"]
                    if name.lower() != b"set-cookie" or value.startswith(self._cookies)
                ]
                is_cached = any(name == b"cache-control" for name, _ in own)
                message["headers"] = [*own, *self._headers, *([] if is_cached else [NO_STORE])]
                if message["status"] in CLOSING_STATUSES or scope["path"] in self._closing_paths:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            # The error's text might quote a request, so only its kind is printed.
            print(f"lapwing: a request failed ({type(error).__name__})", file=sys.stderr, flush=True)
            if not has_begun:
                await JSONResponse({"error": "the server failed"}, 500)(scope, receive, send_with_headers)


def cookie_name(name: str, *, has_tls: bool) -> str:
    """Return a cookie's name. With TLS, its prefix makes browsers keep it to this host and to TLS."""
    return f"__Host-{name}" if has_tls else name


def cookie_header(
    name: str, value: str, *, has_tls: bool, seconds: int | None = None, same_site: str = "Strict"
) -> str:
    """Return the header that sets a cookie which no script can read.

    Args:
        name: The name, without prefix.
        value: The value, of letters that a cookie may have.
        has_tls: Whether browsers reach the server by https.
        seconds: How long the browser keeps it, 0 to remove it; None until the browser ends.
        same_site: "Strict", or "Lax" if it must come with a link from elsewhere.
    """
    parts = [f"{cookie_name(name, has_tls=has_tls)}={value}", "Path=/", "HttpOnly", f"SameSite={same_site}"]
    parts += ["Secure"] if has_tls else []
    parts += [] if seconds is None else [f"Max-Age={seconds}"]
    return "; ".join(parts)


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Browsers must ask for a new version of a page. Nothing personal is in it.
_CACHED = {"Cache-Control": "no-cache"}


def page_routes(folder: Path) -> list[Route]:
    """Return a route for each file: `/` is index.html, `/by-hand` is by_hand.html, others as named."""
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


def json_route(address: str, content: bytes) -> Route:
    """Return a route that replies with a fixed JSON text."""

    async def reply(_: Request) -> Response:
        return Response(content, headers={"Content-Type": "application/json"})

    return Route(address, reply, methods=["GET"])
