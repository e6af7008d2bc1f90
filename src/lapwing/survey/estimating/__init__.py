"""From reports to estimates: unbiased shares, means, orders, distributions and words, with intervals."""

from lapwing.survey.estimating.results import (
    CrossTable,
    EstimatedValue,
    EstimateRow,
    EstimateTable,
    Interval,
    QuestionEstimates,
    SurveyEstimates,
)
from lapwing.survey.estimating.survey_estimates import estimate

__all__ = [
    "CrossTable",
    "EstimateRow",
    "EstimateTable",
    "EstimatedValue",
    "Interval",
    "QuestionEstimates",
    "SurveyEstimates",
    "estimate",
]
