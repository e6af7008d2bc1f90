"""Outputs at the ends of what a mechanism can give, for steps that only a rare output would take.

A replay forces them on both runs. Every output is possible, so the premise of composition must hold for it.

Test     tests/audit/stages/test_extreme_outputs.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.selection import Exponential, NoisyMax, PermuteAndFlip

BEYOND = 20_000  # how far numbers are moved, beside 50 times the scale of the noise
_SCALES = 50


def extreme_output(
    mechanism: Any, inputs: dict[str, Any], draw: Callable[[], Any], *, is_upper: bool
) -> Any:
    """Return an output at the upper or the lower end; a drawn one if the mechanism has no such ends."""
    match mechanism:
        case Laplace() | LaplaceShares():
            return _moved(draw(), mechanism.scale, is_upper=is_upper)
        case Gaussian() | GaussianShares():
            return _moved(draw(), mechanism.sigma, is_upper=is_upper)
        case Quantile() | Extreme():
            return mechanism.last if is_upper else mechanism.first
        case Exponential() | PermuteAndFlip() | NoisyMax():
            return len(np.atleast_1d(inputs["scores"])) - 1 if is_upper else 0
    return draw()


def _moved(drawn: Any, scale: Any, *, is_upper: bool) -> Any:
    far = BEYOND + int(_SCALES * scale)
    return drawn + far if is_upper else drawn - far
