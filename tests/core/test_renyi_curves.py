"""Rényi curves against direct sums over the output's law, in mpmath: nothing is shared with the code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core import renyi_curves
from lapwing.core.exact import lower, precision, round_up, upper
from lapwing.core.losses import BoundedRange, Concentrated, GaussianNoise, LaplaceNoise, Loss, Pure
from support.cases import each
from support.losses import sampled
from support.slowly import slow

DIGITS = 50
ORDERS = [Fraction(11, 10), Fraction(3, 2), Fraction(2), Fraction(7), Fraction(40)]
UNIT = 10**9


def mp(value: Fraction | int) -> mpmath.mpf:
    fraction = Fraction(value)
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def top(ball: arb) -> Fraction:
    """The ball's upper end, unrounded."""
    with precision(300):
        return upper(ball)


def bottom(ball: arb) -> Fraction:
    with precision(300):
        return lower(ball)


def divergence(order: Fraction, one: Iterable[mpmath.mpf], other: Iterable[mpmath.mpf]) -> mpmath.mpf:
    """D_order(one ‖ other) by its definition."""
    a = mp(order)
    moment = mpmath.fsum(p**a * q ** (1 - a) for p, q in zip(one, other, strict=True))
    return mpmath.log(moment) / (a - 1)


def holds(ball: arb, value: mpmath.mpf) -> None:
    """The ball contains the value, to 30 digits."""
    small = mpmath.mpf(10) ** -30 * (1 + abs(value))
    assert mp(bottom(ball)) - small <= value <= mp(top(ball)) + small
    assert top(ball) - bottom(ball) < Fraction(1, 10**40) * (1 + abs(top(ball)))


def laplace_law(scale: Fraction, shift: int, reach: int) -> list[mpmath.mpf]:
    q = mpmath.exp(-1 / mp(scale))
    return [(1 - q) / (1 + q) * q ** abs(k - shift) for k in range(-reach, reach + 1)]


def gaussian_law(sigma: Fraction, shift: int, reach: int) -> list[mpmath.mpf]:
    weights = [mpmath.exp(-(mp(k - shift) ** 2) / (2 * mp(sigma) ** 2)) for k in range(-reach, reach + 1)]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


# The balls.


@each("order", ORDERS)
@each("epsilon", [Fraction(1, 1000), Fraction(1, 2), Fraction(3), Fraction(20)])
def test_randomized_response_is_the_sum_over_its_two_answers(order: Fraction, epsilon: Fraction) -> None:
    with mpmath.workdps(DIGITS):
        p = 1 / (1 + mpmath.exp(-mp(epsilon)))
        holds(renyi_curves.randomized_response(order, epsilon), divergence(order, [p, 1 - p], [1 - p, p]))


@each("order", ORDERS)
@each(("scale", "distance"), [("1/2", 1), ("2", 1), ("2", 5), ("7/2", 2), ("3/10", 3)])
def test_discrete_laplace_is_the_sum_over_all_integers(order: Fraction, scale: str, distance: int) -> None:
    t = Fraction(scale)
    reach = math.ceil(t * 85) + distance  # the tail beyond weighs e^-85
    with mpmath.workdps(DIGITS):
        shifted, plain = laplace_law(t, distance, reach), laplace_law(t, 0, reach)
        direct = divergence(order, shifted, plain)
        holds(renyi_curves.discrete_laplace(order, t, distance), direct)
        assert abs(divergence(order, plain, shifted) - direct) < mpmath.mpf(10) ** -30


@each("order", [Fraction(3, 2), Fraction(2), Fraction(7)])
@each(("sigma", "shift"), [("1/2", 1), ("1", 1), ("3", 2), ("7/3", 3)])
def test_gaussian_noise_is_at_most_linear_in_the_order(order: Fraction, sigma: str, shift: int) -> None:
    s = Fraction(sigma)
    reach = math.ceil(12 * s) + math.ceil(order * shift)  # the moment's bulk moves by order · shift
    loss = GaussianNoise(s, Fraction(shift * shift), 1)
    with mpmath.workdps(DIGITS):
        direct = divergence(order, gaussian_law(s, shift, reach), gaussian_law(s, 0, reach))
        stated = mp(top(loss.renyi(order)))
        assert direct <= stated + mpmath.mpf(10) ** -25
        if order.denominator == 1:  # a whole multiple of the shift: equality
            assert abs(direct - stated) < mpmath.mpf(10) ** -25
        assert loss.concentrated == Concentrated(Fraction(shift * shift) / (2 * s * s))


