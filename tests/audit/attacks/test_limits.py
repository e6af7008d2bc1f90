"""The limits of attacks, beside formulas and beside releases that reach them."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from lapwing.audit.attacks.limits import membership_limit, two_step_limit, value_limit
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter

EPSILONS = ["0.01", "0.5", "1", "3", "8"]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", ["0", "1e-6", "0.1"])
def test_the_limits_are_their_formulas_rounded_up(epsilon: str, delta: str) -> None:
    factor = math.exp(float(epsilon))
    found = membership_limit(epsilon, delta)
    assert float(found) == pytest.approx(min((factor + float(delta)) / (1 + factor), 1), rel=1e-14)
    for k in (2, 5, 8):
        assert float(value_limit(epsilon, k, Relation.REPLACE)) == pytest.approx(factor / (factor + k - 1))
        assert float(two_step_limit(epsilon, k)) == pytest.approx(factor**2 / (factor**2 + k - 1))


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 20)])
def test_no_decision_rule_of_a_tight_release_beats_the_limit(delta: Fraction) -> None:
    """With probability δ the release tells the truth, else randomized response. All rules are tried."""
    epsilon = Fraction(1)
    truth = math.e / (1 + math.e)
    laws = [
        {
            ("sure", is_in): float(delta),
            ("maybe", is_in): (1 - float(delta)) * truth,
            ("maybe", 1 - is_in): (1 - float(delta)) * (1 - truth),
        }
        for is_in in (0, 1)
    ]
    outcomes = sorted({*laws[0], *laws[1]})
    best = max(
        sum(
            law.get(outcome, 0) / 2
            for outcome, guess in zip(outcomes, rule, strict=True)
            for is_in, law in enumerate(laws)
            if guess == is_in
        )
        for rule in product((0, 1), repeat=len(outcomes))
    )
    assert best == pytest.approx(float(membership_limit(epsilon, delta)), rel=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 3, 8, 50])
def test_the_exact_limit_is_reached_and_below_the_two_step_limit(epsilon: str, k: int) -> None:
    """Absent gives all k outcomes alike; value v moves as much as e^ε allows towards outcome v."""
    factor, limit = math.exp(float(epsilon)), float(value_limit(epsilon, k, Relation.ADD_REMOVE))
    own, other = limit, (1 - limit) / (k - 1)
    assert 1 / factor - 1e-12 <= k * own <= factor * (1 + 1e-12)
    assert 1 / factor * (1 - 1e-9) <= k * other <= factor
    assert limit <= float(two_step_limit(epsilon, k))


@pytest.mark.parametrize("bad", [0, -1, "nan"])
def test_bad_parameters_are_refused(bad: object) -> None:
    with pytest.raises(BadParameter):
        membership_limit(bad)  # type: ignore[arg-type]
    with pytest.raises(BadParameter):
        value_limit(1, 1, Relation.REPLACE)
