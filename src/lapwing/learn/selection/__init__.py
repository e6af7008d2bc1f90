"""Private selection: which candidate is best, told at a price that is known beforehand."""

from __future__ import annotations

from lapwing.learn.selection.choosing import binding_filter, choice_for
from lapwing.learn.selection.repetition import Repetition
from lapwing.learn.selection.runs import NegativeBinomialRuns, PoissonRuns, Runs
from lapwing.learn.selection.score import CORRECT, Score
from lapwing.learn.selection.search import Search
from lapwing.learn.selection.ways import EveryCandidate, RandomRuns

__all__ = [
    "CORRECT",
    "EveryCandidate",
    "NegativeBinomialRuns",
    "PoissonRuns",
    "RandomRuns",
    "Repetition",
    "Runs",
    "Score",
    "Search",
    "binding_filter",
    "choice_for",
]
