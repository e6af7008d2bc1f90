"""Distances of two inputs of a mechanism, beside the distance that the mechanism declares.

Claim    if the distance that is found is at most the declared one, the loss of the mechanism bounds what
         its output reveals about the two inputs.
Because  each distance is that of the mechanism's `metric`, which its claim is about: L1, squared L2, the
         largest move of a score, changed rows of a spectrum, changed keys, changed answers.
Test     tests/audit/stages/test_input_distances.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.losses import Loss, Relation
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip

Inputs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FoundDistance:
    """The distance of two inputs, and the one that the mechanism declares. `what` names it in words."""

    what: str
    found: Fraction
    declared: Fraction

    @property
    def is_within(self) -> bool:
        """True if the inputs are as near as the mechanism declares."""
        return self.found <= self.declared


class NotComparable(Exception):
    """Two inputs have no distance: the number of their values differs, or the mechanism is not known."""


@singledispatch
def distance(mechanism: Any, first: Inputs, second: Inputs) -> FoundDistance:
    """Return the distance of two inputs of a mechanism.

    Register a function for a mechanism of your own: `distance.register(MyMechanism)`. A replay takes only
    the registered classes themselves (`is_known`): these have a case that checks their law.

    Raises:
        NotComparable: If the number of values differs, or replay does not know the mechanism.
    """
    raise NotComparable(f"replay does not know the distance of {type(mechanism).__name__}")


def is_known(mechanism: Any) -> bool:
    """Return whether the mechanism is of a registered class. A subclass is not: it may draw otherwise."""
    kind = type(mechanism)
    return kind is not object and kind in distance.registry


@distance.register(Laplace)
@distance.register(LaplaceShares)
def _l1(mechanism: Laplace | LaplaceShares, first: Inputs, second: Inputs) -> FoundDistance:
    moves = _moves(first["values"], second["values"])
    return FoundDistance("L1", Fraction(sum(map(abs, moves))), mechanism.metric.bound)


@distance.register(Gaussian)
@distance.register(GaussianShares)
def _l2_squared(mechanism: Gaussian | GaussianShares, first: Inputs, second: Inputs) -> FoundDistance:
    moves = _moves(first["values"], second["values"])
    return FoundDistance("squared L2", Fraction(sum(move * move for move in moves)), mechanism.metric.bound)


@distance.register(Exponential)
@distance.register(PermuteAndFlip)
@distance.register(NoisyMax)
def _scores(
    mechanism: Exponential | PermuteAndFlip | NoisyMax, first: Inputs, second: Inputs
) -> FoundDistance:
    moves = _moves(first["scores"], second["scores"])
    moved = max(map(abs, moves), default=0)
    return FoundDistance("largest move of a score", Fraction(moved), mechanism.metric.bound)


@dataclass(frozen=True, slots=True)
class ScoreDifferences:
    """A choice by scores that one unit may all raise together: only their differences decide.

    docs/arguments/selection.md, lemma 1.
    """

    choice: Exponential | PermuteAndFlip

    @property
    def loss(self) -> Loss:
        """The loss of one use."""
        return self.choice.loss


def by_differences(mechanism: Any) -> Any:
    """Return the choice of a search as one that looks at differences of scores; others as they are."""
    is_chosen = type(mechanism) in (Exponential, PermuteAndFlip)  # a subclass has no case
    return ScoreDifferences(mechanism) if is_chosen else mechanism


@distance.register(ScoreDifferences)
def _half_of_range(mechanism: ScoreDifferences, first: Inputs, second: Inputs) -> FoundDistance:
    moves = [int(a) - int(b) for a, b in zip(first["scores"], second["scores"], strict=True)]
    moved = Fraction(max(moves) - min(moves), 2)
    return FoundDistance("largest move of a score, beside the others,", moved, mechanism.choice.sensitivity)


@distance.register(AboveThreshold)
def _question(mechanism: AboveThreshold, first: Inputs, second: Inputs) -> FoundDistance:
    moved = abs(int(first["value"]) - int(second["value"]))
    return FoundDistance("move of the value", Fraction(moved), mechanism.metric.bound)


@distance.register(Quantile)
@distance.register(Extreme)
def _rows(mechanism: Quantile | Extreme, first: Inputs, second: Inputs) -> FoundDistance:
    """Return how many rows were added, removed or replaced: the steps that the claim counts."""
    mine, its = (_counted(mechanism, inputs) for inputs in (first, second))
    moves = [mine.get(point, 0) - its.get(point, 0) for point in mine.keys() | its.keys()]
    more, less = sum(max(move, 0) for move in moves), sum(max(-move, 0) for move in moves)
    replaces = isinstance(mechanism, Extreme) or mechanism.relation is Relation.REPLACE
    changed = max(more, less) if replaces else more + less
    return FoundDistance("changed rows", Fraction(changed), mechanism.metric.bound)


def _counted(mechanism: Quantile | Extreme, inputs: Inputs) -> dict[int, int]:
    """Return the rows of each grid point. Values outside the grid count at its ends."""
    counted: dict[int, int] = {}
    for point, rows in zip(_wholes(inputs["points"]), _wholes(inputs["counts"]), strict=True):
        place = min(max(point, mechanism.first), mechanism.last)
        counted[place] = counted.get(place, 0) + rows
    return counted


@distance.register(PartitionSelection)
def _keys(mechanism: PartitionSelection, first: Inputs, second: Inputs) -> FoundDistance:
    mine, its = named_counts(first), named_counts(second)
    moves = [abs(mine.get(key, 0) - its.get(key, 0)) for key in mine.keys() | its.keys()]
    if max(moves, default=0) > 1:
        return FoundDistance("move of one key's count", Fraction(max(moves)), Fraction(1))
    return FoundDistance("changed keys", Fraction(sum(moves)), mechanism.metric.bound)


def named_counts(inputs: Inputs) -> dict[Any, int]:
    """Return the number of units of each key. Keys without names are named by their places."""
    counts = _wholes(inputs["counts"])
    names = inputs.get("keys", ()) or range(len(counts))
    return dict(zip(names, counts, strict=True))


@distance.register(RandomizedResponse)
def _answers(mechanism: RandomizedResponse, first: Inputs, second: Inputs) -> FoundDistance:
    moves = _moves(first["answers"], second["answers"])
    return FoundDistance("changed answers", Fraction(sum(map(bool, moves))), mechanism.metric.bound)


def _wholes(values: Any) -> list[int]:
    """Return values as Python's integers, which do not overflow."""
    array: NDArray[Any] = np.atleast_1d(np.asarray(values))
    return [int(value) for value in array.reshape(-1).tolist()]


def _moves(first: Any, second: Any) -> list[int]:
    mine, its = np.atleast_1d(np.asarray(first)), np.atleast_1d(np.asarray(second))
    if mine.shape != its.shape:
        raise NotComparable(f"{mine.size} values on one side, {its.size} on the other")
    if mine.dtype.kind in "iub" and its.dtype.kind in "iub" and mine.size:
        changed = np.flatnonzero(mine.reshape(-1) != its.reshape(-1))
        mine, its = mine.reshape(-1)[changed], its.reshape(-1)[changed]
    return [a - b for a, b in zip(_wholes(mine), _wholes(its), strict=True)]
