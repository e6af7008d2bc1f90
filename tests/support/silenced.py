from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the mechanism comes out as it is."""

    def nothing(_: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("lapwing.core.laplace.discrete_laplace", nothing)
