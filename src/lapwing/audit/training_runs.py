"""Training on two neighbouring tables, for a replay: the payer, the pairs, and the loss of all calls.

Claim    the pairs here differ by one unit, and by nothing else: all random numbers outside of mechanisms
         are the same in both runs, for every unit that both have.
Because  the added unit is the last one and has the last rows, and both runs are coupled
         (`lapwing.audit.stages.coupling`).
Test     tests/audit/test_training_runs.py

Nothing is charged, and the rows are made up.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.coupling import call_outside, coupled
from lapwing.audit.stages.replay import Compose, MechanismCall, ReplayPair, recorded_run, sequential
from lapwing.core.exact import ball, precision, upper
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import GaussianNoise, Loss, ParallelComposition, SampledGaussian
from lapwing.core.noise import uniform_int
from lapwing.core.observed import observing
from lapwing.errors import MissingExtra
from lapwing.learn.confidence_bounds import float_up
from lapwing.learn.payer import PaidResult, Payer, UnchargedPayer

SEEDS = (1, 2, 3)
PARTICIPATIONS = 16
_HUGE = 100  # of (sensitivity / σ)²: ε is about 100 then


class AuditPayer(UnchargedPayer):
    """A payer for audits of generated data. It charges nothing, and keeps what a receipt would show."""

    def __init__(self) -> None:
        self.paid: list[tuple[Loss, bytes, str, dict[str, str | int]]] = []

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        """Run the work without a charge."""
        result = run()
        self.paid.append((loss, result, mechanism, dict(parameters)))
        return PaidResult(result, None)


class _AskedLoss(Exception):
    """The loss that a trainer asked its payer to charge."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss


