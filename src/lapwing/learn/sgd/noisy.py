"""Noise for the next step is drawn while the gradients of this one are computed.

It does not depend on data, so when it is drawn makes no difference to its law. Each draw is used once,
lives in memory only, and is lost with the process: whoever goes on after a crash draws anew.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue, SessionOver
from lapwing.mechanisms.gaussian import Gaussian
from lapwing.noise import discrete_gaussian
from lapwing.privacy.once import Once

Whole = NDArray[np.int64]
_AT_ONCE = 1 << 16


def add_noise(mechanism: Gaussian, whole_sum: Whole) -> Whole:
    """The sum with the mechanism's noise, in place: coordinates are independent, and drawn in lots."""
    if whole_sum.shape != (mechanism.dimension,):
        raise BadValue(f"this mechanism was priced for {mechanism.dimension} values")
    for start in range(0, len(whole_sum), _AT_ONCE):
        lot = whole_sum[start : start + _AT_ONCE]
        lot += discrete_gaussian(mechanism.sigma, len(lot))
    return whole_sum


class NoiseAhead(Once):
    """The noise of `steps` steps, one after the other, drawn by a thread of its own."""

    def __init__(self, mechanism: Gaussian, steps: int) -> None:
        super().__init__()
        self._mechanism, self._left = mechanism, steps
        self._thread = ThreadPoolExecutor(1, "noise")
        self._next: Future[Whole] | None = None

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
            nothing = np.zeros(self._mechanism.dimension, dtype=np.int64)
            self._next = self._thread.submit(add_noise, self._mechanism, nothing)

    def added_to(self, whole_sum: Whole) -> Whole:
        """The sum with its noise. A failure to draw fails the step: there is no sum without noise."""
        self.require_here()
        if self._next is None:
            raise SessionOver("all the noise that was paid for is used")
        noise = self._next.result()
        self._draw()
        if whole_sum.shape != noise.shape:
            raise BadValue("the sum is not of the form that was priced")
        noise += whole_sum
        return noise

    def settle(self) -> None:
        """Wait until the next noise is drawn."""
        if self._next is not None:
            self._next.result()
