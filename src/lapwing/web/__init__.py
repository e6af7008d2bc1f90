"""HTTP: the page of a survey and the two requests that respondents make."""

from __future__ import annotations

from lapwing.errors import MissingExtra

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtra("server", "Serving a survey") from None
