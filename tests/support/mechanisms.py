"""How each mechanism is called and made, for the tests that try all of them: one entry for each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from lapwing.core.losses import Relation
from lapwing.mechanisms import (
    AboveThreshold,
    Exponential,
    Extreme,
    Gaussian,
    GaussianShares,
    Laplace,
    LaplaceShares,
    NoisyMax,
    PartitionSelection,
    PermuteAndFlip,
    Quantile,
    RandomizedResponse,
)


class Tried(NamedTuple):
    """A mechanism, a call of it, the inputs of the call by name, and ways to make it for an ε."""

    mechanism: Any
    call: Callable[[Any], Any]
    inputs: dict[str, Any]
    made_for: list[Callable[[Any], object]]


def quantile(epsilon: Any = 1, **changes: Any) -> Quantile:
    given: dict[str, Any] = dict(fraction=0.5, first=0, last=9, relation=Relation.ADD_REMOVE, rows=1)
    return Quantile.for_epsilon(epsilon, **(given | changes))


TRIED = [
    Tried(
        Laplace.for_epsilon(1, l1=1), lambda m: m.sample([3, 4]), {"values": [3, 4]},
        [lambda e: Laplace.for_epsilon(e, l1=1)],
    ),
    Tried(
        LaplaceShares.for_epsilon(1, l1=1, of=2), lambda m: m.sample([3]), {"values": [3]},
        [lambda e: LaplaceShares.for_epsilon(e, l1=1, of=2)],
    ),
    Tried(
        Gaussian.for_rho(1, l2_squared=1, dimension=1), lambda m: m.sample([3]), {"values": [3]},
        [
            lambda e: Gaussian.for_budget(e, "1e-6", l2_squared=1, dimension=1),
            lambda e: Gaussian(Fraction(1), Fraction(1), 1).delta(e),
        ],
    ),
    Tried(
        GaussianShares.for_rho(1, l2_squared=1, dimension=1, of=2), lambda m: m.sample(values=[3]),
        {"values": [3]}, [lambda e: GaussianShares.for_budget(e, "1e-6", l2_squared=1, dimension=1, of=2)],
    ),
    Tried(
        Exponential.for_epsilon(1, sensitivity=1), lambda m: m.sample([1, 2]), {"scores": [1, 2]},
        [lambda e: Exponential.for_epsilon(e, sensitivity=1), lambda e: Exponential(e, Fraction(1))],
    ),
    Tried(
        PermuteAndFlip.for_epsilon(1, sensitivity=1), lambda m: m.sample([1, 2]), {"scores": [1, 2]},
        [lambda e: PermuteAndFlip.for_epsilon(e, sensitivity=1), lambda e: PermuteAndFlip(e, Fraction(1))],
    ),
    Tried(
        NoisyMax.for_epsilon(1, sensitivity=1), lambda m: m.sample([1, 2]), {"scores": [1, 2]},
        [lambda e: NoisyMax.for_epsilon(e, sensitivity=1), lambda e: NoisyMax(e, 1)],
    ),
    Tried(
        quantile(), lambda m: m.sample_counts([1, 2], [5, 6]), {"points": [1, 2], "counts": [5, 6]},
        [quantile],
    ),
    Tried(
        Extreme.for_epsilon(1, greatest=True, first=0, last=3, rows=1),
        lambda m: m.sample_counts([1], [9]), {"points": [1], "counts": [9]},
        [lambda e: Extreme.for_epsilon(e, greatest=True, first=0, last=3, rows=1)],
    ),
    Tried(
        PartitionSelection.for_budget(1, "0.01", keys=1), lambda m: m.decide([1, 2], keys=["a", "b"]),
        {"counts": [1, 2], "keys": ["a", "b"]},
        [
            lambda e: PartitionSelection.for_budget(e, "1e-12", keys=1),
            lambda e: PartitionSelection(e, Fraction(1, 10**12), 1),
        ],
    ),
    Tried(
        RandomizedResponse.two_coins(), lambda m: m.sample([1]), {"answers": [1]},
        [
            RandomizedResponse.for_epsilon,
            lambda e: RandomizedResponse(2, epsilon=Fraction(0) if e is None else e),
        ],
    ),
    Tried(
        AboveThreshold.for_epsilon(1, sensitivity=1, positives=1), lambda m: m.start(0).ask(7),
        {"value": 7},
        [
            lambda e: AboveThreshold.for_epsilon(e, sensitivity=1, positives=1),
            lambda e: AboveThreshold(e, 1, 1),
        ],
    ),
]  # fmt: skip