@each("order", ORDERS)
@each("epsilon", [Fraction(1, 100), Fraction(1), Fraction(6)])
def test_bounded_range_covers_every_two_point_pair_of_that_range(
    order: Fraction, epsilon: Fraction
) -> None:
    """With log-ratios t and t - ε the laws are determined; the worst t is nearly reached by ε²/8."""
    with mpmath.workdps(DIGITS):
        e, stated, worst = mp(epsilon), mp(top(renyi_curves.bounded_range(order, epsilon))), mpmath.mpf(0)
        for k in range(1, 200):
            high = mpmath.exp(e * k / 200)
            low = high / mpmath.exp(e)
            q = (1 - low) / (high - low)
            worst = max(worst, divergence(order, [q * high, (1 - q) * low], [q, 1 - q]))
        assert worst <= stated
        if epsilon <= 1 and order <= 7:
            assert stated < worst * mpmath.mpf("1.5")
        assert stated <= mp(order) * e * e / 8


def test_bounded_range_covers_the_exponential_mechanism() -> None:
    for a, b in [((0, 1, 2, 5), (1, 1, 1, 5)), ((0, 0, 0), (1, 0, 0)), ((0, 3), (1, 2))]:
        with mpmath.workdps(DIGITS):
            # Scores move by at most 1, in either direction: rate ε/2 gives log-ratios in a range of ε.
            one = [mpmath.exp(mpmath.mpf(s) / 2) for s in a]
            two = [mpmath.exp(mpmath.mpf(s) / 2) for s in b]
            p, q = [w / sum(one) for w in one], [w / sum(two) for w in two]
            for order in ORDERS:
                stated = mp(top(BoundedRange(Fraction(1)).renyi(order)))
                assert max(divergence(order, p, q), divergence(order, q, p)) <= stated


# Both directions of the sampled Gaussian, by numerical integration.


def sampled_divergence(
    order: Fraction, rate: Fraction, sigma: Fraction, *, mixture_first: bool
) -> mpmath.mpf:
    s, q, a = mp(sigma), mp(rate), mp(order)

    def base(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.npdf(x, 0, s)

    def ratio(x: mpmath.mpf) -> mpmath.mpf:
        return 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))

    power = a if mixture_first else 1 - a
    edges = [-14 * s - 1, -4 * s, 0, mp(1) / 2, 1, a, a + 4 * s, a + 14 * s + 1]
    moment = mpmath.quad(lambda x: base(x) * ratio(x) ** power, sorted(set(edges)))
    return mpmath.log(moment) / (a - 1)


@pytest.mark.parametrize("order", [2, slow(3), 8, slow(20)])
@pytest.mark.parametrize(("rate", "sigma"), [("1/100", "1"), ("1/4", "2"), ("9/10", "1/2"), ("1", "3")])
def test_sampled_gaussian_is_the_larger_direction(order: int, rate: str, sigma: str) -> None:
    a, q, s = Fraction(order), Fraction(rate), Fraction(sigma)
    with mpmath.workdps(30):
        larger = sampled_divergence(a, q, s, mixture_first=True)
        smaller = sampled_divergence(a, q, s, mixture_first=False)
        stated = mp(top(renyi_curves.sampled_gaussian(a, q, 1 / (2 * s * s))))
    assert abs(stated - larger) < 1e-12 * (1 + larger)
    assert smaller <= larger * (1 + mpmath.mpf(10) ** -12)


@each("order", [Fraction(3, 2), Fraction(5, 2), Fraction(73, 10)])
def test_a_broken_order_is_rounded_up_to_a_whole_one(order: Fraction) -> None:
    q, s = Fraction(1, 10), Fraction(1)
    whole = renyi_curves.sampled_gaussian(Fraction(math.ceil(order)), q, 1 / (2 * s * s))
    assert top(renyi_curves.sampled_gaussian(order, q, 1 / (2 * s * s))) == top(whole)
    with mpmath.workdps(30):
        assert sampled_divergence(order, q, s, mixture_first=True) <= mp(top(whole))


