"""From reports to estimates: unbiased shares, means, orders, distributions and words, with intervals."""

from lapwing.survey.estimating.reading import estimate
from lapwing.survey.estimating.results import Answer, CrossTable, Estimate, Estimates, Interval, Row, Table

__all__ = ["Answer", "CrossTable", "Estimate", "Estimates", "Interval", "Row", "Table", "estimate"]
