"""Surveys in the local model: answers are randomized on the respondent's own device.

Names are loaded when they are first used: a respondent's device needs no estimators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lapwing.survey.designing import design
    from lapwing.survey.estimating.survey_estimates import estimate
    from lapwing.survey.planning import plan
    from lapwing.survey.respondent import Respondent
    from lapwing.survey.shuffled import shuffled_epsilon
    from lapwing.survey.survey import Survey
    from lapwing.survey.survey_file import load

__all__ = ["Respondent", "Survey", "design", "estimate", "load", "plan", "shuffled_epsilon"]

_HOMES = {
    "Respondent": "lapwing.survey.respondent",
    "Survey": "lapwing.survey.survey",
    "design": "lapwing.survey.designing",
    "estimate": "lapwing.survey.estimating.survey_estimates",
    "load": "lapwing.survey.survey_file",
    "plan": "lapwing.survey.planning",
    "shuffled_epsilon": "lapwing.survey.shuffled",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
