"""Stored answers by their id, rebuilt from the bytes that the ledger keeps.

Claim    an analyst gets the own answers, and those of others where the policy shares them. Any other id is
         the one of an answer that never was.
Because  `ReleaseSession.stored` looks among the answers that this analyst may see, and nowhere else.
Test     tests/server/data/test_answers.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.core.spread import checked_confidence
from lapwing.ledger import Receipt
from lapwing.ledger.request_log import ANSWERED, LoggedRequest, each_request
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.person import NotFound, Person, Role
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.stored_answers import stored_question
from lapwing.sql.policy.policy import account_label

_ID = re.compile(r"(.+)\.([1-9][0-9]{0,14})")
CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer with its id, "DATA.RECEIPT"."""

    id: str
    data: str
    answer: Answer
    sql: str
    receipt: Receipt
    is_replay: bool

    @classmethod
    def of(cls, data: str, sql: str, answer: Answer) -> StoredAnswer:
        """Return an answer that was released, with its id."""
        receipt = answer.receipt
        assert receipt is not None, "only dry runs have none"
        return cls(f"{data}.{receipt.position}", data, answer, sql, receipt, answer.is_replay)


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """A stored answer in a list."""

    id: str
    sql: str
    at: str
    cost: str  # in words
    receipt: int


class Answers:
    """The stored answers of all data sets.

    Args:
        sets: The data sets.
    """

    def __init__(self, sets: ServedDataSets) -> None:
        self._sets = sets

    def find(self, person: Person, answer_id: str, *, confidence: str = "0.95") -> StoredAnswer:
        """Return an answer by its id, with intervals at a confidence.

        Raises:
            NotFound: If there is none that this person may see.
            BadParameter: If the confidence is not valid.
        """
        found = _ID.fullmatch(answer_id)
        if found is None:
            raise NotFound(answer_id)
        level = checked_confidence(confidence)
        return self.at(person, found[1], int(found[2]), level)

    def at(
        self, person: Person, data: str, receipt: int, confidence: Fraction = CONFIDENCE
    ) -> StoredAnswer:
        """Return the answer of a receipt. See `find`."""
        if not person.can(data, Role.ANALYST):  # as for an answer that never was
            raise NotFound(f"{data}.{receipt}")
        served = self._sets.require(person, data, Role.ANALYST)
        found = served.session(person).session.stored(receipt, confidence)
        if found is None:
            raise NotFound(f"{data}.{receipt}")
        return StoredAnswer.of(data, *found)

    def all_of(self, person: Person, data: str, most: int = 50) -> list[AnswerSummary]:
        """Return the newest own answers of a person, newest first."""
        served = self._sets.require(person, data, Role.ANALYST)
        own = [
            one
            for one in own_requests(served.curator, person.name)
            if one.state == ANSWERED and one.question
        ]
        return [_summary(data, one) for one in own[-most:][::-1]]


def own_requests(curator: Any, name: str) -> Sequence[LoggedRequest]:
    """Return all requests of one person that were charged to a data set's account, oldest first."""
    found: list[LoggedRequest] = []

    def tell(one: LoggedRequest) -> None:
        if one.line.principal == name:
            found.append(one)

    if curator.has_ledger:
        each_request(curator.ledger, tell, words_of=stored_question, account=account_label(curator.policy))
    return found


def _summary(data: str, one: LoggedRequest) -> AnswerSummary:
    line = one.line
    return AnswerSummary(
        f"{data}.{line.number}", one.question or "", line.time, one.price.words, line.number
    )