@each(("rate", "sigma", "shift"), [("1/10", "1", 1), ("1/3", "5/2", 3)])
def test_discrete_noise_on_a_sample_has_the_same_moments(rate: str, sigma: str, shift: int) -> None:
    """Integers `shift` apart, so σ is σ / shift in units of the sensitivity."""
    q, s = Fraction(rate), Fraction(sigma)
    for order in (2, 5):
        with mpmath.workdps(DIGITS):
            reach = math.ceil(12 * s) + order * shift
            base, moved = gaussian_law(s, 0, reach), gaussian_law(s, shift, reach)
            mixed = [(1 - mp(q)) * p + mp(q) * m for p, m in zip(base, moved, strict=True)]
            stated = mp(top(renyi_curves.sampled_gaussian(Fraction(order), q, shift * shift / (2 * s * s))))
            assert abs(divergence(Fraction(order), mixed, base) - stated) < mpmath.mpf(10) ** -25
            assert divergence(Fraction(order), base, mixed) <= stated


@each(("rate", "sigma"), [("1/100", "1"), ("1/4", "2"), ("1", "3")])
def test_sampled_gaussian_agrees_with_another_accountant(rate: str, sigma: str) -> None:
    orders = [2, 3, 5, 16, 64]
    accountant = RdpAccountant(orders)
    event = GaussianDpEvent(float(Fraction(sigma)))
    accountant.compose(PoissonSampledDpEvent(float(Fraction(rate)), event), 10)
    loss = sampled(Fraction(rate), Fraction(sigma), 10)
    for order, theirs in zip(orders, accountant._rdp, strict=True):
        ours = loss.renyi(Fraction(order))
        assert ours is not None
        assert float(ours) == pytest.approx(theirs, rel=1e-9)


def test_full_sampling_is_plain_gaussian_noise() -> None:
    for order in (2, 9, 50):
        sampled = renyi_curves.sampled_gaussian(Fraction(order), Fraction(1), Fraction(1, 18))
        assert float(sampled) == pytest.approx(order / 18, rel=1e-15)


def test_a_high_order_of_a_sampled_run_is_quick() -> None:
    """A sum of 30,000 terms: tiny budgets have such orders."""
    value = renyi_curves.sampled_gaussian(Fraction(30_000), Fraction(1, 1000), Fraction(1, 5000))
    assert value.is_finite()
    assert value > 0


# Whole units, rounded up.

wide = st.integers(-9 * 8, 12 * 8).map(
    lambda k: Fraction(10 ** (k / 8)).limit_denominator(10**12) or Fraction(1, 10**9)
)
scales = st.one_of(wide, st.fractions(Fraction(1, 10**9), 10**12, max_denominator=10**9).filter(bool))
order_sets = st.sampled_from(
    [(2, 3, 4, 5, 6), (14, 19, 24, 38, 72), (851, 1134, 1418, 2269, 4254), (2, 60, 61, 62, 63)]
)


def same(units: list[int], orders: tuple[int, ...], ball: Callable[[Fraction], arb]) -> None:
    assert units == [max(round_up(top(ball(Fraction(order))), UNIT), 0) for order in orders]
    assert all(type(count) is int for count in units)


@settings(max_examples=300, deadline=None)
@given(scales, st.sampled_from([1, 2, 3, 10, 999, 10**6]), order_sets)
def test_laplace_units_are_the_exact_value_rounded_up(
    scale: Fraction, distance: int, orders: tuple[int, ...]
) -> None:
    if distance / scale > 10**9:
        scale = distance / Fraction(10**9)
    same(
        renyi_curves.discrete_laplace_units(orders, scale, distance, UNIT),
        orders,
        lambda order: renyi_curves.discrete_laplace(order, scale, distance),
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 100_000), st.floats(1e-5, 1e5))
def test_the_epsilon_of_a_divergence_is_guessed_well(order: int, epsilon: float) -> None:
    divergence = float(renyi_curves.randomized_response(Fraction(order), Fraction(epsilon)))
    assert renyi_curves.response_epsilon_guess(order, divergence) == pytest.approx(epsilon, rel=1e-4)


def test_nothing_to_guess_is_zero() -> None:
    assert renyi_curves.response_epsilon_guess(2, 0.0) == 0


