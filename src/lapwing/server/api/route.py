"""Routes of the API as data: address, roles, form of the request, and the function that replies.

Claim    a request reaches a data set only with one of the roles that its route names, and no route replies
         to strangers unless it says so.
Because  all routes of the API go through `Endpoint`, which asks for the person and, where the address names
         a data set, for the role, before it calls the function of the route.
Test     tests/server/api/test_route_roles.py

Claim    the moment at which a reply of a release leaves, good or bad, says no more than the slot.
Because  such a reply waits for the next whole multiple of the slot, on a clock that does not depend on the
         request.
Test     tests/server/api/test_route_slots.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lapwing.errors import BadParameter
from lapwing.server.api.errors import error_reply
from lapwing.server.api.replies import JSON, json_bytes
from lapwing.server.data.question_form import CheckedForm
from lapwing.server.data.records import receipt_number
from lapwing.server.data.served_data import ServedData
from lapwing.server.people.person import Requester, Role
from lapwing.server.services import Services
from lapwing.server.web import person_of

ROUTE, RECEIPT = "lapwing.route", "lapwing.receipt"  # in the scope, for the log
AT_ONCE = 32  # releases of one process; others wait, and do not keep plans and reads waiting
ANALYST = frozenset({Role.ANALYST})
STEWARD = frozenset({Role.STEWARD})
SEES_ALL = frozenset({Role.STEWARD, Role.OFFICER})
READERS = ANALYST | SEES_ALL
EVERY_ROLE = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as the function of a route gets it."""

    services: Services
    person: Requester
    request: Request
    body: bytes

    def part(self, name: str) -> str:
        """Return a part of the address."""
        return str(self.request.path_params[name])

    @property
    def data(self) -> ServedData:
        """The data set that the address names. The route has asked for the role."""
        return self.services.sets.require(self.person, self.part("name"))

    def receipt_number(self) -> int:
        """Return the number of a receipt that is a part of the address. Raises NotFound if it is none."""
        return receipt_number(self.part("receipt"))

    def option(self, name: str, default: str) -> str:
        """Return an option of the address."""
        return self.request.query_params.get(name, default)

    def count(self, name: str, default: int, most: int) -> int:
        """Return an option of the address that is a whole number from 1."""
        text = self.option(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise BadParameter(name, f"must be a whole number from 1 to {most:,}")
        return int(text)


Respond = Callable[[Call], Response]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route: method, address, who may ask, and what it replies.

    Args:
        method: GET or POST.
        path: The address, with parts in braces. `{name}` is a data set, and `:int` marks a number.
        roles: Who may ask: people with one of these roles for the data set.
        respond: Returns the reply.
        summary: What it does, in a sentence.
        form: The form of the body, if it has one.
        example: The value of a reply, for the published description.
        options: The options of the address, with a sentence for each.
        on_grid: Whether replies leave on the public grid of time.
        status: The status of a good reply.
        kind: The type of a good reply.
    """

    method: str
    path: str
    roles: frozenset[Role]
    respond: Respond
    summary: str
    form: type[CheckedForm] | None = None
    example: Any = None
    options: Mapping[str, str] = field(default_factory=dict)
    on_grid: bool = False
    status: int = 200
    kind: str = JSON

    @property
    def route(self) -> Route:
        """The route of the web application. Numbers are read where they are used."""
        return Route(self.path.replace(":int", ""), Endpoint(self), methods=[self.method])


class Endpoint:
    """Calls the function of a route, in a thread, and sends its reply or its error."""

    def __init__(self, route: ApiRoute) -> None:
        self.route = route
        self._names_data = "{name}" in route.path
        self._limit: CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope[ROUTE] = self.route.path
        request = Request(scope, receive)
        services: Services = request.app.state.services
        try:
            person = person_of(request)
            body = b"" if self.route.method == "GET" else await request.body()
            call = Call(services, person, request, body)
            reply = await to_thread.run_sync(partial(self._reply, call), limiter=self._limiter)
        except Exception as error:
            reply = error_reply(error)
            if reply.status_code == 500:  # a mistake of ours: the middleware tells its kind
                await self._wait(services)
                raise
        await self._wait(services)
        await reply(scope, receive, send)

    def _reply(self, call: Call) -> Response:
        if self._names_data:
            call.services.sets.require(call.person, call.part("name"), *self.route.roles)
        return self.route.respond(call)

    @property
    def _limiter(self) -> CapacityLimiter | None:
        """The limit of releases at once; None for the usual limit of threads."""
        if self.route.on_grid and self._limit is None:
            self._limit = CapacityLimiter(AT_ONCE)
        return self._limit

    async def _wait(self, services: Services) -> None:
        if self.route.on_grid:
            await asyncio.sleep(until_next(float(services.slot), time.time()))


def until_next(slot: float, now: float) -> float:
    """Return the seconds until the next whole multiple of a slot. It is never 0."""
    return slot - now % slot


def json_reply(value: Any, *, status: int = 200) -> Response:
    """Return a reply with a value as JSON."""
    return Response(json_bytes(value), status, media_type=JSON)


def of_form(kind: type[Any], call: Call) -> Any:
    """Return the body of a request as a form."""
    return kind.read(call.body)
