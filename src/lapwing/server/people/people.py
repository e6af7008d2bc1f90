"""All services about people, which one server makes once: `services.people`."""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.server.people.accounts import Accounts
from lapwing.server.people.limits import SignInLimits
from lapwing.server.people.links import Links
from lapwing.server.people.passwords import Passwords
from lapwing.server.people.sessions import Sessions
from lapwing.server.people.tokens import Tokens
from lapwing.server.state import ServerState


@dataclass(frozen=True, slots=True)
class People:
    """Accounts, and what they sign in with."""

    accounts: Accounts
    sessions: Sessions
    tokens: Tokens
    links: Links
    limits: SignInLimits

    @classmethod
    def of(cls, state: ServerState) -> People:
        """Return the services on an open state."""
        return cls(
            Accounts(state, Passwords()), Sessions(state), Tokens(state), Links(state), SignInLimits()
        )