@settings(max_examples=200, deadline=None)
@given(scales.filter(lambda e: e <= 10**6), order_sets)
def test_response_units_are_the_exact_value_rounded_up(epsilon: Fraction, orders: tuple[int, ...]) -> None:
    same(
        renyi_curves.randomized_response_units(orders, epsilon, UNIT),
        orders,
        lambda order: renyi_curves.randomized_response(order, epsilon),
    )
    by_range = [round_up(order * epsilon**2 / 8, UNIT) for order in orders]
    by_pure = renyi_curves.randomized_response_units(orders, epsilon, UNIT)
    assert BoundedRange(epsilon).renyi_units(orders, UNIT) == list(map(min, by_range, by_pure))


@settings(max_examples=100, deadline=None)
@given(scales, st.integers(1, 10**6), order_sets)
def test_gaussian_units_are_the_exact_value_rounded_up(
    sigma: Fraction, squared: int, orders: tuple[int, ...]
) -> None:
    loss = GaussianNoise(sigma, Fraction(squared), 1)
    exact = [-(-order * UNIT * squared / (2 * sigma * sigma) // 1) for order in orders]
    assert loss.renyi_units(orders, UNIT) == exact == loss.concentrated.renyi_units(orders, UNIT)


def test_values_next_to_a_whole_unit_are_decided_exactly() -> None:
    """ε with D(ε) just below and just above a whole number of units: floats cannot tell."""
    orders = (2, 3, 4, 5, 6)
    for target in (1, 2, 1000, 10**6):
        low, high = Fraction(0), Fraction(2)
        for _ in range(120):
            middle = (low + high) / 2
            ball = renyi_curves.randomized_response(Fraction(2), middle)
            low, high = (middle, high) if top(ball) <= Fraction(target, UNIT) else (low, middle)
        assert renyi_curves.randomized_response_units(orders, low, UNIT)[0] == target
        assert renyi_curves.randomized_response_units(orders, high, UNIT)[0] == target + 1


def test_extreme_scales_do_not_overflow() -> None:
    orders = (2, 3, 4, 5, 6)
    assert renyi_curves.discrete_laplace_units(orders, Fraction(10**400), 1, UNIT) == [1] * 5
    assert renyi_curves.discrete_laplace_units(orders, Fraction(10**400), 2, UNIT) == [1] * 5
    assert renyi_curves.discrete_laplace_units(orders, Fraction(7), 0, UNIT) == [0] * 5
    assert renyi_curves.randomized_response_units(orders, Fraction(0), UNIT) == [0] * 5
    steep = renyi_curves.randomized_response_units(orders, Fraction(10**6), UNIT)
    # a/(a-1) ε - ε/(a-1) = ε, all but exactly; the ball around it may reach into the next unit.
    assert all(10**15 <= units <= 10**15 + 1 for units in steep)


# Order and shape.

LOSSES: list[Loss] = [
    Pure(Fraction(1)),
    LaplaceNoise(Fraction(3), 2),
    BoundedRange(Fraction(2)),
    GaussianNoise(Fraction(4), Fraction(3), 2),
    sampled(Fraction(1, 10), Fraction(1), 3),
]


@each("loss", LOSSES)
def test_curves_rise_with_the_order(loss: Loss) -> None:
    grid = [Fraction(k, 4) for k in range(5, 200, 6)]
    values = [loss.renyi(order) for order in grid]
    known = [value for value in values if value is not None]
    assert len(known) == len(grid)
    assert all(top(one) <= top(two) for one, two in pairwise(known))


@each("loss", LOSSES)
def test_no_curve_exceeds_that_of_the_pure_loss(loss: Loss) -> None:
    if loss.pure is not None:
        for order in ORDERS:
            value = loss.renyi(order)
            assert value is not None
            assert bottom(value) <= top(renyi_curves.randomized_response(order, loss.pure))


@given(
    st.fractions(Fraction(1, 10), 1000, max_denominator=100),
    st.lists(st.integers(1, 30), min_size=2, max_size=5),
    st.sampled_from(ORDERS),
)
def test_laplace_noise_is_worst_with_the_whole_distance_in_one_coordinate(
    scale: Fraction, split: list[int], order: Fraction
) -> None:
    together = renyi_curves.discrete_laplace(order, scale, sum(split))
    apart = sum((top(renyi_curves.discrete_laplace(order, scale, part)) for part in split), Fraction(0))
    # Equality is possible up to 30 digits (steep noise): both are ε there.
    assert apart <= top(together) * (1 + Fraction(1, 10**30))
