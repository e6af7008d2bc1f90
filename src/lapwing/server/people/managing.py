"""Who may manage whom: rules for stewards, and how accounts and tokens are shown.

Claim    managing an account that has a role elsewhere gives nobody power over data beyond the data sets
         that they are steward of.
Because  a steward gives roles for own data sets alone, and ends, binds or sets anew only accounts whose
         roles all lie there. A token manages nobody: it cannot make itself stronger.
Test     tests/server/test_web_people.py

This does not hold for what came before: a password, a session, a token or an identity that a steward got
for an account of theirs stays good when another steward gives that account a role. See docs/limits.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.server.people.accounts import ServerAccount
from lapwing.server.people.people import People
from lapwing.server.people.person import EVERYWHERE, NotAllowed, NotFound, Requester, Role
from lapwing.server.people.tokens import Token

READERS = (Role.STEWARD, Role.OFFICER)  # of the list of people


def roles_named(names: list[str]) -> frozenset[Role]:
    """Return roles by their names. Raises BadParameter for a name that is none."""
    known = {role.value: role for role in Role}
    if any(name not in known for name in names):
        raise BadParameter("roles", f"are some of {', '.join(known)}")
    return frozenset(known[name] for name in names)


def require_steward(person: Requester, data: str) -> None:
    """Require that a person may give roles for a data set, or for all of them."""
    if data == EVERYWHERE:
        if Role.STEWARD not in _everywhere(person):
            raise NotAllowed(data)
    else:
        person.require(data, Role.STEWARD)


def manages(person: Requester, account: ServerAccount) -> bool:
    """Return whether a person may end an account: all its roles lie where the person is steward."""
    if Role.STEWARD in _everywhere(person):
        return True
    if EVERYWHERE in account.roles or account.name == person.name:
        return False
    if not account.roles:
        return account.made_by == person.name
    return all(person.can(data, Role.STEWARD) for data in account.roles)


def seen_account(person: Requester, people: People, name: str) -> ServerAccount:
    """Return an account that a person may see. Raises NotFound for all others."""
    account = people.accounts.known(name)
    if not _is_seen(person, account):
        raise NotFound(name)
    return account


def managed_account(person: Requester, people: People, name: str) -> ServerAccount:
    """Return an account that a person may end. Raises NotFound or NotAllowed."""
    account = seen_account(person, people, name)
    if not manages(person, account):
        raise NotAllowed(name)
    return account


def _reads(person: Requester, data: str) -> bool:
    if data == EVERYWHERE:
        return bool(_everywhere(person).intersection(READERS))
    return person.can(data, *READERS)


def _everywhere(person: Requester) -> frozenset[Role]:
    return frozenset() if person.scope is not None else person.roles.get(EVERYWHERE, frozenset())


def seen_accounts(person: Requester, people: People) -> list[ServerAccount]:
    """Return the accounts that a person sees. Raises NotAllowed without a role that reads them."""
    if not any(_reads(person, data) for data in person.roles):
        raise NotAllowed("people")
    return [account for account in people.accounts.all() if _is_seen(person, account)]


def _is_seen(person: Requester, account: ServerAccount) -> bool:
    return manages(person, account) or any(_reads(person, data) for data in account.roles)


def seen_tokens(person: Requester, people: People, account: ServerAccount) -> list[Token]:
    """Return the tokens of an account that concern only data sets which the person reads."""
    tokens = people.tokens.all_of(account.name)
    if manages(person, account):
        return tokens
    return [
        token
        for token in tokens
        if token.data is not None and all(_reads(person, data) for data in token.data)
    ]


def own_tokens(person: Requester, people: People) -> list[Token]:
    """Return the tokens of the own account, newest first. Whoever comes with a token sees it alone."""
    tokens = people.tokens.all_of(person.name)
    is_token = person.credential == "token"
    return [token for token in tokens if not is_token or token.id == person.credential_id]


def account_json(person: Requester, account: ServerAccount) -> dict[str, Any]:
    """Return an account as a person may see it: with the roles for data sets that the person reads."""
    mine = account.name == person.name
    roles = {data: sorted(roles) for data, roles in account.roles.items() if mine or _reads(person, data)}
    is_managed = manages(person, account)
    bound = [{"issuer": issuer, "subject": subject} for issuer, subject in account.identities]
    return {
        "name": account.name,
        "shown_name": account.shown_name,
        "roles": dict(sorted(roles.items())),
        "is_disabled": account.is_disabled,
        "has_password": account.has_password,
        "identities": bound if is_managed or mine else [],
        "is_managed": is_managed,
    }


def token_json(token: Token) -> dict[str, Any]:
    """Return a token without its secret. ε are decimal texts."""
    return {
        "id": token.id,
        "name": token.label,
        "data": None if token.data is None else sorted(token.data),
        "most_epsilon": _decimal(token.most_epsilon),
        "booked_epsilon": None if token.most_epsilon is None else _decimal(token.booked),
        "made": token.made.isoformat(),
        "expires": token.expires.isoformat(),
        "is_revoked": token.is_revoked,
    }


def _decimal(value: Fraction | None) -> str | None:
    """Return a number as decimal text, rounded to 12 digits."""
    return None if value is None else f"{float(value):.12g}"
