"""What officers have signed: up to which entry of a data set's ledger, as each of them has noted.

Claim    entries that are called old are those that the officer's note names.
Because  the note has the entry's number and hash: if the ledger has another entry there now, it is not
         believed, and the page says so.
Test     tests/server/data/test_signatures.py

Signing itself is done on the command line, where the key is. A note gives and takes nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from lapwing.errors import BadParameter
from lapwing.ledger.readiness import entry_hash, newest_position
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.people.person import Requester, Role
from lapwing.server.state import ServerState


@dataclass(frozen=True, slots=True)
class SignedUpTo:
    """An officer's note.

    Args:
        entry: The last entry that was signed; 0 if nothing was noted.
        newest: The newest entry of the ledger.
        time: When it was noted; None if nothing was.
        holds: Whether the ledger still has this entry.
    """

    entry: int
    newest: int
    time: datetime | None = None
    holds: bool = True

    @property
    def new(self) -> int:
        """How many entries came since."""
        return self.newest - self.entry if self.holds else self.newest


class Signatures:
    """The notes of all officers.

    Args:
        state: The state of the server.
        sets: The data sets.
    """

    def __init__(self, state: ServerState, sets: ServedDataSets) -> None:
        self._state, self._sets = state, sets

    def find(self, person: Requester, data: str) -> SignedUpTo:
        """Return an officer's note for a data set."""
        served = self._require(person, data)
        newest = newest_position(served.curator.ledger) if served.curator.has_ledger else 0
        rows = self._state.rows(
            "SELECT entry, hash, at FROM signed WHERE person = ? AND data = ?", person.name, data
        )
        if not rows:
            return SignedUpTo(0, newest)
        [(entry, digest, at)] = rows
        holds = bool(newest) and entry_hash(served.curator.ledger, entry) == digest
        return SignedUpTo(entry, newest, datetime.fromtimestamp(at, UTC), holds)

    def note(self, person: Requester, data: str, entry: int) -> None:
        """Note that an officer has signed a statement up to an entry.

        Raises:
            BadParameter: If the ledger has no such entry.
        """
        served = self._require(person, data)
        digest = entry_hash(served.curator.ledger, entry) if served.curator.has_ledger else None
        if digest is None:
            raise BadParameter("entry", "is not in the ledger")
        with self._state.transaction() as run:
            run(
                "INSERT INTO signed (person, data, entry, hash, at) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (person, data) DO UPDATE SET entry = excluded.entry, hash = excluded.hash, "
                "at = excluded.at",
                (person.name, data, entry, digest, int(time.time())),
            )

    def _require(self, person: Requester, data: str) -> ServedData:
        return self._sets.require(person, data, Role.OFFICER)
