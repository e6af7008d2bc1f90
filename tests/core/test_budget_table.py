"""How many queries fit (δ = 1e-6), by five accountants. The last is what a ledger may promise.

The design's table counts continuous Laplace noise. On a fine grid (here a hundredth of the sensitivity)
discrete noise is as good; on whole numbers one apart it is randomized response, which is a little worse.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import pytest
from dp_accounting import DpEvent, GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

from lapwing.core.budget import Terms
from lapwing.core.conversions import gaussian_epsilon, loss_to_epsilon, renyi_to_epsilon
from lapwing.core.exact import ball, precision
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import BoundedRange, GaussianNoise, LaplaceNoise, Loss, SampledGaussian
from support.cases import each
from support.losses import sampled
from support.zcdp import pure_to_zcdp, zcdp_cap

DELTA = Fraction(1, 10**6)
ONE, THREE = Fraction(1), Fraction(3)
GRID = 100


class Row(NamedTuple):
    epsilon: Fraction
    loss: Loss
    basic: int | None
    zcdp: int | None
    renyi: int
    pld: int
    design: int
    portfolio: int
    event: DpEvent | None


def laplace(epsilon: str) -> LaplaceNoise:
    return LaplaceNoise(GRID / Fraction(epsilon), GRID)


ROWS = {
    "1: Laplace 0.1": Row(ONE, laplace("0.1"), 10, 4, 10, 10, 10, 10, LaplaceDpEvent(10)),
    "1: Laplace 0.01": Row(ONE, laplace("0.01"), 100, 487, 492, 564, 447, 451, LaplaceDpEvent(100)),
    "1: Gaussian 50": Row(
        ONE, GaussianNoise(Fraction(50), ONE, 1), 12, 121, 121, 140, 110, 111, GaussianDpEvent(50)
    ),
    "3: Laplace 0.1": Row(THREE, laplace("0.1"), 30, 37, 42, 46, 39, 40, LaplaceDpEvent(10)),
    "3: exponential 0.1": Row(THREE, BoundedRange(Fraction(1, 10)), 30, 148, 148, 46, 136, 137, None),
    "3: DP-SGD": Row(
        THREE,
        sampled(Fraction(1, 100), ONE),
        None,
        None,
        1678,
        2061,
        1368,
        1421,
        PoissonSampledDpEvent(0.01, GaussianDpEvent(1)),
    ),
}


def most(fits: Callable[[int], bool], at_most: int = 4096) -> int:
    """The greatest count that fits."""
    low, high = 0, at_most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def repeated(loss: Loss, count: int) -> Callable[[Fraction], Fraction]:
    """The Rényi value of `count` uses at a whole order."""

    def at(order: Fraction) -> Fraction:
        value = loss.renyi(order)
        assert value is not None
        return Fraction(float(value)) * count

    return at


def least_epsilon(loss: Loss, count: int) -> float:
    """The best of a fine grid of orders."""
    orders = [Fraction(k, 4) for k in range(6, 160)] + [Fraction(k) for k in range(40, 160)]
    if isinstance(loss, SampledGaussian):
        orders = [Fraction(k) for k in range(2, 40)]
    at = repeated(loss, count)
    with precision(128):
        return min(float(renyi_to_epsilon(order, ball(at(order)), DELTA)) for order in orders)


@each("name", ROWS)
def test_basic_composition(name: str) -> None:
    row = ROWS[name]
    if row.basic is None:
        return
    if row.loss.pure is not None:
        assert row.epsilon // row.loss.pure == row.basic
    else:
        # k uses, each (ε/k, δ/k) by the best Gaussian calibration.
        assert isinstance(row.loss, GaussianNoise)
        sigma = row.loss.sigma
        assert (
            most(
                lambda k: k == 0 or k * gaussian_epsilon(DELTA / k, sigma, Fraction(1), 1) <= row.epsilon,
                64,
            )
            == row.basic
        )


def rho_of(loss: Loss) -> Fraction:
    if isinstance(loss, GaussianNoise):
        return loss.concentrated.rho
    if isinstance(loss, BoundedRange):
        return loss.epsilon**2 / 8
    assert loss.pure is not None
    return pure_to_zcdp(loss.pure)


@each("name", [name for name, row in ROWS.items() if row.zcdp is not None])
def test_zcdp_with_the_tight_conversion(name: str) -> None:
    row = ROWS[name]
    assert zcdp_cap(row.epsilon, DELTA) // rho_of(row.loss) == row.zcdp


@each("name", ROWS)
def test_renyi_at_the_best_order(name: str) -> None:
    row = ROWS[name]
    by_renyi = most(lambda k: k == 0 or least_epsilon(row.loss, k) <= row.epsilon)
    by_pure = 0 if row.loss.pure is None else row.epsilon // row.loss.pure
    # Our curve of a sampled run knows whole orders only.
    assert max(by_renyi, by_pure) == (1647 if name == "3: DP-SGD" else row.renyi)


@each("name", [name for name, row in ROWS.items() if row.event is not None])
def test_renyi_by_the_second_accountant(name: str) -> None:
    row = ROWS[name]

    def fits(count: int) -> bool:
        accountant = RdpAccountant()
        accountant.compose(row.event, count)
        return bool(accountant.get_epsilon(float(DELTA)) <= row.epsilon)

    assert most(lambda count: count == 0 or fits(count)) == row.renyi


@each("name", ROWS)
def test_loss_distributions_of_fixed_runs(name: str) -> None:
    row = ROWS[name]

    def fits(count: int) -> bool:
        return FixedRun.of((row.loss, count), delta=DELTA).pair[0] <= row.epsilon

    assert fits(row.pld)
    assert not fits(row.pld + 1)


@each("name", ROWS)
def test_the_portfolio_promises_at_least_97_percent_of_the_design(name: str) -> None:
    row = ROWS[name]
    terms = Terms.of(row.epsilon, DELTA)
    found = terms.how_many(terms.price(row.loss))
    assert found >= 0.97 * row.design
    assert found == row.portfolio


@each(("epsilon", "query", "count"), [(1, 10, 10), (1, 100, 450), (3, 10, 39)])
def test_whole_numbers_one_apart_are_randomized_response(epsilon: int, query: int, count: int) -> None:
    terms = Terms.of(epsilon, DELTA)
    assert terms.how_many(terms.price(LaplaceNoise(Fraction(query), 1))) == count


@each("name", ROWS)
def test_the_portfolio_is_no_better_than_what_is_true(name: str) -> None:
    """An adaptive promise can never exceed the fixed one of the best accountant."""
    row = ROWS[name]
    assert row.portfolio <= max(row.renyi, row.pld)


def test_a_single_loss_agrees_with_the_grid() -> None:
    ours = loss_to_epsilon(GaussianNoise(Fraction(50), Fraction(121), 1), DELTA)
    assert ours is not None
    assert float(ours) == pytest.approx(
        least_epsilon(GaussianNoise(Fraction(50), Fraction(1), 1), 121), rel=1e-3
    )
