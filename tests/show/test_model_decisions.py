"""Decisions about models: the data has its floor, and only bounds that allow for noise hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.learn.confidence_bounds import mean_ceiling
from lapwing.learn.validators import eta_share
from lapwing.show.model_decisions import (
    BOUND,
    ETA,
    NOISE,
    SHARE,
    compare_decisions,
    decisions,
    measured_need,
    rides,
)
from lapwing.show.release_load import BlocksNeeded


def test_the_best_model_is_off_by_the_floor() -> None:
    """The true line is off by |N(0, 6)|: mean 6 √(2/π), within five standard errors."""
    data = rides(1000, 100, pool=100_000, by_hour=False)
    line = 10 + 1.5 * data.pool[:, 0] + 4 * data.pool[:, 1]
    lost = np.abs(line - data.truth)
    assert lost.mean() == pytest.approx(data.best, abs=5 * lost.std() / np.sqrt(len(lost)))
    assert data.best == pytest.approx(NOISE * 0.797885, rel=1e-5)


def test_the_ways_are_ordered_where_a_model_is_clearly_good_or_bad() -> None:
    data = rides(1000, 100, pool=1000, by_hour=False)
    tested = np.full(20_000, 5.0)
    good = decisions(data, Fraction(8), Fraction(1), tested, i=1, eta=ETA)
    assert good == {"none": True, "estimate": True, "uncorrected": True, "ours": True}
    bad = decisions(data, Fraction(4), Fraction(1), tested, i=1, eta=ETA)
    assert bad == {"none": True, "estimate": False, "uncorrected": False, "ours": False}


def test_no_run_is_accepted_with_fewer_rows_than_sampling_alone_needs() -> None:
    """Without any noise, a model as good as the best needs so many test rows that its bound is below."""
    data = rides(64_000, 2_000, pool=20_000, by_hour=False)
    found = compare_decisions(data, runs=4, variants=1, epsilons=[Fraction(1)], gaps=[0.2])
    goal, best = data.goal(0.2), Fraction(data.best)
    blocks = 1
    while True:
        rows = blocks * data.block // SHARE
        attempt = blocks.bit_length()
        lost, spared = rows * best / BOUND, rows * (1 - best / BOUND)
        if BOUND * mean_ceiling(lost, spared, eta_share(ETA, attempt)) <= goal:
            break
        blocks *= 2
    assert min(found.needed[0.2, Fraction(1)]) >= blocks * data.block


def test_a_need_is_fitted_to_measured_rows() -> None:
    data = rides(1000, 100, pool=1000, by_hour=False)
    gap = data.gaps[-2]
    rows = {(gap, Fraction(1)): [300, 300], (gap, Fraction(1, 4)): [600]}
    found = measured_need(data, rows)
    assert (found.a, found.b) == pytest.approx((2, 1))
    assert measured_need(data, {}) == BlocksNeeded(2.0, 0.5)
