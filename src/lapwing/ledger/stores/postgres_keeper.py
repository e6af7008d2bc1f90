"""What one process does for a ledger in PostgreSQL as long as it has it open: be there, and seal.

Being there is a connection of its own that holds the session's number. Of all processes one leads, and it
is asked to seal every second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lapwing.ledger.stores.postgres_links import Links, new_number, psycopg

SECONDS = 1.0
LONGEST_WAIT = 64.0
_LEAD = "SELECT pg_try_advisory_lock(hashtextextended('lapwing lead ' || current_schema(), 0))"
_RESIGN = "SELECT pg_advisory_unlock(hashtextextended('lapwing lead ' || current_schema(), 0))"

_log = logging.getLogger(__name__)


class Keeper:
    """A thread that holds a session's number and does `work` every second, told whether it leads."""

    def __init__(self, links: Links, where: str, work: Callable[[bool], None]) -> None:
        self.session = new_number()
        self._where = where
        self._work = work
        self._links = links
        self._link = links.connect(self.session)
        self._leads = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="lapwing keeper", daemon=True)
        self._thread.start()

    @property
    def has_stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the work. The session is over when the connection is closed."""
        self._stopping.set()
        self._thread.join()

    def close(self) -> None:
        """Let go of the session's number."""
        self._link.close()

    def _go_on(self) -> None:
        wait = SECONDS
        while not self._stopping.wait(wait):
            try:
                self._once()
                wait = SECONDS
            except Exception as error:  # a thread has nobody to raise to, and its process goes on
                wait = min(2 * wait, LONGEST_WAIT)
                if wait > 4 * SECONDS:  # not for what passes
                    _log.warning("%s is charged and marked, but not sealed: %s", self._where, error)

    def _once(self) -> None:
        try:
            self._link.run("SELECT 1")
        except psycopg.Error:
            self._link.close()
            self._leads = False
            self._link = self._links.connect(self.session)
        self._leads = self._leads or self._link.run(_LEAD).fetchone() == (True,)
        try:
            self._work(self._leads)
        except BaseException:
            if self._leads:  # another process may fare better
                self._leads = False
                self._link.run(_RESIGN)
            raise