class _AskingPayer(UnchargedPayer):
    """A payer that ends the work before it begins."""

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> PaidResult:
        raise _AskedLoss(loss)


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Made-up rows with a target and a unit for each. Units are whole numbers."""

    rows: list[list[Any]]
    target: list[Any]
    units: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.units:
            object.__setattr__(self, "units", list(range(len(self.rows))))

    def with_unit(self, rows: Sequence[Sequence[Any]], target: Sequence[Any]) -> LabelledRows:
        """Return the table with one more unit, the last one, which has these rows."""
        new = max(self.units, default=-1) + 1
        return LabelledRows(
            [*self.rows, *(list(row) for row in rows)],
            [*self.target, *target],
            [*self.units, *(new for _ in rows)],
        )

    def with_other_rows(self) -> LabelledRows:
        """Return the same units with two rows each. The second is the row of another unit."""
        return LabelledRows(
            [*self.rows, *self.rows[::-1]], [*self.target, *self.target[::-1]], [*self.units, *self.units]
        )

    def reversed(self) -> LabelledRows:
        """Return the same rows in another order."""
        return LabelledRows(self.rows[::-1], self.target[::-1], self.units[::-1])


Fit = Callable[[LabelledRows, Payer], Any]  # returns all that a user can see of the fitted model


def charged_loss(fit: Fit, rows: LabelledRows) -> Loss:
    """Return the loss that a trainer asks its payer for. Nothing is trained."""
    try:
        fit(rows, _AskingPayer())
    except _AskedLoss as asked:
        return asked.loss
    raise TypeError("the trainer did not ask its payer")


def training_pair(
    description: str,
    fit: Fit,
    first: LabelledRows,
    second: LabelledRows,
    *,
    seed: int,
    is_equal: bool = False,
    unmoved: Callable[[Any], bool] = lambda _: False,
    seen_as: Callable[[Any], Any] = lambda mechanism: mechanism,
) -> ReplayPair:
    """Return a pair of coupled runs.

    Besides the outputs of mechanisms, these must be equal: the loss that was asked for, the stored model,
    the mechanism and parameters of the payment, which a receipt shows, and what `fit` returns; and so must
    be all inputs of mechanisms that `unmoved` names. `seen_as` gives the mechanism that the replay
    sees instead of one that runs, such as one with a distance of its own.
    """

    def run(rows: LabelledRows) -> Any:
        payer = AuditPayer()
        with coupled(seed), watching(unmoved, seen_as) as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of made-up rows without a class: they are made on purpose
            fitted = fit(rows, payer)
        return payer.paid, fitted, seen

    return ReplayPair(description, lambda: run(first), lambda: run(second), is_equal)


@contextmanager
def watching(
    wanted: Callable[[Any], bool], seen_as: Callable[[Any], Any] = lambda mechanism: mechanism
) -> Iterator[list[Any]]:
    """Yield a list, to which the inputs of mechanisms that are wanted are added."""
    seen: list[Any] = []
    outside = copy_context()

    def observer(mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any]) -> Any:
        if wanted(mechanism):
            seen.append(
                {
                    name: list(map(int, value))
                    for name, value in inputs.items()
                    if not isinstance(value, int)
                }
            )
        return call_outside(outside, seen_as(mechanism), inputs, draw)

    with observing(observer):
        yield seen


AddedUnit = tuple[str, Sequence[Sequence[Any]], Sequence[Any]]  # in words; its rows; their targets


def neighbour_pairs(
    fit: Fit, base: LabelledRows, units: Iterable[AddedUnit], *, quick: int | None = None
) -> Callable[[StageBudget], Iterator[ReplayPair]]:
    """Return the pairs of a replay: nobody and one unit, the base with each of the units, another order.

    Args:
        fit: Trains on rows, and pays with a payer.
        base: The rows of the other units, one row for each.
        units: The units that are added: in words, their rows and targets.
        quick: The number of units that are tried if the budget is not thorough; None for all.
    """
    every = list(units)

    def pairs(budget: StageBudget) -> Iterator[ReplayPair]:
        seeds = SEEDS if budget.is_thorough else SEEDS[:1]
        added = every if budget.is_thorough else every[:quick]
        units, nobody, twice = f"{len(base.rows)} units", LabelledRows([], []), base.with_other_rows()
        neighbours = [
            ("nobody; ", nobody, added[0]),
            *((f"{units}; the same and ", base, unit) for unit in added),
            (f"{units} of two rows; the same and ", twice, added[0]),
        ]
        for seed in seeds:
            for before, labelled, (words, rows, target) in neighbours:
                yield training_pair(
                    f"{before}{words}", fit, labelled, labelled.with_unit(rows, target), seed=seed
                )
            yield training_pair(
                "rows; the same in another order", fit, base, base.reversed(), seed=seed, is_equal=True
            )

    return pairs


def odd_units(width: int, low: float, high: float, *, classes: Sequence[Any], rare: Any) -> list[AddedUnit]:
    """Return units to be added to tables of `width` columns: ordinary, at the ends, beyond them, and odd.

    Those that are most likely to show an error are the first.
    """
    first, last = classes[0], classes[-1]
    middle = (low + high) / 2
    ends = [[low if (k >> column) & 1 else high for column in range(width)] for k in range(4)]
    many = [[low + (high - low) * k / 39 for _ in range(width)] for k in range(40)]
    return [
        ("a unit of 40 equal rows", [ends[0]] * 40, [last] * 40),
        ("a unit far beyond the ends", [[1e30, -1e30] * (width // 2) + [1e30] * (width % 2)], [last]),
        ("a unit of NaN", [[math.nan] * width], [last]),
        ("a unit at mixed ends", [ends[1]], [first]),
        ("a unit of one row", [[middle] * width], [first]),
        ("a unit at the upper ends", [ends[0]], [last]),
        (
            "a unit of infinities",
            [[math.inf, -math.inf] * (width // 2) + [math.inf] * (width % 2)],
            [first],
        ),
        ("a unit of 40 rows", many, [(first, last)[k % 2] for k in range(40)]),
        ("a unit of a rare class", [[middle] * width], [rare]),
    ]


def composed_as(charged: Loss) -> Compose:
    """Return how the losses of calls compose, if the whole is charged in this way.

    A fixed run composes all its steps at once. A step that samples units is known by its noise. Noise that
    is not part of the charge counts in full. Other losses add up.
    """
    if not isinstance(charged, FixedRun):
        return sequential
    rates = {step.noise: step for step, _ in charged.steps if isinstance(step, SampledGaussian)}

    def compose(calls: Sequence[MechanismCall]) -> Loss:
        counts = Counter(rates.get(call.mechanism.loss, call.mechanism.loss) for call in calls)
        if counts == dict(charged.steps):
            return charged
        # Far more than any charge: a distribution of that would not fit into memory.
        is_huge = sum(_squared_ratio(loss) * count for loss, count in counts.items()) > _HUGE
        return (
            sequential(calls) if is_huge or not counts else FixedRun(tuple(counts.items()), charged.delta)
        )

    return compose


def training_loss(calls: Sequence[MechanismCall], prices: Sequence[Loss], delta: Fraction) -> Loss:
    """Return the price with the steps of these calls, or else the loss of a fixed run of them at δ."""
    counts = Counter(call.mechanism.loss for call in calls)
    known = [price for price in prices if isinstance(price, FixedRun) and dict(price.steps) == counts]
    return known[0] if known else FixedRun(tuple(counts.items()), delta)


def _squared_ratio(loss: Loss) -> Fraction:
    """Return (sensitivity / σ)² of Gaussian noise that reads all units, and 0 for others."""
    return loss.l2_squared / loss.sigma**2 if isinstance(loss, GaussianNoise) else Fraction(0)


def composed_apart(training: Loss, tests: Callable[[Any], bool]) -> Compose:
    """Return the composition of work on two halves of the units: the worse of the two counts.

    It holds if a unit moves the mechanisms of one half only, which pairs must check (`unmoved`).

    Args:
        training: What is charged for the training half.
        tests: Whether a mechanism reads the testing half.
    """
    trained = composed_as(training)

    def compose(calls: Sequence[MechanismCall]) -> Loss:
        testing = [call for call in calls if tests(call.mechanism)]
        rest = [call for call in calls if not tests(call.mechanism)]
        return ParallelComposition((trained(rest), sequential(testing)))

    return compose


def with_extra(stage: Stage, claimed: float, make: Callable[[], RunStage]) -> RunStage:
    """Return a stage that is made when it runs, and that says so if an optional package is missing."""

    def run(budget: StageBudget) -> StageResult:
        try:
            return make()(budget)
        except MissingExtra as missing:
            return StageResult(stage, 0, claimed, unable=str(missing))

    return run


def participation_stage(
    replayed: RunStage, fit: Fit, base: LabelledRows, unit: AddedUnit, charged: Loss
) -> RunStage:
    """Return a replay that also compares how often one unit takes part with the rate that is charged.

    Only a thorough audit counts: it trains on `PARTICIPATIONS` pairs with fresh seeds. The probability of a
    false alarm is at most the error of the budget.

    Args:
        replayed: The replay, which comes first.
        fit: Trains on rows, and pays with a payer.
        base: The rows of the other units.
        unit: The unit that is added. It must move each sum in which it takes part.
        charged: The loss that is charged: a fixed run with steps that sample units.
    """
    rates = {
        step.noise: step.rate
        for step, _ in (charged.steps if isinstance(charged, FixedRun) else ())
        if isinstance(step, SampledGaussian)
    }

    def run(budget: StageBudget) -> StageResult:
        result = replayed(budget)
        if not (rates and result.holds and budget.is_thorough):
            return result
        moved: Counter[Fraction] = Counter()
        steps: Counter[Fraction] = Counter()
        words, rows, target = unit
        for seed in uniform_int(0, 1 << 62, PARTICIPATIONS).tolist():
            pair = training_pair(words, fit, base, base.with_unit(rows, target), seed=seed)
            for mine, its in replayed_calls(pair):
                rate = rates.get(mine.mechanism.loss)
                if rate is not None:
                    steps[rate] += 1
                    moved[rate] += not np.array_equal(mine.inputs["values"], its.inputs["values"])
        notes, witness = list(result.notes), None
        for rate, count in steps.items():
            notes.append(f"{words} moved {moved[rate]} of {count} steps that are charged at rate {rate}")
            if _upper_tail(count, moved[rate], rate) <= budget.error:
                witness = Witness(
                    f"{len(base.rows)} units; the same and {words}",
                    f"the unit takes part in {moved[rate]} of {count} steps, more than the rate allows",
                    {"steps": count, "moved": moved[rate], "rate": str(rate), "error": budget.error},
                )
        checks = result.checks + len(steps)
        return replace(result, checks=checks, witness=witness, notes=tuple(notes))

    return run


def _upper_tail(count: int, least: int, probability: Fraction) -> float:
    """Return an upper bound on P[binomial >= least]."""
    if not least:
        return 1.0
    with precision(128):
        tail = ball(probability).beta_lower(least, count - least + 1, regularized=True)
        return float_up(upper(tail))


def replayed_calls(pair: ReplayPair) -> list[tuple[MechanismCall, MechanismCall]]:
    """Return the calls of both runs of a pair, the second one with the outputs of the first."""
    run = recorded_run(pair.first)

    def decide(_mechanism: Any, _inputs: dict[str, Any], draw: Callable[[], Any], place: int) -> Any:
        return run.calls[place].output if place < len(run.calls) else draw()

    return list(zip(run.calls, recorded_run(pair.second, decide).calls, strict=False))
