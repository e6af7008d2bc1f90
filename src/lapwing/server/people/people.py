"""All services about people, which one server makes once: `services.people`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lapwing.server.people.accounts import Accounts
from lapwing.server.people.limits import SignInLimits
from lapwing.server.people.links import Links
from lapwing.server.people.passwords import Passwords
from lapwing.server.people.sessions import Sessions
from lapwing.server.people.tokens import Tokens
from lapwing.server.settings import OpenIdSettings
from lapwing.server.state import ServerState

if TYPE_CHECKING:
    from lapwing.server.people.open_id import OpenIdClient


@dataclass(frozen=True, slots=True)
class People:
    """Accounts, and what they sign in with."""

    accounts: Accounts
    sessions: Sessions
    tokens: Tokens
    links: Links
    limits: SignInLimits
    open_id: OpenIdClient | None = None

    @classmethod
    def of(cls, state: ServerState, open_id: OpenIdSettings | None = None) -> People:
        """Return the services on an open state, with a provider for sign-in if there is one."""
        accounts, links = Accounts(state, Passwords()), Links(state)
        client = None
        if open_id is not None:  # a server without a provider starts faster, and in less memory
            from lapwing.server.people.open_id import OpenIdClient  # noqa: PLC0415

            client = OpenIdClient(open_id, accounts, links)
        return cls(accounts, Sessions(state), Tokens(state), links, SignInLimits(), client)

    def close(self) -> None:
        """Close the connections to the provider. The state stays open."""
        if self.open_id is not None:
            self.open_id.close()
