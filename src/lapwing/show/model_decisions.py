"""Four ways to decide whether a model may leave, on the same attempts and the same released numbers.

Rides: the duration of a ride, by distance, hour and weekday; the noise is normal, so that no model has a
mean absolute error below the floor. Every row is a unit. A tenth of the rows tests. The true loss of a
model is computed on rows that no model has seen. A benchmark has a task of classes, too.

none         the first model leaves
estimate     the noisy mean meets the target
uncorrected  a bound for sampling, as if there were no noise
ours         the project's validator: a bound for sampling and for its own noise, over all attempts of a run

Models are drawn from a few that were trained for each size and ε, with fresh noise each. Data follows
from a hash. The proven claim is about runs: a run releases a bad model with probability at most η.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.learn.confidence_bounds import mean_ceiling, share_floor
from lapwing.learn.payer import PublicData
from lapwing.learn.trainers import Category, Column, LinearRegression, Real
from lapwing.learn.validators import (
    AccuracyValidator,
    LossValidator,
    ValidationRows,
    ValidationVerdict,
    eta_share,
)
from lapwing.show.hashed_numbers import HashedNumbers
from lapwing.show.release_load import BlocksNeeded

ETA, DELTA, SHARE = Fraction(1, 20), Fraction(1, 10**8), 10
EPSILONS = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 4), Fraction(1))
DECIDERS = ("none", "estimate", "uncorrected", "ours")
BOUND, NOISE = 30, 6.0
POOL = 200_000
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LearningTask:
    """Generated data in blocks, and more of it to know the truth. No model is better than `best`."""

    name: str
    table: Floats
    target: NDArray[Any]
    pool: Floats
    truth: NDArray[Any]
    best: float
    block: int
    gaps: tuple[float, ...]  # the distances of targets from the best, as shares of it
    fit: Callable[[Floats, NDArray[Any], Fraction], Any]
    values: Callable[[Any, Floats, NDArray[Any]], NDArray[Any]]  # of rows: losses, or whether right
    is_accuracy: bool

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.table) // self.block

    def goal(self, gap: float) -> Fraction:
        """Return the target at a gap."""
        return Fraction(round((self.best * (1 - gap if self.is_accuracy else 1 + gap)) * 10_000), 10_000)


def rides(rows: int, block: int, *, pool: int = POOL, by_hour: bool = True) -> LearningTask:
    """Return durations in minutes: a line in the distance, a rush hour, a weekend.

    Without `by_hour`, the table has whether it is rush hour, instead of hour and weekday. Then models have
    2 columns of numbers instead of 32, and are trained in a tenth of the time.
    """
    columns: tuple[Column, ...] = (Real(0, 20), Category(tuple(range(24))), Category(tuple(range(7))))
    if not by_hour:
        columns = (Real(0, 20), Real(0, 1))

    def made(count: int, seed: int) -> tuple[Floats, Floats]:
        draw = HashedNumbers(seed)
        far = np.minimum(draw.exponential(5, count), 20)
        hour, day = draw.integers(0, 24, count), draw.integers(0, 7, count)
        rush = (hour % 12 > 6) & (day < 5)
        took = 10 + 1.5 * far + np.where(rush, 4.0, 0.0) + draw.normal(NOISE, count)
        return np.column_stack([far, hour, day] if by_hour else [far, rush]), took

    def fit(table: Floats, target: NDArray[Any], epsilon: Fraction) -> Any:
        trainer = LinearRegression(
            epsilon=epsilon, delta=DELTA, columns=columns, target=Real(0, 60), payer=PublicData()
        )
        return trainer.fit(table, target)

    def values(model: Any, table: Floats, target: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.abs(model.predict(table) - target))

    floor = NOISE * float(np.sqrt(2 / np.pi))  # of rides within 0 … 60, which nearly all are
    seen, unseen = made(rows, 1), made(pool, 2)
    gaps = (0.01, 0.03, 0.1, 0.2, 0.4)
    return LearningTask("rides", *seen, *unseen, floor, block, gaps, fit, values, is_accuracy=False)


@dataclass(slots=True)
class TrainedModels:
    """A few models for each size and ε, trained when first needed; only their losses are kept."""

    data: LearningTask
    variants: int
    known: dict[tuple[int, Fraction, int], NDArray[Any]] = field(default_factory=dict)

    def drawn(self, draw: HashedNumbers, blocks: int, epsilon: Fraction) -> NDArray[Any]:
        """Return one of them: its loss on each row of the pool, or whether it is right."""
        data, variant = self.data, int(draw.integers(0, self.variants, 1)[0])
        key = blocks, epsilon, variant
        if key not in self.known:
            first = int(draw.integers(0, data.blocks - blocks + 1, 1)[0]) * data.block
            rows = slice(first, first + blocks * data.block)
            table, target = data.table[rows], data.target[rows]
            trains = np.arange(len(table)) % SHARE != 0
            model = data.fit(table[trains], target[trains], epsilon)
            self.known[key] = data.values(model, data.pool, data.truth)
        return self.known[key]


@dataclass(slots=True)
class DecisionTally:
    """The outcomes of the runs of one way to decide."""

    runs: int = 0
    accepted: int = 0
    bad: int = 0


def decisions(
    data: LearningTask, goal: Fraction, epsilon: Fraction, tested: NDArray[Any], *, i: int, eta: Fraction
) -> dict[str, bool]:
    """Return the decision of each way on the same released numbers, at attempt i."""
    part = eta_share(eta, i)
    if data.is_accuracy:
        judge = AccuracyValidator(target=goal, eta=eta, epsilon=epsilon)
        released = judge.release(ValidationRows(tested, units=None))
        right, wrong = released.numbers
        estimate = right / (right + wrong) >= goal if right + wrong > 0 else False
        uncorrected = share_floor(right, wrong, part) >= goal
    else:
        loss = LossValidator(
            target=goal, bound=Fraction(BOUND), step=Fraction(1, 10), eta=eta, epsilon=epsilon
        )
        released = loss.release(ValidationRows(tested, units=None))
        most = BOUND * 10
        lost, spared = released.numbers
        estimate = BOUND * lost <= goal * (lost + spared) if lost + spared > 0 else False
        uncorrected = BOUND * mean_ceiling(Fraction(lost, most), Fraction(spared, most), part) <= goal
        judge = loss  # type: ignore[assignment]
    ours = judge.judge(released, attempt=i).verdict is ValidationVerdict.ACCEPT
    return {"none": True, "estimate": bool(estimate), "uncorrected": bool(uncorrected), "ours": ours}


def doubling_run(
    models: TrainedModels, goal: Fraction, epsilon: Fraction, draw: HashedNumbers, eta: Fraction = ETA
) -> dict[str, tuple[bool, int]]:
    """Run once with doubling data. Return for each way that accepts: whether the model is bad, and rows."""
    data = models.data
    accepted: dict[str, tuple[bool, int]] = {}
    blocks, i = 1, 1
    while blocks <= data.blocks and len(accepted) < len(DECIDERS):
        values = models.drawn(draw, blocks, epsilon)
        truth = float(values.mean())
        places = draw.integers(0, len(values), blocks * data.block // SHARE)  # fresh from the same law
        is_bad = truth < goal if data.is_accuracy else truth > goal
        for name, accepts in decisions(data, goal, epsilon, values[places], i=i, eta=eta).items():
            if accepts and name not in accepted:
                accepted[name] = is_bad, blocks * data.block
        blocks, i = 2 * blocks, i + 1
    return accepted


@dataclass(slots=True)
class DecisionCount:
    """Tallies by way and ε, over all targets; and rows until ours accepts, by gap and ε."""

    tallies: dict[tuple[str, Fraction], DecisionTally]
    needed: dict[tuple[float, Fraction], list[int]]


def compare_decisions(
    data: LearningTask,
    *,
    runs: int,
    variants: int,
    epsilons: Sequence[Fraction] = EPSILONS,
    gaps: Sequence[float] | None = None,
    eta: Fraction = ETA,
    tell: Callable[[int, int], None] = lambda _, __: None,
) -> DecisionCount:
    """Run all ways to decide, for each ε and each target.

    Args:
        data: The task.
        runs: The runs for each ε and target.
        variants: The models that are trained for each size and ε.
        epsilons: The ε of an attempt: its training, and its validation.
        gaps: The distances of targets from the best, as shares of it; None for those of the task.
        eta: The probability with which a run may release a bad model.
        tell: Is called with the numbers of finished and of all pairs of ε and target.
    """
    draw, models = HashedNumbers(5), TrainedModels(data, variants)
    chosen = data.gaps if gaps is None else tuple(gaps)
    tallies = {(name, epsilon): DecisionTally() for name in DECIDERS for epsilon in epsilons}
    needed: dict[tuple[float, Fraction], list[int]] = {}
    pairs = [(epsilon, gap) for epsilon in epsilons for gap in chosen]
    for done, (epsilon, gap) in enumerate(pairs):
        tell(done, len(pairs))
        for _ in range(runs):
            accepted = doubling_run(models, data.goal(gap), epsilon, draw, eta)
            for name in DECIDERS:
                tally = tallies[name, epsilon]
                tally.runs += 1
                if name in accepted:
                    tally.accepted += 1
                    tally.bad += accepted[name][0]
            if "ours" in accepted:
                needed.setdefault((gap, epsilon), []).append(accepted["ours"][1])
    tell(len(pairs), len(pairs))
    return DecisionCount(tallies, needed)


def measured_need(data: LearningTask, needed: dict[tuple[float, Fraction], list[int]]) -> BlocksNeeded:
    """Return a + b / ε blocks, fitted to the rows that a middling target needed."""
    points = [
        (1 / float(epsilon), float(np.mean(rows)) / data.block)
        for (gap, epsilon), rows in needed.items()
        if gap == data.gaps[-2] and rows
    ]
    if len(points) < 2:
        return BlocksNeeded(2.0, 0.5)
    slope, start = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
    return BlocksNeeded(max(float(start), 0.5), max(float(slope), 0.01))
