"""Several questions priced together and released as one charge, all or none: for a dashboard.

Claim    a batch is charged once, however often its release is sent.
Because  its row fixes the version of the data before the charge, the engine gives a batch that was released
         before again, and whoever comes second waits.
Test     tests/server/data/test_batches.py
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from lapwing.ledger.request_status import status_at
from lapwing.server.data.answers import StoredAnswer
from lapwing.server.data.plan_file import PlanFile, PlanRow, promise_of, require_promise
from lapwing.server.data.plans import booked
from lapwing.server.data.question_form import (
    LARGEST_COUNT,
    LONGEST_SQL,
    CheckedForm,
    DecimalText,
    PositiveText,
)
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.data.waiting import PATIENCE, OneAtATime, waited_for
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.server.people.tokens import Tokens
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.stored_answers import requests_in
from lapwing.sql.batches import MOST_QUESTIONS, BatchPlan
from lapwing.sql.question import meaning
from lapwing.sql.releasing import SessionPlan

BATCHES = "batches.sqlite"  # the file of their plans
_ID = re.compile(r"[0-9a-f]{32}")
_EXAMPLE: dict[str, Any] = {
    "data": "visits",
    "epsilon": "0.5",
    "questions": [
        {"sql": "SELECT COUNT(*) AS n FROM visits"},
        {"sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"},
    ],
}


class BatchQuestion(CheckedForm):
    """One question of a batch."""

    sql: str = Field(min_length=1, max_length=LONGEST_SQL, description="One SELECT.")
    epsilon: PositiveText | None = Field(default=None, description="The price in ε; else a share.")
    delta: DecimalText | None = Field(default=None, description="The price in δ; else the policy's.")
    noise: Literal["auto", "laplace", "gaussian"] = "auto"
    rows: int | None = Field(
        default=None, ge=1, le=LARGEST_COUNT, description="A lower contribution bound."
    )

    @property
    def asked(self) -> tuple[str, dict[str, Any]]:
        """The SQL, and the options that are given."""
        return self.sql, self.model_dump(exclude={"sql"}, exclude_defaults=True)


class BatchForm(CheckedForm):
    """Several questions with one price. Each has its own ε, or `epsilon` is divided among them."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    data: str = Field(min_length=1, max_length=100, description="The name of the data set.")
    questions: Annotated[list[BatchQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)]
    epsilon: PositiveText | None = Field(default=None, description="The ε of all questions together.")
    delta: DecimalText | None = Field(default=None, description="The δ of all questions together.")
    weights: list[PositiveText] | None = Field(
        default=None, description="The shares of the questions in ε."
    )


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that is kept for its owner."""

    id: str
    data: str
    form: BatchForm
    plan: BatchPlan


class Batches:
    """The batches of all people.

    Args:
        sets: The data sets.
        file: The file of their plans.
        tokens: The tokens, on which prices are booked.
    """

    def __init__(self, sets: ServedDataSets, file: PlanFile, tokens: Tokens) -> None:
        self._sets, self._file, self._tokens = sets, file, tokens
        self._running = OneAtATime()
        self.after_release: Callable[[ServedData], None] = lambda _: None

    def make(self, person: Requester, form: BatchForm) -> StoredBatch:
        """Plan a batch and keep the plan. Nothing is charged, and no private row is read."""
        served = self._sets.require(person, form.data, Role.ANALYST)
        plan = _planned(served, person, form)
        known = served.registered()
        row = self._file.add(
            person=person.name,
            data=served.name,
            form=form.model_dump_json(exclude_defaults=True),
            since=0,
            version=0 if known is None else known.version,
            promise=promise_of(plan.plans, plan.cost),
        )
        return StoredBatch(row.id, served.name, form, plan)

    def find(self, person: Requester, batch_id: str) -> StoredBatch:
        """Return a batch of a person.

        Raises:
            NotFound: If there is none, or another person made it.
            BadParameter: If the policy changed since the batch was planned.
        """
        return self._stored(person, self._row(person, batch_id))

    def _row(self, person: Requester, batch_id: str) -> PlanRow:
        row = self._file.find(batch_id) if _ID.fullmatch(batch_id) else None
        if row is None or row.person != person.name:
            raise NotFound(batch_id)
        self._sets.require(person, row.data, Role.ANALYST)
        return row

    def _stored(self, person: Requester, row: PlanRow) -> StoredBatch:
        served = self._sets.require(person, row.data, Role.ANALYST)
        form = BatchForm.read(row.form.encode())
        plan = _planned(served, person, form)
        require_promise(row, plan.plans, None)  # the price is less once answers are stored
        return StoredBatch(row.id, row.data, form, plan)

    def release(
        self, person: Requester, batch_id: str, *, patience: float = PATIENCE
    ) -> list[StoredAnswer]:
        """Release a batch: charge it once, and return its answers as often as they are asked for.

        Args:
            person: The owner of the batch.
            batch_id: The batch.
            patience: The most seconds to wait for others.

        Raises:
            LapwingError: As `BatchPlan.release` and `Plans.release` do.
        """
        row = self._row(person, batch_id)
        served = self._sets.require(person, row.data, Role.ANALYST)
        with self._running.alone((row.data, row.form), patience):
            stored = self._stored(person, row)
            version = row.version
            if not version:  # the data was not known yet
                question = stored.plan.plans[0].question
                version = self._file.fix_version(row.id, served.curator.data(question).version)
            price = stored.plan.cost.epsilon
            with booked(self._tokens, person, served.booking_key(row.id), price):
                answers = waited_for(lambda: stored.plan.release(version=version), patience)
        if not all(answer.is_replay for answer in answers):
            self.after_release(served)
        return [
            StoredAnswer.of(row.data, plan.request.sql, answer, place=_place(served, plan, answer))
            for plan, answer in zip(stored.plan.plans, answers, strict=True)
        ]


def _place(served: ServedData, plan: SessionPlan, answer: Answer) -> int:
    """Return the place of a question among those that were charged together, from 1; 0: it was alone."""
    status = status_at(served.curator.ledger, answer.receipt.position)
    asked = [] if status is None else requests_in(status.answer)
    if len(asked) <= 1:
        return 0
    curator, request = served.curator, plan.request
    both = meaning.query_digests_by_ranks(curator.policy, plan.question, curator.public)
    wanted = {
        (form, request.rows, request.price) for _, form in both.values()
    }  # whatever columns are called
    return next(
        place
        for place, question in enumerate(asked, 1)
        if (question.form, question.rows, question.price) in wanted
    )


def _planned(served: ServedData, person: Requester, form: BatchForm) -> BatchPlan:
    return served.session(person).batch(
        [question.asked for question in form.questions],
        epsilon=form.epsilon,
        delta=form.delta,
        weights=form.weights,
    )
