"""A forecast of a budget: how long it lasts if spending goes on as in the last 90 days.

Claim    the range holds the time that is left if future spending has a pace that the last 90 days make
         likely: the mean of nine periods, give or take twice its standard error.
Because  the pace of each period is what the ledger's history says, and a raise is no negative spending.
Test     tests/server/data/test_forecast.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import mean, stdev

from lapwing.ledger.budget_history import BudgetHistory

PERIOD_DAYS, PERIODS = 10, 9
FEWEST_PERIODS = 2
_ERRORS = 2  # standard errors to either side
_FOR_EVER = 36_500  # days: more is no forecast


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many days the budget lasts. None stands for no end in sight."""

    days: float | None
    at_least: float
    at_most: float | None
    measured_days: int  # the length of the history that the forecast is made of

    @property
    def words(self) -> str:
        """The forecast in a sentence."""
        pace = f"At the pace of the last {self.measured_days} days"
        if self.days is None:
            return f"{pace} the budget lasts: nothing was spent."
        most = "or far longer" if self.at_most is None else f"to {_span(self.at_most)}"
        return f"{pace} the budget lasts about {_span(self.days)} ({_span(self.at_least)} {most})."


def _span(days: float) -> str:
    count, unit = (days, "day") if days < 60 else (days / 30.44, "month")
    rounded = round(count)
    return f"{rounded:,} {unit}{'' if rounded == 1 else 's'}"


def forecast_of(history: BudgetHistory, now: datetime) -> Forecast | None:
    """Return the forecast for the block where least is left; None if the history is too short."""
    if not history.blocks:
        return None
    column = min(range(len(history.blocks)), key=lambda k: float(history.left[-1, k]))
    left = [float(value) for value in history.left[:, column]]
    moments = [
        (time, value) for time, value in zip(history.times, left, strict=True) if not math.isnan(value)
    ]
    return forecast_spending(moments, now)


def forecast_spending(moments: Sequence[tuple[datetime, float]], now: datetime) -> Forecast | None:
    """Return the forecast from what was left at some moments, the last of which is now."""
    if not moments:
        return None
    periods = min(PERIODS, int((now - moments[0][0]) / timedelta(days=PERIOD_DAYS)))
    if periods < FEWEST_PERIODS:
        return None
    spent = [0.0] * periods
    for (_, before), (time, after) in pairwise(moments):
        place = int((now - time) / timedelta(days=PERIOD_DAYS))
        if place < periods:
            spent[place] += max(before - after, 0.0)  # a raise is no negative spending
    left, pace = moments[-1][1], mean(spent) / PERIOD_DAYS
    error = _ERRORS * stdev(spent) / math.sqrt(periods) / PERIOD_DAYS
    if not pace:
        return Forecast(None, 0.0, None, periods * PERIOD_DAYS)
    slow = left / (pace - error) if pace > error else math.inf
    return Forecast(
        left / pace, left / (pace + error), slow if slow < _FOR_EVER else None, periods * PERIOD_DAYS
    )
