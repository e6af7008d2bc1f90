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
    "QuestionEstimates",
    "CrossTable",
    "EstimatedValue",
    "SurveyEstimates",
    "Interval",
    "EstimateRow",
    "EstimateTable",
    "estimate",
]
