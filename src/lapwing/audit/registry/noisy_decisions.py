"""Decisions from noisy numbers: noisy max, and the answers of the sparse vector technique.

Claim    in all cases that are tried, a decision is the one that the mechanism states, as a function of the
         noisy numbers alone: exact numbers decide nothing, also where noisy ones are equal.
Because  the noise is given, so that different exact numbers become the same noisy ones, and all small
         noisy numbers are tried, with all ties among them.
Test     tests/audit/registry/test_noisy_decisions.py

The exact laws of these mechanisms (`lapwing.audit.laws`) are those of the stated decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.forced_draws import copy_of
from lapwing.audit.stages.exact import ExactPair
from lapwing.core import selection
from lapwing.core.selection import AboveThreshold, NoisyMax

_NOES = 20
_NUMBERS = range(-2, 3)
_SHIFTS = ((0, 0, 0), (1, 0, -1), (-3, 2, 1), (5, -5, 0))  # of exact numbers, under the same noisy ones
Decision = tuple[str, object, object]  # in words; what was decided, and what is stated


class _GivenNoise:
    """A stand-in for noise: the numbers that were given, in order."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def drawn(self, _scale: Any, size: int) -> NDArray[np.int64]:
        """Return the next numbers."""
        taken, self.left = self.left[:size], self.left[size:]
        return np.array(taken, dtype=np.int64)

    def in_copy(self) -> Any:
        """Return a copy of the module of selections that adds this noise."""
        return copy_of(selection, {"discrete_laplace": self.drawn})


def with_noisy_decisions(case: AuditCase) -> AuditCase:
    """Return the case of a mechanism that decides by noisy numbers, with all small decisions."""
    (kind,) = case.covers
    stage = _with_decisions(case.stages[Stage.EXACT], _DECISIONS[kind])
    return replace(case, stages={**case.stages, Stage.EXACT: stage})


def _with_decisions(stage: RunStage, decisions: Callable[[], Iterator[Decision]]) -> RunStage:
    def run(budget: StageBudget) -> StageResult:
        result = stage(budget)
        if not result.holds:
            return result
        for words, decided, stated in decisions():
            result = replace(result, checks=result.checks + 1)
            if decided != stated:
                event = "a decision is not the stated one of the noisy numbers"
                numbers = {"decided": str(decided), "stated": str(stated)}
                return replace(result, witness=Witness(words, event, numbers), notes=())
        return result

    return run


def _winners() -> Iterator[Decision]:
    """Yield the winner of small noisy scores, however they are made of scores and noise."""
    noise = _GivenNoise()
    mechanism = noise.in_copy().NoisyMax(Fraction(1), 1)
    for noisy in product(_NUMBERS, repeat=3):
        for shift in _SHIFTS:
            scores = np.array([n - s for n, s in zip(noisy, shift, strict=True)], dtype=np.int64)
            noise.left = list(shift)
            yield f"scores {scores.tolist()} with noise {shift}", mechanism.sample(scores), _first(noisy)


def _first(noisy: Sequence[int]) -> int:
    return noisy.index(max(noisy))


def _answers() -> Iterator[Decision]:
    """Yield the answer to a small noisy value beside a noisy threshold, however they are made."""
    noise = _GivenNoise()
    mechanism = noise.in_copy().AboveThreshold(Fraction(1), 1, 1)
    for value, threshold in product(_NUMBERS, repeat=2):
        for own, of_threshold, _ in _SHIFTS:
            noise.left = [of_threshold]
            session = mechanism.start(threshold - of_threshold)
            noise.left = [own]
            exact = f"value {value - own} and threshold {threshold - of_threshold}"
            words = f"{exact}, with noise {own} and {of_threshold}"
            yield words, bool(session.ask(value - own)), value >= threshold


_DECISIONS: dict[Any, Callable[[], Iterator[Decision]]] = {NoisyMax: _winners, AboveThreshold: _answers}


# One course of many answers


def against_the_odds(
    terms: AboveThreshold, yeses: int, threshold_scale: Fraction, question_scale: Fraction
) -> ExactPair:
    """Return the laws of one course: many noes, then every yes from far below the threshold.

    One unit moves the noes up and the yeses down. The true ε of it is nearly all of the claimed one, for
    any number of yeses.
    """
    far = -2 * math.ceil(question_scale)
    course = (False,) * _NOES + (True,) * yeses
    first, second = (
        _one_course([up] * _NOES + [far - up] * yeses, course, threshold_scale, question_scale)
        for up in (0, terms.sensitivity)
    )
    name = (
        f"above threshold, ε = {terms.epsilon}, Δ = {terms.sensitivity}: {_NOES} noes, then {yeses} yeses"
    )
    return ExactPair(name, first, second, terms.loss, terms.epsilon)


@laws.precise
def _one_course(
    values: list[int], course: tuple[bool, ...], threshold_scale: Fraction, question_scale: Fraction
) -> laws.Law:
    """Return the probability of one course of answers, and that of all others together."""
    law = laws.above_threshold(values, sum(course), threshold_scale, question_scale, only=course)
    return {"this course": law[course], "another": 1 - law[course]}
