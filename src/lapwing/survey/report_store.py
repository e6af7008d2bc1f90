"""Where reports are kept: one for each credential, in the order of a hash, and nothing beside them.

Claim    a report that was accepted is on disk, once, whatever crashes; a token has one report; and no table
         says when or in which order reports came or invitations were used, or which invitation belongs to
         which report: in a file at any time, in PostgreSQL once `forget_order` ran.
Because  a transaction is synced before anybody hears of it; the key of a report is the hash of its token,
         which is also all that it is stored with; invitations and reports have no column in common; a
         file is made of `Buckets`; and in PostgreSQL `forget_order` writes the tables anew by their keys.
Test     tests/survey/collecting/, tests/faults/test_survey_ingest.py

Reports that came on paper, by mail or in a file: taken on the owner's word, without a credential.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter
from lapwing.survey.credentials import INVITATION_FORM

HASH_BYTES = 32
ReportEntries = Sequence[tuple[bytes, bytes]]  # hash of the token, report
SignatureEntries = Sequence[
    tuple[bytes, bytes]
]  # hash of the invitation, hash of the blinded value it is for


class IntakeResult(Enum):
    """What became of a report or of a wish for a signature."""

    NEW = "new"  # stored now
    AGAIN = "again"  # the same was stored before
    OTHER = "other"  # the token, or the invitation, was used for something else
    CLOSED = "closed"  # the survey takes no more
    UNKNOWN = "unknown"  # there is no such invitation


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When a survey stops. It counts reports and days, and never looks at an answer."""

    stop_after: int | None = None
    until: date | None = None  # the last day, UTC

    def is_over(self, reports: int, today: date) -> bool:
        """Whether this many reports are enough, or the last day has passed."""
        if self.stop_after is not None and reports >= self.stop_after:
            return True
        return self.until is not None and today > self.until


@dataclass(frozen=True, slots=True)
class CollectionState:
    """The one row about the survey itself."""

    digest: str
    report_size: int
    reports: int
    without_credential: int  # of them: taken from files, on the owner's word
    is_closed: bool


def token_hash(prepared: bytes) -> bytes:
    """Under which a token's report is stored."""
    return hashlib.sha256(b"lapwing survey token\n" + prepared).digest()


def blinded_hash(blinded: bytes) -> bytes:
    """What is kept of a blinded value."""
    return hashlib.sha256(b"lapwing survey blinded\n" + blinded).digest()


def invitation_hash(invitation: str) -> bytes:
    """What is kept of an invitation. `BadParameter` if it has not the form of one."""
    if not isinstance(invitation, str) or not INVITATION_FORM.fullmatch(invitation):
        raise BadParameter("invitation", "must be the 24 characters after # of an invitation's link")
    return hashlib.sha256(b"lapwing survey invitation\n" + invitation.encode()).digest()


class ReportStore(ABC):
    """A survey's database. Threads and processes may share it; every method that writes is durable."""

    where: str  # for messages: no password is in it

    @abstractmethod
    def state(self) -> CollectionState:
        """Which survey it is, and how far it has come."""

    @abstractmethod
    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        """Expect these invitations. `people` are marks of whom they were made for."""

    @abstractmethod
    def known_people(self, people: Sequence[str]) -> set[str]:
        """Who of them was invited before."""

    @abstractmethod
    def invitations(self) -> tuple[int, int]:
        """How many were admitted, and how many of them were used for a signature."""

    @abstractmethod
    def signed(self, invitation: bytes) -> bytes | IntakeResult:
        """The hash of what an invitation was used for. NEW if for nothing yet, or UNKNOWN."""

    @abstractmethod
    def keep(self, signatures: SignatureEntries, rule: StoppingRule, today: date) -> list[IntakeResult]:
        """Bind each invitation to its blinded value, unless it is bound. All are durable."""

    @abstractmethod
    def accept(
        self, reports: ReportEntries, rule: StoppingRule, today: date, *, has_credential: bool = True
    ) -> list[IntakeResult]:
        """Store each report under its token, as far as the rule lets. All are durable."""

    @abstractmethod
    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        """Which of these hashes of tokens have a report."""

    @abstractmethod
    def forget_order(self) -> None:
        """Leave no trace of the order of what came so far."""

    @abstractmethod
    def close_survey(self) -> None:
        """Take nothing more, for ever, and leave no trace of any order."""

    @abstractmethod
    def rows(self) -> bytes:
        """All reports, one after the other, in the order of their hashes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""


def read_all_reports(store: ReportStore) -> NDArray[np.uint8]:
    """All reports, shape (n, report_size), in the order of their tokens' hashes, which tells nothing."""
    size = store.state().report_size
    return np.frombuffer(store.rows(), np.uint8).reshape(-1, size)


def require_same_survey(state: CollectionState, digest: str, report_size: int, where: str) -> None:
    """The database is of this survey, as it was when it was first used."""
    if (state.digest, state.report_size) != (digest, report_size):
        raise BadParameter(
            "survey",
            f"{where} belongs to another survey, or to this one before its file was changed. Respondents "
            "agreed to what stood there: give the changed survey a new name, and invite again",
        )


def pile_digest(path: Path) -> bytes:
    """What names a pile: a hash of its whole file, in which each device that makes one writes a mark."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None


def offline_entries(reports: NDArray[np.uint8], pile: bytes, *, again: bool = False) -> ReportEntries:
    """Reports, each under a hash of its place in the pile of this name: the same pile again counts once.

    If somebody made a second pile of the very same content, it is taken `again`, under hashes of its own.
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
    """Those that are not stored yet."""
    known = store.stored([token for token, _ in reports])
    return [(token, report) for token, report in reports if token not in known]


def store_offline(
    store: ReportStore, reports: ReportEntries, rule: StoppingRule, today: date
) -> list[IntakeResult]:
    """Store them in one transaction: all that the stopping rule lets in, or none."""
    return store.accept(reports, rule, today, has_credential=False)
