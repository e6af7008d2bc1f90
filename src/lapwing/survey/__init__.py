"""Surveys in the local model: answers are randomized on the respondent's own device.

Names are loaded when they are first used: a respondent's device needs no estimators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

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
    "Respondent": "respondent",
    "Survey": "survey",
    "design": "designing",
    "estimate": "estimating.survey_estimates",
    "load": "survey_file",
    "plan": "planning",
    "shuffled_epsilon": "shuffled",
}
__getattr__ = lazy_names(__name__, _HOMES)
