"""The frame of a page: who is signed in, the data set at hand, and the pages that the roles allow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lapwing.server.console.parts import Gauge
from lapwing.server.people.person import Requester, Role

ROLE_WORDS = {
    Role.STEWARD: "steward",
    Role.ANALYST: "analyst",
    Role.OFFICER: "officer",
    Role.SURVEY_OWNER: "survey owner",
}


@dataclass(frozen=True, slots=True)
class MenuItem:
    """A link of the menu."""

    label: str
    href: str
    is_current: bool = False
    starts_group: bool = False
    count: str = ""


@dataclass(frozen=True, slots=True)
class DataAtHand:
    """The data set that the menu's links are about."""

    name: str
    gauge: Gauge
    whose: str = ""


@dataclass(frozen=True, slots=True)
class DataLink:
    """A data set to change to."""

    name: str
    href: str


@dataclass(frozen=True, slots=True)
class GuideStep:
    """A step of the first run. `state` is "done", "now" or "next"."""

    title: str
    words: str
    state: str


@dataclass(frozen=True, slots=True)
class Guide:
    """The guide of the first run: four steps on the real pages."""

    steps: tuple[GuideStep, ...]
    next: MenuItem | None


@dataclass(frozen=True, slots=True)
class Frame:
    """All that is around the content of a page."""

    title: str
    person: str
    roles: str
    items: tuple[MenuItem, ...]
    data: DataAtHand | None = None
    others: tuple[DataLink, ...] = ()
    notice: str = ""
    guide: Guide | None = None
    can_sign_out: bool = True


def role_words(roles: Iterable[Role]) -> str:
    """Return roles in words, the strongest first."""
    has = set(roles)
    return ", ".join(word for role, word in ROLE_WORDS.items() if role in has) or "no role"


def menu(
    person: Requester, data: str, current: str, counts: dict[str, int] | None = None
) -> tuple[MenuItem, ...]:
    """Return the links that a person's roles for a data set allow. `current` is the page's label."""
    roles = person.roles_for(data)
    is_steward, is_analyst = Role.STEWARD in roles, Role.ANALYST in roles
    is_officer = Role.OFFICER in roles
    sees = bool(roles & {Role.STEWARD, Role.ANALYST, Role.OFFICER})
    here = f"/d/{data}"
    wanted = [
        ("Home", "/", True, False),
        ("Ask", f"{here}/ask", is_analyst, False),
        ("History", f"{here}/history", is_steward or is_analyst, False),
        ("Ledger", f"{here}/ledger", sees, False),
        ("Budget", f"{here}/budget", sees, False),
        ("Data", here, sees, False),
        ("Surveys", "/surveys", bool(roles), True),
        ("Releases", "/releases", sees, False),
        ("Models", "/models", sees, False),
        ("Audits", "/audits", sees, False),
        ("People", "/people", is_steward or is_officer, True),
        ("Tokens", "/tokens", True, not (is_steward or is_officer)),
    ]
    new = counts or {}
    return tuple(
        MenuItem(label, href, label == current, starts, f"{new[label]:,}" if new.get(label) else "")
        for label, href, is_shown, starts in wanted
        if is_shown
    )
