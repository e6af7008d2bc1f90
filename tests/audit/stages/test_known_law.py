"""Draws are compared with a known law: right noise passes, and noise that is off by a tenth is found."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.stages.known_law import (
    DRAWS,
    KnownLaw,
    gaussian_events,
    laplace_events,
    law_violation,
    uniform_events,
    with_known_laws,
)
from lapwing.core.noise import discrete_gaussian, discrete_laplace, uniform_int
from support.cases import each

ERROR = 1e-9
SIGMAS = (Fraction(1, 2), Fraction(13, 10), Fraction(7), Fraction(60), Fraction(10**6))


def known(sigma: Fraction, draw: Callable[[], Any]) -> KnownLaw:
    return KnownLaw("noise", draw, gaussian_events(sigma))


@each("sigma", SIGMAS)
def test_the_sampler_follows_its_law(sigma: Fraction) -> None:
    assert law_violation(known(sigma, lambda: discrete_gaussian(sigma, DRAWS)), ERROR) is None


@each("sigma", SIGMAS)
@each("factor", [Fraction(9, 10), Fraction(1, 2), Fraction(11, 10)])
def test_another_scale_is_found(sigma: Fraction, factor: Fraction) -> None:
    found = law_violation(known(sigma, lambda: discrete_gaussian(sigma * factor, DRAWS)), ERROR)
    assert found is not None
    assert "law" in found.event


@pytest.mark.parametrize(
    "reuse",
    [
        lambda drawn: np.repeat(drawn[: DRAWS // 2], 2),
        lambda drawn: np.tile(drawn[: DRAWS // 2], 2),
        np.abs,
    ],
)
def test_draws_that_depend_on_each_other_are_found(reuse: Callable[[Any], Any]) -> None:
    sigma = Fraction(7)
    assert law_violation(known(sigma, lambda: reuse(discrete_gaussian(sigma, DRAWS))), ERROR) is not None


def test_the_stage_tells_which_laws_it_compared() -> None:
    right = known(Fraction(2), lambda: discrete_gaussian(2, DRAWS))
    wrong = known(Fraction(2), lambda: discrete_gaussian(1, DRAWS))
    held = with_known_laws(None, lambda: [right], 1.0)(StageBudget())
    assert held.holds
    assert held.stage is Stage.SAMPLED
    assert "noise" in held.notes[-1]
    assert with_known_laws(None, lambda: [right, wrong], 1.0)(StageBudget()).witness is not None


@each("scale", SIGMAS)
def test_laplace_noise_has_its_law_and_no_other(scale: Fraction) -> None:
    def known_laplace(drawn_at: Fraction) -> KnownLaw:
        return KnownLaw("noise", lambda: discrete_laplace(drawn_at, DRAWS), laplace_events(scale))

    assert law_violation(known_laplace(scale), ERROR) is None
    assert law_violation(known_laplace(scale * Fraction(9, 10)), ERROR) is not None


@each("below", [2, 5, 257, (1 << 61) - 1])
def test_uniform_numbers_have_their_law_and_no_other(below: int) -> None:
    def known_uniform(end: int) -> KnownLaw:
        return KnownLaw("numbers", lambda: uniform_int(0, end, DRAWS), uniform_events(below))

    assert law_violation(known_uniform(below), ERROR) is None
    assert law_violation(known_uniform(below - (below // 4 or 1)), ERROR) is not None
