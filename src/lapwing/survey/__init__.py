"""Surveys in the local model: answers are randomized on the respondent's own device.

What is named here is loaded when it is first used: a respondent's device needs no estimators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lapwing.survey.designing import design
    from lapwing.survey.estimating import estimate
    from lapwing.survey.planning import plan
    from lapwing.survey.respondent import Respondent
    from lapwing.survey.shuffled import shuffled_epsilon
    from lapwing.survey.survey_file import load

__all__ = ["Respondent", "design", "estimate", "load", "plan", "shuffled_epsilon"]

_HOMES = {
    "Respondent": "respondent",
    "design": "planning",
    "estimate": "estimating",
    "load": "questionnaire",
    "plan": "planning",
    "shuffled_epsilon": "shuffled",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"lapwing.survey.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
