"""The nearest shares that are possible: none negative, and together 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def projected(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The point of the simplex that is nearest to `shares` (Euclidean distance).

    All shares are lowered by one number, and what falls below 0 becomes 0.
    """
    falling = np.sort(shares)[::-1]
    sums = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(falling > sums)[-1])
    nearest: NDArray[np.float64] = np.maximum(shares - sums[last], 0.0)
    return nearest
