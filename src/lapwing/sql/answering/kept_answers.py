"""Stored answers that a curator read and checked once, and keeps in memory. They are small, and few.

Claim    a kept value is the one that was stored, and that the ledger would give again.
Because  a stored answer never changes, and what is estimated from it depends on nothing else. Requests that
         are under way or failed are not kept: they are looked up each time. If somebody changes the
         database by force, the kept value is still the true one; `verify` and the next process notice it.
Test     tests/sql/answering/test_kept_answers.py
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql.answering.truncation import TruncationAnswer

MOST_KEPT = 256  # of each kind
LARGEST_KEPT = 4096  # bytes
LARGEST_BATCH = 1 << 16  # bytes: a batch is read for every question that it may contain
T = TypeVar("T")


class KeptAnswers:
    """The last answers of each kind. Threads may share them."""

    def __init__(self) -> None:
        self._statuses: dict[Hashable, RequestStatus] = {}
        self._truncations: dict[Hashable, TruncationAnswer] = {}

    def status(
        self,
        place: Hashable,
        look_up: Callable[[], RequestStatus | None],
        *,
        largest: int = LARGEST_KEPT,
    ) -> RequestStatus | None:
        """Return the kept status of a request that was answered with `largest` bytes, or look it up."""
        kept = self._statuses.get(place)
        if kept is not None:
            return kept
        status = look_up()
        if status is None or status.state is not RequestState.ANSWERED:
            return status
        if len(status.answer) <= largest:
            _keep(self._statuses, place, status)
        return status

    def truncation(
        self, place: Hashable, estimate: Callable[[], TruncationAnswer | None]
    ) -> TruncationAnswer | None:
        """Return the kept answer about truncated rows, or estimate it. `place` names what it is made of."""
        kept = self._truncations.get(place)
        if kept is None:
            kept = estimate()
            if kept is not None:
                _keep(self._truncations, place, kept)
        return kept


def _keep(kept: dict[Hashable, T], place: Hashable, value: T) -> None:
    if len(kept) >= MOST_KEPT:
        kept.clear()
    kept[place] = value
