"""People and tokens: who may do what with which data, and the tokens of programs.

Claim    a page gives no more power over people than the API.
Because  it asks the same functions for leave, and does the same through the same services.
Test     tests/server/console/test_people_page.py
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lapwing.core.exact import exact
from lapwing.errors import BadParameter, LapwingError
from lapwing.server.console.desk import AtDesk, Desk, PageRoute, PostedMany, see_other
from lapwing.server.console.frame import ROLE_WORDS, role_words
from lapwing.server.console.parts import Gauge
from lapwing.server.console.words import day_text, price_text
from lapwing.server.people import managing
from lapwing.server.people.person import EVERYWHERE, NotAllowed, NotFound, Role

router = APIRouter(route_class=PageRoute, include_in_schema=False)
DAYS = 90


@dataclass(frozen=True, slots=True)
class RoleBox:
    """A role that can be given."""

    value: str
    words: str
    is_given: bool


@dataclass(frozen=True, slots=True)
class PersonLine:
    """A person in the list."""

    name: str
    shown_name: str
    signs_in: str
    roles: tuple[tuple[str, str], ...]
    quota: Gauge | None
    is_disabled: bool
    is_managed: bool
    href: str


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A token in the list."""

    id: str
    label: str
    who: str
    data: str
    gauge: Gauge | None
    words: str
    ends: str
    is_over: bool


def signs_in_words(account: Any) -> str:
    """Return how an account signs in."""
    if account.is_disabled:
        return "ended"
    ways = ["single sign-on"] if account.identities else []
    ways += ["password"] if account.has_password else []
    return ", ".join(ways) or "token or link only"


def token_line(token: Any, now: datetime) -> TokenLine:
    """Return the line of a token."""
    most = token.most_epsilon
    is_over = token.is_revoked or token.expires <= now
    spent = f"{price_text(token.booked)} spent" if token.booked else "nothing spent"
    words = (
        f"{'revoked' if token.is_revoked else 'ended'}, {spent}"
        if is_over
        else ""
        if most is not None
        else f"no limit of its own, {spent}"
    )
    return TokenLine(
        id=token.id,
        label=token.label,
        who=token.name,
        data=", ".join(sorted(token.data)) if token.data is not None else "all of the account",
        gauge=None if is_over or most is None else Gauge.show(max(most - token.booked, Fraction(0)), most),
        words=words,
        ends="–" if token.is_revoked else day_text(token.expires),
        is_over=is_over,
    )


def role_boxes(given: frozenset[Role]) -> tuple[RoleBox, ...]:
    """Return a box for each role."""
    return tuple(RoleBox(role.value, words, role in given) for role, words in ROLE_WORDS.items())


def _kept(desk: Desk) -> list[str]:
    return [served.name for served in desk.visible() if Role.STEWARD in desk.roles(served.name)]


@router.get("/people")
def people(desk: AtDesk) -> Response:
    """Show the people of the data sets that the person keeps or checks."""
    return _people_page(desk)


