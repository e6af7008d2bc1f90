"""What a network says about rows, in whole numbers: no row's answer depends on which others are asked.

Claim    the outputs for a row are a function of that row and of the network's numbers alone, bit for bit.
Because  what goes through a layer are whole numbers of steps; products and sums of them stay below 2^53,
         and are exact in floats, in any order; functions are looked up in tables. A product of floats may
         round by a row's place, and then a unit that is removed would change what others lose.
Test     tests/learn/pipelines/test_network.py::test_a_row_is_judged_by_itself
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.learn.trainers.columns import ONE

Floats = NDArray[np.float64]
Layer = tuple[Floats, Floats]
ACTIVATIONS = ("relu", "tanh", "sigmoid")
STEPS = 1 << 15  # in 1
_MOST = 1 << 22  # so that what goes on lies within ±128
_WEIGHT = 1 << 18  # steps in the greatest weight of a layer
_EXACT = 1 << 53
_FAR = 8 * STEPS  # from here on tanh is 1, to the step
_LARGEST = 2.0**40


class Forward:
    """Layers of (weights, bias), with one function between them."""

    def __init__(self, layers: Sequence[Layer], activation: str) -> None:
        self._activation = activation
        self._layers = [_in_steps(weights, bias) for weights, bias in layers]
        for at, (weights, _, _) in enumerate(self._layers):
            if weights.shape[0] * (STEPS if at == 0 else _MOST) * _WEIGHT >= _EXACT:
                raise BadParameter("layers", "are too wide to be computed exactly")

    def outputs(self, rows: NDArray[np.int64]) -> Floats:
        """For rows in steps of 1 / ONE, from -1 to 1."""
        at = rows * float(STEPS // ONE)
        for number, (weights, bias, step) in enumerate(self._layers):
            at = np.clip((at @ weights + bias) * step, -_LARGEST, _LARGEST)
            if number < len(self._layers) - 1:
                at = _activated(self._activation, np.clip(np.rint(at), -_MOST, _MOST))
        return at / STEPS


def _in_steps(weights: Floats, bias: Floats) -> tuple[Floats, Floats, float]:
    """Transposed weights and bias in whole steps, and how much a step of the sum is: a power of two.

    Noise can lead anywhere, even where floats end: such a network is bad, and no error.
    """
    tame, shift = (np.clip(np.nan_to_num(one), -_LARGEST, _LARGEST) for one in (weights, bias))
    largest = max(float(np.abs(tame).max(initial=0)), float(np.abs(shift).max(initial=0)), 2.0**-40)
    step = 2.0 ** math.ceil(math.log2(largest)) / _WEIGHT
    return np.rint(tame.T / step), np.rint(shift / step * STEPS), step


def _activated(name: str, at: Floats) -> Floats:
    if name == "relu":
        return np.maximum(at, 0.0)
    return _table(name)[np.clip(at, -_FAR, _FAR).astype(np.int64) + _FAR]


@lru_cache(maxsize=2)
def _table(name: str) -> Floats:
    at = np.arange(-_FAR, _FAR + 1) / STEPS
    found: Floats = np.rint((np.tanh(at) if name == "tanh" else 0.5 + 0.5 * np.tanh(at / 2)) * STEPS)
    return found
