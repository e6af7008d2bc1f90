"""Sums of gradients become noisy whole numbers of the grid's steps, and those floats again.

Claim    what `release` gives is a function of the sum on the grid plus the mechanism's noise, exactly.
Because  a step is a power of two, so that only `rint` rounds; whole numbers below 2^53, which
         `Sensitivity.mechanism` sees to, are exact in double precision, and so are their sums. What is done
         afterwards is done to released numbers.
Test     tests/learn/sgd/test_noisy.py, tests/learn/sgd/test_neighbours.py

Noise for the next step is drawn while the gradients of this one are computed. It does not depend on data,
so when it is drawn makes no difference to its law. Each draw is used once, lives in memory only, and is
lost with the process: whoever goes on after a crash draws anew.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lapwing.errors import BadValue, SessionOver
from lapwing.learn.sgd.sensitivity import Sensitivity
from lapwing.mechanisms.gaussian import Gaussian
from lapwing.noise import fill_discrete_gaussian
from lapwing.privacy.once import Once

Whole = NDArray[np.float64]  # whole numbers, all the same
_AT_ONCE = 1 << 16  # few enough to stay in a processor's cache


def on_grid(sums: Tensor, grid: Sensitivity) -> Tensor:
    """Floats as whole numbers of steps, in double precision. Private: they get noise next."""
    return _whole(sums, 1 / grid.step, torch.empty_like(sums, dtype=torch.float64))


def _whole(sums: Tensor, steps: Fraction, into: Tensor) -> Tensor:
    return into.copy_(sums).mul_(float(steps)).round_()


class Careful:
    """A sum of very many parts in double precision: what is lost at each addition is added in the end."""

    def __init__(self, zeros: Tensor) -> None:
        self._total, self._lost, self._part = zeros, torch.zeros_like(zeros), torch.zeros_like(zeros)

    def next(self) -> Tensor:
        """Take in the last part; zeros, to write the next one into."""
        before, part = self._total, self._part
        total = before + part
        kept = total - before
        self._lost += (before - (total - kept)) + (part - kept)  # exact: Knuth's sum of two
        self._total = total
        return part.zero_()

    def sum(self, grid: Sensitivity) -> Tensor:
        """All parts together, cut where whole numbers would stop being exact."""
        self.next()
        most = float(grid.largest * grid.step)
        return self._total.add_(self._lost).clamp_(-most, most)


def release(sums: Tensor, grid: Sensitivity, noise: Whole, *, divided_by: int) -> Tensor:
    """The noisy sum, divided by a public number. `sums` is overwritten where it can be."""
    if sums.shape != noise.shape:
        raise BadValue("the sum is not of the form that was priced")
    numbers, steps, share = sums.cpu(), 1 / grid.step, float(grid.step) / divided_by
    room = torch.empty(min(_AT_ONCE, len(numbers)), dtype=torch.float64)
    for part, drawn in zip(
        *(torch.split(one, _AT_ONCE) for one in (numbers, torch.from_numpy(noise))), strict=True
    ):
        part.copy_(_whole(part, steps, room[: len(part)]).add_(drawn).mul_(share))
    return numbers.to(sums.device)


class Noise:
    """A mechanism's noise for one vector after the other, always in the same memory."""

    def __init__(self, mechanism: Gaussian) -> None:
        self._sigma, self._room = mechanism.sigma, np.empty(mechanism.dimension)

    def draw(self) -> Whole:
        """Fresh noise. The last one is gone."""
        fill_discrete_gaussian(self._sigma, self._room)
        return self._room


class NoiseAhead(Once):
    """The noise of `steps` steps, one after the other, drawn by a thread of its own."""

    def __init__(self, mechanism: Gaussian, steps: int) -> None:
        super().__init__()
        self._left = steps
        self._rooms = Noise(mechanism), Noise(mechanism)  # one is drawn while the other is used
        self._thread = ThreadPoolExecutor(1, "noise")
        self._next: Future[Whole] | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        self._next = None
        if self._left:
            self._left -= 1
            self._next = self._thread.submit(self._rooms[self._left % 2].draw)

    def draw(self) -> Whole:
        """A step's noise, for this step only. If it cannot be drawn, the step fails."""
        self.require_here()
        if self._next is None:
            raise SessionOver("all the noise that was paid for is used")
        noise = self._next.result()
        self._begin()
        return noise

    def settle(self) -> None:
        """Wait until the next noise is drawn."""
        if self._next is not None:
            self._next.result()
