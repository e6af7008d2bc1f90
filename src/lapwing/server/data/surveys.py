"""Surveys of the served folder: designs, progress and estimates. Respondents never come to this server.

Claim    nobody but a survey's owner sees its progress and its estimates. Its design is what every
         respondent gets.
Because  both ask for the role for the survey's own name, or for all. Reports were randomized on devices:
         estimates of them cost nobody anything more.
Test     tests/server/data/test_surveys.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapwing.config.values import is_postgres
from lapwing.errors import BadFile, LapwingError
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.data.work_files import declared
from lapwing.server.people.person import EVERYWHERE, NotFound, Requester, Role
from lapwing.survey.collection import opened_reports, stored_reports
from lapwing.survey.designing import Design, design, epsilon_text
from lapwing.survey.survey_file import load


@dataclass(frozen=True, slots=True)
class SurveyProgress:
    """How far a collection is.

    Args:
        reports: The stored reports.
        is_closed: Whether no more are taken.
    """

    reports: int
    is_closed: bool


@dataclass(frozen=True, slots=True)
class ServedSurvey:
    """A survey of the served folder.

    Args:
        id: Its name in addresses: that of the file without its ending.
        design: The randomizer of each question.
        is_own: Whether the person owns it.
    """

    id: str
    design: Design
    is_own: bool

    @property
    def epsilon(self) -> str:
        """The ε that a respondent loses at most, as decimal text."""
        return epsilon_text(self.design.epsilon)

    def progress(self) -> SurveyProgress | None:
        """Return how far the collection is; None if its store cannot be read now."""
        where = self.design.survey.reports
        if not is_postgres(where) and not Path(where).is_file():
            return SurveyProgress(0, is_closed=False)
        try:
            with opened_reports(self.design) as store:
                state = store.state()
        except LapwingError:
            return None
        return SurveyProgress(state.reports, state.is_closed)


class Surveys:
    """The surveys of the served folder.

    Args:
        folder: The folder.
        sets: The data sets, whose names are among those for which people have roles.
    """

    def __init__(self, folder: Path, sets: ServedDataSets) -> None:
        self._folder, self._sets = folder, sets

    def all_of(self, person: Requester) -> list[ServedSurvey]:
        """Return all surveys that have no mistakes, to people with a role here."""
        surveys = [
            ServedSurvey(path.stem, made, _owns(person, made.survey.name))
            for path, _, _ in declared(self._folder, "survey")
            if (made := _designed(path)) is not None
        ]
        names = (*self._sets.names(), EVERYWHERE)
        if any(person.roles_for(name) for name in names):
            return surveys
        return [survey for survey in surveys if survey.is_own]

    def find(self, person: Requester, survey_id: str) -> ServedSurvey:
        """Return an own survey. Raises NotFound if there is none."""
        for survey in self.all_of(person):
            if survey.id == survey_id and survey.is_own:
                return survey
        raise NotFound(survey_id)

    def estimates(
        self, person: Requester, survey_id: str, *, confidence: str, by: str | None
    ) -> dict[str, Any]:
        """Return the estimates of an own survey, with intervals.

        Raises:
            NotFound: If the person owns no such survey.
            BadParameter: If there are no reports yet, or an option is not acceptable.
        """
        from lapwing.survey.estimating.survey_estimates import estimate  # noqa: PLC0415 (slow to load)

        made = self.find(person, survey_id).design
        reports, _ = stored_reports(made)
        return estimate(made, reports, confidence=confidence, by=by).to_json()


def _owns(person: Requester, name: str) -> bool:
    return person.can(name, Role.SURVEY_OWNER)


def _designed(path: Path) -> Design | None:
    try:
        return design(load(path))
    except BadFile:
        return None
