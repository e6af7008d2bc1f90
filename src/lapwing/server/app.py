"""The web application of a server: its API, its pages and its people, behind the guards.

Claim    every request passes the guards, every reply has the security headers, all errors have one form.
Because  the guards and the headers are middleware of the whole application, and the errors of all routes
         have one handler.
Test     tests/server/test_app.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lapwing.errors import LapwingError, MissingExtra

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError:
    raise MissingExtra("server", "Serving data") from None
from lapwing.server import web
from lapwing.server.api import (
    batch_routes,
    data_routes,
    job_routes,
    plan_routes,
    survey_routes,
    work_routes,
)
from lapwing.server.api.errors import error_reply
from lapwing.server.api.open_api import description
from lapwing.server.api.route import ApiRoute
from lapwing.server.console.console import add_console, page_for
from lapwing.server.console.desk import GUIDE_COOKIE
from lapwing.server.data.question_form import bad_field
from lapwing.server.guards import Guards
from lapwing.server.logs import RequestLog, WriteLine
from lapwing.server.metrics import Counts, Readiness, healthz, metrics, readyz
from lapwing.server.people.person import NotAllowed, NotFound, NotSignedIn
from lapwing.server.services import Services
from lapwing.web.replies import SecureReplies, cookie_name, json_route

ROUTES: tuple[ApiRoute, ...] = (
    *data_routes.ROUTES,
    *plan_routes.ROUTES,
    *batch_routes.ROUTES,
    *job_routes.ROUTES,
    *survey_routes.ROUTES,
    *work_routes.ROUTES,
)
DESCRIPTION = "/v1/openapi.json"
OPEN_ROUTES = (
    DESCRIPTION,
    "/healthz",
    "/readyz",
)  # which anybody may ask: they say nothing about people or data
# Telemetry would tell others the time, the address and the failures of every request. No environment
# variable may turn it on.
_NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
_HANDLED = (HTTPException, RequestValidationError, NotSignedIn, NotAllowed, NotFound, LapwingError)


def create_app(services: Services, *, write: WriteLine | None = None) -> FastAPI:
    """Return the web application of open services, which it closes at its end.

    Args:
        services: The services.
        write: Writes a line of the log. None: nothing is logged.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        services.jobs.work()  # goes on with what a restart interrupted
        yield
        await run_in_threadpool(services.close)  # answers that are paid for are stored

    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.state.services = services
    app.state.readiness, app.state.counts = Readiness(services.sets), Counts()
    app.router.routes.extend(route.route for route in ROUTES)
    app.include_router(web.router)
    add_console(app)
    app.router.routes.append(json_route(DESCRIPTION, description(app, ROUTES)))
    app.router.routes.append(Route("/healthz", healthz, methods=["GET"]))
    app.router.routes.append(Route("/readyz", readyz, methods=["GET"]))
    app.router.routes.append(Route("/metrics", metrics, methods=["GET"]))
    for kind in _HANDLED:
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(Guards, settings=services.settings, people=services.people)
    slot = float(services.slot)
    app.add_middleware(RequestLog, write=write or (lambda _: None), counts=app.state.counts, slot=slot)
    has_tls = services.settings.is_encrypted
    cookies = [GUIDE_COOKIE, *(cookie_name(name, has_tls=has_tls) for name in web.COOKIES)]
    app.add_middleware(SecureReplies, has_tls=has_tls, cookies=cookies)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """Return the reply to a request that failed."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = tuple(part for part in first["loc"] if part not in ("body", "query", "path"))
        error = bad_field(place, first["type"], first["msg"], {})
    page = page_for(request, error)
    return page if page is not None else error_reply(error)
