"""Bounds on beliefs, beside mechanisms that reach them exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.core.beliefs import Belief, belief_bounds, beliefs_under
from lapwing.core.exact import log_up
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter

Law = tuple[Fraction, ...]
HALF = Fraction(1, 2)
NEAR = Fraction(1, 10**20)  # how far ln and exp are rounded up, at most


def least_delta(first: Law, second: Law, factor: Fraction) -> Fraction:
    """Return the least δ at e^ε = factor for two laws over the same outcomes, in both directions."""
    return max(
        sum((max(Fraction(0), p - factor * q) for p, q in zip(one, other, strict=True)), Fraction(0))
        for one, other in ((first, second), (second, first))
    )


def laws(r: Fraction, delta: Fraction) -> dict[str, Law]:
    """Return the laws of a release about a person who is absent, ill or well: each step (ln r, δ)-private.

    The outcomes: one that points to ill, one that points to well, two that δ pays for, and all else.
    """
    p = Fraction(1, 100)
    tells = {
        "absent": (p, p, delta, Fraction(0)),
        "ill": (r * p, p / r, (1 + r) * delta, Fraction(0)),
        "well": (p / r, r * p, Fraction(0), Fraction(0)),
    }
    return {name: (*law, 1 - sum(law, Fraction(0))) for name, law in tells.items()}


@pytest.mark.parametrize("r", [Fraction(11, 10), Fraction(2), Fraction(5)])
def test_two_facts_of_a_person_are_two_steps_apart_and_reach_the_bound(r: Fraction) -> None:
    found = laws(r, Fraction(0))
    for fact in ("ill", "well"):
        assert least_delta(found["absent"], found[fact], r) == 0  # each step is ln(r)-private
    assert least_delta(found["ill"], found["well"], r) > 0  # two facts are not
    seen = HALF * found["ill"][0] / (HALF * found["ill"][0] + HALF * found["well"][0])
    bounds = belief_bounds(log_up(r), 0, belief=Belief.FACT)
    low, high = bounds.after(HALF)
    assert bounds.steps == 2
    assert seen <= high <= seen + NEAR
    assert 1 - seen - NEAR <= low <= 1 - seen
    # e^ε, which is right for taking part, is too little.
    assert belief_bounds(log_up(r), 0, belief=Belief.TOOK_PART).after(HALF)[1] < seen


@pytest.mark.parametrize("r", [Fraction(11, 10), Fraction(2), Fraction(5)])
def test_two_steps_have_one_plus_e_to_the_epsilon_delta(r: Fraction) -> None:
    delta = Fraction(1, 10**4)
    found = laws(r, delta)
    for fact in ("ill", "well"):
        assert least_delta(found["absent"], found[fact], r) <= delta
    bounds = belief_bounds(log_up(r), delta, belief=Belief.FACT)
    needed = least_delta(found["ill"], found["well"], r**2)
    assert needed == (1 + r) * delta
    assert needed <= bounds.delta <= needed + NEAR


def test_replacing_a_unit_is_one_step_between_facts_and_hides_no_participation() -> None:
    bounds = belief_bounds(log_up(3), 0, belief=Belief.FACT, relation=Relation.REPLACE)
    assert bounds.steps == 1
    assert abs(bounds.after(HALF)[1] - Fraction(3, 4)) < NEAR
    assert beliefs_under(Relation.REPLACE) == (Belief.FACT,)
    with pytest.raises(BadParameter, match="public"):
        belief_bounds(1, 0, belief=Belief.TOOK_PART, relation=Relation.REPLACE)


def test_bounds_are_those_of_the_attacks_limits() -> None:
    from lapwing.audit.attacks.limits import membership_limit, two_step_limit  # noqa: PLC0415

    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(5)):
        part, fact = (belief_bounds(epsilon, 0, belief=one).after(HALF)[1] for one in Belief)
        assert abs(part - membership_limit(epsilon)) < NEAR
        assert abs(fact - two_step_limit(epsilon, 2)) < NEAR
