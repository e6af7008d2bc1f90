"""A survey is one TOML file: what it asks, what it may cost a respondent, and when it ends."""

from lapwing.survey.questionnaire.coding import NO_ANSWER
from lapwing.survey.questionnaire.file import load
from lapwing.survey.questionnaire.survey import Question, Survey

__all__ = ["NO_ANSWER", "Question", "Survey", "load"]
