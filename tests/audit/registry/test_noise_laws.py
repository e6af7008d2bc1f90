"""Noise that is narrower than its charge is found at each size, in small and in large batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget, Witness
from lapwing.audit.forced_draws import Scales
from lapwing.audit.registry import noise_laws
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.stages.known_law import law_violation
from lapwing.core import laplace
from lapwing.core.laplace import Laplace, LaplaceShares

CASES = {case.name: case for case in mechanism_cases()}
QUICK = StageBudget(is_thorough=False)


def found(name: str) -> Witness | None:
    return CASES[name].stages[Stage.EXACT](QUICK).witness


@pytest.mark.parametrize("name", ["Laplace", "Laplace shares", "Gaussian", "Gaussian shares", "noisy max"])
@pytest.mark.parametrize("least", [16, 1000])
def test_wide_noise_whose_scale_is_rounded_down_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, least: int
) -> None:
    assert found(name) is None
    right = Scales._zeros

    def rounded(scales: Scales, scale: Any, size: int, parties: int) -> Any:
        return right(scales, Fraction(math.floor(scale)) if scale > least else scale, size, parties)

    monkeypatch.setattr(Scales, "_zeros", rounded)
    witness = found(name)
    assert witness is not None
    assert "narrower" in witness.event


@pytest.mark.parametrize("kind", [Laplace, LaplaceShares])
@pytest.mark.parametrize("is_wrong", [lambda size: size < 1000, lambda size: size > 1000])
def test_batches_of_one_size_with_too_many_zeros_are_found(
    monkeypatch: pytest.MonkeyPatch, kind: type, is_wrong: Callable[[int], bool]
) -> None:
    for primitive in ("discrete_laplace", "polya_share"):
        right = getattr(laplace, primitive)

        def spoiled(*given: Any, right: Any = right, **named: Any) -> Any:
            drawn = right(*given, **named)
            return np.where(drawn < 0, drawn + 1, drawn) if is_wrong(len(drawn)) else drawn

        monkeypatch.setattr(laplace, primitive, spoiled)
    assert any(law_violation(known, 1e-9) for known in noise_laws._KNOWN[kind]())
