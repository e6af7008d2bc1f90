"""Links that sign in once: the start link of a first try on this machine, and the link to set a password.

Claim    a link signs in one browser once.
Because  it has 256 random bits, and it is marked as used in the transaction that accepts it.
Test     tests/server/people/test_links.py

A start link is made only by a server that nobody else can reach.
"""

from __future__ import annotations

import time
from enum import StrEnum

from lapwing.errors import BadParameter
from lapwing.server.people.credentials import hash_of, new_secret
from lapwing.server.people.person import NotSignedIn
from lapwing.server.settings import ServerSettings
from lapwing.server.state import ServerState
from lapwing.storage.sqlite import RunStatement


class LinkKind(StrEnum):
    """What a link is for."""

    START = "start"  # signs in, on this machine only
    PASSWORD = "password"  # noqa: S105  lets its holder set the account's password
    ANSWER = "answer"  # of an OpenID provider: noted when it came, so that it comes once
    DEVICE = "device"  # a browser that has signed in: strangers' failures do not keep it out


DEVICE_SECONDS = 180 * 86400
MOST_LINKS = 100  # of one kind and account: the oldest end
SECONDS = {
    LinkKind.START: 3600,
    LinkKind.PASSWORD: 3 * 86400,
    LinkKind.ANSWER: 3600,
    LinkKind.DEVICE: DEVICE_SECONDS,
}


class Links:
    """All links of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def make_start(self, name: str, settings: ServerSettings) -> str:
        """Return the secret of a link that signs in as an account, on this machine.

        Raises BadParameter if others can reach the server.
        """
        if not settings.is_loopback:
            raise BadParameter("host", "a start link is for this machine only: serve 127.0.0.1")
        return self._make(name, LinkKind.START)

    def make_password(self, name: str) -> str:
        """Return the secret of a link with which an account's owner sets the password."""
        return self._make(name, LinkKind.PASSWORD)

    def make_device(self, name: str) -> str:
        """Return the secret of a browser that has signed in with the account's password."""
        return self._make(name, LinkKind.DEVICE)

    def is_device(self, secret: str, name: str) -> bool:
        """Return whether a browser has signed in as this account."""
        try:
            return self.name_of(secret, LinkKind.DEVICE) == name
        except NotSignedIn:
            return False

    def _make(self, name: str, kind: LinkKind) -> str:
        secret, now = new_secret(), int(time.time())
        with self._state.transaction() as run:
            run("DELETE FROM links WHERE ends <= ?", (now,))
            run(
                "INSERT INTO links (hash, kind, name, ends) VALUES (?, ?, ?, ?)",
                (hash_of(secret), kind, name, now + SECONDS[kind]),
            )
            run(
                "DELETE FROM links WHERE kind = ? AND name = ? AND hash NOT IN (SELECT hash FROM links "
                "WHERE kind = ? AND name = ? ORDER BY hash = ? DESC, ends DESC LIMIT ?)",
                (kind, name, kind, name, hash_of(secret), MOST_LINKS),
            )
        return secret

    def name_of(self, secret: str, kind: LinkKind) -> str:
        """Return the account of a link that is not used yet. Raises NotSignedIn for all others."""
        rows = self._state.rows(
            "SELECT name FROM links WHERE hash = ? AND kind = ? AND NOT is_used AND ends > ?",
            hash_of(secret),
            kind,
            int(time.time()),
        )
        if not rows:
            raise NotSignedIn
        return str(rows[0][0])

    def use(self, secret: str, kind: LinkKind) -> str:
        """Use a link up, and return its account. Raises NotSignedIn if it is not good."""
        with self._state.transaction() as run:
            return use_link(run, secret, kind)

    def note_answer(self, secret: str) -> bool:
        """Note that the answer to a sign-in came. Return False if it came before."""
        now = int(time.time())
        with self._state.transaction() as run:
            run("DELETE FROM links WHERE ends <= ?", (now,))
            noted = run(
                "INSERT OR IGNORE INTO links (hash, kind, name, ends, is_used) VALUES (?, ?, '', ?, 1)",
                (hash_of(secret), LinkKind.ANSWER, now + SECONDS[LinkKind.ANSWER]),
            )
        return noted.rowcount == 1


def use_link(run: RunStatement, secret: str, kind: LinkKind) -> str:
    """Use a link up within a transaction, and return its account. Raises NotSignedIn if it is not good."""
    row = run(
        "UPDATE links SET is_used = 1 WHERE hash = ? AND kind = ? AND NOT is_used AND ends > ? "
        "RETURNING name",
        (hash_of(secret), kind, int(time.time())),
    ).fetchall()
    if not row:
        raise NotSignedIn
    return str(row[0][0])
