"""Bounds on probabilities are those of Clopper and Pearson."""

from __future__ import annotations

import pytest
from scipy.stats import beta

from lapwing.audit.stages.proportions import proportion_at_least, proportion_at_most


def test_bounds_on_proportions_are_those_of_clopper_and_pearson() -> None:
    for hits, trials in ((0, 10), (3, 10), (10, 10), (250, 1000)):
        for error in (0.05, 1e-6):
            upper = 1.0 if hits == trials else beta.ppf(1 - error, hits + 1, trials - hits)
            low = 0.0 if hits == 0 else beta.ppf(error, hits, trials - hits + 1)
            assert proportion_at_most(hits, trials, error) == pytest.approx(upper, rel=1e-6)
            assert proportion_at_least(hits, trials, error) == pytest.approx(low, abs=1e-8)
