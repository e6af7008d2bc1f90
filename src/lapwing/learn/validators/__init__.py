"""Validators: a model leaves only when it is shown to be good, in spite of sampling and of noise."""

from __future__ import annotations

from lapwing.learn.validators.accuracy import AccuracyValidator
from lapwing.learn.validators.halves import split_of
from lapwing.learn.validators.loss import BestInClass, LossValidator
from lapwing.learn.validators.rows import OfClass, Rows
from lapwing.learn.validators.statistic import HistogramValidator, MeanValidator, StatisticValidator
from lapwing.learn.validators.validator import Judged, Released, Validator, Verdict, eta_of

__all__ = [
    "AccuracyValidator",
    "BestInClass",
    "HistogramValidator",
    "Judged",
    "LossValidator",
    "MeanValidator",
    "OfClass",
    "Released",
    "Rows",
    "StatisticValidator",
    "Validator",
    "Verdict",
    "eta_of",
    "split_of",
]
