"""The console as a part of a server's application: all its routes, and pages for errors of addresses."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from lapwing.server.console import (
    ask_page,
    budget_page,
    dashboard_page,
    data_page,
    door_page,
    home_page,
    jobs_page,
    ledger_page,
    people_page,
    work_page,
)
from lapwing.server.console.desk import reply_to
from lapwing.server.console.rendering import Pages

ROUTERS = (
    door_page.router,
    home_page.router,
    jobs_page.router,
    ask_page.router,
    dashboard_page.router,
    budget_page.router,
    ledger_page.router,
    data_page.router,
    people_page.router,
    work_page.router,
)
_NO_PAGES = ("/v1/", "/session", "/oidc/", "/healthz", "/readyz", "/metrics")


def add_console(app: FastAPI) -> None:
    """Add the pages to an application that has its services at `app.state.services`."""
    app.state.console_pages = Pages()
    for router in ROUTERS:
        app.include_router(router)


def page_for(request: Request, error: Exception) -> Response | None:
    """Return the page of an error outside of the console's own routes; None for programs."""
    is_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(
        _NO_PAGES
    )
    return reply_to(request, error) if is_page and hasattr(request.app.state, "console_pages") else None
