"""Simulations: real protocols on made-up counts, losses that stop them, and errors as the formulas say."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from scipy.stats import chi2

from lapwing.errors import BadParameter
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.simulation import compare_trust_models, local_model_error, member_error, simulate
from lapwing.plots.accuracy import local_bound, local_error, members_bound, shared_error

NAMES = ("east", "north", "south", "west")


def wish(members: int = 3, coalition: int = 1, **other: Any) -> JointRequirements:
    said: dict[str, Any] = {
        "losses": 0,
        "adversary": "bounded",
        "protocol": "C",
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "people_at": 1,
        "noise": "laplace",
    }
    return JointRequirements(members=members, coalition=coalition, **{**said, **other})


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_the_opened_sum_is_the_sum_of_what_was_noised(letter: str) -> None:
    done = simulate(wish(protocol=letter), (120, 45, 230), NAMES[:3], lose={})
    assert done.opened == sum(done.noised)
    assert done.contributors == NAMES[:3]
    assert done.truth == 395
    assert done.stopped == ""
    assert json.loads(json.dumps(done.to_json()))["opened"] == done.opened
    assert all(step.posted == NAMES[:3] and not step.missing for step in done.steps)


def test_half_of_the_shares_would_give_1_68() -> None:
    done = simulate(wish(), (1, 2, 3), NAMES[:3], lose={})
    assert [(present, round(epsilon, 2)) for present, epsilon in done.lessons] == [(1, 1.68), (2, 1.0)]


def test_who_is_lost_before_sharing_stops_it_unless_it_was_planned_for() -> None:
    done = simulate(wish(), (1, 2, 3), NAMES[:3], lose={"south": "deal"})
    assert done.opened is None
    assert "south" in done.stopped
    assert [step.name for step in done.steps] == ["deal"]
    planned = simulate(wish(4, 1, losses=1), (1, 2, 3, 4), NAMES, lose={"south": "deal"})
    assert planned.contributors == ("east", "north", "west")
    assert planned.opened is not None
    assert planned.truth == 7


def test_after_all_have_agreed_shamir_shares_survive_a_loss() -> None:
    done = simulate(wish(), (1, 2, 3), NAMES[:3], lose={"south": "open"})
    assert done.opened == sum(done.noised)  # what south shared is in it
    assert done.steps[-1].missing == ("south",)
    additive = simulate(wish(protocol="B"), (1, 2, 3), NAMES[:3], lose={"south": "open"})
    assert additive.opened is None


def test_all_may_be_lost() -> None:
    done = simulate(wish(), (1, 2, 3), NAMES[:3], lose=dict.fromkeys(NAMES[:3], "deal"))
    assert (done.opened, done.stopped) == (None, "all members were lost")


@pytest.mark.parametrize(
    ("counts", "lose", "told"),
    [
        ((1, 2), {}, "one for each member"),
        ((1, 2, -3), {}, "must be 0 to"),
        ((1, 2, 3), {"west": "deal"}, "no member west"),
        ((1, 2, 3), {"south": "dinner"}, "one of the rounds deal, agree, open"),
    ],
)
def test_bad_wishes_are_told(counts: tuple[int, ...], lose: dict[str, str], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        simulate(wish(), counts, NAMES[:3], lose=lose)


@pytest.mark.parametrize(("members", "coalition"), [(1, 0), (2, 1), (3, 1), (10, 4), (10, 9)])
def test_measured_errors_are_those_of_the_formula(members: int, coalition: int) -> None:
    """False alarms below 1e-9: twice the width of a χ² bound for that, as squares of Laplace noise spread
    √2.5 times as far as those of normal noise; one alone would have to be 28 deviations away to matter."""
    runs, n = 2000, 1000
    measured = member_error(Fraction(1), n, members=members, coalition=coalition, repetitions=runs)
    expected = shared_error(Fraction(1), n, members, coalition)
    low, high = chi2.ppf([5e-10, 1 - 5e-10], runs) / runs
    assert 1 - 2 * (1 - math.sqrt(low)) < measured / expected < 1 + 2 * (math.sqrt(high) - 1)


def test_the_local_model_has_the_error_of_randomized_response_and_not_less_than_the_bound() -> None:
    """χ² with false alarms of 1e-9: the estimate of 1,000 answers is nearly normal."""
    runs, n = 400, 1000
    measured = local_model_error(Fraction(1), n, repetitions=runs)
    low, high = chi2.ppf([5e-10, 1 - 5e-10], runs) / runs
    assert math.sqrt(low) < measured / local_error(Fraction(1), n) < math.sqrt(high)
    assert local_bound(Fraction(1), n) < local_error(Fraction(1), n)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_lines_of_order_lie_where_they_should(epsilon: Fraction) -> None:
    for n in (10, 1000, 100_000):
        assert local_bound(epsilon, n) <= local_error(epsilon, n)
        for m in (2, 10, 100):
            assert shared_error(epsilon, n, m, m - 1) <= members_bound(epsilon, n, m)


def test_a_small_comparison_has_all_series() -> None:
    told: list[tuple[int, int]] = []
    found = compare_trust_models(
        1, repetitions=5, sizes=(10, 20), people=20, members=(2, 5), tell=lambda *x: told.append(x)
    )
    assert set(found.by_size) == {"curator", "shared", "alone", "everybody", "local"}
    assert set(found.by_members) == {"shared", "alone"}
    assert [n for n, _ in found.by_size["everybody"]] == [10, 20]
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(("sizes", "members"), [((5,), (2,)), ((10,), (1,)), ((10,), (21,))])
def test_comparisons_that_mean_nothing_are_refused(
    sizes: tuple[int, ...], members: tuple[int, ...]
) -> None:
    with pytest.raises(BadParameter):
        compare_trust_models(1, sizes=sizes, people=20, members=members)
