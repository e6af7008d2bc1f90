"""Routes of questions: plan for nothing, release for a price, read stored answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from lapwing.errors import BadParameter
from lapwing.server.api.replies import (
    FORMS,
    answer_bytes,
    answer_json,
    plan_json,
    stored_answer_json,
)
from lapwing.server.api.route import ANALYST, RECEIPT, ApiRoute, Call, json_reply
from lapwing.server.data.question_form import LONGEST_SQL, CheckedForm, QuestionForm

_QUESTION: dict[str, Any] = {
    "data": "visits",
    "sql": "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward",
    "epsilon": "0.2",
}
_PRICED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.2) COUNT(*) AS visits FROM visits"
_COST = {"epsilon": "0.2", "delta": "0"}
_PLAN = {"id": "0" * 32, "data": "visits", "sql": _QUESTION["sql"], "cost": _COST, "is_stored": False}
_COLUMN = {
    "name": "visits",
    "values": [2152],
    "low": [2077],
    "high": [2227],
    "note": "",
    "rank_error": None,
}
_ANSWER = {
    "id": "visits.5",
    "data": "visits",
    "sql": _QUESTION["sql"],
    "columns": [_COLUMN],
    "rows": 1,
    "confidence": 0.95,
    "cost": _COST,
    "left": {"epsilon": "2.8", "of": "3", "delta": "6e-8", "quota": None},
    "is_replay": False,
}


class PlanForm(QuestionForm):
    """A question about a data set."""

    model_config = ConfigDict(json_schema_extra={"examples": [_QUESTION]})

    data: str = Field(min_length=1, max_length=100, description="The name of the data set.")

    @property
    def question(self) -> QuestionForm:
        """The question alone."""
        return QuestionForm.model_validate(self.model_dump(exclude={"data"}))


class SqlForm(CheckedForm):
    """One SELECT that has its price inside."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"data": "visits", "sql": _PRICED}]})

    data: str = Field(min_length=1, max_length=100, description="The name of the data set.")
    sql: str = Field(min_length=1, max_length=LONGEST_SQL, description="The SELECT with its OPTIONS.")


def make_plan(call: Call) -> Response:
    """Plan a question. Free: nothing is charged, and no private row is read."""
    form = PlanForm.read(call.body)
    stored = call.services.plans.make(call.person, form.data, form.question)
    return json_reply(plan_json(stored), status=201)


def find_plan(call: Call) -> Response:
    """Return an own plan."""
    return json_reply(plan_json(call.services.plans.find(call.person, call.part("plan"))))


def release(call: Call) -> Response:
    """Release a plan: it is charged once, however often it is sent."""
    stored = call.services.plans.release(call.person, call.part("plan"))
    call.request.scope[RECEIPT] = stored.receipt.position
    return json_reply(stored_answer_json(stored))


def ask_sql(call: Call) -> Response:
    """Answer one SELECT with its price inside: WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5).

    The same text again costs nothing.
    """
    form = SqlForm.read(call.body)
    plan = call.services.plans.make(call.person, form.data, QuestionForm(sql=form.sql))
    stored = call.services.plans.release(call.person, plan.id)
    call.request.scope[RECEIPT] = stored.receipt.position
    return json_reply(stored_answer_json(stored))


def dry_run(call: Call) -> Response:
    """Answer a plan from generated rows: costs nothing, means nothing."""
    return json_reply(answer_json(call.services.plans.dry_run(call.person, call.part("plan"))))


def stored_answer(call: Call) -> Response:
    """Return a stored answer as JSON, CSV or Arrow."""
    form = wanted_form(call.request)
    confidence = call.option("confidence", "0.95")
    make = partial(answer_bytes, form=form)
    content = call.services.answers.content(call.person, call.part("answer"), confidence, form, make)
    return Response(content, media_type=FORMS[form])


def wanted_form(request: Request) -> str:
    """Return "json", "csv" or "arrow": what the address asks for, or else the header Accept."""
    form = request.query_params.get("format")
    if form is not None:
        if form not in FORMS:
            raise BadParameter("format", f"must be one of {', '.join(FORMS)}")
        return form
    accepted = request.headers.get("accept", "")
    return next((name for name, kind in FORMS.items() if kind in accepted), "json")


ROUTES = (
    ApiRoute("POST", "/v1/plans", ANALYST, make_plan, "Plan a question: what it would give and cost. Free.",
             form=PlanForm, example=_PLAN, status=201),
    ApiRoute("GET", "/v1/plans/{plan}", ANALYST, find_plan, "A plan of yours.", example=_PLAN),
    ApiRoute("POST", "/v1/plans/{plan}/release", ANALYST, release,
             "Release a plan: charged once, however often it is sent.", example=_ANSWER, on_grid=True),
    ApiRoute("POST", "/v1/plans/{plan}/dry-run", ANALYST, dry_run,
             "An answer from generated rows: costs nothing, means nothing."),
    ApiRoute("POST", "/v1/sql", ANALYST, ask_sql, "Answer one SELECT that has its price inside.",
             form=SqlForm, example=_ANSWER, on_grid=True),
    ApiRoute("GET", "/v1/answers/{answer}", ANALYST, stored_answer,
             "A stored answer of yours, as JSON, CSV or an Arrow stream.", example=_ANSWER,
             options={"format": "json, csv or arrow; else as the header Accept says.",
                      "confidence": "The probability of each interval; else 0.95."}),
)  # fmt: skip
