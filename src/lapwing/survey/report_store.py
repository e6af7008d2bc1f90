"""Report stores: one report for each credential, in the order of a hash, and nothing beside it.

Claim    an accepted report is on disk, once, whatever crashes; a token has one report; and no table says
         when or in which order reports came or invitations were used, or which invitation belongs to
         which report: in a file at any time, in PostgreSQL once `forget_order` ran.
Because  a transaction is synced before anybody hears of it; the key of a report is the hash of its token,
         and nothing else is stored with it; invitations and reports have no column in common; a file is
         made of `HistoryIndependentTable`; and in PostgreSQL `forget_order` writes the tables anew by
         their keys.
Test     tests/survey/, tests/faults/test_survey_ingest.py

Offline reports came on paper, by mail or in a file. They are stored on the owner's word, without a
credential.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter
from lapwing.survey.credentials import INVITATION_FORM

HASH_BYTES = 32
ReportEntries = Sequence[tuple[bytes, bytes]]  # hash of the token, report
# Each entry: hash of the invitation, hash of the blinded value that it signs.
SignatureEntries = Sequence[tuple[bytes, bytes]]


class IntakeResult(Enum):
    """The result of storing a report, or of a request for a signature."""

    NEW = "new"  # stored now
    AGAIN = "again"  # the same was stored before
    OTHER = "other"  # the token, or the invitation, was used for something else
    CLOSED = "closed"  # the survey takes no more
    UNKNOWN = "unknown"  # there is no such invitation


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The end of a survey. It counts reports and days, and never looks at an answer."""

    stop_after: int | None = None
    until: date | None = None  # the last day, UTC

    def is_over(self, reports: int, today: date) -> bool:
        """Return whether this many reports are enough, or the last day has passed."""
        if self.stop_after is not None and reports >= self.stop_after:
            return True
        return self.until is not None and today > self.until


@dataclass(frozen=True, slots=True)
class CollectionState:
    """The one row about the survey itself."""

    digest: str
    report_size: int
    reports: int
    without_credential: int  # of these reports: offline ones
    is_closed: bool


def token_hash(prepared: bytes) -> bytes:
    """Return the key under which a token's report is stored."""
    return hashlib.sha256(b"lapwing survey token\n" + prepared).digest()


def blinded_hash(blinded: bytes) -> bytes:
    """Return the hash of a blinded value. Only the hash is stored."""
    return hashlib.sha256(b"lapwing survey blinded\n" + blinded).digest()


def invitation_hash(invitation: str) -> bytes:
    """Return the hash of an invitation, to be stored. Raise `BadParameter` if it is malformed."""
    if not isinstance(invitation, str) or not INVITATION_FORM.fullmatch(invitation):
        raise BadParameter("invitation", "must be the 24 characters after # of an invitation's link")
    return hashlib.sha256(b"lapwing survey invitation\n" + invitation.encode()).digest()


