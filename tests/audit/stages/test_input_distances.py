"""Distances of two inputs are those that the claim of each mechanism is about."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.stages.input_distances import FoundDistance, NotComparable, distance
from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.losses import Relation
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip

SIGMA = Fraction(10)
ADDED = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=2)
REPLACED = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.REPLACE, rows=2)
TOP = Extreme.for_epsilon(1, greatest=True, first=0, last=9, rows=2)
KEYS = PartitionSelection.for_budget(1, "1e-6", keys=2)


def counts(points: list[int], rows: list[int]) -> dict[str, Any]:
    return {"points": np.array(points), "counts": np.array(rows)}


def units(**of_keys: int) -> dict[str, Any]:
    return {"counts": np.array(list(of_keys.values())), "keys": list(of_keys)}


@pytest.mark.parametrize(
    ("mechanism", "one", "other", "found", "declared"),
    [
        (Laplace.for_epsilon(1, l1=4), {"values": [0, 5]}, {"values": [3, 4]}, 4, 4),
        (LaplaceShares.for_epsilon(1, l1=4, of=3), {"values": [0]}, {"values": [-7]}, 7, 4),
        (Gaussian(SIGMA, Fraction(9), 2), {"values": [0, 5]}, {"values": [3, 4]}, 10, 9),
        (GaussianShares(SIGMA, Fraction(9), 1, 2), {"values": [0]}, {"values": [3]}, 9, 9),
        (Exponential.for_epsilon(1, sensitivity="5/2"), {"scores": [1, 9]}, {"scores": [3, 8]}, 2, "5/2"),
        (PermuteAndFlip.for_epsilon(1, sensitivity=1), {"scores": [1, 9]}, {"scores": [3, 8]}, 2, 1),
        (NoisyMax.for_epsilon(1, sensitivity=1), {"scores": [1, 9]}, {"scores": [2, 8]}, 1, 1),
        (AboveThreshold.for_epsilon(1, sensitivity=1, positives=1), {"value": 3}, {"value": 1}, 2, 1),
        (ADDED, counts([1, 3], [4, 4]), counts([1, 5], [4, 4]), 8, 2),
        (ADDED, counts([1, 3], [4, 4]), counts([3, 1, 7], [4, 4, 2]), 2, 2),
        (ADDED, counts([], []), counts([-5, 0, 40], [1, 1, 1]), 3, 2),
        (ADDED, counts([-5, 12], [1, 1]), counts([0, 9], [1, 1]), 0, 2),  # beyond the grid is at its ends
        (REPLACED, counts([1, 3], [4, 4]), counts([1, 5], [6, 2]), 4, 2),
        (TOP, counts([1, 3], [4, 4]), counts([1, 3, 5], [4, 2, 2]), 2, 2),
        (KEYS, units(a=1, b=2), units(b=1, c=1), 3, 2),
        (KEYS, units(a=1, b=2), units(b=2), 1, 2),
        (KEYS, units(a=3), units(a=1), 2, 1),  # a unit counts once for each key
        (RandomizedResponse.two_coins(), {"answers": [0, 1]}, {"answers": [1, 1]}, 1, 1),
        (RandomizedResponse.two_coins(), {"answers": [0, 1]}, {"answers": [1, 0]}, 2, 1),
    ],
)
def test_input_distances_and_what_is_declared(
    mechanism: Any, one: dict[str, Any], other: dict[str, Any], found: int, declared: int | str
) -> None:
    for inputs in ((one, other), (other, one)):
        measured = distance(mechanism, *inputs)
        assert (measured.found, measured.declared) == (Fraction(found), Fraction(declared))
        assert measured.is_within is (Fraction(found) <= Fraction(declared))


def test_wide_numbers_do_not_overflow() -> None:
    far = {"values": np.array([1 << 62, 1 << 62])}, {"values": np.array([-(1 << 62), -(1 << 62)])}
    assert distance(Laplace.for_epsilon(1, l1=1), *far).found == 1 << 64
    assert distance(Gaussian(SIGMA, Fraction(1), 2), *far).found == 1 << 127
    wide = {"values": np.array([1 << 90], dtype=object)}, {"values": np.array([0])}
    assert distance(Laplace.for_epsilon(1, l1=1), *wide).found == 1 << 90


def test_keys_without_names_are_compared_by_their_places() -> None:
    assert distance(KEYS, {"counts": [1, 2]}, {"counts": [1, 1, 1]}).found == 2


def test_inputs_of_other_sizes_and_unknown_mechanisms_cannot_be_compared() -> None:
    with pytest.raises(NotComparable, match="1 values on one side, 2 on the other"):
        distance(Laplace.for_epsilon(1, l1=1), {"values": [1]}, {"values": [1, 2]})
    with pytest.raises(NotComparable, match="does not know the distance of str"):
        distance("somebody's mechanism", {}, {})


def test_another_mechanism_can_be_registered() -> None:
    class Halved:
        pass

    distance.register(Halved)(lambda _, one, other: FoundDistance("halves", Fraction(1, 2), Fraction(1)))
    assert distance(Halved(), {}, {}).is_within
