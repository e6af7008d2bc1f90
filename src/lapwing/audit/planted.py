"""Mechanisms that are broken on purpose, one small class for each kind of mistake.

`planted_bugs` lists them with the stage that must catch each, and most with a correct twin, which the stage
must leave alone. Every audit runs them
(`lapwing.audit.stages.self_check`). None of them may be used for anything else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult
from lapwing.audit.planted_distances import distance_bugs
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.audit.stages.replay import ReplayPair, replay_stage
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.audit.stages.self_check import PlantedBug
from lapwing.core import losses
from lapwing.core.noise import discrete_laplace, random_bytes, uniform_int
from lapwing.mechanisms import Exponential, Laplace, LaplaceShares, PermuteAndFlip

ONE = Fraction(1)
DELTA0 = Fraction(1, 10**6)
_DRAWS = 60_000  # noise x 0.8 is shown in all but a millionth of the runs
_FEW_DRAWS = 8_000


class ShrunkNoise:
    """Laplace noise at 0.8 of its scale: the true ε is 1.25."""

    loss = losses.LaplaceNoise(ONE, 1)

    def sample(self, value: int, size: int) -> NDArray[np.int64]:
        """Return the value with too little noise."""
        return value + discrete_laplace(Fraction(4, 5), size)


class UnclippedSum:
    """A sum whose noise is for values of at most 10, but nothing clips the values."""

    mechanism = Laplace.for_epsilon(1, l1=10)

    def release(self, values: Sequence[int]) -> None:
        """Release the sum of the values as they are."""
        self.mechanism.sample([sum(values)])


class FloatLaplace:
    """Laplace noise as textbooks have it, in floats: some sums can only come from one of the inputs."""

    def sample(self, value: float, size: int) -> NDArray[np.float64]:
        """Return the value with noise by inversion: sign(u) ln(1 - 2 |u|)."""
        u = (uniform_int(0, 1 << 53, size) - (1 << 52)) * 2.0**-53
        noisy: NDArray[np.float64] = value - np.sign(u) * np.log1p(-2 * np.abs(u) * (1 - 2.0**-53))
        return noisy


class SeededProcess:
    """One of several processes that all start their generator with the same seed."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def release(self, value: int) -> int:
        """Return the value with two-sided geometric noise from the seed."""
        bits = int.from_bytes(hashlib.blake2b(self._seed, digest_size=32).digest())
        first, second = (self._leading_zeros(bits >> 128), self._leading_zeros(bits & ((1 << 128) - 1)))
        return value + first - second

    @staticmethod
    def _leading_zeros(word: int) -> int:
        return 128 - word.bit_length()


class RepeatedStep:
    """A step that is charged once, but taken twice."""

    mechanism = Laplace.for_epsilon(1, l1=1)

    def release(self, count: int) -> None:
        """Draw twice, as after a retry."""
        self.mechanism.sample([count])
        self.mechanism.sample([count])


class KeysFromData:
    """A histogram whose keys are those that the data has."""

    mechanism = Laplace.for_epsilon(1, l1=1)

    def release(self, rows: Sequence[str]) -> list[str]:
        """Return the keys that occur; their counts get noise."""
        counts = Counter(rows)
        self.mechanism.sample(list(counts.values()))
        return sorted(counts)


class RankByPosition:
    """A bound of two rows per person that keeps the first two in the order of the file."""

    mechanism = Laplace.for_epsilon(1, l1=20)

    def release(self, rows: Sequence[tuple[str, int]]) -> None:
        """Release the sum of the rows that are kept, each at most 10."""
        kept: dict[str, list[int]] = {}
        for person, value in rows:
            if len(kept.setdefault(person, [])) < 2:
                kept[person].append(value)
        self.mechanism.sample([sum(map(sum, kept.values()))])


class NoiseForAllMembers:
    """Shares of which all three members together make one noise, though one of them is a spy."""

    shares = LaplaceShares.for_epsilon(1, l1=1, of=3)
    honest = 2

    def law(self, honest: int) -> laws.Law:
        """Return the law of the noise that a spy does not know: that of the honest members."""
        return laws.laplace_shares(self.shares.scale, self.shares.of, honest)


class MonotoneStep:
    """An exponential step at rate ε / Δ, which monotone scores allow, on scores that move both ways."""

    mechanism = Exponential.for_epsilon(1, sensitivity=1)

    def law(self, scores: Sequence[int], times: int = 2) -> laws.Law:
        """Return the law of the choice at twice the rate, or at another multiple."""
        return laws.exponential(scores, times * self.mechanism.rate)