class ReportStore(ABC):
    """A survey's database. Threads and processes may share it; every method that writes is durable."""

    where: str  # for messages, without a password

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Run one transaction, while no other process writes. Gives a function that runs a statement."""

    def _reading(self) -> AbstractContextManager[Any]:
        """Give a function that runs a statement, for reading only."""
        return self._transaction()

    @abstractmethod
    def _locked_state(self, run: Any) -> CollectionState:
        """Return the state. It stays as it is until the transaction ends."""

    @abstractmethod
    def _used(self, run: Any, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
        """Return for each known invitation the hash of its blinded value, or NEW if it is unused."""

    @abstractmethod
    def _bind(self, run: Any, blinded: dict[bytes, bytes]) -> None:
        """Bind unused invitations to these hashes of blinded values."""

    @abstractmethod
    def _stored_reports(self, run: Any, tokens: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored reports of these hashes of tokens."""

    @abstractmethod
    def _add(self, run: Any, reports: dict[bytes, bytes], *, has_credential: bool, is_last: bool) -> None:
        """Store new reports and count them. `is_last`: the survey is over with them."""

    @abstractmethod
    def state(self) -> CollectionState:
        """Return which survey it is, and how many reports it has."""

    @abstractmethod
    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        """Register these invitations. `people` are the marks of the people that they were made for."""

    @abstractmethod
    def known_people(self, people: Sequence[str]) -> set[str]:
        """Return those of these people who were invited before."""

    @abstractmethod
    def invitations(self) -> tuple[int, int]:
        """Return the number of registered invitations, and of those used for a signature."""

    def signed(self, invitation: bytes) -> bytes | IntakeResult:
        """Return the hash of the blinded value that an invitation signed, NEW if none, or UNKNOWN."""
        with self._reading() as run:
            return self._used(run, [invitation]).get(invitation, IntakeResult.UNKNOWN)

    def keep(self, signatures: SignatureEntries, rule: StoppingRule, today: date) -> list[IntakeResult]:
        """Bind each invitation to its blinded value, unless it is bound already."""
        results: list[IntakeResult] = []
        new: dict[bytes, bytes] = {}
        with self._transaction() as run:
            state = self._locked_state(run)
            is_over = state.is_closed or rule.is_over(state.reports, today)
            used = self._used(run, [invitation for invitation, _ in signatures])
            for invitation, blinded in signatures:
                found = used.get(invitation, IntakeResult.UNKNOWN)
                if isinstance(found, bytes):
                    found = IntakeResult.AGAIN if found == blinded else IntakeResult.OTHER
                elif found is IntakeResult.NEW and is_over:
                    found = IntakeResult.CLOSED
                elif found is IntakeResult.NEW:
                    used[invitation] = new[invitation] = blinded
                results.append(found)
            if new:
                self._bind(run, new)
        return results

    def accept(
        self, reports: ReportEntries, rule: StoppingRule, today: date, *, has_credential: bool = True
    ) -> list[IntakeResult]:
        """Store each report under its token, as far as the stopping rule allows."""
        results: list[IntakeResult] = []
        new: dict[bytes, bytes] = {}
        with self._transaction() as run:
            state = self._locked_state(run)
            stored = self._stored_reports(run, [token for token, _ in reports])
            for token, report in reports:
                before = stored.get(token)
                if before is not None:
                    results.append(IntakeResult.AGAIN if before == report else IntakeResult.OTHER)
                elif state.is_closed or rule.is_over(state.reports + len(new), today):
                    results.append(IntakeResult.CLOSED)
                else:
                    stored[token] = new[token] = report
                    results.append(IntakeResult.NEW)
            if new:
                is_last = rule.is_over(state.reports + len(new), today)
                self._add(run, new, has_credential=has_credential, is_last=is_last)
        return results

    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        """Return those of these hashes of tokens that have a report."""
        with self._reading() as run:
            return set(self._stored_reports(run, tokens))

    @abstractmethod
    def forget_order(self) -> None:
        """Remove every trace of the order in which reports came."""

    @abstractmethod
    def close_survey(self) -> None:
        """Accept nothing more, for ever, and remove every trace of an order."""

    @abstractmethod
    def rows(self) -> bytes:
        """Return all reports, one after the other, in the order of their hashes."""

    @abstractmethod
    def close(self) -> None:
        """Close the database."""


def read_all_reports(store: ReportStore) -> NDArray[np.uint8]:
    """Return all reports, of shape (n, report_size), in the order of their tokens' hashes."""
    size = store.state().report_size
    return np.frombuffer(store.rows(), np.uint8).reshape(-1, size)


def require_same_survey(state: CollectionState, digest: str, report_size: int, where: str) -> None:
    """Raise `BadParameter` unless the database is of this survey, as it was when first used."""
    if (state.digest, state.report_size) != (digest, report_size):
        raise BadParameter(
            "survey",
            f"{where} belongs to another survey, or to this one before its file was changed. Respondents "
            "agreed to what stood there: give the changed survey a new name, and invite again",
        )


def pile_digest(path: Path) -> bytes:
    """Return the name of a pile: the hash of its whole file. Devices write a random mark into theirs."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None


def offline_entries(reports: NDArray[np.uint8], pile: bytes, *, again: bool = False) -> ReportEntries:
    """Return entries: each report under a hash of its place in the pile. The same pile counts once.

    With `again`, a second pile of the very same content gets hashes of its own.
    """
    named = hashlib.sha256(b"lapwing survey pile\n" + pile)
    if again:
        named.update(random_bytes(HASH_BYTES))
    begun = named.digest()
    return [
        (hashlib.sha256(begun + place.to_bytes(8, "big")).digest(), row.tobytes())
        for place, row in enumerate(reports)
    ]


def not_yet_stored(store: ReportStore, reports: ReportEntries) -> ReportEntries:
    """Return the entries that are not stored yet."""
    known = store.stored([token for token, _ in reports])
    return [(token, report) for token, report in reports if token not in known]
