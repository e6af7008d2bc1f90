"""The tables of a distribution: a histogram and quantiles, with intervals where honest ones are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.estimating.distribution import STEPS_AT_MOST, Linear, Waves, quantile_of
from lapwing.survey.estimating.intervals import Level
from lapwing.survey.estimating.numbers import Scale
from lapwing.survey.estimating.results import Estimate, Interval, Table
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.randomizers import Window

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_HOLDS = (
    "Intervals are those of unbiased estimators for the population; for these respondents they hold, too."
)
_FINE = "No intervals: the steps are too fine."


def wave_tables(
    window: Window, counts: NDArray[np.int64], coding: Grid | Days, level: Level
) -> tuple[Table, Table]:
    """The most likely histogram, and quantiles of it."""
    waves = Waves(window, counts)
    edges = waves.bins()
    shares, _ = waves.most_likely(edges)
    linear = Linear(waves) if window.steps < STEPS_AT_MOST else None
    ranges = [(int(first), int(end)) for first, end in pairwise(edges)]
    ends: list[Interval | None] = [None] * len(ranges)
    if linear is not None:
        ends = [
            Interval(float(low), float(high), float(error))
            for low, high, error in zip(*linear.bounds(ranges, level), strict=True)
        ]
    bins = tuple(
        Estimate(_label(coding, *inside), float(share), float(share), interval, interval)
        for inside, share, interval in zip(ranges, shares, ends, strict=True)
    )
    note = f"The most likely histogram; shares are of all. {_FINE if linear is None else _HOLDS}"
    places = [quantile_of(shares, edges, part) for part in QUANTILES]
    return Table("histogram", "share", bins, note), _quantiles(places, linear, coding, level)


def _label(coding: Grid | Days, first: int, end: int) -> str:
    return coding.said(first) if end - first == 1 else f"{coding.said(first)} to {coding.said(end - 1)}"


def _quantiles(places: list[float], linear: Linear | None, coding: Grid | Days, level: Level) -> Table:
    scale, found = Scale.of(coding), []
    for part, place in zip(QUANTILES, places, strict=True):
        value, interval = scale.value(place / coding.steps), None
        if linear is not None:
            first, last = linear.quantile(part, level)
            low, high = scale.value(first / coding.steps), scale.value(last / coding.steps)
            interval = Interval(low, high, float("nan"))
        found.append(Estimate(f"{100 * part:g} %", value, value, interval, interval))
    note = "So many percent of those who answered are at or below."
    return Table("quantiles", scale.unit, tuple(found), note, scale.origin)
