"""Routes of surveys: designs for all, progress and estimates for owners. Respondents stay elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from lapwing.server.api.route import EVERY_ROLE, ApiRoute, Call, json_reply
from lapwing.server.data.surveys import ServedSurvey

_SURVEY = {
    "id": "wellbeing", "name": "wellbeing", "title": "Wellbeing", "epsilon": "2", "questions": 4,
    "digest": "…", "progress": {"reports": 812, "is_closed": False},
}  # fmt: skip


def survey_json(survey: ServedSurvey) -> dict[str, Any]:
    """Return a survey; its progress is for its owner."""
    asked, progress = survey.design.survey, survey.progress() if survey.is_own else None
    return {
        "id": survey.id,
        "name": asked.name,
        "title": asked.title,
        "epsilon": survey.epsilon,
        "questions": len(asked.questions),
        "stops": asked.stops,
        "digest": survey.design.digest,
        "progress": None if progress is None else asdict(progress),
    }


def list_surveys(call: Call) -> Response:
    """Return the surveys of the served folder. Progress is told to owners."""
    surveys = call.services.surveys.all_of(call.person)
    return json_reply({"surveys": [survey_json(survey) for survey in surveys]})


def find_survey(call: Call) -> Response:
    """Return an own survey with its design: what every respondent's device gets."""
    survey = call.services.surveys.find(call.person, call.part("survey"))
    return json_reply({**survey_json(survey), "design": survey.design.public()})


def survey_estimates(call: Call) -> Response:
    """Return the estimates of an own survey, with intervals."""
    confidence, by = call.option("confidence", "0.95"), call.option("by", "") or None
    told = call.services.surveys.estimates(call.person, call.part("survey"), confidence=confidence, by=by)
    return json_reply(told)


ROUTES = (
    ApiRoute("GET", "/v1/surveys", EVERY_ROLE, list_surveys, "Surveys; their progress for owners.",
             example={"surveys": [_SURVEY]}),
    ApiRoute("GET", "/v1/surveys/{survey}", EVERY_ROLE, find_survey, "A survey of yours, with its design.",
             example=_SURVEY),
    ApiRoute("GET", "/v1/surveys/{survey}/estimates", EVERY_ROLE, survey_estimates,
             "Estimates of a survey of yours, with intervals.",
             options={"confidence": "The probability of each interval; else 0.95.",
                      "by": "A question: estimate within each answer to it."}),
)  # fmt: skip
