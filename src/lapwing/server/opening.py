"""A survey file, opened for respondents: its design, its key and its reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from lapwing.server.app import create_app
from lapwing.survey.collecting import Desk, Rule, open_store, signing_key
from lapwing.survey.planning import Design, design
from lapwing.survey.questionnaire import load


@dataclass(frozen=True)
class Opened:
    """A survey whose desk is open."""

    design: Design
    desk: Desk

    def public(self) -> dict[str, Any]:
        """What respondents are told."""
        return self.design.public()

    def app(self, *, has_tls: bool = False) -> FastAPI:
        """The survey as a web application."""
        return create_app(self.desk, self.public(), has_tls=has_tls)


def open_survey(path: str | Path) -> Opened:
    """The survey of a file. Its signing key and its store of reports are made at the first use."""
    planned = design(load(path))
    return Opened(planned, open_desk(planned))


def open_desk(planned: Design) -> Desk:
    """The desk of a survey."""
    survey, digest, size = planned.survey, planned.digest, planned.report_size
    key = signing_key(survey.ledger, survey.ledger_keys, name=survey.name, digest=digest)
    store = open_store(survey.reports, digest=digest, report_size=size)
    return Desk(store, key, digest, size, planned.check, Rule(survey.stop_after, survey.until))
