"""What was asked and charged: history, entries, receipts, proofs, statements, budgets. Nothing is charged.

Claim    an analyst sees own requests alone; a steward sees all; an officer sees all that is public in the
         ledger, and no words of a question.
Because  each method asks for the role first, and leaves out what that role does not see.
Test     tests/server/data/test_records.py

Data sets of one folder share a ledger, unless their policies say otherwise.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from lapwing.errors import BadParameter
from lapwing.ledger.publishing import export_statement, prove_entry
from lapwing.ledger.readiness import newest_position
from lapwing.ledger.request_log import LoggedRequest, LogLine, each_request, log_lines
from lapwing.ledger.request_status import status_at
from lapwing.ledger.verification import verify
from lapwing.server.data.answers import own_requests
from lapwing.server.data.budget_view import BudgetView, budget_view
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.data.spending import PastSpending, spending_of
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.sql.answering.stored_answers import stored_question
from lapwing.sql.policy.policy import account_label

MOST_LINES = 1_000
LONGEST_NUMBER = 18  # digits of a receipt's number: every ledger can look it up
LONGEST_RECEIPT = 1 << 20  # bytes of a receipt, a proof or a statement that somebody brings
_SEES_ALL = (Role.STEWARD, Role.OFFICER)
View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The result of checking a receipt, a proof or a statement that somebody brought."""

    kind: str  # "receipt", "proof" or "statement"
    is_good: bool
    findings: tuple[str, ...]
    data: str = ""  # the data set here whose ledger it is of
    position: int = 0
    told: dict[str, Any] | None = None  # what it says: its public fields


