"""Statistics: a released mean or histogram is further off than was shown with at most η."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.validators import (
    ClassLosses,
    HistogramValidator,
    MeanValidator,
    ValidationRelease,
    ValidationRows,
    ValidationVerdict,
)
from support.exact_verdicts import Floats, noise_law, sums_law
from support.slowly import slow

ETA = Fraction(1, 2)


def mean_of(target: str, epsilon: str = "1", step: str = "1") -> MeanValidator:
    """Values from -2 to 2."""
    return MeanValidator(target=target, eta=ETA, epsilon=epsilon, low=-2, high=2, step=step)  # type: ignore[arg-type]


def histogram(target: str, bins: int, epsilon: str = "1", eta: Fraction = ETA) -> HistogramValidator:
    return HistogramValidator(target=target, eta=eta, epsilon=epsilon, bins=bins)  # type: ignore[arg-type]


def wrong_bounds(law: Floats, off_by: dict[tuple[int, int], bool], scale: Fraction) -> float:
    """P[the noisy pair is one of those whose bound does not hold], pairs outside the table left out."""
    noise = noise_law(scale)
    reach, most, found = len(noise) // 2, len(law) - 1, 0.0
    for a, weight in enumerate(law):
        for (one, two), wrong in off_by.items():
            x, y = one - a + reach, two - (most - a) + reach
            if wrong and 0 <= x < len(noise) and 0 <= y < len(noise):
                found += weight * noise[x] * noise[y]
    return found


def test_a_mean_is_further_off_with_at_most_eta() -> None:
    """The bound that is shown fails with at most η, over all pairs that matter; so ACCEPT by it does."""
    judge, one = mean_of("1", "4"), np.array([0.5, 0.1, 0.1, 0.1, 0.2])
    truth = float((np.arange(5) * one).sum()) - 2
    name = judge.release(ValidationRows([], units=None)).made_by
    law = sums_law(one, 4)
    table = {}
    for pair in [(a, b) for a in range(-3, 21) for b in range(-3, 21)]:
        judged = judge.judge(ValidationRelease(pair, name), attempt=1)
        assert judged.verdict is not ValidationVerdict.REJECT
        if judged.estimate is not None and judged.bound is not None:
            # Rounding to a step is part of the bound; here all values are on the grid.
            table[pair] = abs(judged.estimate - truth) > judged.bound - float(judge.step)
    assert any(table.values())
    assert wrong_bounds(law, table, Fraction(1)) <= ETA


@pytest.mark.parametrize("share", [0.1, slow(0.4)])
def test_a_share_is_further_off_with_at_most_eta(share: float) -> None:
    """Two bins, exactly: the law of both counts and of both noises."""
    judge = histogram("0.5", 2, "2")
    name = judge.release(ValidationRows([], units=None)).made_by
    law = sums_law(np.array([1 - share, share]), 12)
    table = {}
    for pair in [(a, b) for a in range(-3, 16) for b in range(-3, 16)]:
        released = ValidationRelease(pair, name)
        judged, shares = judge.judge(released, attempt=1), judge.shares(released)
        if shares is not None and judged.bound is not None:
            table[pair] = max(abs(shares[0] - share), abs(shares[1] - 1 + share)) > judged.bound
    assert wrong_bounds(law, table, Fraction(1, 2)) <= ETA


@pytest.mark.slow
def test_shares_of_many_bins_are_further_off_with_at_most_eta() -> None:
    """400 simulations; with a true rate of η = 1/2 it would be passed by chance only once in 10^9 or more
    rarely, and the true rate is far below: false alarms below 1e-9."""
    generator = np.random.default_rng(5)
    shares = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02])
    judge, off = histogram("0.5", 7), 0
    for _ in range(400):
        released = judge.release(ValidationRows(generator.choice(7, 500, p=shares), units=None))
        judged, found = judge.judge(released, attempt=1), judge.shares(released)
        assert found is not None
        assert judged.bound is not None
        off += float(np.abs(np.array(found) - shares).max()) > judged.bound
    assert off <= 140


def test_many_units_are_accepted_and_few_asked_to_come_again() -> None:
    values = np.tile([-2.0, 0.0, 1.0, 1.5], 10_000)
    judge = mean_of("0.1", step="0.01")
    judged = judge.judge(judge.release(ValidationRows(values, units=None)), attempt=1)
    assert judged.verdict is ValidationVerdict.ACCEPT
    assert judged.estimate == pytest.approx(0.125, abs=0.01)
    assert (
        judge.judge(judge.release(ValidationRows(values[:8], units=None)), attempt=1).verdict
        is ValidationVerdict.RETRY
    )
    bins = histogram("0.02", 4)
    released = bins.release(ValidationRows(np.arange(40_000) % 4, units=None))
    assert bins.judge(released, attempt=1).verdict is ValidationVerdict.ACCEPT
    assert bins.shares(released) == pytest.approx([0.25] * 4, abs=0.01)
    few = bins.release(ValidationRows([0, 1, 2], units=None))
    assert bins.judge(few, attempt=1).verdict is ValidationVerdict.RETRY


def test_where_noise_left_no_units_there_is_no_estimate() -> None:
    for judge, size in ((mean_of("1"), 2), (histogram("0.5", 3), 3)):
        name = judge.release(ValidationRows([], units=None)).made_by
        judged = judge.judge(ValidationRelease((-4,) * size, name), attempt=1)
        assert (judged.verdict, judged.estimate, judged.bound) == (ValidationVerdict.RETRY, None, None)


@pytest.mark.usefixtures("without_noise")
def test_removing_a_unit_moves_the_mean_by_what_is_priced() -> None:
    judge = mean_of("1")
    values = np.array([-9.0, 1.2, math.nan, 0.4, 2.0, math.inf])
    units = np.array([1, 1, 1, 2, 3, 3])
    every = np.array(judge.release(ValidationRows(values, units=units)).numbers)
    assert every.sum() == 3 * 4
    assert judge.loss.pure == 1
    for unit in (1, 2, 3):
        stay = units != unit
        moved = every - np.array(judge.release(ValidationRows(values[stay], units=units[stay])).numbers)
        assert (moved >= 0).all()
        assert moved.sum() == 4, "(high - low) / step, which the noise is made for"


@pytest.mark.usefixtures("without_noise")
def test_a_unit_is_in_one_bin_and_other_bins_are_left_out() -> None:
    judge = histogram("0.5", 3)
    released = judge.release(ValidationRows([0, 0, 0, 2, -1, 7, 2], units=np.array([1, 1, 1, 2, 2, 3, 4])))
    assert released.numbers == (1, 0, 2)
    assert judge.loss.pure == 1


@pytest.mark.usefixtures("without_noise")
def test_units_without_a_value_are_left_out() -> None:
    released = mean_of("1").release(ValidationRows([math.nan, 1.0], units=np.array([1, 2])))
    assert released.numbers == (3, 1)


def test_bins_must_be_whole_numbers() -> None:
    judge = histogram("0.5", 3)
    rows = ValidationRows(np.array([0.5]), units=None)
    with pytest.raises(BadValue, match="whole numbers"):
        judge.release(rows)


def test_a_class_is_refused() -> None:
    judge = mean_of("1")
    rows = ValidationRows([0.5], units=None, of_class=ClassLosses([[0.5]], units=None))
    with pytest.raises(BadValue, match="class"):
        judge.release(rows)


@pytest.mark.parametrize(
    "bad", [{"target": 0}, {"low": 3}, {"step": "0.3"}, {"eta": 1}, {"epsilon": 0}, {"low": "nan"}]
)
def test_bad_parameters_of_a_mean_are_refused(bad: dict[str, str | int]) -> None:
    given = {"target": 1, "eta": "0.1", "epsilon": 1, "low": -2, "high": 2, "step": 1} | bad
    with pytest.raises(BadParameter):
        MeanValidator(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{"target": 0}, {"target": 1}, {"bins": 1}, {"bins": 2000}, {"bins": 2.5}])
def test_bad_parameters_of_a_histogram_are_refused(bad: dict[str, str | int]) -> None:
    given = {"target": "0.1", "eta": "0.1", "epsilon": 1, "bins": 3} | bad
    with pytest.raises(BadParameter):
        HistogramValidator(**given)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("odd", [None, "x", 1.5, 10**30, pd.NA])
def test_one_odd_value_in_a_list_is_in_no_bin(odd: object) -> None:
    released = histogram("0.5", 3).release(ValidationRows([0, 1, 2, np.int64(1), odd], units=None))
    assert released.numbers == (1, 2, 1)


@pytest.mark.usefixtures("without_noise")
def test_one_odd_value_in_a_list_is_in_no_mean() -> None:
    rows = ValidationRows([1.0, None], units=None)
    assert mean_of("1").release(rows).numbers == (3, 1)
