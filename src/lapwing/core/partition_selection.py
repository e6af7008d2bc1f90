"""Partition selection: decide which keys may be shown at all if the keys come from the data."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, Real, ball, least_where, lower, precision, real, set_fields, whole
from lapwing.core.exact_sampling import exp_neg
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.losses import Approximate, checked_delta, checked_epsilon
from lapwing.core.noise import bernoulli_near
from lapwing.core.observed import observed
from lapwing.core.spread import BITS, checked_confidence
from lapwing.core.values import whole_numbers
from lapwing.errors import BadParameter, BadValue

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """A selection of keys: one held by n units is shown with the greatest probability that (ε, δ) allows.

    Claim    (ε, δ)-private if a neighbouring step changes the counts of at most `keys` keys, by one: all
             keys of a unit that is added or removed, or of both units if one is replaced.
    Because  each key is decided alone at (ε, δ) / keys. The optimal keeping probability is
             p(n) = min(e^ε p(n-1) + δ, 1 - e^-ε (1 - p(n-1) - δ), 1), p(0) = 0: each term is one
             of the inequalities of (ε, δ) between n - 1 and n units. It has a closed form: first
             c (e^nε - 1) with c = δ / (e^ε - 1), and from n₁ on 1 + c - (1 + c - p(n₁)) e^-(n-n₁)ε.
    Test     claims/test_partition_selection.py::test_neighbouring_counts_are_within_epsilon_and_delta

    Args:
        epsilon: The loss ε, in [1e-9, 1000].
        delta: The loss δ, above 0 and at most ε.
        keys: The most keys whose counts a neighbouring step changes, at least 1.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> PartitionSelection.for_budget(1, "1e-6", keys=1).sample({"flu": 5000, "cold": 4000})
        ['cold', 'flu']
    """

    epsilon: Fraction
    delta: Fraction
    keys: int

    def __post_init__(self) -> None:
        set_fields(self, epsilon=checked_epsilon(self.epsilon), delta=checked_delta(self.delta))
        set_fields(self, keys=whole(self.keys, "keys", at_least=1))
        checked_epsilon(self.epsilon / self.keys, "epsilon / keys")
        if not self.delta > 0:
            raise BadParameter("delta", "must be above 0: undeclared keys need a δ")
        if self.delta / self.keys > self.epsilon / self.keys:
            raise BadParameter("delta", "must not exceed ε")

    @classmethod
    def for_budget(cls, epsilon: Number, delta: Number, *, keys: int) -> PartitionSelection:
        """Return the mechanism that is (ε, δ)-private if neighbours differ in at most `keys` keys."""
        return cls(checked_epsilon(epsilon), checked_delta(delta), keys)

    @property
    def loss(self) -> Approximate:
        """The loss of one selection over all keys."""
        return Approximate(self.epsilon, self.delta)

    @property
    def metric(self) -> InputMetric:
        """The distance of counts that the loss is about: changed keys."""
        return InputMetric(Distance.KEYS, Fraction(self.keys))

    @property
    def _each(self) -> tuple[Fraction, Fraction]:
        return self.epsilon / self.keys, self.delta / self.keys

    def _rise(self) -> arb:
        """Return c = δ / (e^ε - 1), at the current precision."""
        epsilon, delta = self._each
        return ball(delta) / ball(epsilon).expm1()

    def _turns(self) -> tuple[int, int]:
        """Return n₁, up to which p rises by e^ε, and the last n at which p is below 1."""
        epsilon, delta = self._each
        with precision(BITS):
            e = ball(epsilon).exp()
            ratio = (e + 2 * ball(delta) - 1) / ((e + 1) * ball(delta))
            first = 1 + math.floor(lower(ratio.log() / ball(epsilon)))
            left = (1 - self._rising(first)) / self._rise()
            return first, first + math.floor(lower((1 + left).log() / ball(epsilon)))

    def _rising(self, count: int) -> arb:
        return self._rise() * ball(count * self._each[0]).expm1()

    def keep_probability(self, count: int) -> Real:
        """Return p(count), the probability that a key held by `count` units is shown, to any precision."""
        first, last = self._turns()
        epsilon, _ = self._each

        def probability() -> arb:
            if count <= 0:
                return arb(0)
            if count <= first:
                return self._rising(count)
            if count > last:
                return arb(1)
            top = 1 + self._rise()
            return top - (top - self._rising(first)) * ball((first - count) * epsilon).exp()

        return real(probability, guard=64)

    def sample(self, counts: Mapping[Key, int]) -> list[Key]:
        """Return the keys that may be shown, given how many distinct units hold each.

        They are sorted, so that their order reveals nothing about keys that stay hidden.
        """
        if not isinstance(counts, Mapping):
            raise BadValue("counts must map each key to the number of distinct units that hold it")
        keys = list(counts)
        mask = self.decide(np.array([counts[key] for key in keys], dtype=object), keys=keys)
        shown = [key for key, kept in zip(keys, mask, strict=True) if kept]
        try:
            return sorted(shown)  # type: ignore[type-var]
        except TypeError:  # keys of several types
            return sorted(shown, key=repr)

    @observed
    def decide(self, counts: ArrayLike, *, keys: Sequence[object] = ()) -> NDArray[np.bool_]:
        """Return whether each key may be shown. Only the names of shown keys are private output.

        The mask itself is not: its length reveals how many keys there are. `keys` has the names of the
        keys for an observer (`lapwing.core.observed`), and decides nothing.
        """
        first, last = self._turns()
        held = np.clip(whole_numbers(counts), 0, last + 1)
        approximate, error = self._approximate(held, first, last)
        return bernoulli_near(approximate, error, lambda i: self.keep_probability(int(held[i])))

    def _approximate(
        self, counts: NDArray[np.int64], first: int, last: int
    ) -> tuple[NDArray[np.float64], float]:
        """Return p in floats, and a bound on its error, which is some 2^-42."""
        epsilon = float(self._each[0])
        with precision(BITS):
            c, turn = float(self._rise()), float(self._rising(first))
        # c e^nε, computed from the top: e^nε alone may be too large for floats, and c too small.
        rising = (turn + c) * exp_neg(np.maximum(first - counts, 0) * epsilon) - c
        settling = 1 + c - (1 + c - turn) * exp_neg(np.maximum(counts - first, 0) * epsilon)
        p = np.where(counts <= first, rising, settling)
        p[counts > last] = 1.0
        return p, (1 + c) * 2.0**-38

    def spread(self, confidence: Number) -> int:
        """Return the least number of units at which a key is shown with this confidence."""
        level = checked_confidence(confidence)

        def is_shown(count: int) -> bool:
            return lower(self.keep_probability(count)(BITS)) >= level

        return least_where(is_shown, 0, self._turns()[1] + 1)
