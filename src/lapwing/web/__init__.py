"""HTTP: running a server, TLS, headers, limits of connections."""

from __future__ import annotations

from lapwing.errors import MissingExtra

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtra("server", "Serving a survey") from None
