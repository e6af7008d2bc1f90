"""How sensitivities break elsewhere (S), and what reaches the noise (N): each case by its id."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lapwing.audit.laws import SLACK, dec, laplace, log_ratio, middle, permute_and_flip
from lapwing.core import sensitivity
from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Relation, SequentialComposition
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.selection import Exponential, NoisyMax, PermuteAndFlip
from lapwing.core.sensitivity import Sensitivity
from lapwing.core.values import Grid
from lapwing.errors import BadParameter, BadValue, OverBudget
from support.exact_laws import excess, renyi
from support.streams import RefusingStream

ADD_REMOVE, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE
REALS = st.floats(allow_nan=True, allow_infinity=True)
ROWS = st.lists(REALS, max_size=8)


# N: what reaches the noise


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0])
def test_N4_no_float_ever_reaches_the_noise(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", RefusingStream())
    for mechanism in (Laplace.for_epsilon(1, l1=1), Gaussian(Fraction(1), Fraction(1), 1)):
        with pytest.raises(BadValue):
            mechanism.sample([value])
        with pytest.raises(BadValue):
            mechanism.sample(np.array([value]))
    with pytest.raises(BadValue):
        NoisyMax.for_epsilon(1, sensitivity=1).sample([1.0, value])


def test_N6_permute_and_flip_is_charged_as_pure_and_not_as_a_bounded_range() -> None:
    epsilon = Fraction(1, 10)
    flip, exponential = (
        mechanism.for_epsilon(epsilon, sensitivity=1).loss for mechanism in (PermuteAndFlip, Exponential)
    )
    even, apart = permute_and_flip([0, 0], epsilon / 2), permute_and_flip([1, -1], epsilon / 2)
    for order in (Fraction(2), Fraction(8)):
        true = max(renyi(even, apart, order), renyi(apart, even, order))
        assert middle(exponential.renyi(order)) < true, "ε²/8 would promise too much"
        assert true <= middle(flip.renyi(order)) <= dec(order * epsilon**2 / 2)


@given(
    st.fractions(0, 100, max_denominator=12),
    st.fractions(Fraction(1, 12), 20, max_denominator=12),
    st.integers(1, 4),
)
@example(Fraction(5, 2), Fraction(1), 1)  # odd d_in (U - L) / 2
@example(Fraction(1, 3), Fraction(1), 1)
def test_N7_a_sensitivity_in_steps_is_rounded_up(l1: Fraction, step: Fraction, coordinates: int) -> None:
    for rounded in (0, coordinates):
        given_ = Sensitivity(l1, l1 * l1 / coordinates, rounded)
        found = given_.in_steps(step)
        assert found.l1.denominator == 1
        assert found.l1 >= l1 / step
        assert found.l2_squared >= given_.l2_squared / step**2


ROUNDINGS: list[Callable[[Fraction], int]] = [
    round,
    math.floor,
    math.ceil,
    lambda x: math.floor(x + Fraction(1, 2)),
]


@given(
    st.lists(
        st.tuples(st.fractions(-9, 9, max_denominator=6), st.fractions(-3, 3, max_denominator=6)),
        min_size=1,
        max_size=3,
    )
)
@example([(Fraction(1, 2), Fraction(1))])  # halves go to even: 0 and 2
@example([(Fraction(1, 2), Fraction(1)), (Fraction(5, 2), Fraction(1))])
def test_N7_values_rounded_after_aggregation_move_by_no_more_than_is_said(
    pairs: list[tuple[Fraction, Fraction]],
) -> None:
    moves = [move for _, move in pairs]
    squares = sum((m * m for m in moves), Fraction(0))
    said = Sensitivity(sum(map(abs, moves), Fraction(0)), squares, len(pairs)).in_steps(1)
    for rule in ROUNDINGS:
        moved = [rule(value + move) - rule(value) for value, move in pairs]
        assert sum(map(abs, moved)) <= said.l1
        assert sum(m * m for m in moved) <= said.l2_squared


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, 1e-320, "1e999"])
def test_N9_a_senseless_epsilon_is_refused_before_any_data_is_read(epsilon: Any) -> None:
    with pytest.raises(BadParameter):
        Laplace.for_epsilon(epsilon, l1=1)
    with pytest.raises(BadParameter):
        Terms.of(epsilon, "1e-9")


# S: sensitivities


def test_S1_a_sum_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = np.array([2.0**53] + [1.0] * 1000)
    forth, back = (float(np.add.accumulate(order)[-1]) for order in (rows, rows[::-1]))
    assert abs(forth - back) == 1000, "as floats, order alone moves the sum by more than a row of 1 may"
    grid = Grid.of(low=0, high=2**51, step=1)
    sums = {int(grid.place(order, missing=0).sum()) for order in (rows, rows[::-1])}
    assert sums == {2**51 + 1000}


@given(st.lists(st.floats(-1e6, 1e6), max_size=8), st.randoms(use_true_random=False))
def test_S1_no_order_of_any_rows_moves_a_sum_on_the_grid(rows: list[float], random: Any) -> None:
    grid = Grid.of(low=-1000, high=1000, step="0.001")
    shuffled = random.sample(rows, len(rows))
    assert grid.place(rows, missing=0).sum() == grid.place(shuffled, missing=0).sum()


def test_S3_a_missing_value_is_replaced_before_it_is_clamped() -> None:
    rows = np.array([1.0, math.nan, 3.0])
    assert math.isnan(np.clip(rows, 0, 2).sum()), "clamping alone lets NaN through"
    grid = Grid.of(low=0, high=2, step=1)
    assert grid.place(rows, missing=99).tolist() == [1, 2, 2]
    assert grid.place([1.0, None, 3.0], missing=0).tolist() == [1, 0, 2]


def test_S4_numbers_near_the_end_of_floats_are_summed_by_one_rule() -> None:
    grid = Grid.of(low=-10, high=10, step="0.5")
    for order in ([1e308, 1e308, -1e308], [1e308, -1e308, 1e308], [-1e308, 1e308, 1e308]):
        assert grid.place(order, missing=0).tolist() == [20 if value > 0 else -20 for value in order]
        assert grid.place(order, missing=0).sum() == 20
    assert grid.place([math.inf, -math.inf, 10**400], missing=0).tolist() == [20, -20, 20]


def test_S5_a_column_without_bounds_cannot_be_placed_or_summed() -> None:
    unbounded: Any
    for unbounded in (None, math.inf, math.nan, "infinity", "unknown"):
        with pytest.raises(BadParameter):
            Grid.of(low=0, high=unbounded, step=1)
        with pytest.raises(BadParameter):
            sensitivity.total(low=0, high=unbounded, relation=ADD_REMOVE, rows=1)
        with pytest.raises(BadParameter):
            sensitivity.mean(low=unbounded, high=1, n=5, rows=1)
    with pytest.raises(TypeError):
        Grid.of(step=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        sensitivity.total(relation=ADD_REMOVE)  # type: ignore[call-arg]
    with pytest.raises(BadValue):
        Laplace.for_epsilon(1, l1=1).sample([17.5])


def test_S6_what_was_clamped_is_what_is_released() -> None:
    raw = np.array([5.0, 1e9])
    placed = Grid.of(low=0, high=10, step=1).place(raw, missing=0)
    assert not np.shares_memory(raw, placed)
    assert placed.tolist() == [5, 10]
    assert raw.tolist() == [5.0, 1e9]
    with pytest.raises(BadValue):
        Laplace.for_epsilon(1, l1=10).sample(raw)


@given(ROWS, REALS, REALS, st.sampled_from([(0, 10), (-7, 3), (4, 9), (-9, -2)]))
def test_S6_replayed_sums_are_within_the_declared_distance(
    rows: list[float], gone: float, new: float, bounds: tuple[int, int]
) -> None:
    low, high = bounds
    grid = Grid.of(low=low, high=high, step="0.3")

    def released(data: list[float]) -> int:
        return int(grid.place(data, missing=1).sum())

    declared = {
        r: sensitivity.total(low=low, high=high, relation=r, rows=1).in_steps("0.3") for r in Relation
    }
    assert abs(released([*rows, new]) - released(rows)) <= declared[ADD_REMOVE].l1
    assert abs(released([*rows, new]) - released([*rows, gone])) <= declared[REPLACE].l1


def test_S7_k_aggregates_are_charged_k_times() -> None:
    each = Laplace.for_epsilon("0.25", l1=1).loss
    account = PrivacyFilter(Terms.of(1, 0))
    account.admit(account.terms.price(SequentialComposition((each,) * 3)))
    account.admit(account.terms.price(each))
    with pytest.raises(OverBudget):
        account.admit(account.terms.price(each))


def test_S7_an_average_and_a_hidden_threshold_count_pay_for_each_part() -> None:
    total, count = Laplace.for_epsilon("0.5", l1=10).loss, Laplace.for_epsilon("0.5", l1=1).loss
    selection = PartitionSelection.for_budget("0.5", "1e-9", keys=1).loss
    whole = SequentialComposition((total, count, selection))
    assert whole.pure == Fraction(3, 2)
    assert whole.delta0 == Fraction(1, 10**9)


def test_S11_a_key_that_one_person_brings_is_shown_with_probability_at_most_delta() -> None:
    delta = Fraction(1, 10**6)
    shown = Decimal(
        PartitionSelection.for_budget(1, delta, keys=1).keep_probability(1)(100).str(30, radius=False)
    )
    with_her, without = {"key": shown, "no key": 1 - shown}, {"key": Decimal(0), "no key": Decimal(1)}
    assert excess(with_her, without, 1) <= dec(delta)


def test_S12_a_mean_over_an_exact_private_n_would_tell_the_size() -> None:
    """Sum noised, n exact: y = noisy / n. With step 1/n the answer lies on a grid that names n."""
    sums = laplace(1, 2, -5, 5)
    answers = {n: {Fraction(k, n) for k in sums} for n in (3, 4)}
    assert Fraction(1, 4) in answers[4] - answers[3], "an answer that only one of two neighbours gives"
    # Both parts noised: the pair is private, whatever is computed from it.
    each = Laplace.for_epsilon("0.5", l1=1)
    for part in zip((2, 3), (3, 4), strict=True):
        assert (
            log_ratio(*(laplace(each.scale, value, -9, 9) for value in part)) <= dec(Fraction(1, 2)) + SLACK
        )
    assert SequentialComposition((each.loss, each.loss)).pure == 1


def test_S12_a_mean_of_an_empty_set_is_no_special_case() -> None:
    nothing = Grid.of(low=0, high=10, step=1).place([], missing=0)
    pair = Laplace.for_epsilon(1, l1=11).sample([nothing.sum(), len(nothing)])
    assert pair.shape == (2,)
    with pytest.raises(BadParameter):
        sensitivity.mean(low=0, high=10, n=0, rows=1)


@given(
    st.integers(-9, 9),
    st.integers(1, 12),
    st.integers(1, 3),
    st.lists(st.sampled_from([0, 1, 2]), max_size=3),
)
def test_S13_asymmetric_bounds_are_covered_for_all_signs(
    low: int, width: int, rows: int, common: list[int]
) -> None:
    high = low + width
    corners = [low, low + width // 2, high]
    base = sum(corners[i] for i in common)
    own = [sum(unit) for k in range(rows + 1) for unit in product((low, high), repeat=k)]
    add = sensitivity.total(low=low, high=high, relation=ADD_REMOVE, rows=rows).l1
    swap = sensitivity.total(low=low, high=high, relation=REPLACE, rows=rows).l1
    assert max(abs(base + one - base) for one in own) == add == rows * max(abs(low), abs(high))
    assert max(abs(one - other) for one in own for other in own) == swap


@given(st.integers(-9, 9), st.integers(1, 12), st.fractions(Fraction(1, 4), 3, max_denominator=8))
def test_S13_whole_steps_between_asymmetric_bounds_are_covered(
    low: int, width: int, step: Fraction
) -> None:
    high = low + width
    try:
        grid = Grid.of(low=low, high=high, step=step)
    except BadParameter:
        return  # fewer than two multiples
    for relation, reach in (
        (ADD_REMOVE, max(abs(grid.first), abs(grid.last))),
        (REPLACE, grid.last - grid.first),
    ):
        assert sensitivity.total(low=low, high=high, relation=relation, rows=1).in_steps(step).l1 >= reach
