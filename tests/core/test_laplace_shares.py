"""Laplace shares: what an opened sum is off by, exactly; and what cannot be built."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.core.exact import ball, lower, precision, upper
from lapwing.core.laplace import Laplace, LaplaceShares, SummedLaplace, upper_tail
from lapwing.errors import BadParameter, BadValue
from support.cases import each
from support.laws import CONTEXT, polya_law
from support.raised import named

SUMS = [(1, 2), (3, 2), (10, 6), (2, 1), (6, 1), (1, 10)]


def within(scale: Fraction, wholes: Fraction, reach: int) -> list[Decimal]:
    """P[|X| <= 0], P[|X| <= 1], ... by summing the law of a difference, term by term."""
    terms = math.ceil((75 + 4 * wholes) * scale) + 20
    one = polya_law(wholes, scale, terms + reach)
    with localcontext(CONTEXT):
        law = [sum((one[j] * one[j + k] for j in range(terms)), Decimal(0)) for k in range(reach + 1)]
        found = [law[0]]
        for p in law[1:]:
            found.append(found[-1] + 2 * p)
        return found


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(7, 2)])
@pytest.mark.parametrize(("contributors", "of"), SUMS)
def test_spread_of_a_sum_is_the_least_width_that_holds_all_answers(
    scale: Fraction, contributors: int, of: int
) -> None:
    noise = SummedLaplace(scale, of, contributors)
    reach = math.ceil(60 * scale) + 40
    held = within(scale, noise.wholes, reach)
    for level in ("0.05", "0.5", "0.95", "0.999999"):
        for answers in (1, 1000):
            width = noise.spread(level, answers=answers)
            with localcontext(CONTEXT):
                assert held[width] ** answers >= Decimal(level)
                assert width == 0 or held[width - 1] ** answers < Decimal(level)


@each("scale", [Fraction(1, 5), Fraction(1), Fraction(7, 2), Fraction(30)])
@each("width", [0, 1, 9, 300])
def test_tails_of_one_and_two_whole_noises_are_those_of_their_formulas(scale: Fraction, width: int) -> None:
    """Either side of the change of path, and far out."""
    with precision(200):
        q = ball(-1 / scale).exp()
        one = q ** (width + 1) / (1 + q)
        assert upper_tail(scale, Fraction(1), width).overlaps(one)
        # P[k] of two wholes is ((1 - q)/(1 + q))² q^k (k + (1 + q²)/(1 - q²)), summed over k > width.
        k, even = width + 1, (1 + q * q) / (1 - q * q)
        two = ((1 - q) / (1 + q)) ** 2 * q**k * ((k + even) / (1 - q) + q / (1 - q) ** 2)
        found = upper_tail(scale, Fraction(2), width)
        assert found.overlaps(two)
        assert upper(found) - lower(found) < lower(two) / 10**6


@each("wholes", [Fraction(1, 3), Fraction(3, 2), Fraction(61, 4)])
def test_tails_are_sums_of_the_law_on_either_path(wholes: Fraction) -> None:
    """The path is straight for small widths, and bent and cut short for large ones."""
    scale = Fraction(6)
    held = within(scale, wholes, 400)
    for width in (0, 20, 150, 230, 290, 400):
        with localcontext(CONTEXT):
            due = Fraction((1 - held[width]) / 2)
        with precision(200):
            found = upper_tail(scale, wholes, width)
            assert lower(found) <= due * (1 + Fraction(1, 10**25))
            assert upper(found) >= due * (1 - Fraction(1, 10**25))
            assert upper(found) - lower(found) < due / 10**5


@pytest.mark.slow
@pytest.mark.parametrize(("contributors", "of"), [*SUMS, (30, 1), (40, 3)])
@pytest.mark.parametrize("level", ["0.5", "0.95", "0.999999999"])
def test_spread_of_wide_noise_grows_with_the_scale(contributors: int, of: int, level: str) -> None:
    """Beyond a scale of a thousand only the unit changes: the law is that of continuous noise."""
    here = SummedLaplace(Fraction(2000), of, contributors).spread(level)
    for scale in (Fraction(10**6), Fraction(1 << 48)):
        there = SummedLaplace(scale, of, contributors).spread(level)
        assert there * 2000 / float(scale) == pytest.approx(here, rel=2e-3, abs=1.5)


@each("scale", [Fraction(1, 1000), Fraction(1), Fraction(10**6), Fraction(1 << 48)])
def test_a_confidence_of_many_nines_ends_and_holds(scale: Fraction) -> None:
    noise = SummedLaplace(scale, 2, 3)
    width = noise.spread("0." + "9" * 300)
    with precision(200):
        assert upper(2 * upper_tail(scale, Fraction(3, 2), width)) <= Fraction(1, 10**300)
        assert width == 0 or lower(2 * upper_tail(scale, Fraction(3, 2), width * 99 // 100)) > Fraction(
            1, 10**300
        )


def test_one_whole_noise_is_laplace_noise() -> None:
    for of in (1, 3):
        assert SummedLaplace(Fraction(5), of, of).spread("0.95") == Laplace(Fraction(5), 1).spread("0.95")
        assert LaplaceShares(Fraction(5), 1, of).spread("0.95") == Laplace(Fraction(5), 1).spread("0.95")


def test_more_contributors_spread_wider() -> None:
    widths = [SummedLaplace(Fraction(20), 4, n).spread("0.95") for n in range(1, 9)]
    assert widths == sorted(set(widths))


@each("scale", [Fraction(1, 50), Fraction(1), Fraction(7, 2)])
@each(("contributors", "of"), SUMS)
def test_deviation_is_that_of_the_law(scale: Fraction, contributors: int, of: int) -> None:
    noise = SummedLaplace(scale, of, contributors)
    held = within(scale, noise.wholes, math.ceil(75 * scale) + 40)
    variance = sum(k * k * float(held[k] - held[k - 1]) for k in range(1, len(held)))
    assert noise.deviation == pytest.approx(math.sqrt(variance), rel=1e-9)


def test_deviations_of_the_plans_in_the_figures() -> None:
    """ε = 1: the curator, m = 3 with t = 1, m = 10 with t = 4, and m = 10 with t = 9."""
    of = {(1, 1): 1.357, (3, 2): 1.66, (10, 6): 1.75, (10, 1): 4.29}
    for (members, honest), due in of.items():
        noise = LaplaceShares.for_epsilon(1, l1=1, of=honest).total(members)
        assert noise.deviation == pytest.approx(due, abs=0.005)


def test_deviation_at_both_ends_of_the_scale() -> None:
    assert SummedLaplace(Fraction(1 << 48), 2, 3).deviation == pytest.approx(math.sqrt(3) * 2.0**48)
    # Its square underflows a float, so the logarithm is compared.
    tiny = SummedLaplace(Fraction(1, 1000), 1, 2).deviation
    assert math.log(tiny) == pytest.approx(math.log(2) - 500)


def test_a_share_of_one_is_discrete_laplace_noise() -> None:
    shares = LaplaceShares.for_epsilon("0.1", l1=3, of=1)
    assert shares.loss == Laplace.for_epsilon("0.1", l1=3).loss
    assert shares.scale == 30
    assert shares.sample([1, 2, 3]).dtype == np.int64
    assert shares.loss_with(1) == shares.loss.pure == Fraction(1, 10)


def test_fewer_shares_always_lose_more_and_wide_noise_does_not_save_them() -> None:
    for epsilon in ("1e-9", "0.001", "1", "300"):
        shares = LaplaceShares.for_epsilon(epsilon, l1=1, of=10)
        losses = [shares.loss_with(present) for present in range(1, 11)]
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] == Fraction(epsilon)
        # Below half of the shares the law has a peak at 0, however wide it is.
        assert losses[3] > Fraction(4, 10)
        assert losses[0] > 2


def test_values_are_clamped_and_not_refused_by_size() -> None:
    shares = LaplaceShares.for_epsilon(10, l1=1, of=2)
    assert abs(int(shares.sample([10**30])[0]) - (1 << 61)) < 1000


@each("values", [[], [0.5], [[1, 2]], ["1"], [None], [True]])
def test_values_of_the_wrong_kind_are_refused(values: Any) -> None:
    shares = LaplaceShares.for_epsilon(1, l1=1, of=2)
    with pytest.raises(BadValue):
        shares.sample(values)


@each(
    ("scale", "l1", "of"),
    [
        (0, 1, 2),
        (-1, 1, 2),
        ((1 << 48) + 1, 1, 2),
        (1, 0, 2),
        (1, 1, 0),
        (1, 1, 1.5),
        (1, 1, True),
        ("x", 1, 2),
    ],
)
def test_shares_that_cannot_be_are_not_built(scale: Any, l1: Any, of: Any) -> None:
    with pytest.raises(BadParameter):
        LaplaceShares(scale, l1, of)


@each("epsilon", [0, -1, 1001, "1e-10", math.nan, None, True])
def test_epsilons_that_cannot_be_are_refused(epsilon: Any) -> None:
    with pytest.raises(BadParameter):
        LaplaceShares.for_epsilon(epsilon, l1=1, of=2)


@each("count", [0, -1, 1.5, True, None])
def test_numbers_of_members_that_cannot_be_are_refused(count: Any) -> None:
    shares = LaplaceShares.for_epsilon(1, l1=1, of=2)
    with pytest.raises(BadParameter):
        shares.loss_with(count)
    with pytest.raises(BadParameter):
        shares.total(count)
    with pytest.raises(BadParameter):
        shares.total(3).spread("0.95", answers=count)


@each("level", [0, 1, 2, "nan", None])
def test_levels_outside_of_zero_to_one_are_refused(level: Any) -> None:
    noise = SummedLaplace(Fraction(1), 2, 3)
    with pytest.raises(BadParameter):
        noise.spread(level)


@each("scale", [0, -1, (1 << 48) + 1, math.inf])
def test_sums_that_cannot_be_are_not_built(scale: Any) -> None:
    with pytest.raises(BadParameter):
        SummedLaplace(scale, 2, 3)


def test_numbers_are_kept_exactly_whatever_they_came_as() -> None:
    shares = LaplaceShares(0.5, np.int8(1), np.int8(2))  # type: ignore[arg-type]
    assert (shares.scale, type(shares.l1), type(shares.of)) == (Fraction(1, 2), int, int)


def test_sums_of_thousands_of_noises_are_as_wide_as_normal_ones() -> None:
    found = SummedLaplace(Fraction(3), 1, 4095)
    assert found.spread("0.95") / found.deviation == pytest.approx(1.96, abs=0.005)
    with pytest.raises(BadParameter, check=named("contributors")):
        SummedLaplace(Fraction(3), 1, 10_001)
