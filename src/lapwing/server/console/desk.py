"""What each page needs: the services, the person, the frame, and replies to what can go wrong.

Claim    a page that cannot be shown says the same for a thing that is not there and one of another person.
Because  every error becomes a page in one place, from its kind and code alone; texts of errors name public
         parameters only.
Test     tests/server/console/test_pages.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lapwing.errors import BadParameter, LapwingError
from lapwing.ledger.accounts import Unit
from lapwing.server.api.errors import status_of
from lapwing.server.api.route import ROUTE, until_next
from lapwing.server.console.frame import (
    DataAtHand,
    DataLink,
    Frame,
    Guide,
    GuideStep,
    MenuItem,
    menu,
    role_words,
)
from lapwing.server.console.parts import Gauge
from lapwing.server.console.rendering import Pages
from lapwing.server.people.person import NotAllowed, NotFound, NotSignedIn, Requester, Role
from lapwing.server.web import person_of
from lapwing.sql import policy_ledger
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.web.replies import cookie_header

GUIDE_COOKIE = "lapwing-guide"
GUIDE_STEPS = (
    ("Look at the tables", "made from the policy", "t"),
    ("Price a question", "free", "p"),
    ("Release it", "it says its price", "r"),
    ("Verify its receipt", "free", "v"),
)
FORM_TYPE = "application/x-www-form-urlencoded"
MOST_FIELDS = 60


@dataclass
class Desk:
    """The request of a person who is signed in."""

    request: Request
    services: Any
    pages: Pages
    person: Requester

    def roles(self, data: str) -> frozenset[Role]:
        """Return the person's roles for a data set."""
        return self.person.roles_for(data)

    def visible(self) -> list[Any]:
        """Return the data sets for which the person has a role."""
        return list(self.services.sets.visible_to(self.person))

    def left(self, served: Any) -> BudgetLeft:
        """Return what is left for the person: of the data, and of the own quota where there is one."""
        if Role.ANALYST in self.roles(served.name):
            with suppress(BadParameter):  # analysts have quotas, and this is none of them
                left: BudgetLeft = served.left(self.person)
                return left
        return data_left(served)

    def at_hand(self, served: Any) -> DataAtHand:
        """Return a data set for the frame of a page."""
        left = self.left(served)
        if left.quota is None:
            return DataAtHand(served.name, Gauge.show(left.epsilon, left.of))
        return DataAtHand(
            served.name, Gauge.show(min(left.quota.epsilon, left.epsilon), left.quota.of), " for you"
        )

    def frame(self, title: str, served: Any = None, *, current: str = "", notice: str = "") -> Frame:
        """Return the frame of a page. Without a data set, the links are about the first one."""
        seen = self.visible()
        here = served or next(iter(seen), None)
        data = here.name if here is not None else ""
        roles = self.roles(data) if data else frozenset[Role]().union(*self.person.roles.values())
        return Frame(
            title=title,
            person=self.person.shown_name or self.person.name,
            roles=role_words(roles),
            items=menu(self.person, data, current or title, self._counts(data))
            if data
            else (MenuItem("Home", "/", title == "Home"),),
            data=self.at_hand(here) if here is not None else None,
            others=tuple(DataLink(one.name, f"/d/{one.name}") for one in seen),
            notice=notice,
            guide=self._guide(data),
        )

    def _counts(self, data: str) -> dict[str, int]:
        """Return how many entries are new to an officer who has noted a signature."""
        if Role.OFFICER not in self.roles(data):
            return {}
        mark = self.services.signatures.find(self.person, data)
        return {"Ledger": mark.new} if mark.time is not None else {}

    def _guide(self, data: str) -> Guide | None:
        done = self.request.cookies.get(GUIDE_COOKIE)
        if done is None or Role.ANALYST not in self.roles(data):
            return None
        places = {"t": f"/d/{data}", "p": f"/d/{data}/ask", "r": f"/d/{data}/ask", "v": f"/d/{data}/ledger"}
        steps, following = [], None
        for title, words, letter in GUIDE_STEPS:
            state = "done" if letter in done else "next" if following else "now"
            if state == "now":
                following = MenuItem(title, places[letter])
            steps.append(GuideStep(title, words, state))
        return Guide(tuple(steps), following)

    def page(
        self,
        template: str,
        title: str,
        served: Any = None,
        *,
        status: int = 200,
        current: str = "",
        notice: str = "",
        guide: str = "",
        **values: Any,
    ) -> Response:
        """Return a page. `guide` is the letter of the step of the first run that it does."""
        done = self.request.cookies.get(GUIDE_COOKIE)
        is_step = bool(done is not None and guide and guide not in done)
        if is_step:
            self.request.cookies[GUIDE_COOKIE] = f"{done}{guide}"
        frame = self.frame(title, served, current=current, notice=notice)
        reply = self.pages.reply(template, status, frame=frame, **values)
        if is_step:
            set_guide(reply, self.request.cookies[GUIDE_COOKIE])
        return reply

    def at_step(self, reply: Response, letter: str) -> Response:
        """Note a step of the first run on a reply that is no page."""
        done = self.request.cookies.get(GUIDE_COOKIE)
        if done is not None and letter not in done:
            set_guide(reply, f"{done}{letter}")
        return reply


def set_guide(reply: Response, done: str) -> None:
    """Remember the steps of the first run that are done. It is no secret, and ends with the browser."""
    reply.headers.append("set-cookie", cookie_header(GUIDE_COOKIE, done[:8], has_tls=False))


def end_guide(reply: Response) -> None:
    """Forget the first run."""
    reply.headers.append("set-cookie", cookie_header(GUIDE_COOKIE, "", has_tls=False, seconds=0))


