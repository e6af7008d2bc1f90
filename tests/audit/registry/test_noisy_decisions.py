"""Decisions that exact numbers take part in are found, and sessions with too little noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget, Witness
from lapwing.audit.registry import noisy_decisions
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.registry.noisy_decisions import against_the_odds
from lapwing.audit.stages.exact import compare_exactly
from lapwing.core.selection import AboveThreshold

CASES = {case.name: case for case in mechanism_cases()}
QUICK = StageBudget(is_thorough=False)


def found(name: str) -> Witness | None:
    return CASES[name].stages[Stage.EXACT](QUICK).witness


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], None]) -> None:
    """Change the copy of the module of selections, whose noise is given."""
    in_copy = noisy_decisions._GivenNoise.in_copy

    def spoiled(noise: Any) -> Any:
        copy = in_copy(noise)
        change(copy, noise)
        return copy

    monkeypatch.setattr(noisy_decisions._GivenNoise, "in_copy", spoiled)


def test_ties_that_exact_scores_decide_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_score(copy: Any, noise: Any) -> None:
        def sample(_mechanism: Any, scores: Any) -> int:
            noisy = scores + noise.drawn(None, len(scores))
            return max(range(len(scores)), key=lambda at: (noisy[at], scores[at], -at))

        copy.NoisyMax.sample = sample

    assert found("noisy max") is None
    changed(monkeypatch, by_score)
    witness = found("noisy max")
    assert witness is not None
    assert "noisy numbers" in witness.event


def test_an_exact_value_that_is_always_a_yes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_value(copy: Any, _noise: Any) -> None:
        right = copy.AboveThresholdSession._is_above
        copy.AboveThresholdSession._is_above = lambda self, value: value > 3 or right(self, value)

    assert found("above threshold") is None
    changed(monkeypatch, by_value)
    assert found("above threshold") is not None


@pytest.mark.parametrize("positives", [1, 2, 4])
def test_one_course_needs_all_of_epsilon(positives: int) -> None:
    terms = AboveThreshold.for_epsilon(1, sensitivity=1, positives=positives)
    scales = terms.threshold_scale, terms.question_scale
    held = compare_exactly([against_the_odds(terms, positives, *scales)], QUICK, epsilon=Fraction(1))
    assert held.witness is None
    assert held.measured is not None
    assert held.measured > 0.98
    narrow = against_the_odds(terms, positives, scales[0], scales[1] * Fraction(49, 50))
    assert compare_exactly([narrow], QUICK, epsilon=Fraction(1)).witness is not None


def test_all_ties_are_tried() -> None:
    decided = list(noisy_decisions._winners())
    assert len(decided) == 5**3 * 4
    assert all(isinstance(mine, int | np.integer) for _, mine, _ in decided)
