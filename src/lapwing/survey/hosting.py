"""A survey file opened for respondents: its design, its key and its reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lapwing.survey.designing import Design, design
from lapwing.survey.report_store import StoppingRule
from lapwing.survey.service import SurveyService, open_report_store, open_signing_key
from lapwing.survey.survey_file import load
from lapwing.survey.web_app import create_app

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True)
class HostedSurvey:
    """A survey that accepts respondents."""

    design: Design
    service: SurveyService

    def app(self, *, has_tls: bool = False) -> FastAPI:
        """Return the survey as a web application."""
        return create_app(self.service, self.design.public(), has_tls=has_tls)


def open_survey(path: str | Path) -> HostedSurvey:
    """Open the survey of a file. Its signing key and its store of reports are made at the first use."""
    planned = design(load(path))
    return HostedSurvey(planned, open_service(planned))


def open_service(planned: Design) -> SurveyService:
    """Open the service of a survey: its store and its signing key."""
    survey, digest, size = planned.survey, planned.digest, planned.report_size
    key = open_signing_key(survey.ledger, survey.ledger_keys, name=survey.name, digest=digest)
    store = open_report_store(survey.reports, digest=digest, report_size=size)
    return SurveyService(
        store, key, digest, size, planned.check, StoppingRule(survey.stop_after, survey.until)
    )
