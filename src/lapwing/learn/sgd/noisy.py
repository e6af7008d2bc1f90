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

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lapwing.errors import BadValue, SessionOver
from lapwing.learn.sgd.sensitivity import Sensitivity
from lapwing.mechanisms.gaussian import Gaussian
from lapwing.noise import discrete_gaussian
from lapwing.privacy.once import Once

Whole = NDArray[np.int64]
_AT_ONCE = 1 << 16  # few enough to stay in a processor's cache
_DRAWN_AT_ONCE = 1 << 20


def on_grid(sums: NDArray[Any], grid: Sensitivity) -> NDArray[np.float64]:
    """Floats as whole numbers of steps. Private: they get noise next."""
    found: NDArray[np.float64] = sums * np.float64(1 / grid.step)
    return np.rint(found, out=found)


def lots_of_noise(mechanism: Gaussian) -> Iterator[Whole]:
    """The mechanism's noise, a lot at a time: coordinates are independent."""
    for start in range(0, mechanism.dimension, _DRAWN_AT_ONCE):
        drawn = discrete_gaussian(mechanism.sigma, min(_DRAWN_AT_ONCE, mechanism.dimension - start))
        for first in range(0, len(drawn), _AT_ONCE):
            yield drawn[first : first + _AT_ONCE]


def release(sums: Tensor, grid: Sensitivity, noise: Iterable[Whole], *, divided_by: int) -> Tensor:
    """The noisy sum, divided by a public number. `sums` is overwritten where it can be."""
    numbers = sums.cpu().numpy()
    lots, share = iter(noise), float(grid.step) / divided_by
    for start in range(0, len(numbers), _AT_ONCE):
        lot, part = next(lots, None), numbers[start : start + _AT_ONCE]
        if lot is None or lot.shape != part.shape:
            raise BadValue("the sum is not of the form that was priced")
        noisy = on_grid(part, grid)
        noisy += lot
        noisy *= share
        part[:] = noisy
    if next(lots, None) is not None:
        raise BadValue("the sum is not of the form that was priced")
    return torch.from_numpy(numbers).to(sums.device)


class NoiseAhead(Once):
    """The noise of `steps` steps, one after the other, drawn by a thread of its own."""

    def __init__(self, mechanism: Gaussian, steps: int) -> None:
        super().__init__()
        self._mechanism, self._left = mechanism, steps
        self._thread = ThreadPoolExecutor(1, "noise")
        self._next: Future[list[Whole]] | None = None

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _draw(self) -> None:
        self._next = None
        if self._left:
            self._left -= 1
            self._next = self._thread.submit(lambda: list(lots_of_noise(self._mechanism)))

    def lots(self) -> list[Whole]:
        """A step's noise. A failure to draw fails the step: there is no sum without noise."""
        self.require_here()
        if self._next is None:
            raise SessionOver("all the noise that was paid for is used")
        noise = self._next.result()
        self._draw()
        return noise

    def settle(self) -> None:
        """Wait until the next noise is drawn."""
        if self._next is not None:
            self._next.result()
