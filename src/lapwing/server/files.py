"""The files of the page: read once, served from memory, each with a fixed content type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
