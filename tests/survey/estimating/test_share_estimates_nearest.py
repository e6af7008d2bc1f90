"""The nearest possible shares."""

from __future__ import annotations

import numpy as np
import pytest

from lapwing.survey.estimating.share_estimates import nearest_shares


@pytest.mark.parametrize(
    ("shares", "nearest"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([1.3, -0.3], [1.0, 0.0]),
        ([0.5, 0.7, -0.1], [0.4, 0.6, 0.0]),
        ([-5.0, -5.0], [0.5, 0.5]),
        ([7.0], [1.0]),
    ],
)
def test_the_projection_is_that_of_the_definition(shares: list[float], nearest: list[float]) -> None:
    assert nearest_shares(np.array(shares)) == pytest.approx(nearest)


def test_no_other_possible_shares_are_nearer() -> None:
    generator = np.random.Generator(np.random.Philox(3))
    for size in (2, 5, 40):
        shares = generator.normal(1 / size, 0.3, size)
        found = nearest_shares(shares)
        assert found.sum() == pytest.approx(1)
        assert found.min() >= 0
        others = generator.dirichlet(np.ones(size), 1000)
        assert (np.linalg.norm(others - shares, axis=1) >= np.linalg.norm(found - shares) - 1e-12).all()
