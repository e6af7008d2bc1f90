"""Steps of DP-SGD with too little noise or too large samples are found; the trainer itself holds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from lapwing.audit.case import StageBudget
from lapwing.audit.registry.step_laws import regression_samples, step_stage
from lapwing.core import noise
from lapwing.learn.sgd import randomness

BUDGET = StageBudget(error=1e-9, is_thorough=False)


def test_the_trainer_draws_what_it_charges() -> None:
    assert step_stage()(BUDGET).holds


def test_half_of_the_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = noise.discrete_gaussian_lots
    monkeypatch.setattr(randomness, "discrete_gaussian_lots", lambda sigma, size: right(sigma / 2, size))
    found = step_stage()(BUDGET).witness
    assert found is not None
    assert "noise" in found.pair


@pytest.mark.parametrize("factor", [Fraction(13, 10)])
def test_larger_samples_are_found(monkeypatch: pytest.MonkeyPatch, factor: Fraction) -> None:
    right = noise.bernoulli

    def larger(rate: Any, size: int) -> Any:
        return right(rate * factor, size)

    monkeypatch.setattr(randomness, "bernoulli", larger)
    found = step_stage()(BUDGET).witness
    assert found is not None
    assert "samples" in found.pair


def test_samples_of_logistic_regression_have_the_charged_rate() -> None:
    found = regression_samples(BUDGET)
    assert found.holds
    assert found.checks == 4  # steps


def test_the_same_noise_in_all_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = noise.discrete_gaussian_lots
    kept: list[tuple[int, list[Any]]] = []

    def same(sigma: Fraction, size: int) -> Any:
        if not kept or kept[0][0] != size:
            kept[:] = [(size, [lot.copy() for lot in right(sigma, size)])]
        return iter([lot.copy() for lot in kept[0][1]])

    monkeypatch.setattr(randomness, "discrete_gaussian_lots", same)
    found = step_stage()(BUDGET).witness
    assert found is not None
    assert "2 steps" in found.pair
