"""Partition selection: neighbouring counts within (ε, δ), and no rule could show more."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, dec, exp, middle
from lapwing.core.partition_selection import PartitionSelection
from support.cases import each
from support.exact_laws import excess, keep_probabilities
from support.laws import between
from support.streams import SeededStream

BUDGETS = [("1", "1e-6"), ("0.1", "1e-3"), ("0.25", "0.2"), ("3", "1e-9"), ("1/7", "1/7"), ("12", "1e-5")]


def two_outcomes(shown: Decimal) -> Law:
    return {"shown": shown, "hidden": 1 - shown}


def claimed(selection: PartitionSelection, up_to: int) -> list[Decimal]:
    return [Decimal(selection.keep_probability(n)(200).str(60, radius=False)) for n in range(up_to + 1)]


@each(("epsilon", "delta"), BUDGETS)
@each("keys", [1, 3])
def test_neighbouring_counts_are_within_epsilon_and_delta(epsilon: str, delta: str, keys: int) -> None:
    selection = PartitionSelection.for_budget(epsilon, delta, keys=keys)
    each = Fraction(epsilon) / keys, Fraction(delta) / keys
    keep = claimed(selection, end_of(*each) + 3)
    assert keep[0] == 0
    assert keep[-1] == 1
    for fewer, more in pairwise(keep):
        one, other = two_outcomes(fewer), two_outcomes(more)
        for found in (excess(one, other, each[0]), excess(other, one, each[0])):
            assert found <= dec(each[1]) + SLACK
    assert abs(excess(two_outcomes(keep[1]), two_outcomes(keep[0]), each[0]) - dec(each[1])) < SLACK


@each(("epsilon", "delta"), BUDGETS)
@each("keys", [1, 3])
def test_every_probability_is_the_greatest_that_the_inequalities_allow(
    epsilon: str, delta: str, keys: int
) -> None:
    selection = PartitionSelection.for_budget(epsilon, delta, keys=keys)
    each = Fraction(epsilon) / keys, Fraction(delta) / keys
    up_to = end_of(*each) + 3
    for found, greatest in zip(claimed(selection, up_to), keep_probabilities(*each, up_to), strict=True):
        assert abs(found - greatest) < Decimal("1e-40")


@each(("epsilon", "delta"), BUDGETS)
def test_the_turns_of_the_closed_form_are_where_the_recurrence_turns(epsilon: str, delta: str) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    first, last = PartitionSelection.for_budget(e, d, keys=1)._turns()
    keep = keep_probabilities(e, d, last + 2)
    rises = [abs(keep[n] - (exp(e) * keep[n - 1] + dec(d))) < Decimal("1e-24") for n in range(1, last + 1)]
    assert rises == [n <= first for n in range(1, last + 1)]
    assert keep[last] < 1
    assert keep[last + 1] == 1


def end_of(epsilon: Fraction, delta: Fraction) -> int:
    """The first count at which a key is always shown."""
    up_to = 8
    while keep_probabilities(epsilon, delta, up_to)[-1] < 1:
        up_to *= 2
    return keep_probabilities(epsilon, delta, up_to).index(Decimal(1))


def test_several_keys_of_one_unit_add_up_to_the_whole_budget() -> None:
    selection = PartitionSelection.for_budget(1, "0.01", keys=2)
    keep = claimed(selection, end_of(Fraction(1, 2), Fraction(1, 200)))
    law = [
        {
            (a, b): two_outcomes(p)[a] * two_outcomes(q)[b]
            for a in ("shown", "hidden")
            for b in ("shown", "hidden")
        }
        for p, q in ((keep[1], keep[4]), (keep[0], keep[3]))
    ]
    for one, other in (law, law[::-1]):
        assert excess(one, other, 1) <= dec(Fraction(1, 100)) + SLACK


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_shown_keys_are_as_frequent_as_the_law_says(
    epsilon: str, delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(68))
    selection = PartitionSelection.for_budget(epsilon, delta, keys=1)
    keep = keep_probabilities(
        Fraction(epsilon), Fraction(delta), end_of(Fraction(epsilon), Fraction(delta)) + 1
    )
    shown = selection.decide(np.repeat(np.arange(len(keep)), 20_000)).reshape(len(keep), -1).sum(axis=1)
    for count, p in zip(shown.tolist(), keep, strict=True):
        low, high = between(count, 20_000)  # wrong with probability 1e-9 for each count
        assert low <= float(p) <= high


@each(
    ("epsilon", "delta"),
    [("1", "1e-310"), ("0.5", "1e-330"), ("1000", "1e-6"), ("1e-9", "1e-12"), ("2", "1e-900")],
)
def test_the_fast_probabilities_are_near_the_exact_ones_for_extreme_budgets(
    epsilon: str, delta: str
) -> None:
    selection = PartitionSelection.for_budget(epsilon, delta, keys=1)
    first, last = selection._turns()
    counts = np.unique(
        np.clip(
            np.array([0, 1, 2, first - 1, first, first + 1, last, last + 1, 701, first // 2]), 0, last + 1
        )
    )
    fast, error = selection._approximate(counts, first, last)
    assert error < 1e-9
    for count, p in zip(counts.tolist(), fast.tolist(), strict=True):
        assert abs(p - float(selection.keep_probability(count)(400))) <= error


def test_the_law_is_known_to_as_many_bits_as_are_asked_for() -> None:
    assert middle(PartitionSelection.for_budget(1, "1e-6", keys=1).keep_probability(5)(500)) > 0


def test_what_is_released_does_not_depend_on_the_order_or_number_of_hidden_keys() -> None:
    selection = PartitionSelection.for_budget(1, "1e-6", keys=1)
    assert selection.sample({"b": 10**6, "a": 10**6}) == ["a", "b"]
    assert selection.sample({"a": 10**6, "c": 0, "b": 10**6, "d": 0}) == ["a", "b"]
    assert selection.sample({2: 10**6, "a": 10**6, 10: 10**6}) == ["a", 10, 2]
