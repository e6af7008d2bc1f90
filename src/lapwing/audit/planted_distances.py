"""Planted bugs of replay: for each registered distance, inputs that are farther apart than declared.

Claim    an audit whose self-check holds compares each kind of input with its declared distance.
Because  `distance_bugs` goes through the registry of distances. Each class has inputs at the declared
         distance, which must hold, and inputs beyond it, which must be found. A class of Lapwing without
         such inputs fails the self-check.
Test     tests/audit/test_planted.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult
from lapwing.audit.stages.input_distances import ScoreDifferences, distance
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.audit.stages.self_check import PlantedBug
from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.losses import Relation
from lapwing.core.observed import observed_call
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip

EPSILON, DELTA = Fraction(2), Fraction(1, 10**5)  # what each of these claims, or less
_SIGMA = Fraction(30)


@dataclass(frozen=True, slots=True)
class DistantInputs:
    """A mechanism, an input, one at the declared distance from it, and one that is twice as far or more."""

    mechanism: Any
    base: Mapping[str, Any]
    near: Mapping[str, Any]
    far: Mapping[str, Any]


def _counted(*rows: int) -> dict[str, Any]:
    return {"points": np.arange(len(rows)), "counts": np.array(rows)}


def _values(*numbers: int) -> dict[str, Any]:
    return {"values": np.array(numbers)}


def _scores(*numbers: int) -> dict[str, Any]:
    return {"scores": np.array(numbers)}


def _units(*numbers: int) -> dict[str, Any]:
    return {"counts": np.array(numbers), "keys": tuple("abcd"[: len(numbers)])}


def _quantile() -> Quantile:
    return Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=2)


_ScoreInputs = (_scores(5, 5), _scores(7, 3), _scores(9, 5))
_ApartInputs = (_scores(5, 5), _scores(7, 5), _scores(7, 3))  # together by 2, apart by 1
_RowInputs = (_counted(4, 4), _counted(4, 6), _counted(6, 6))
# Each class with what makes its mechanism and inputs.
DISTANT_INPUTS: dict[type, Callable[[], DistantInputs]] = {
    Laplace: lambda: DistantInputs(
        Laplace.for_epsilon(1, l1=4), _values(0, 5), _values(3, 4), _values(6, 3)
    ),
    LaplaceShares: lambda: DistantInputs(
        LaplaceShares.for_epsilon(1, l1=4, of=3), _values(0, 5), _values(3, 4), _values(6, 3)
    ),
    Gaussian: lambda: DistantInputs(
        Gaussian(_SIGMA, Fraction(25), 2), _values(0, 5), _values(3, 1), _values(6, -3)
    ),
    GaussianShares: lambda: DistantInputs(
        GaussianShares(_SIGMA, Fraction(25), 2, 2), _values(0, 5), _values(3, 1), _values(6, -3)
    ),
    Exponential: lambda: DistantInputs(Exponential.for_epsilon(1, sensitivity=2), *_ScoreInputs),
    PermuteAndFlip: lambda: DistantInputs(PermuteAndFlip.for_epsilon(1, sensitivity=2), *_ScoreInputs),
    NoisyMax: lambda: DistantInputs(NoisyMax.for_epsilon(1, sensitivity=2), *_ScoreInputs),
    ScoreDifferences: lambda: DistantInputs(
        ScoreDifferences(Exponential.for_epsilon(1, sensitivity=1)), *_ApartInputs
    ),
    AboveThreshold: lambda: DistantInputs(
        AboveThreshold.for_epsilon(1, sensitivity=2, positives=1), {"value": 5}, {"value": 3}, {"value": 9}
    ),
    Quantile: lambda: DistantInputs(_quantile(), *_RowInputs),
    Extreme: lambda: DistantInputs(
        Extreme.for_epsilon(1, greatest=True, first=0, last=9, rows=2), *_RowInputs
    ),
    PartitionSelection: lambda: DistantInputs(
        PartitionSelection.for_budget(1, "1e-6", keys=2), _units(1, 2), _units(2, 3), _units(2, 3, 1, 1)
    ),
    RandomizedResponse: lambda: DistantInputs(
        RandomizedResponse.two_coins(),
        {"answers": np.array([0, 1])},
        {"answers": np.array([1, 1])},
        {"answers": np.array([1, 0])},
    ),
}


def distance_bugs() -> list[PlantedBug]:
    """Return a bug for each class of Lapwing that replay knows a distance of."""
    kinds = [kind for kind in distance.registry if kind.__module__.startswith("lapwing.")]
    return [_distance_bug(kind) for kind in kinds]


def _distance_bug(kind: type) -> PlantedBug:
    make = DISTANT_INPUTS.get(kind)

    def missing(_: StageBudget) -> StageResult:
        return StageResult(Stage.REPLAY, 0, 0.0, unable=f"{kind.__name__} has no planted inputs")

    return PlantedBug(
        f"inputs too far for {kind.__name__}",
        "what one person changes is twice what the mechanism declares",
        Stage.REPLAY,
        missing if make is None else _replayed(make, is_far=True),
        missing if make is None else _replayed(make, is_far=False),
    )


def _replayed(make: Callable[[], DistantInputs], *, is_far: bool) -> RunStage:
    def run(budget: StageBudget) -> StageResult:
        given = make()
        pair = ReplayPair(
            "an input, and one farther away than declared" if is_far else "inputs at the declared distance",
            _called(given.mechanism, given.base),
            _called(given.mechanism, given.far if is_far else given.near),
        )
        return replay_stage([pair], given.mechanism.loss, epsilon=EPSILON, delta=DELTA)(budget)

    return run


def _called(mechanism: Any, inputs: Mapping[str, Any]) -> Callable[[], None]:
    """Return a run that shows these inputs to an observer. It draws no noise: replay looks at inputs."""

    def run() -> None:
        observed_call(mechanism, lambda: 0, **inputs)

    return run
