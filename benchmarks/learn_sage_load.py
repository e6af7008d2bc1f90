"""Pipelines that arrive under load, and how long each way to account for loss makes them wait (simulated).

One block comes in each hour. A pipeline is accepted by an attempt that has `share · (a + b / ε)` blocks: a
and b as measured, shares by a power law. Attempts that are too small cost what they cost, and the next one
uses at least twice as much. As in Sage, what comes in is divided among those who wait, and what a pipeline
has left when it is done goes to the others; so blocks are chosen by what is left of them, which our own
schedules do not do (docs/arguments/attempts.md): this compares ways to account, not those.

conserve    block by block: all blocks that can pay, at as little ε as doubles the use
aggressive  block by block: the newest blocks, at all the ε that it has there
streaming   rows are used once, by one pipeline, at all of ε
whole data  one ε for everything, ever: every attempt is charged to all data
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EPSILON = 1.0  # of a block, or of the whole
LEAST = 1 / 64
WAYS = ("conserve", "aggressive", "streaming", "whole data")
Floats = NDArray[np.float64]


@dataclass(slots=True)
class Waiting:
    """A pipeline that has not released its model yet, and what it may use."""

    arrived: int
    share: float
    use: float = 0.0  # of its last attempt, in blocks times ε
    own: Floats = field(default_factory=lambda: np.zeros(0))  # its ε in each block
    blocks: float = 0.0  # collected, where rows are used once


@dataclass(frozen=True, slots=True)
class Need:
    """Blocks needed at ε by a pipeline of share 1: a + b / ε."""

    a: float
    b: float

    def met(self, one: Waiting, blocks: float, epsilon: float) -> bool:
        """Whether an attempt would be accepted."""
        return epsilon > 0 and blocks >= one.share * (self.a + self.b / epsilon)


class Stream:
    """Blocks of one ε each, and who may spend how much of it."""

    def __init__(self, way: str, need: Need) -> None:
        self.way, self.need = way, need
        self.hours = 0
        self.whole = EPSILON
        self.free = np.zeros(0)  # ε of blocks that nobody may spend yet
        self.waiting: list[Waiting] = []

    def hour(self, shares: list[float]) -> list[int]:
        """One hour: a block, new pipelines, attempts. Gives how long those waited who are done."""
        self.hours += 1
        self.free = np.append(self.free, EPSILON)
        self.waiting += [Waiting(self.hours - 1, share) for share in shares]
        for one in self.waiting:
            one.own = np.append(one.own, np.zeros(self.hours - len(one.own)))
        self._divide()
        done = [one for one in self.waiting if self._attempts(one)]
        for one in done:
            self.free += one.own
        self.waiting = [one for one in self.waiting if one not in done]
        return [self.hours - one.arrived for one in done]

    def _divide(self) -> None:
        for one in self.waiting:
            one.own += self.free / len(self.waiting)
            one.blocks += 1 / len(self.waiting)
        if self.waiting:
            self.free[:] = 0

    def _attempts(self, one: Waiting) -> bool:
        """Attempts until it is done, or has to wait."""
        while True:
            tried = getattr(self, f"_{self.way.replace(' ', '_')}")(one)
            if tried is None:
                return False
            blocks, epsilon = tried
            one.use = blocks * epsilon
            if self.need.met(one, blocks, epsilon):
                return True

    def _conserve(self, one: Waiting) -> tuple[float, float] | None:
        wanted = max(2 * one.use, LEAST)
        order = np.argsort(-one.own, kind="stable")
        counts = np.arange(1, self.hours + 1)
        epsilons = np.maximum(wanted / counts, LEAST)
        able = np.flatnonzero(epsilons <= one.own[order] + 1e-12)
        if not len(able):
            return None
        count, epsilon = int(counts[able[-1]]), float(epsilons[able[-1]])
        one.own[order[:count]] -= epsilon
        return count, epsilon

    def _aggressive(self, one: Waiting) -> tuple[float, float] | None:
        newest = np.flatnonzero(one.own > LEAST / 4)[::-1]
        least = np.minimum.accumulate(one.own[newest])
        uses = least * np.arange(1, len(newest) + 1)
        enough = np.flatnonzero((uses >= 2 * one.use) & (uses > 0))
        if not len(enough):
            return None
        count, epsilon = int(enough[0]) + 1, float(least[enough[0]])
        one.own[newest[:count]] -= epsilon
        return count, epsilon

    def _streaming(self, one: Waiting) -> tuple[float, float] | None:
        if one.blocks < max(2 * one.use, LEAST):
            return None
        blocks, one.blocks = one.blocks, 0.0
        return blocks, EPSILON

    def _whole_data(self, one: Waiting) -> tuple[float, float] | None:
        epsilon = max(2 * one.use / self.hours, LEAST / 16)
        if epsilon > self.whole:
            return None
        self.whole -= epsilon
        return self.hours, epsilon


def simulate(way: str, rate: float, need: Need, *, hours: int, seed: int) -> float:
    """Mean hours from arrival to release. Who never releases counts until the end."""
    draw = np.random.default_rng(seed)
    stream = Stream(way, need)
    times: list[int] = []
    for _ in range(hours):
        # Many small pipelines, few large ones.
        shares = np.clip((1 - draw.random(draw.poisson(rate))) ** (-1 / 1.5) / 3, 1 / 3, 20)
        times += stream.hour(shares.tolist())
    return float(np.mean([*times, *(hours - one.arrived for one in stream.waiting)] or [0]))


def release_times(need: Need, rates: tuple[float, ...], *, hours: int, runs: int) -> dict[str, list[float]]:
    """For each way, the mean hours to release at each rate of arrivals."""
    return {
        way: [
            float(np.mean([simulate(way, rate, need, hours=hours, seed=seed) for seed in range(runs)]))
            for rate in rates
        ]
        for way in WAYS
    }
