"""Accounts: who may sign in, with which roles. The account's name is the principal of the ledger.

Claim    a charge's principal is the person who asked, for ever.
Because  a name is fixed when the account is made, and no account is ever deleted: a disabled one keeps
         its name.
Test     tests/server/people/test_accounts.py
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lapwing.config.values import LABEL_AT_MOST, checked_label
from lapwing.errors import BadParameter
from lapwing.server.people.links import LinkKind, use_link
from lapwing.server.people.passwords import Passwords
from lapwing.server.people.person import EVERYWHERE, NotFound, Role
from lapwing.server.state import ServerState
from lapwing.sql.policy_ledger import EVERYBODY_ELSE, checked_analyst
from lapwing.storage.sqlite import RunStatement

SHELL = ""  # in place of an account's name: a command of somebody who has the machine
_NOT_IN_NAMES = "/\\?#%"  # they would end an address
_COLUMNS = "name, shown_name, password IS NOT NULL, made, made_by, is_disabled"


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """An account, without its secrets.

    Args:
        name: The name, for ever.
        shown_name: The name that pages show.
        roles: The roles by data set; `EVERYWHERE` for all data sets.
        has_password: Whether it may sign in with a password.
        identities: The pairs (issuer, subject) of OpenID Connect that are bound to it.
        is_disabled: Whether it can no longer sign in.
        made: When it was made, in seconds since 1970.
        made_by: The account that made it; "" for a command.
    """

    name: str
    shown_name: str
    roles: Mapping[str, frozenset[Role]]
    has_password: bool
    identities: tuple[tuple[str, str], ...]
    is_disabled: bool
    made: int
    made_by: str = field(default=SHELL)


class Accounts:
    """All accounts of a server."""

    def __init__(self, state: ServerState, passwords: Passwords) -> None:
        self._state = state
        self._passwords = passwords

    def make(
        self, name: str, *, shown_name: str = "", password: str | None = None, by: str = SHELL
    ) -> ServerAccount:
        """Make an account.

        Args:
            name: The name: the principal of the ledger, and the key of `[analysts]`. It stays for ever.
            shown_name: The name that pages show; else the name.
            password: The first password; None for an account without one.
            by: The account that makes it.

        Returns:
            The new account, without roles.

        Raises:
            BadParameter: If the name cannot be used or is taken, or the password is too short.
            TooManyRequests: If too many passwords wait to be hashed.
        """
        name = checked_account_name(name)
        shown_name = checked_label(shown_name, "shown_name") if shown_name else name
        stored = None if password is None else self._passwords.hash(password)
        with self._state.transaction() as run:
            if run("SELECT 1 FROM accounts WHERE plain_name = ?", (name.casefold(),)).fetchone():
                raise BadParameter(
                    "name", "is taken, or differs only in upper and lower case. Names are never used again"
                )
            run(
                "INSERT INTO accounts (name, plain_name, shown_name, password, made, made_by) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (name, name.casefold(), shown_name, stored, int(time.time()), by),
            )
        return self.known(name)

    def find(self, name: str) -> ServerAccount | None:
        """Return an account by its name, or None."""
        accounts = self._some("WHERE name = ?", name)
        return accounts[0] if accounts else None

    def known(self, name: str) -> ServerAccount:
        """Return an account by its name. Raises NotFound if there is none."""
        if (account := self.find(name)) is None:
            raise NotFound(name)
        return account

    def all(self) -> list[ServerAccount]:
        """Return all accounts by name, the disabled ones too."""
        return self._some("ORDER BY name")

    def _some(self, which: str, *values: object) -> list[ServerAccount]:
        rows = self._state.rows(f"SELECT {_COLUMNS} FROM accounts {which}", *values)  # noqa: S608  our own text
        return [self._with_roles(row) for row in rows]

    def _with_roles(self, row: tuple[str, str, int, int, str, int]) -> ServerAccount:
        name, shown_name, has_password, made, made_by, is_disabled = row
        roles = roles_by_data(self._state.rows("SELECT data, role FROM roles WHERE name = ?", name))
        bound = self._state.rows("SELECT issuer, subject FROM identities WHERE name = ?", name)
        return ServerAccount(
            name, shown_name, roles, bool(has_password), tuple(bound), bool(is_disabled), made, made_by
        )

    def set_roles(self, name: str, data: str, roles: frozenset[Role]) -> None:
        """Replace the roles of an account for one data set, or for `EVERYWHERE`. None: no role.

        A role for more data ends the links to set the password that stewards may have made before: whoever
        holds one would get the new role.

        Raises:
            NotFound: If there is no such account.
            BadParameter: If `data` cannot be the name of a data set.
        """
        data = data if data == EVERYWHERE else checked_label(data, "data")
        with self._state.transaction() as run:
            _require(run, name)
            places = {place for [place] in run("SELECT data FROM roles WHERE name = ?", (name,)).fetchall()}
            [made_by] = run("SELECT made_by FROM accounts WHERE name = ?", (name,)).fetchone()
            if roles and data not in places and (places or made_by != SHELL):
                run("DELETE FROM links WHERE name = ? AND kind = ?", (name, LinkKind.PASSWORD))
            run("DELETE FROM roles WHERE name = ? AND data = ?", (name, data))
            for role in sorted(roles):
                run("INSERT INTO roles (name, data, role) VALUES (?, ?, ?)", (name, data, role))

    def disable(self, name: str) -> None:
        """End an account: its sessions and tokens end at once, and its name stays taken.

        Raises NotFound if there is no such account.
        """
        with self._state.transaction() as run:
            _require(run, name)
            run("UPDATE accounts SET is_disabled = 1, password = NULL WHERE name = ?", (name,))
            run("UPDATE tokens SET is_revoked = 1 WHERE name = ?", (name,))
            for table in ("sessions", "identities", "links"):
                run(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608  our own names

    def set_password(self, name: str, password: str | None) -> None:
        """Set a new password, or none. All sessions of the account end.

        Raises:
            NotFound: If there is no such account, or it is disabled.
            BadParameter: If the password is too short or too long.
            TooManyRequests: If too many passwords wait to be hashed.
        """
        stored = None if password is None else self._passwords.hash(password)
        with self._state.transaction() as run:
            _replace_password(run, name, stored)

    def set_password_by_link(self, secret: str, password: str) -> str:
        """Set the password with a link that was made for it, and return the account's name.

        Raises:
            NotSignedIn: If the link was used, has ended, or never was.
            BadParameter: If the password is too short or too long. The link stays good.
            TooManyRequests: If too many passwords wait to be hashed.
        """
        stored = self._passwords.hash(password)
        with self._state.transaction() as run:
            name = use_link(run, secret, LinkKind.PASSWORD)
            _replace_password(run, name, stored)
        return name

    def with_password(self, name: str, password: str) -> str | None:
        """Return the name of the account that has this password, or None.

        It takes the same time whether there is such an account or not.

        Raises TooManyRequests if too many passwords wait to be checked.
        """
        rows = self._state.rows(
            "SELECT name, password FROM accounts WHERE name = ? AND NOT is_disabled", typed_name(name)
        )
        own, stored = rows[0] if rows else (None, None)
        return own if self._passwords.matches(stored, password) else None

    def bind(self, name: str, issuer: str, subject: str) -> None:
        """Let whoever has this identity at an OpenID provider sign in as the account.

        Raises:
            NotFound: If there is no such account, or it is disabled.
            BadParameter: If the identity is bound to another account.
        """
        issuer, subject = checked_label(issuer, "issuer"), checked_subject(subject)
        with self._state.transaction() as run:
            _require(run, name, enabled=True)
            known = run(
                "SELECT name FROM identities WHERE issuer = ? AND subject = ?", (issuer, subject)
            ).fetchone()
            if known and known[0] != name:
                raise BadParameter("subject", "is bound to another account. Unbind it there first")
            run("INSERT OR IGNORE INTO identities VALUES (?, ?, ?)", (issuer, subject, name))

    def unbind(self, name: str, issuer: str, subject: str) -> None:
        """Remove an identity of an account, and end the account's sessions. Raises NotFound without it."""
        with self._state.transaction() as run:
            gone = run(
                "DELETE FROM identities WHERE name = ? AND issuer = ? AND subject = ?",
                (name, issuer, subject),
            )
            if not gone.rowcount:
                raise NotFound(name)
            run("DELETE FROM sessions WHERE name = ?", (name,))

    def with_identity(self, issuer: str, subject: str) -> str | None:
        """Return the name of the account to which an identity is bound, or None."""
        rows = self._state.rows(
            "SELECT name FROM identities JOIN accounts USING (name) "
            "WHERE issuer = ? AND subject = ? AND NOT is_disabled",
            issuer,
            subject,
        )
        return rows[0][0] if rows else None


