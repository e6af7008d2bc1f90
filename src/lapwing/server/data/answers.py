"""Stored answers by their id, rebuilt from the bytes that the ledger keeps.

Claim    an analyst gets the own answers, and those of others where the policy shares them. Any other id is
         the one of an answer that never was.
Because  `ReleaseSession.stored` looks among the answers that this analyst may see, and nowhere else.
Test     tests/server/data/test_answers.py
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lapwing.core.spread import checked_confidence
from lapwing.ledger import Receipt
from lapwing.ledger.request_log import ANSWERED, LoggedRequest, each_request
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.stored_answers import stored_question
from lapwing.sql.policy.policy import account_label

_ID = re.compile(r"(.+)\.([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,3}))?")
CONFIDENCE = Fraction(95, 100)
MOST_KEPT, LARGEST_KEPT = 256, 1 << 16  # contents in memory, and the bytes of one


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer with its id: "DATA.RECEIPT", or "DATA.RECEIPT-PLACE" of one of a batch, from 1."""

    id: str
    data: str
    answer: Answer
    sql: str
    receipt: Receipt
    is_replay: bool

    @classmethod
    def of(cls, data: str, sql: str, answer: Answer, *, place: int = 0) -> StoredAnswer:
        """Return an answer that was released, with its id. `place` is that in a batch, from 1; 0: alone."""
        receipt = answer.receipt
        name = f"{data}.{receipt.position}" + (f"-{place}" if place else "")
        return cls(name, data, answer, sql, receipt, answer.is_replay)


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """A stored answer in a list."""

    id: str
    sql: str
    at: str
    cost: str  # in words
    receipt: int


@dataclass(frozen=True, slots=True)
class _KeptContent:
    """The bytes of an answer, and the ledger's newest entry when its reader was last checked."""

    data: str
    position: int
    content: bytes


class Answers:
    """The stored answers of all data sets.

    Args:
        sets: The data sets.
    """

    def __init__(self, sets: ServedDataSets) -> None:
        self._sets = sets
        self._kept: OrderedDict[tuple[str, ...], _KeptContent] = OrderedDict()
        self._keeping = threading.Lock()

    def find(self, person: Requester, answer_id: str, *, confidence: str = "0.95") -> StoredAnswer:
        """Return an answer by its id, with intervals at a confidence.

        Raises:
            NotFound: If there is none that this person may see.
            BadParameter: If the confidence is not valid.
        """
        matched = _ID.fullmatch(answer_id)
        if matched is None:
            raise NotFound(answer_id)
        level = checked_confidence(confidence)
        return self.at(person, matched[1], int(matched[2]), level, place=int(matched[3] or 0))

    def content(
        self,
        person: Requester,
        answer_id: str,
        confidence: str,
        form: str,
        make: Callable[[StoredAnswer], bytes],
    ) -> bytes:
        """Return an answer as bytes, which are kept in memory: it never changes, whoever asks for it again.

        Args:
            person: Who asks.
            answer_id: The answer.
            confidence: The probability of each interval.
            form: The name of the form, such as "csv".
            make: Makes the bytes of an answer. They must not say what is left now.

        Raises:
            NotFound, BadParameter: As `find` does.
        """
        key = (person.name, answer_id, confidence, form)
        with self._keeping:
            kept = self._kept.get(key)
        if kept is not None and person.can(kept.data, Role.ANALYST):
            served = self._sets.require(person, kept.data, Role.ANALYST)
            newest = served.session(person).session.position
            if newest != kept.position:  # the person may have lost the right to read
                served.require_allowed(person)
                self._keep(key, replace(kept, position=newest))
            return kept.content
        stored = self.find(person, answer_id, confidence=confidence)
        newest = self._sets.require(person, stored.data).session(person).session.position
        content = make(stored)
        if len(content) <= LARGEST_KEPT:
            self._keep(key, _KeptContent(stored.data, newest, content))
        return content

    def _keep(self, key: tuple[str, ...], kept: _KeptContent) -> None:
        with self._keeping:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)

    def at(
        self,
        person: Requester,
        data: str,
        receipt: int,
        confidence: Fraction = CONFIDENCE,
        *,
        place: int = 0,
    ) -> StoredAnswer:
        """Return the answer of a receipt; `place` is that of a question in a batch, from 1. See `find`."""
        if not person.can(data, Role.ANALYST):  # as for an answer that never was
            raise NotFound(f"{data}.{receipt}")
        served = self._sets.require(person, data, Role.ANALYST)
        stored = served.session(person).session.stored(receipt, confidence, place=max(place - 1, 0))
        if stored is None:
            raise NotFound(f"{data}.{receipt}")
        return StoredAnswer.of(data, *stored, place=place)

    def all_of(self, person: Requester, data: str, most: int = 50) -> list[AnswerSummary]:
        """Return the newest own answers of a person, newest first."""
        served = self._sets.require(person, data, Role.ANALYST)
        own = [
            request
            for request in own_requests(served.curator, person.name)
            if request.state == ANSWERED and request.question
        ]
        return [_summary(data, request) for request in own[-most:][::-1]]


def own_requests(curator: Any, name: str) -> Sequence[LoggedRequest]:
    """Return all requests of one person that were charged to a data set's account, oldest first."""
    requests: list[LoggedRequest] = []

    def tell(request: LoggedRequest) -> None:
        if request.line.principal == name:
            requests.append(request)

    if curator.has_ledger:
        each_request(curator.ledger, tell, words_of=stored_question, account=account_label(curator.policy))
    return requests


def _summary(data: str, request: LoggedRequest) -> AnswerSummary:
    line = request.line
    return AnswerSummary(
        f"{data}.{line.number}", request.question or "", line.time, request.price.words, line.number
    )