class CheapPermuteAndFlip:
    """Permute-and-flip that is charged as if its log-ratios had bounded range: ε²/8."""

    mechanism = PermuteAndFlip.for_epsilon("0.01", sensitivity=1)
    loss = losses.BoundedRange(mechanism.epsilon)

    def law(self, scores: Sequence[int]) -> laws.Law:
        """Return the law of the choice."""
        return laws.permute_and_flip(scores, self.mechanism.rate)


class CheapRemainder:
    """Gaussian noise that is charged at twice its σ, beside a small δ₀ with which anything may happen.

    Beside δ₀, no Rényi value can be compared, and the claimed (ε, δ) is large enough: only the curve δ(ε)
    is not.
    """

    sigma = Fraction(2)
    epsilon, delta = Fraction(1), Fraction(1, 10)

    def loss(self, sigma: Fraction) -> losses.Loss:
        """Return the charge of noise at this σ."""
        return losses.SequentialComposition(
            (losses.Approximate(Fraction(1, 10**9), DELTA0), losses.GaussianNoise(sigma, ONE, 1))
        )

    def laws(self) -> tuple[laws.Law, laws.Law]:
        """Return the laws of the counts 0 and 1."""
        first, second = (laws.gaussian(self.sigma, centre, -28, 30) for centre in (0, 1))
        return first, second


@dataclass(frozen=True, slots=True)
class _Exactly:
    """The exact stage on one pair, whose laws are made when it runs."""

    description: str
    make: Callable[[], tuple[laws.Law, laws.Law]]
    loss: losses.Loss
    epsilon: Fraction = ONE
    delta: Fraction = Fraction(0)

    def __call__(self, budget: StageBudget) -> StageResult:
        """Compare the pair with its charge."""
        pair = ExactPair(self.description, *self.make(), self.loss, self.epsilon, self.delta)
        return compare_exactly([pair], budget, epsilon=self.epsilon, delta=self.delta)


def _sampled(first: Draw, second: Draw, draws: int, epsilon: Fraction = ONE) -> RunStage:
    return sampled_stage([SampledPair("the counts 0 and 1", first, second)], epsilon, draws=draws)


def _two_processes(count: int) -> Draw:
    """Return draws of what two processes with one seed release: all people, and all but one person."""

    def once() -> list[int]:
        seed = random_bytes(16)
        return [SeededProcess(seed).release(count), SeededProcess(seed).release(0)]

    return lambda size: np.array([once() for _ in range(size)])


def _replayed(pair: ReplayPair, loss: losses.Loss, epsilon: Fraction = ONE) -> RunStage:
    return replay_stage([pair], loss, epsilon=epsilon)


def _inputs(
    description: str, run: Callable[[Any], object], first: Any, second: Any, *, is_equal: bool = False
) -> ReplayPair:
    return ReplayPair(description, lambda: run(first), lambda: run(second), is_equal)


def planted_bugs() -> list[PlantedBug]:
    """Return all bugs, each with the stage that must catch it."""
    return [*_sampled_bugs(), *_replayed_bugs(), *_exact_bugs(), *distance_bugs()]


def _sampled_bugs() -> list[PlantedBug]:
    shrunk, floats = ShrunkNoise(), FloatLaplace()
    return [
        PlantedBug(
            "noise x 0.8", "the scale of Laplace noise is a fifth too small", Stage.SAMPLED,
            _sampled(partial(shrunk.sample, 0), partial(shrunk.sample, 1), _DRAWS),
        ),
        PlantedBug(
            "float Laplace", "noise in floats: low bits tell the input", Stage.SAMPLED,
            _sampled(partial(floats.sample, 0), partial(floats.sample, 1), _FEW_DRAWS),
        ),
        PlantedBug(
            "one seed in two processes", "two releases have the same noise: their difference has none",
            Stage.SAMPLED, _sampled(_two_processes(0), _two_processes(1), _FEW_DRAWS, 2 * ONE),
        ),
    ]  # fmt: skip


