"""A stub of the sampled stage: only its signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult

Draw = Callable[[int], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class SampledPair:
    """Draws on two neighbouring inputs."""

    description: str
    one: Draw
    other: Draw


def sampled_stage(pairs: Sequence[SampledPair], epsilon: Fraction, delta: Fraction) -> RunStage:
    """Return a stage that cannot run."""
    del pairs, delta

    def run(budget: StageBudget) -> StageResult:
        del budget
        return StageResult(Stage.SAMPLED, 0, float(epsilon), unable="a stub")

    return run