def checked_account_name(name: str) -> str:
    """Return a name that can be an analyst's. Raises BadParameter if it cannot."""
    name = checked_analyst(name)
    if name == EVERYBODY_ELSE or name in (".", ".."):
        raise BadParameter("analyst", f'must not be "{name}", which has a meaning of its own')
    if any(mark in _NOT_IN_NAMES for mark in name):
        raise BadParameter("analyst", f"must not have any of {' '.join(_NOT_IN_NAMES)}")
    return name


def typed_name(name: str) -> str:
    """Return a name as accounts are stored, from what somebody typed; "" if none can have it."""
    name = unicodedata.normalize("NFC", name)
    return name if len(name) <= LABEL_AT_MOST and max(name, default="") < "\ud800" else ""


def checked_subject(subject: str) -> str:
    """Return the subject of an identity. Raises BadParameter unless it has 1 to 255 ASCII characters."""
    if not (isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isascii()):
        raise BadParameter("subject", "must have 1 to 255 ASCII characters, as the provider writes it")
    return subject


def roles_by_data(rows: Iterable[tuple[str, str]]) -> dict[str, frozenset[Role]]:
    """Return roles by data set from pairs (data, role)."""
    roles_of: dict[str, set[Role]] = {}
    for data, role in rows:
        roles_of.setdefault(data, set()).add(_ROLES[role])
    return {data: frozenset(roles) for data, roles in roles_of.items()}


_ROLES = {role.value: role for role in Role}


def _replace_password(run: RunStatement, name: str, stored: str | None) -> None:
    _require(run, name, enabled=True)
    run("UPDATE accounts SET password = ? WHERE name = ?", (stored, name))
    for table in ("sessions", "links"):
        run(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608  our own names


def _require(run: RunStatement, name: str, *, enabled: bool = False) -> None:
    [is_disabled] = run("SELECT is_disabled FROM accounts WHERE name = ?", (name,)).fetchone() or [None]
    if is_disabled is None or (enabled and is_disabled):
        raise NotFound(name)