def _replayed_bugs() -> list[PlantedBug]:
    unclipped, repeated = UnclippedSum().release, RepeatedStep().release
    keys, ranks = KeysFromData().release, RankByPosition().release
    once, of_sum = RepeatedStep.mechanism.loss, UnclippedSum.mechanism.loss
    of_keys, of_ranks = KeysFromData.mechanism.loss, RankByPosition.mechanism.loss
    twice = losses.Repeated(once, 2)
    counts = _inputs("the counts 0 and 1", repeated, 0, 1)
    far, near = (
        _inputs(f"with and without a person whose value is {value:,}", unclipped, [3, 7], [3, 7, value])
        for value in (1000, 10)
    )
    rare, shared = (
        _inputs(f"with and without {words}", keys, ["a", "b"], ["a", "b", key])
        for words, key in (
            ("the only person who has a key", "rare"),
            ("a person who has a key of others", "b"),
        )
    )
    rows = [("ann", 1), ("ann", 10), ("bob", 4), ("ann", 5)]
    another_order = _inputs("rows in another order", ranks, rows, rows[::-1], is_equal=True)
    same_order = _inputs("the same rows", ranks, rows, list(rows), is_equal=True)
    one_more = _inputs("with and without a person", ranks, rows, [*rows, ("cy", 9)])
    return [
        PlantedBug(
            "no clip", "values are not clipped to the bound that the noise is for", Stage.REPLAY,
            _replayed(far, of_sum), _replayed(near, of_sum),
        ),
        PlantedBug(
            "charged once, taken twice", "a step is repeated, and its charge is not", Stage.REPLAY,
            _replayed(counts, once), _replayed(counts, twice, 2 * ONE),
        ),
        PlantedBug(
            "charged twice what is claimed", "a user reads ε = 1, and the account is charged 2",
            Stage.REPLAY, _replayed(counts, twice), _replayed(counts, twice, 2 * ONE),
        ),
        PlantedBug(
            "keys from data", "a group appears because one person is in it", Stage.REPLAY,
            _replayed(rare, of_keys), _replayed(shared, of_keys),
        ),
        PlantedBug(
            "rank by row position", "which rows are kept depends on their order in the file", Stage.REPLAY,
            replay_stage([another_order], of_ranks, epsilon=ONE),
            replay_stage([same_order, one_more], of_ranks, epsilon=ONE),
        ),
    ]  # fmt: skip


def _exact_bugs() -> list[PlantedBug]:
    members, monotone, cheap = NoiseForAllMembers(), MonotoneStep(), CheapPermuteAndFlip()
    rest = CheapRemainder()
    return [
        PlantedBug(
            "noise at half σ beside δ₀", "of the claim and the charge, only the curve δ(ε) shows it",
            Stage.EXACT,
            _Exactly("the counts 0 and 1", rest.laws, rest.loss(2 * rest.sigma), rest.epsilon, rest.delta),
            _Exactly("the counts 0 and 1", rest.laws, rest.loss(rest.sigma), rest.epsilon, rest.delta),
        ),
        PlantedBug(
            "noise sized for all members", "a spy subtracts its share of the noise", Stage.EXACT,
            _Exactly(
                "the counts 0 and 1, one of three members is a spy",
                lambda: laws.shifted_pair(members.law(members.honest), 1), members.shares.loss,
            ),
            _Exactly(
                "the counts 0 and 1, no member is a spy",
                lambda: laws.shifted_pair(members.law(members.shares.of), 1), members.shares.loss,
            ),
        ),
        PlantedBug(
            "monotone exponential step on L1 scores", "the rate is twice what such scores allow",
            Stage.EXACT,
            _Exactly(
                "scores (1, 0, …, 0) and (0, 1, …, 1) of 21 candidates",
                lambda: (monotone.law([1, *[0] * 20]), monotone.law([0, *[1] * 20])),
                MonotoneStep.mechanism.loss,
            ),
            _Exactly(
                "scores (1, 0, …, 0) and (0, 1, …, 1) of 21 candidates, at the right rate",
                lambda: (monotone.law([1, *[0] * 20], 1), monotone.law([0, *[1] * 20], 1)),
                MonotoneStep.mechanism.loss,
            ),
        ),
        PlantedBug(
            "permute-and-flip charged ε²/8", "its log-ratios do not have bounded range", Stage.EXACT,
            _Exactly(
                "scores (0, 0) and (1, -1)", lambda: (cheap.law([0, 0]), cheap.law([1, -1])),
                CheapPermuteAndFlip.loss, CheapPermuteAndFlip.mechanism.epsilon,
            ),
            _Exactly(
                "scores (0, 0) and (1, -1)", lambda: (cheap.law([0, 0]), cheap.law([1, -1])),
                CheapPermuteAndFlip.mechanism.loss, CheapPermuteAndFlip.mechanism.epsilon,
            ),
        ),
    ]  # fmt: skip
