"""Plans that are kept for their owner, and their releases: each spends once, however often it is asked for.

Claim    a plan's release is charged once: by a double click, in two tabs, after a lost connection, in two
         worker processes, and after the data has a new version.
Because  the release is looked up by the receipt that the plan's row has; else by the question, for the
         version of the data that the row fixes before the charge. A fresh plan counts answers that are
         newer than the plan as its own. The ledger admits one charge of a key, and whoever comes second
         waits for the stored answer.
Test     tests/server/data/test_plans.py, tests/server/data/test_plans_at_once.py

Claim    nobody is charged more than the plan said, or under another policy, also after a restart.
Because  a plan's row keeps its price, and a digest of the policy. A plan that is planned again is compared
         with them before anything is charged.
Test     tests/server/data/test_plans.py, tests/server/data/test_batches.py

Claim    a token spends at most its ε.
Because  the price is booked on the token before the charge, under the plan's name. An attempt lets go of
         its booking only if its charge was refused, and a booking ends when all attempts have let go.
Test     tests/server/data/test_plans.py
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction

from lapwing.errors import BadParameter, OverBudget
from lapwing.server.data.answers import Answers, StoredAnswer
from lapwing.server.data.plan_file import PlanFile, PlanRow, promise_of, require_promise
from lapwing.server.data.question_form import QuestionForm
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.data.waiting import PATIENCE, OneAtATime, waited_for
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.server.people.tokens import Tokens
from lapwing.sql.answering.answers import Answer
from lapwing.sql.releasing import SessionPlan

MOST_KEPT = 512  # plans in memory
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that is kept for its owner."""

    id: str
    person: str
    data: str
    form: QuestionForm
    plan: SessionPlan
    made: float  # seconds since 1970


class Plans:
    """The plans of all people. Threads may share it; worker processes share the file.

    Args:
        sets: The data sets.
        file: The file of plans.
        answers: The stored answers.
        tokens: The tokens, on which prices are booked.
    """

    def __init__(self, sets: ServedDataSets, file: PlanFile, answers: Answers, tokens: Tokens) -> None:
        self._sets, self._file, self._answers, self._tokens = sets, file, answers, tokens
        self._kept: OrderedDict[str, StoredPlan] = OrderedDict()
        self._keeping = threading.Lock()
        self._questions = OneAtATime()
        self.after_release: Callable[[ServedData], None] = lambda _: None  # it may send notices

    def make(self, person: Requester, data: str, question: QuestionForm) -> StoredPlan:
        """Plan a question and keep the plan. Nothing is charged, and no private row is read.

        Raises:
            NotFound, NotAllowed: As `ServedDataSets.require` does.
            LapwingError: As `Dataset.plan` does.
        """
        served = self._sets.require(person, data, Role.ANALYST)
        plan = served.session(person).plan(question.sql, **question.options)
        known = served.registered()
        row = self._file.add(
            person=person.name,
            data=served.name,
            form=question.model_dump_json(exclude_defaults=True),
            since=plan.session.position if question.fresh else 0,
            version=0 if known is None else known.version,
            promise=promise_of([plan], plan.cost),
        )
        return self._keep(StoredPlan(row.id, row.person, row.data, question, plan, row.made))

    def find(self, person: Requester, plan_id: str) -> StoredPlan:
        """Return a plan of a person.

        Raises:
            NotFound: If there is none, or another person made it.
            NotAllowed: If the person is no analyst of the data any more.
            BadParameter: If the policy or the price changed since the plan was made.
        """
        return self._planned(person, self._row(person, plan_id))

    def _row(self, person: Requester, plan_id: str) -> PlanRow:
        row = self._file.find(plan_id) if _ID.fullmatch(plan_id) else None
        if row is None or row.person != person.name:
            raise NotFound(plan_id)
        self._sets.require(person, row.data, Role.ANALYST)
        return row

    def _planned(self, person: Requester, row: PlanRow) -> StoredPlan:
        with self._keeping:
            kept = self._kept.get(row.id)
            if kept is not None:
                self._kept.move_to_end(row.id)
                return kept
        served = self._sets.require(person, row.data, Role.ANALYST)
        form = QuestionForm.read(row.form.encode())
        plan = served.session(person).plan(form.sql, **form.options)  # another worker made it
        require_promise(row, [plan], plan.cost)
        return self._keep(StoredPlan(row.id, row.person, row.data, form, plan, row.made))

    def _keep(self, stored: StoredPlan) -> StoredPlan:
        with self._keeping:
            self._kept[stored.id] = stored
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return stored

    def dry_run(self, person: Requester, plan_id: str) -> Answer:
        """Return an answer of a plan from generated rows. It costs nothing and means nothing."""
        return self.find(person, plan_id).plan.dry_run()

    def release(self, person: Requester, plan_id: str, *, patience: float = PATIENCE) -> StoredAnswer:
        """Release a plan: charge it once, and return its answer as often as it is asked for.

        If the same question is being answered elsewhere, wait for that answer.

        Args:
            person: The owner of the plan.
            plan_id: The plan.
            patience: The most seconds to wait for others.

        Raises:
            NotFound, NotAllowed: As `find` does.
            OverBudget, TokenSpent: If the price is too high. Nothing is charged.
            BadParameter: If the data changed since the plan was made. Nothing is charged.
            Held: If the question was charged and failed.
            InProgress: If the wait is over.
        """
        row = self._row(person, plan_id)
        if row.receipt:
            return self._answers.at(person, row.data, row.receipt)
        stored = self._planned(person, row)
        with (
            self._questions.alone((row.data, stored.plan.request.sql), patience),
            self._booked(person, stored),
        ):
            answer = self._waited_for(person, row, stored, patience)
        self._file.note_receipt(row.id, answer.receipt.position)
        if not answer.is_replay:
            self.after_release(self._sets.require(person, row.data))
        return StoredAnswer.of(row.data, stored.form.sql, answer)

    def _booked(self, person: Requester, stored: StoredPlan) -> AbstractContextManager[None]:
        """Book a plan's price on the token that it is released with, unless its answer is stored."""
        plan = stored.plan
        is_stored = not stored.form.fresh and person.credential == "token" and plan.session.has_answer(plan)
        key = self._sets.require(person, stored.data).booking_key(stored.id)
        return booked(self._tokens, person, key, Fraction(0) if is_stored else plan.cost.epsilon)

    def _waited_for(self, person: Requester, row: PlanRow, stored: StoredPlan, patience: float) -> Answer:
        """Release a plan, or wait until a process that answers the same question has stored its answer."""
        session = self._sets.require(person, row.data, Role.ANALYST).session(person).session
        version = row.version
        if not version:  # the data was not known yet
            version = self._file.fix_version(row.id, session.curator.data(stored.plan.question).version)
        plan, fresh = stored.plan, stored.form.fresh
        return waited_for(
            lambda: session.release(plan, fresh=fresh, since=row.since, version=version), patience
        )


@contextmanager
def booked(tokens: Tokens, person: Requester, key: str, epsilon: Fraction) -> Iterator[None]:
    """Book a price on the token that a person came with, if any; take it back if the charge was refused."""
    if person.credential != "token" or not epsilon:
        yield
        return
    tokens.book(person.credential_id, key, epsilon)
    try:
        yield
    except (OverBudget, BadParameter):  # before the charge, always
        tokens.cancel_booking(person.credential_id, key)
        raise
