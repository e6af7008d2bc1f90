"""The mean of a number or date: scores, over those who answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Protocol

import numpy as np

from lapwing.errors import BadParameter
from lapwing.survey.estimating.intervals import Level
from lapwing.survey.estimating.lies import Liars, Point
from lapwing.survey.estimating.results import Estimate, Interval, Table, Unit
from lapwing.survey.estimating.sums import Floats, Limits, Scores, Sums
from lapwing.survey.questionnaire.coding import NO_ANSWER
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.randomizers import Duchi, Hybrid, Window
from lapwing.survey.randomizers.randomizer import Messages
from lapwing.survey.randomizers.two_level import ODDS


class Number(Protocol):
    """A randomizer of numbers."""

    @property
    def none(self) -> int: ...

    def scores(self, messages: Messages) -> Floats: ...

    def answered(self, messages: Messages) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 .. 1 to the numbers of a question: value = low + range · t. Dates are days from `origin`."""

    low: float
    range: float
    unit: Unit
    origin: date | None

    @classmethod
    def of(cls, coding: Grid | Days) -> Scale:
        if isinstance(coding, Days):
            return cls(0.0, float(coding.steps * coding.step), "date", coding.low)
        return cls(float(coding.low), float(coding.steps * coding.step), "number", None)

    def value(self, t: float) -> float:
        return self.low + self.range * t


def spread_of(randomizer: Number) -> tuple[float, float, float, float]:
    """Var[score | x] = square t² + slope t + level, t = x / steps; and that of no answer."""
    match randomizer:
        case Window() | Duchi():
            return randomizer.spread()
        case Hybrid():
            far = randomizer.odds / ODDS
            one, other = randomizer.window.spread(), randomizer.duchi.spread()
            square, slope, level, silent = (
                far * w + (1 - far) * d for w, d in zip(one, other, strict=True)
            )
            return square, slope, level, silent
        case _:
            raise BadParameter("randomizer", "is none of numbers")


def scores_of(randomizer: Number, messages: Messages) -> Scores:
    """Columns: x / steps, and whether there is no answer; over those who answered.

    E[score²|x] = (square + 1) t² + slope t + level, so t² has an unbiased score where square > -1. It is
    -1 for Duchi's method: messages tell nothing about t², and the noise's variance cannot be estimated.
    """
    score, answered = randomizer.scores(messages), randomizer.answered(messages)
    square, slope, level, silent = spread_of(randomizer)
    squares = None
    if square > -1 + 1e-9:
        known = slope * score + level * answered + silent * (1 - answered)
        squares = ((score**2 - known) / (square + 1))[:, None]
    return Scores(score[:, None], answered, squares)


def silent_scores(randomizer: Number, messages: Messages) -> Scores:
    """The share of no answer, over all."""
    silent = (1 - randomizer.answered(messages))[:, None]
    return Scores(silent, np.ones(len(silent)), silent)


def corners_of(randomizer: Number) -> list[Point]:
    """The extreme pairs of score and answered score over all messages: exact."""
    match randomizer:
        case Window():
            ends = np.array([0, randomizer.numbers - 1, randomizer.messages - 1])
            return _pairs(randomizer, ends)
        case Duchi():
            return _pairs(randomizer, np.arange(2 + randomizer.none))
        case Hybrid():
            far = corners_of(randomizer.window) if randomizer.odds else []
            return far + (corners_of(randomizer.duchi) if randomizer.odds < ODDS else [])
        case _:
            raise BadParameter("randomizer", "is none of numbers")


def _pairs(randomizer: Number, messages: Messages) -> list[Point]:
    return list(
        zip(randomizer.scores(messages).tolist(), randomizer.answered(messages).tolist(), strict=True)
    )


def mean_table(
    randomizer: Number,
    sums: Sums,
    scale: Scale,
    level: Level,
    liars: Liars,
    *,
    total: int,
    weight: Point = (1.0, 1.0),
) -> Table:
    """The mean of those who answered; `weight` is the least and greatest score of being in the group."""
    value = sums.moments(0).value
    now = sums.moments(0)
    true = [(0.0, 1.0), (1.0, 1.0)] + ([(0.0, 0.0)] if randomizer.none or weight[0] < 1 else [])
    sent = [(s * w, d * w) for s, d in corners_of(randomizer) for w in weight]
    down, up = liars.ratio((now.top, now.bottom), sent, true)
    limits = Limits(0.0, 1.0, *(max(side) - min(side) for side in zip(*sent, strict=True)))
    found = [_scaled(sums.interval(0, level, limits, total=of), scale) for of in (total, None)]
    estimate = Estimate(
        "mean",
        scale.value(value),
        min(max(scale.value(value), scale.low), scale.low + scale.range),
        found[0],
        found[1],
        (down * scale.range, up * scale.range),
    )
    return Table("mean", scale.unit, (estimate,), "Of those who answered." * randomizer.none, scale.origin)


def _scaled(interval: Interval, scale: Scale) -> Interval:
    return Interval(scale.value(interval.low), scale.value(interval.high), interval.error * scale.range)


def silent_table(randomizer: Number, sums: Sums, level: Level, liars: Liars, *, total: int) -> Table:
    """The share of no answer."""
    value = sums.moments(0).value
    silent = [1 - answered for _, answered in corners_of(randomizer)]
    limits = Limits(0.0, 1.0, max(silent) - min(silent), 0.0)
    found = [sums.interval(0, level, limits, total=of) for of in (total, None)]
    lies = liars.mean((min(silent), max(silent)), (0.0, 1.0))
    estimate = Estimate(NO_ANSWER, value, min(max(value, 0.0), 1.0), found[0], found[1], lies)
    return Table("share", "share", (estimate,))