def _people_page(
    desk: Desk,
    *,
    wrong: str = "",
    made: str = "",
    link: str = "",
    typed: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    person, people_services = desk.person, desk.services.people
    lines = []
    for account in managing.seen_accounts(person, people_services):
        is_managed = managing.manages(person, account)
        shown = managing.account_json(person, account)["roles"]
        roles = tuple(
            ("all data" if data == EVERYWHERE else data, role_words(account.roles[data])) for data in shown
        )
        lines.append(
            PersonLine(
                account.name,
                account.shown_name,
                signs_in_words(account),
                roles,
                _quota(desk, account.name),
                account.is_disabled,
                is_managed,
                f"/people/{account.name}",
            )
        )
    kept = _kept(desk)
    return desk.page(
        "people.html",
        "People",
        status=status,
        lines=lines,
        kept=kept,
        roles=role_boxes(frozenset()),
        wrong=wrong,
        made=made,
        link=link,
        typed=typed or {},
        quota_of=next(iter(kept), ""),
    )


def _quota(desk: Desk, name: str) -> Gauge | None:
    for served in desk.visible():
        if name in served.curator.policy.quotas and desk.roles(served.name) & {Role.STEWARD, Role.OFFICER}:
            with suppress(LapwingError):
                for one in desk.services.records.budget(desk.person, served.name).people:
                    if one.name == name:
                        return Gauge.show(one.epsilon, one.of)
    return None


@router.post("/people")
def add_person(desk: AtDesk, posted: PostedMany) -> Response:
    """Make an account. Its link is shown once: its owner sets the password with it."""
    fields = dict(posted)
    data, name = fields.get("data", ""), fields.get("name", "").strip()
    _require_session(desk)
    managing.require_steward(desk.person, data)
    try:
        roles = managing.roles_named([value for key, value in posted if key == "role"])
        made = desk.services.people.accounts.make(
            name, shown_name=fields.get("shown_name", "").strip(), by=desk.person.name
        )
    except LapwingError as error:
        return _people_page(desk, wrong=str(error), typed=fields, status=422)
    desk.services.people.accounts.set_roles(made.name, data, roles)
    secret = desk.services.people.links.make_password(made.name)
    return _people_page(desk, made=made.name, link=_password_link(desk, secret))


def _password_link(desk: Desk, secret: str) -> str:
    return f"{str(desk.request.base_url).rstrip('/')}/password?key={secret}"


def _require_session(desk: Desk) -> None:
    if desk.person.credential != "session":
        raise NotAllowed("token")


@router.get("/people/{name}")
def person(desk: AtDesk, name: str) -> Response:
    """Show one person, with forms for roles, the password and the end of the account."""
    return _person_page(desk, name)


def _person_page(desk: Desk, name: str, *, link: str = "", wrong: str = "", status: int = 200) -> Response:
    account = managing.seen_account(desk.person, desk.services.people, name)
    forms = [(data, role_boxes(account.roles.get(data, frozenset()))) for data in _kept(desk)]
    return desk.page(
        "person.html",
        account.name,
        current="People",
        status=status,
        account=account,
        forms=forms,
        link=link,
        wrong=wrong,
        signs_in=signs_in_words(account),
        is_managed=managing.manages(desk.person, account) and not account.is_disabled,
        is_me=account.name == desk.person.name,
    )


@router.post("/people/{name}/roles")
def set_roles(desk: AtDesk, name: str, posted: PostedMany) -> Response:
    """Set the roles of a person for one data set."""
    data = dict(posted).get("data", "")
    _require_session(desk)
    managing.require_steward(desk.person, data)
    roles = managing.roles_named([value for key, value in posted if key == "role"])
    desk.services.people.accounts.set_roles(name, data, roles)
    return see_other("/people")


@router.post("/people/{name}/link")
def new_link(desk: AtDesk, name: str) -> Response:
    """Make a link with which the account's owner sets a new password."""
    _require_session(desk)
    account = managing.managed_account(desk.person, desk.services.people, name)
    if account.is_disabled:
        raise NotFound(name)
    return _person_page(
        desk, name, link=_password_link(desk, desk.services.people.links.make_password(name))
    )


@router.post("/people/{name}/end")
def end_person(desk: AtDesk, name: str) -> Response:
    """End an account: its sessions and tokens end at once."""
    _require_session(desk)
    desk.services.people.accounts.disable(
        managing.managed_account(desk.person, desk.services.people, name).name
    )
    return see_other("/people")


# Tokens


@router.get("/tokens")
def tokens(desk: AtDesk) -> Response:
    """Show the person's own tokens."""
    return _tokens_page(desk)


def _tokens_page(
    desk: Desk,
    *,
    secret: str = "",
    label: str = "",
    wrong: str = "",
    typed: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    now = datetime.now(UTC)
    found = managing.own_tokens(desk.person, desk.services.people)
    left = ""
    for served in desk.visible():
        if Role.ANALYST in desk.roles(served.name):
            room = desk.at_hand(served).gauge
            left = f"{room.amount} of {room.of} left on {served.name}"
            break
    return desk.page(
        "tokens.html",
        "Tokens",
        status=status,
        lines=[token_line(one, now) for one in found],
        secret=secret,
        label=label,
        wrong=wrong,
        typed=typed or {},
        left=left,
        data=[served.name for served in desk.visible()],
        ends=(now + timedelta(days=DAYS)).date().isoformat(),
        last=(now + timedelta(days=365)).date().isoformat(),
        first=(now + timedelta(days=1)).date().isoformat(),
        is_token=desk.person.credential != "session",
    )


@router.post("/tokens")
def make_token(desk: AtDesk, posted: PostedMany) -> Response:
    """Make a token of the person's own. Its secret is shown once, here."""
    fields = dict(posted)
    _require_session(desk)
    named = frozenset(value for key, value in posted if key == "data")
    try:
        token, secret = desk.services.people.tokens.make(
            desk.person,
            name=fields.get("label", "").strip(),
            data=named or None,
            most_epsilon=exact(fields["most_epsilon"].strip(), "most_epsilon")
            if fields.get("most_epsilon", "").strip()
            else None,
            expires=_end_of(fields.get("ends", "")),
        )
    except LapwingError as error:
        return _tokens_page(desk, wrong=_plain(error), typed=fields, status=422)
    return _tokens_page(desk, secret=secret, label=token.label)


def _end_of(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(hour=23, minute=59, tzinfo=UTC)
    except ValueError:
        raise BadParameter("expires", "must be a day such as 2027-03-31") from None


_WORDS = {"name": "What is it for?", "most_epsilon": "Most ε", "expires": "Ends"}


def _plain(error: LapwingError) -> str:
    if isinstance(error, BadParameter):
        return f"{_WORDS.get(error.name, error.name)}: {error.why}."
    return str(error)


@router.post("/tokens/{token_id}/revoke")
def revoke_token(desk: AtDesk, token_id: str) -> Response:
    """End a token now: one's own, or of an account that the person manages."""
    _require_session(desk)
    services = desk.services.people
    token = services.tokens.known(token_id)
    if token.name != desk.person.name and not managing.manages(
        desk.person, services.accounts.known(token.name)
    ):
        raise NotFound(token_id)
    services.tokens.revoke(token_id)
    return see_other("/tokens")