class Records:
    """The records of all data sets.

    Args:
        sets: The data sets.
    """

    def __init__(self, sets: ServedDataSets) -> None:
        self._sets = sets
        self._views: dict[tuple[str, str | None], tuple[int, BudgetView]] = {}
        self._spendings: dict[tuple[str, str | None], tuple[int, PastSpending]] = {}
        self._viewing = threading.Lock()

    def history(self, person: Requester, data: str, most: int = 50) -> list[LoggedRequest]:
        """Return the newest requests, newest first: the own ones, or all for stewards and officers.

        Officers see what was charged, and no words of questions.
        """
        served = self._sets.require(person, data, Role.ANALYST, *_SEES_ALL)
        most = min(most, MOST_LINES)
        if not person.can(data, *_SEES_ALL):
            return [*own_requests(served.curator, person.name)[-most:][::-1]]
        requests: list[LoggedRequest] = []
        if served.curator.has_ledger:
            label = account_label(served.curator.policy)
            each_request(
                served.curator.ledger, requests.append, words_of=stored_question, last=most, account=label
            )
        if not person.can(data, Role.STEWARD):
            requests = [
                request if request.line.principal == person.name else replace(request, question=None)
                for request in requests
            ]
        return requests[::-1]

    def entries(self, person: Requester, data: str, most: int = 50) -> list[LogLine]:
        """Return the newest entries of the ledger that are about a data set's account, newest first."""
        served = self._sets.require(person, data, *_SEES_ALL)
        if not served.curator.has_ledger:
            return []
        label = account_label(served.curator.policy)
        lines = log_lines(served.curator.ledger, last=min(most, MOST_LINES))
        return [line for line in lines[::-1] if not line.accounts or label in line.accounts]

    def receipt(self, person: Requester, data: str, position: int) -> dict[str, Any]:
        """Return a receipt as plain values: an own one, or any for stewards and officers."""
        served = self._charged(person, data, position)
        status = status_at(served.curator.ledger, position)
        assert status is not None, "it was found before"
        record: dict[str, Any] = json.loads(status.receipt.to_json())
        return record

    def proof(self, person: Requester, data: str, position: int) -> dict[str, Any]:
        """Return a proof that a receipt is in the ledger. Whose receipts: as in `receipt`."""
        return prove_entry(self._charged(person, data, position).curator.ledger, position)

    def statement(self, person: Requester, data: str) -> bytes:
        """Return the whole history, as anybody can check it, without names."""
        served = self._sets.require(person, data, *_SEES_ALL)
        if not served.curator.has_ledger:
            raise NotFound(data)
        with TemporaryDirectory(prefix="lapwing-statement-") as folder:
            path = Path(folder) / "statement"
            export_statement(served.curator.ledger, path)
            return path.read_bytes()

    def budget(self, person: Requester, data: str, *, with_forecast: bool = True) -> BudgetView:
        """Return the budget, with all quotas for stewards and officers, else with the own one."""
        served = self._sets.require(person, data)
        people = None if person.can(data, *_SEES_ALL) else person.name
        if not with_forecast:
            return budget_view(served.curator, people=people, with_forecast=False)
        return self._kept(self._views, served, people, lambda: budget_view(served.curator, people=people))

    def spending(self, person: Requester, data: str) -> PastSpending:
        """Return what was paid over time: by all people for stewards and officers, else the own prices."""
        served = self._sets.require(person, data, Role.ANALYST, *_SEES_ALL)
        people = None if person.can(data, *_SEES_ALL) else person.name
        return self._kept(
            self._spendings, served, people, lambda: spending_of(served.curator, people=people)
        )

    def _kept(
        self,
        views: dict[tuple[str, str | None], tuple[int, View]],
        served: ServedData,
        people: str | None,
        make: Callable[[], View],
    ) -> View:
        """Return a view of a ledger, which is made once for each newest entry."""
        place, key = _newest(served), (served.name, people)
        with self._viewing:
            kept = views.get(key)
        if kept is not None and kept[0] == place:
            return kept[1]
        view = make()
        with self._viewing:
            if len(views) > MOST_LINES:
                views.clear()
            views[key] = place, view
        return view

    def verify(self, person: Requester, text: bytes) -> CheckedText:
        """Check a receipt, a proof or a statement that somebody brought, against the ledgers here.

        Data sets may share a ledger. Only the name of one that the person has a role for is told.

        Raises:
            BadParameter: If it is none of these, or too long.
        """
        if len(text) > LONGEST_RECEIPT:
            raise BadParameter("file", "is too long to be checked here: use `lapwing ledger verify FILE`")
        record = _record(text)
        if record is not None and {"ledger", "position", "hash"} <= set(record):
            return self._checked_receipt(person, record)
        if not text.startswith(b"{"):  # a database, for one, is never opened
            raise BadParameter("file", "is no receipt, no proof and no statement")
        with TemporaryDirectory(prefix="lapwing-verify-") as folder:
            path = Path(folder) / "text"
            path.write_bytes(text)
            try:
                verified = verify(str(path))
            except BadParameter:
                raise BadParameter("file", "is no receipt, no proof and no statement") from None
        told, findings = verified.to_json(), list(verified.findings)
        mine = self._of_ledger(verified.ledger)
        if mine is None:
            findings.append("no ledger here has this id: nothing says who signed it")
        elif mine.curator.ledger.keys.signing.public.hex() != verified.key:
            findings.append("it is signed with another key than that of the ledger here")
        position = int(told["entry"]["number"]) if told["entry"] else 0
        name = self._shown_name(person, verified.ledger, position)
        return CheckedText(verified.kind, not findings, tuple(findings), name, position, told)

    def _shown_name(self, person: Requester, ledger_id: str, position: int) -> str:
        """Return the name of the data set that a charge, or a ledger, is about; "" for others' data."""
        seen = [
            data
            for data in self._sets.visible_to(person)
            if data.curator.has_ledger and data.curator.ledger.id == ledger_id
        ]
        if position:
            seen = [data for data in seen if account_label(data.curator.policy) in _charged(data, position)]
        return seen[0].name if seen else ""

    def _checked_receipt(self, person: Requester, record: dict[str, Any]) -> CheckedText:
        mine = self._of_ledger(str(record["ledger"]))
        position = record["position"]
        if mine is None:
            why = "no ledger here has this id"
            return CheckedText("receipt", False, (why,))
        status = None
        if isinstance(position, int) and 0 < position < 1 << 60:
            status = status_at(mine.curator.ledger, position)
        if status is None or status.receipt.hash != record["hash"]:
            why = "the ledger has no such charge at this position"
            return CheckedText("receipt", False, (why,))
        said = json.loads(status.receipt.to_json())
        wrong = [
            f"{name} differs from what the ledger has" for name in said if record.get(name) != said[name]
        ]
        name = self._shown_name(person, mine.curator.ledger.id, position)
        return CheckedText("receipt", not wrong, tuple(wrong), name, position, None if wrong else said)

    def _of_ledger(self, ledger_id: str) -> ServedData | None:
        with_ledger = (data for data in self._sets if data.curator.has_ledger)
        return next((data for data in with_ledger if data.curator.ledger.id == ledger_id), None)

    def _charged(self, person: Requester, data: str, position: int) -> ServedData:
        """Return the data set of a charge that a person may see."""
        served = self._sets.require(person, data, Role.ANALYST, *_SEES_ALL)
        status = None
        if served.curator.has_ledger and 0 < position < 1 << 60:
            status = status_at(served.curator.ledger, position)
        if status is None:
            raise NotFound(f"{data}.{position}")
        label, charged = account_label(served.curator.policy), _charged(served, position)
        is_own = status.receipt.principal == person.name
        if label not in charged or not (is_own or person.can(data, *_SEES_ALL)):
            raise NotFound(f"{data}.{position}")
        return served


def receipt_number(text: str) -> int:
    """Return the number of a receipt from an address. Raises NotFound for what no ledger can have."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER):
        raise NotFound(text)
    return int(text)


def _charged(served: ServedData, position: int) -> set[str]:
    """Return the accounts that a charge of a data set's ledger debits; none if it is no charge."""
    ledger = served.curator.ledger
    status = status_at(ledger, position) if 0 < position < 1 << 60 else None
    if status is None:
        return set()
    return {ledger.numbered(debit[0]).label for debit in status.receipt.record["debits"]}


def _newest(served: ServedData) -> int:
    """Return the position of the newest entry: as long as it stays, no budget changes."""
    return newest_position(served.curator.ledger) if served.curator.has_ledger else 0


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def history_line(request: LoggedRequest) -> dict[str, Any]:
    """Return a line of a history as plain values."""
    return {
        **asdict(request.line),
        "state": request.state,
        "question": request.question,
        "price": request.price.words,
    }
