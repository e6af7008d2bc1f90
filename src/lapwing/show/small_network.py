"""A small network in plain numpy, and invented towns that it is trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HIDDEN = 8
WEIGHT_COUNT = 4 * HIDDEN + 1
LARGEST_WEIGHT = 6.0  # weights are clamped to this size, so that noise for them is possible at all
_STEPS, _RATE, _MOMENTUM = 500, 0.4, 0.9


@dataclass(frozen=True, slots=True)
class TownData:
    """Points in a square, and the class of each: on which side of a turned wave it lies."""

    points: Floats
    classes: NDArray[np.bool_]

    @classmethod
    def of(cls, angle: float, size: int, first: int) -> TownData:
        """Return `size` points from place `first` of a sequence that fills the square evenly."""
        places = np.arange(first, first + size, dtype=np.float64)
        points = 2 * np.stack([(places * step) % 1 for step in (0.7548776662, 0.5698402910)], axis=1) - 1
        turn = math.radians(angle)
        along = points @ np.array([math.cos(turn), math.sin(turn)])
        across = points @ np.array([-math.sin(turn), math.cos(turn)])
        return cls(points, across > 0.35 * np.sin(3 * along))


def trained(data: TownData) -> Floats:
    """Return the weights of a network after gradient descent on all rows."""
    turns = np.arange(HIDDEN) * math.pi / HIDDEN
    weights = np.concatenate([2 * np.cos(turns), 2 * np.sin(turns), np.linspace(-1, 1, HIDDEN)])
    weights = np.concatenate([weights, np.zeros(HIDDEN + 1)])
    speed = np.zeros_like(weights)
    for _ in range(_STEPS):
        speed = _MOMENTUM * speed - _RATE * _gradient(weights, data)
        weights = np.clip(weights + speed, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return weights


def right_answers(weights: Floats, data: TownData) -> int:
    """Return how many rows the network puts into their class."""
    scores = _hidden(weights, data.points) @ weights[3 * HIDDEN : -1] + weights[-1]
    return int(((scores > 0) == data.classes).sum())


def _hidden(weights: Floats, points: Floats) -> Floats:
    first = weights[: 2 * HIDDEN].reshape(2, HIDDEN)
    hidden: Floats = np.tanh(points @ first + weights[2 * HIDDEN : 3 * HIDDEN])
    return hidden


def _gradient(weights: Floats, data: TownData) -> Floats:
    """Return the gradient of the mean logistic loss."""
    hidden, last = _hidden(weights, data.points), weights[3 * HIDDEN : -1]
    chances = 1 / (1 + np.exp(-(hidden @ last + weights[-1])))
    off = (chances - data.classes) / len(data.classes)
    back = off[:, None] * last * (1 - hidden**2)
    return np.concatenate(
        [(data.points.T @ back).ravel(), back.sum(axis=0), hidden.T @ off, [off.sum()]], dtype=np.float64
    )
