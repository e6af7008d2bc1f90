"""Widths of census intervals, beside exact laws: single noises, sums of few and of many, uneven weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.noise import discrete_gaussian
from lapwing.publish.census.estimate_widths import (
    deviations_that_hold,
    half_widths,
    sub_gaussian_deviations,
)
from lapwing.publish.census.least_squares import LevelMeasurement, estimate_spine, spine_of
from support.streams import SeededStream

Law = NDArray[np.float64]


def law(sigma: float, weight: int = 1) -> Law:
    """Return the law of weight · noise on whole numbers, symmetric around its middle."""
    far = math.ceil(9 * sigma)
    found = np.zeros(2 * far * weight + 1)
    found[::weight] = np.exp(-((np.arange(-far, far + 1) / sigma) ** 2) / 2)
    return np.asarray(found / found.sum())


def beyond(found: Law, width: float) -> float:
    middle = len(found) // 2
    return float(found[np.abs(np.arange(-middle, middle + 1)) > width].sum())


SUMS = {
    "one": (1,), "two": (1, 1), "uneven": (5, 1), "many": (1,) * 12, "one beside many": (7, *(1,) * 9),
    "steps": (3, 3, 3, 2), "wide steps": (10, 10),
}  # fmt: skip


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("name", SUMS)
def test_every_sum_is_held(name: str, confidence: float) -> None:
    """At many σ: the worst widths are just below a multiple of the common step."""
    for sigma in (1.0, 2.7, 5.0, 5.3, 6.1, 7.77, 10.0, 13.1, 20.0):
        found = np.ones(1)
        for weight in SUMS[name]:
            found = np.convolve(found, law(sigma, weight))
        deviation = sigma * math.sqrt(sum(weight**2 for weight in SUMS[name]))
        missed = beyond(found, deviations_that_hold(sigma, confidence) * deviation)
        assert missed <= 1 - confidence, sigma


def test_noises_of_different_parameters_are_held_by_the_least_one() -> None:
    found = np.convolve(law(5.0, 4), law(37.0))
    deviation = math.sqrt((4 * 5.0) ** 2 + 37.0**2)
    assert beyond(found, deviations_that_hold(5.0) * deviation) <= 0.05


def test_factors_fall_to_that_of_a_normal_law_and_are_never_above_the_general_one() -> None:
    factors = [deviations_that_hold(sigma) for sigma in (5.0, 10.0, 20.0, 50.0, 100.0, 1e9)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == 2.167
    assert 1.96 < factors[-1] <= 1.97
    assert deviations_that_hold(4.9) == sub_gaussian_deviations() == pytest.approx(2.7162, abs=1e-4)
    assert deviations_that_hold(100.0, 1 - 1e-9) == sub_gaussian_deviations(1 - 1e-9)


def test_census_intervals_hold_and_are_not_wider_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """240 areas, 40 times: numbers of one census are not independent. 2.72 deviations would miss 0.66 %."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(5))
    rng = np.random.default_rng(5)
    areas = [f"a{k:03}" for k in range(240)]
    spine = spine_of({"land": ["all"] * 240, "region": [a[:3] for a in areas], "area": areas})
    sizes = (2,)
    leaves = rng.poisson(300, (240, 2)).astype(float)
    truth = [table.astype(float) for table in spine.sums(leaves)]
    sigmas = {(): 9.0, (0,): 14.0}
    missed: list[float] = []
    for _ in range(40):
        measured = [
            LevelMeasurement(
                {
                    (): t.sum(axis=1) + discrete_gaussian(Fraction(9), len(t)),
                    (0,): t + discrete_gaussian(Fraction(14), t.size).reshape(t.shape),
                },
                sigmas,
            )
            for t in truth
        ]
        found = estimate_spine(spine, sizes, measured)
        assert found.least_sigma == 9
        for level, table in enumerate(truth):
            for query, expected in (((), table.sum(axis=1)[:, None]), ((0,), table)):
                here = found.tables[level] if query else found.tables[level].sum(axis=1)[:, None]
                width = half_widths(found, level, query)[:, None]
                missed += (np.abs(here - expected) > width).ravel().tolist()
    assert 0.03 < float(np.mean(missed)) < 0.05
