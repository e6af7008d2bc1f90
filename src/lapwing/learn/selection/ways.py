"""Two ways to find a good candidate: try all of them, or a random number of random ones.

Claim    what `find` gives is private at the loss that `price` gives.
Because  *all*: every training is paid, and so is the choice; trainings see training units, the choice sees
         models and test units, which are others. *Random runs*: a run's output (candidate, model, noisy
         score) is private at the base's loss, and `Repetition` prices the best of them. The order of
         outputs is total and public. docs/arguments/selection.md
Test     tests/learn/selection/test_ways.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

from lapwing.errors import BadParameter
from lapwing.exact import Number, positive, settle
from lapwing.learn.selection.choosing import Choice
from lapwing.learn.selection.repetition import Repetition
from lapwing.learn.selection.runs import Runs
from lapwing.learn.selection.score import Score
from lapwing.mechanisms import Exponential, Gaussian, PermuteAndFlip
from lapwing.noise import uniform_int
from lapwing.privacy import FixedRun, Loss, Sum, Worst
from lapwing.privacy.loss import checked_delta


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate's model and its true score. Private until it is chosen."""

    candidate: int
    model: bytes
    score: int


@dataclass(frozen=True, slots=True)
class Found:
    """What may be told: which candidate won, and its model. The score is not among it, unless noisy."""

    candidate: int
    model: bytes
    noisy_score: int | None = None


Try = Callable[[int], Tried]


class Way(ABC):
    """How a search goes about it."""

    @abstractmethod
    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        """What the search costs, from what each candidate's training costs. Public."""

    @abstractmethod
    def find(self, candidates: Sequence[Loss], score: Score, attempt: Try) -> Found | None:
        """The winner. Charge the price first."""


@dataclass(frozen=True, slots=True)
class EveryCandidate(Way):
    """Train every candidate, then choose privately."""

    choice: Choice

    def __post_init__(self) -> None:
        if not isinstance(self.choice, Exponential | PermuteAndFlip):
            raise BadParameter("choice", "must be Exponential or PermuteAndFlip: see choice_for")

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        if self.choice.sensitivity < score.sensitivity:
            raise BadParameter(
                "choice", f"must have a sensitivity of {score.sensitivity}, as the score has"
            )
        return Worst((together(candidates), self.choice.loss))

    def find(self, candidates: Sequence[Loss], score: Score, attempt: Try) -> Found:
        tried = [attempt(number) for number in range(len(candidates))]
        best = tried[self.choice.sample([one.score for one in tried])]
        return Found(best.candidate, best.model)


def together(losses: Sequence[Loss]) -> Loss:
    """Trainings one after the other. Runs that are all fixed beforehand, at one δ, are one fixed run."""
    runs = [loss for loss in losses if isinstance(loss, FixedRun)]
    if len(runs) < len(losses) or len({run.delta for run in runs}) > 1:
        return Sum(tuple(losses))
    merged: dict[Loss, int] = {}
    for run in runs:
        for loss, times in run.steps:
            merged[loss] = merged.get(loss, 0) + times
    return FixedRun(tuple(merged.items()), runs[0].delta)


@dataclass(frozen=True, slots=True)
class RandomRuns(Way):
    """Train random candidates a random number of times, and tell the best by a noisy score.

    How many runs there were, the losers and when they were done is never told or kept. `noise` is the
    standard deviation of a score, `delta` the whole search's, `padded` as in `Repetition`.
    """

    runs: Runs
    noise: Fraction
    delta: Fraction
    padded: bool

    def __init__(self, runs: Runs, *, noise: Number, delta: Number, padded: bool) -> None:
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "padded", padded)
        settle(self, noise=positive(noise, "noise"), delta=checked_delta(delta))
        if not isinstance(runs, Runs):
            raise BadParameter("runs", "must be NegativeBinomialRuns or PoissonRuns")

    def repetition(self, candidates: Sequence[Loss], score: Score) -> Repetition:
        """One run is as private as its worst candidate; training and test units are others."""
        base = Worst((*dict.fromkeys(candidates), self._mechanism(score).loss))
        return Repetition(base, self.runs, self.delta, self.padded)

    def price(self, candidates: Sequence[Loss], score: Score) -> Loss:
        return self.repetition(candidates, score).loss

    def find(self, candidates: Sequence[Loss], score: Score, attempt: Try) -> Found | None:
        repetition, mechanism = self.repetition(candidates, score), self._mechanism(score)
        wanted = repetition.draw()
        best: Found | None = None
        for run in count() if repetition.most is None else range(repetition.most):
            if repetition.most is None and run >= wanted:
                break
            tried = attempt(int(uniform_int(0, len(candidates), 1)[0]))
            found = Found(tried.candidate, tried.model, int(mechanism.sample([tried.score])[0]))
            if run < wanted and (best is None or _place(found) > _place(best)):
                best = found
        return best

    def _mechanism(self, score: Score) -> Gaussian:
        return Gaussian(self.noise, Fraction(score.most**2), 1)


def _place(found: Found) -> tuple[int, int, bytes]:
    """A total order of outputs: outputs that are equal in it are equal."""
    assert found.noisy_score is not None
    return found.noisy_score, -found.candidate, found.model
