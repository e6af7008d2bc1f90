"""Sessions: what a browser holds after signing in. They end after 30 idle minutes, and after 12 hours.

Claim    a session ends when it should, for all worker processes at once.
Because  each request reads the session and its account from the state file. Only "last seen" may be a
         minute old, so that a session may end a minute early, never late.
Test     tests/server/people/test_sessions.py
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from lapwing.server.people.accounts import roles_by_data
from lapwing.server.people.credentials import hash_of, new_id, new_secret
from lapwing.server.people.person import NotSignedIn, Requester
from lapwing.server.state import ServerState

IDLE_SECONDS = 30 * 60
LIFE_SECONDS = 12 * 3600
MOST_SESSIONS = 100  # of one account: the oldest end
NOTED_EVERY = 60  # seconds between two writes of "last seen"


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A valid session: the person, and whether its "last seen" is to be written."""

    person: Requester
    is_to_note: bool


class Sessions:
    """All sessions of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def begin(self, name: str) -> str:
        """Begin a session of an account that has just signed in, and return its secret.

        Raises NotSignedIn if the account was disabled meanwhile.
        """
        secret, public_id, now = new_secret(), new_id(), int(time.time())
        with self._state.transaction() as run:
            if not run("SELECT 1 FROM accounts WHERE name = ? AND NOT is_disabled", (name,)).fetchone():
                raise NotSignedIn
            run(
                "DELETE FROM sessions WHERE seen <= ? OR began <= ?",
                (now - IDLE_SECONDS, now - LIFE_SECONDS),
            )
            run("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", (hash_of(secret), public_id, name, now, now))
            run(
                "DELETE FROM sessions WHERE name = ? AND id NOT IN (SELECT id FROM sessions WHERE name = ? "
                "ORDER BY id = ? DESC, began DESC LIMIT ?)",
                (name, name, public_id, MOST_SESSIONS),
            )
        return secret

    def find(self, secret: str) -> FoundSession | None:
        """Return the session of a secret, or None if it has ended or never was."""
        now = int(time.time())
        rows = self._state.rows(
            "SELECT id, name, shown_name, seen FROM sessions JOIN accounts USING (name) "
            "WHERE hash = ? AND seen > ? AND began > ? AND NOT is_disabled",
            hash_of(secret),
            now - IDLE_SECONDS,
            now - LIFE_SECONDS,
        )
        if not rows:
            return None
        [(public_id, name, shown_name, seen)] = rows
        roles = roles_by_data(self._state.rows("SELECT data, role FROM roles WHERE name = ?", name))
        person = Requester(name, roles, "session", public_id, None, shown_name)
        return FoundSession(person, now - seen >= NOTED_EVERY)

    def note(self, public_id: str) -> None:
        """Write that a session was seen now."""
        with self._state.transaction() as run:
            run("UPDATE sessions SET seen = max(seen, ?) WHERE id = ?", (int(time.time()), public_id))

    def end(self, public_id: str) -> None:
        """End one session."""
        with self._state.transaction() as run:
            run("DELETE FROM sessions WHERE id = ?", (public_id,))

    def end_all(self, name: str) -> None:
        """End all sessions of an account, in all browsers."""
        with self._state.transaction() as run:
            run("DELETE FROM sessions WHERE name = ?", (name,))
