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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lapwing.show.hashed_numbers import HashedNumbers

EPSILON = 1.0  # of a block, or of the whole
LEAST = 1 / 64
WAYS = ("conserve", "aggressive", "streaming", "whole data")
Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class WaitingPipeline:
    """A pipeline that has not released its model yet, and what it may use."""

    arrived: int
    share: float
    use: float = 0.0  # of its last attempt, in blocks times ε
    own: Floats = field(default_factory=lambda: np.zeros(0))  # its ε in each block
    blocks: float = 0.0  # collected, where rows are used once


@dataclass(frozen=True, slots=True)
class BlocksNeeded:
    """Blocks needed at ε by a pipeline of share 1: a + b / ε."""

    a: float
    b: float

    def met(self, pipeline: WaitingPipeline, blocks: float, epsilon: float) -> bool:
        """Return whether an attempt would be accepted."""
        return epsilon > 0 and blocks >= pipeline.share * (self.a + self.b / epsilon)


class SharedBlocks:
    """Blocks with an ε each, and the ε that each pipeline may spend of them."""

    def __init__(self, way: str, need: BlocksNeeded, epsilon: float = EPSILON) -> None:
        self.way, self.need, self.epsilon = way, need, epsilon
        self.hours = 0
        self.whole = epsilon
        self.free = np.zeros(0)  # ε of blocks that nobody may spend yet
        self.waiting: list[WaitingPipeline] = []

    def hour(self, shares: list[float]) -> list[int]:
        """Pass one hour: a block, new pipelines, attempts. Return how long the finished ones waited."""
        self.hours += 1
        self.free = np.append(self.free, self.epsilon)
        self.waiting += [WaitingPipeline(self.hours - 1, share) for share in shares]
        for pipeline in self.waiting:
            pipeline.own = np.append(pipeline.own, np.zeros(self.hours - len(pipeline.own)))
        self._divide()
        done = [pipeline for pipeline in self.waiting if self._attempts(pipeline)]
        for pipeline in done:
            self.free += pipeline.own
        self.waiting = [pipeline for pipeline in self.waiting if pipeline not in done]
        return [self.hours - pipeline.arrived for pipeline in done]

    def _divide(self) -> None:
        for pipeline in self.waiting:
            pipeline.own += self.free / len(self.waiting)
            pipeline.blocks += 1 / len(self.waiting)
        if self.waiting:
            self.free[:] = 0

    def _attempts(self, pipeline: WaitingPipeline) -> bool:
        """Make attempts until it is done, or has to wait."""
        while True:
            tried = getattr(self, f"_{self.way.replace(' ', '_')}")(pipeline)
            if tried is None:
                return False
            blocks, epsilon = tried
            pipeline.use = blocks * epsilon
            if self.need.met(pipeline, blocks, epsilon):
                return True

    def _conserve(self, pipeline: WaitingPipeline) -> tuple[float, float] | None:
        wanted = max(2 * pipeline.use, LEAST)
        order = np.argsort(-pipeline.own, kind="stable")
        counts = np.arange(1, self.hours + 1)
        epsilons = np.maximum(wanted / counts, LEAST)
        able = np.flatnonzero(epsilons <= pipeline.own[order] + 1e-12)
        if not len(able):
            return None
        count, epsilon = int(counts[able[-1]]), float(epsilons[able[-1]])
        pipeline.own[order[:count]] -= epsilon
        return count, epsilon

    def _aggressive(self, pipeline: WaitingPipeline) -> tuple[float, float] | None:
        newest = np.flatnonzero(pipeline.own > LEAST / 4)[::-1]
        least = np.minimum.accumulate(pipeline.own[newest])
        uses = least * np.arange(1, len(newest) + 1)
        enough = np.flatnonzero((uses >= 2 * pipeline.use) & (uses > 0))
        if not len(enough):
            return None
        count, epsilon = int(enough[0]) + 1, float(least[enough[0]])
        pipeline.own[newest[:count]] -= epsilon
        return count, epsilon

    def _streaming(self, pipeline: WaitingPipeline) -> tuple[float, float] | None:
        if pipeline.blocks < max(2 * pipeline.use, LEAST):
            return None
        blocks, pipeline.blocks = pipeline.blocks, 0.0
        return blocks, self.epsilon

    def _whole_data(self, pipeline: WaitingPipeline) -> tuple[float, float] | None:
        epsilon = max(2 * pipeline.use / self.hours, LEAST / 16)
        if epsilon > self.whole:
            return None
        self.whole -= epsilon
        return self.hours, epsilon


@dataclass(frozen=True, slots=True)
class ReleaseWaits:
    """The waits of pipelines that were each followed for `within` hours; infinite if not released by then.

    Those that never release have no hours to release: so there is no mean.
    """

    hours: tuple[float, ...]
    within: int

    @property
    def median(self) -> float:
        """The hours in which half of the pipelines release; infinite if fewer do, 0 if there is none."""
        return sorted(self.hours)[len(self.hours) // 2] if self.hours else 0.0

    @property
    def not_released(self) -> float:
        """The share of the pipelines that were not released within that time."""
        return sum(map(math.isinf, self.hours)) / max(len(self.hours), 1)


def simulated_waits(
    way: str, rate: float, need: BlocksNeeded, *, hours: int, seed: int, epsilon: float = EPSILON
) -> list[float]:
    """Return the waits of pipelines of the first half, each followed for half of the hours."""
    draw, within = HashedNumbers(seed), hours // 2
    stream = SharedBlocks(way, need, epsilon)
    waits: list[float] = []
    for _ in range(hours):
        # Many small pipelines, few large ones.
        shares = np.clip(draw.uniform(draw.poisson(rate)) ** (-1 / 1.5) / 3, 1 / 3, 20)
        done = stream.hour(shares.tolist())
        waits += [
            wait if wait <= within else math.inf for wait in done if stream.hours - wait < hours - within
        ]
    return waits + [math.inf for pipeline in stream.waiting if pipeline.arrived < hours - within]


def release_times(
    need: BlocksNeeded,
    rates: Sequence[float],
    *,
    hours: int,
    runs: int,
    epsilon: float = EPSILON,
    tell: Callable[[int, int], None] = lambda _, __: None,
) -> dict[str, list[ReleaseWaits]]:
    """Return for each way the hours to release at each rate of arrivals, over all simulations.

    Args:
        need: The blocks that a pipeline of share 1 needs.
        rates: The pipelines that arrive each hour, on average.
        hours: The length of a simulation.
        runs: The simulations for each point. All ways see the same arrivals.
        epsilon: The ε of a block, or of the whole.
        tell: Is called with the numbers of finished and of all points.
    """
    waits_by_way: dict[str, list[ReleaseWaits]] = {way: [] for way in WAYS}
    done = 0
    for way in WAYS:
        for rate in rates:
            tell(done, len(WAYS) * len(rates))
            waits: list[float] = []
            for seed in range(runs):
                waits += simulated_waits(way, rate, need, hours=hours, seed=seed, epsilon=epsilon)
            waits_by_way[way].append(ReleaseWaits(tuple(waits), hours // 2))
            done += 1
    tell(done, done)
    return waits_by_way
