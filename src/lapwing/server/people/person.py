"""Whoever sends a request: an account with its roles, and what the credential may do.

Claim    a person sees and does what a role for that data set allows, and with a token no more than the
         token.
Because  `roles_for` is the only way from a person to roles. It is empty for data that the token does not
         name.
Test     tests/server/people/test_person.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from lapwing.errors import LapwingError


class Role(StrEnum):
    """What an account may do with one data set."""

    STEWARD = "steward"  # policy, people, holds, prepare
    ANALYST = "analyst"  # plans and answers of its own
    OFFICER = "officer"  # all that is public in the ledger, and reports; no answers
    SURVEY_OWNER = "survey-owner"  # designs, progress and estimates of surveys


EVERYWHERE = "*"  # in place of a data set: the role holds for all data sets of the server


class NotSignedIn(Exception):
    """A request has no credential, or one that is not valid. The reply is 401, the same for all causes."""


class NotFound(Exception):
    """There is no such thing for this person. The reply is 404, also if another person has it."""


class NotAllowed(Exception):
    """The person sees the data set, but has no role for this. The reply is 403."""


class IdentityNotBound(LapwingError):
    """No account has the identity of somebody who signed in at the provider: `issuer` and `subject`."""

    code: ClassVar[str] = "identity-not-bound"

    def __init__(self, issuer: str, subject: str) -> None:
        super().__init__(
            "no account here is bound to your identity. Send issuer and subject to a steward to bind them"
        )
        self.issuer, self.subject = issuer, subject


@dataclass(frozen=True, slots=True)
class Requester:
    """The account that sends a request, and the credential that it came with.

    Args:
        name: The account's name. It is the principal of the ledger and the key of `[analysts]`.
        roles: The roles by data set; `EVERYWHERE` for all data sets.
        credential: "session" (a cookie) or "token".
        credential_id: The public id of the session or token: no secret.
        scope: The data sets that the token is for. None: all that the account has.
        shown_name: The name that pages show.
    """

    name: str
    roles: Mapping[str, frozenset[Role]]
    credential: str
    credential_id: str
    scope: frozenset[str] | None = None
    shown_name: str = field(default="", compare=False)

    def roles_for(self, data: str) -> frozenset[Role]:
        """Return the roles for a data set."""
        if self.scope is not None and data not in self.scope:
            return frozenset()
        return self.roles.get(data, frozenset()) | self.roles.get(EVERYWHERE, frozenset())

    @property
    def usable_roles(self) -> Mapping[str, frozenset[Role]]:
        """The roles by data set that the credential can use: of a scoped token, those for its data."""
        if self.scope is None:
            return self.roles
        return {data: roles for data in sorted(self.scope) if (roles := self.roles_for(data))}

    def require(self, data: str, *roles: Role) -> None:
        """Require one of the roles for a data set. No role at all: the data set does not exist here."""
        own = self.roles_for(data)
        if not own:
            raise NotFound(data)
        if not own.intersection(roles):
            raise NotAllowed(data)

    def can(self, data: str, *roles: Role) -> bool:
        """Return whether the person has one of the roles for a data set."""
        return bool(self.roles_for(data).intersection(roles))