def data_left(served: Any) -> BudgetLeft:
    """Return what is left of a data set's budget, where it is least."""
    policy, curator = served.curator.policy, served.curator
    if not curator.has_ledger:
        return BudgetLeft(policy.epsilon, policy.epsilon, Fraction(0))
    return replace(policy_ledger.budget_left(curator.ledger, policy, served.name), quota=None)


def unit_words(unit: Unit) -> str:
    """Return what a policy protects, with its article."""
    return "a row" if unit.value == "row" else "a person"


def pages_of(request: Request) -> Pages:
    """Return the templates, which the application holds."""
    found: Pages = request.app.state.console_pages
    return found


def desk_of(request: Request) -> Desk:
    """Return the desk of a signed-in person. Raises NotSignedIn for others."""
    return Desk(request, request.app.state.services, pages_of(request), person_of(request))


async def many_posted_of(request: Request) -> list[tuple[str, str]]:
    """Return all fields of a form, in their order. The guards have limited its length and type."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        return []
    try:
        text = (await request.body()).decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:  # no ASCII, no UTF-8 inside, or too many fields
        raise BadParameter("form", "is not one that these pages send") from None


async def posted_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. The last field of a name counts."""
    return dict(await many_posted_of(request))


AtDesk = Annotated[Desk, Depends(desk_of)]
Posted = Annotated[dict[str, str], Depends(posted_of)]
PostedMany = Annotated[list[tuple[str, str]], Depends(many_posted_of)]


def see_other(address: str) -> RedirectResponse:
    """Return the reply after a change: the browser gets another page, which can be reloaded for nothing."""
    return RedirectResponse(address, 303)


# Errors


@dataclass(frozen=True, slots=True)
class ErrorView:
    """A page about an error, in plain words."""

    title: str
    words: str
    more: str = ""
    href: str = "/"
    link: str = "To the first page"
    code: str = ""


ERROR_VIEWS = {
    400: ErrorView(
        "This cannot be read", "The request is not of a form that is understood here. Nothing was charged."
    ),
    401: ErrorView(
        "Sign in first",
        "You are not signed in, or your session has ended. Nothing was charged.",
        href="/sign-in",
        link="Sign in",
    ),
    403: ErrorView(
        "Not with your role",
        "You see this data set, but your role does not allow this page. A steward can change roles.",
    ),
    404: ErrorView(
        "There is nothing here",
        "No page has this address, or it is not yours to see. Both look the same on purpose.",
    ),
    405: ErrorView(
        "Not like this", "This address does not take this kind of request. Nothing was charged."
    ),
    413: ErrorView("Too long", "What was sent is longer than this server takes. Nothing was charged."),
    429: ErrorView(
        "A little too fast",
        "This server takes only so many requests in a minute. Wait a moment, then go back and try again. "
        "Nothing was charged.",
    ),
    500: ErrorView(
        "The server failed",
        "This is a mistake of ours. If you released something, look at the history before you ask again: "
        "what was charged stays, and its answer is there or held.",
    ),
    503: ErrorView(
        "Not now", "Something that is needed cannot be reached or written now. Try again in a moment."
    ),
}


SIGN_IN_PLACES = ("/start", "/password")  # they sign in by a link, which is good once
LINK_ENDED = replace(
    ERROR_VIEWS[401],
    title="This link does not sign in",
    words="A link that signs in, or sets a password, works once and for a limited time. Sign in with your "
    "password, or ask a steward for a new link.",
)


def error_page(request: Request, status: int, *, more: str = "", code: str = "") -> Response:
    """Return the page of an error status."""
    view = ERROR_VIEWS.get(status, ERROR_VIEWS[500])
    if status == 401 and request.url.path.startswith(SIGN_IN_PLACES):
        view = LINK_ENDED
    return pages_of(request).reply("error.html", status, view=view, more=more, code=code)


def reply_to(request: Request, error: Exception) -> Response:
    """Return the page for an error of a page. Whoever is not signed in is asked to, and comes back."""
    status = status_of(error)
    if (
        isinstance(error, NotSignedIn)
        and request.method == "GET"
        and not request.url.path.startswith(SIGN_IN_PLACES)
        and "text/html" in request.headers.get("accept", "")
    ):
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return see_other("/sign-in" if wanted == "/" else f"/sign-in?next={quote(wanted, safe='/')}")
    code = getattr(error, "code", "")
    if isinstance(error, LapwingError) and status in (409, 422):
        return pages_of(request).reply(
            "error.html",
            status,
            view=ErrorView(_TITLES.get(code, "This did not work"), str(error)),
            more="",
            code=code,
        )
    reply = error_page(request, status, code=code if isinstance(code, str) else "")
    wait = getattr(error, "retry_after", 5 if status == 503 else None)
    if wait is not None and status in (429, 503):
        reply.headers["Retry-After"] = str(wait)
    return reply


_TITLES = {
    "held": "This question is held",
    "all-held": "Your questions are held",
    "in-progress": "The same question is being answered",
    "bad-parameter": "Not like this. Nothing was charged.",
    "over-budget": "Over budget. Nothing was charged.",
}


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with all errors that people can meet made into pages."""
        handle = super().get_route_handler()
        spends = self.path.endswith("/release")

        async def shown(request: Request) -> Response:
            request.scope[ROUTE] = self.path
            try:
                return await handle(request)
            except (NotSignedIn, NotFound, NotAllowed, LapwingError, HTTPException) as error:
                return reply_to(request, error)
            finally:
                if spends:  # answers and errors leave on the public grid of time
                    await asyncio.sleep(until_next(float(request.app.state.services.slot), time.time()))

        return shown
