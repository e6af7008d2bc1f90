"""Extreme outputs lie at both ends of what a mechanism can give."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.stages.extreme_outputs import extreme_output
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.order_statistics import Extreme
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import NoisyMax

SCORES = {"scores": np.array([1, 2, 3])}


@pytest.mark.parametrize(
    ("mechanism", "inputs", "low", "high"),
    [
        (Laplace(Fraction(10), 1), {}, [-20_493], [20_507]),
        (Gaussian(Fraction(2), Fraction(1), 1), {}, [-20_093], [20_107]),
        (Extreme.for_epsilon(1, greatest=True, first=2, last=9, rows=1), {}, 2, 9),
        (NoisyMax.for_epsilon(1, sensitivity=1), SCORES, 0, 2),
        (RandomizedResponse.two_coins(), {}, [7], [7]),
    ],
)
def test_both_ends(mechanism: Any, inputs: dict[str, Any], low: Any, high: Any) -> None:
    for is_upper, wanted in ((False, low), (True, high)):
        found = extreme_output(mechanism, inputs, lambda: np.array([7]), is_upper=is_upper)
        assert np.array_equal(found, wanted)
