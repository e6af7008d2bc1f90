"""The division of ε and δ: all blocks, stages and members of a person together lose what was wished."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    Repeated,
    SequentialComposition,
)
from lapwing.parties.joint_noise import covers
from lapwing.parties.joint_plan import plan_jointly
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.statistics import CellBlock


def wish(**other: Any) -> JointRequirements:
    said: dict[str, Any] = {
        "members": 5,
        "coalition": 2,
        "losses": 0,
        "adversary": "bounded",
        "protocol": "C",
        "epsilon": Fraction(1),
        "delta": Fraction(0),
        "people_at": 1,
        "noise": "laplace",
    }
    return JointRequirements(**{**said, **other})


def rho_of(loss: Loss) -> Fraction:
    match loss:
        case Concentrated(rho):
            return rho
        case SequentialComposition(parts):
            return sum(map(rho_of, parts), Fraction(0))
        case Repeated(each, count):
            return count * rho_of(each)
    raise AssertionError("a loss of another kind")


blocks_strategy = st.lists(
    st.builds(
        lambda length, l1, weight: CellBlock("b", length, l1, l1 * l1, weight),
        st.integers(1, 50),
        st.integers(1, 1000),
        st.fractions(Fraction(1, 1000), 1000),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(
    blocks=blocks_strategy,
    stages=st.integers(1, 6),
    people_at=st.integers(1, 5),
    epsilon=st.fractions(Fraction(1, 20), 5),
)
def test_a_person_at_all_its_members_loses_exactly_epsilon(
    blocks: list[CellBlock], stages: int, people_at: int, epsilon: Fraction
) -> None:
    plan = plan_jointly(wish(people_at=people_at, epsilon=epsilon), blocks, stages)
    assert plan.loss.pure == epsilon / people_at  # on one member's ledger
    assert plan.loss.for_group(people_at).pure == epsilon  # members' moves in one sum add up
    for block, share in zip(blocks, plan.shares, strict=True):
        assert isinstance(share, LaplaceShares)
        assert (share.of, share.l1) == (3, block.l1)


@pytest.mark.parametrize("people_at", [1, 2, 5])
@pytest.mark.parametrize(("protocol", "honest"), [("C", 3), ("B", 3), ("D", 3), ("A", 1)])
def test_with_gaussian_noise_a_person_loses_at_most_epsilon_and_delta(
    people_at: int, protocol: str, honest: int
) -> None:
    delta = Fraction(1, 10**6)
    asked = wish(people_at=people_at, protocol=protocol, noise="gaussian", delta=delta)
    blocks = (CellBlock("long", 200, 30, 30), CellBlock("short", 1, 9, 81, Fraction(5)))
    plan = plan_jointly(asked, blocks, 3)
    assert all(isinstance(share, GaussianShares) and share.of == honest for share in plan.shares)
    mine = rho_of(plan.loss)
    together = people_at * mine if protocol == "A" else people_at**2 * mine
    assert zcdp_to_epsilon(together, delta) <= 1
    assert zcdp_to_epsilon(together, delta) > Fraction(97, 100)  # and nothing is given away


def test_one_noise_for_a_sum_is_no_noise_of_ones_own() -> None:
    """With g = 1 in a sum a person at h members moves it h times: the charge is ρ / h², not ρ / h."""
    asked = wish(
        members=3, coalition=2, people_at=2, protocol="B", noise="gaussian", delta=Fraction(1, 10**6)
    )
    plan = plan_jointly(asked, (CellBlock("long", 200, 30, 30),))
    assert zcdp_to_epsilon(4 * rho_of(plan.loss), Fraction(1, 10**6)) <= 1


def test_planned_losses_are_paid_with_noise() -> None:
    for losses, honest in ((0, 3), (1, 2), (2, 1)):
        plan = plan_jointly(wish(losses=losses), (CellBlock("count", 1, 1, 1),))
        assert [share.of for share in plan.shares] == [honest]
        assert plan.least == 5 - losses


def test_weights_get_their_due() -> None:
    """ε_i ∝ weight^(2/3): eight times the weight is four times the ε, to a millionth."""
    blocks = (CellBlock("light", 1, 1, 1), CellBlock("heavy", 1, 1, 1, Fraction(8)))
    light, heavy = plan_jointly(wish(), blocks).parts
    assert float(heavy / light) == pytest.approx(4, rel=1e-5)


ONE, HALF, TINY = Fraction(1), Fraction(1, 2), Fraction(1, 10**6)
LAPLACE = LaplaceNoise(Fraction(2), 2)  # ε 1


@pytest.mark.parametrize(
    ("charged", "revealed"),
    [
        (LAPLACE, LAPLACE),
        (Pure(ONE), LAPLACE),
        (Pure(2 * ONE), SequentialComposition((LAPLACE, LAPLACE))),
        (Approximate(ONE, TINY), Repeated(LaplaceNoise(Fraction(4), 2), 2)),
        (Approximate(ONE, TINY), Approximate(HALF, TINY / 2)),
        (Concentrated(ONE), SequentialComposition((Concentrated(HALF), Concentrated(HALF)))),
        (Repeated(Concentrated(HALF), 3), Concentrated(ONE)),
    ],
)
def test_a_charge_covers_what_its_bounds_hold_for(charged: Loss, revealed: Loss) -> None:
    assert covers(charged, revealed)
    for order in (Fraction(11, 10), Fraction(2), Fraction(1000)):
        most, least = charged.renyi(order), revealed.renyi(order)
        assert most is not None
        assert least is not None
        assert not most < least


@pytest.mark.parametrize(
    ("charged", "revealed"),
    [
        (Pure(Fraction(99, 100)), LAPLACE),  # less ε
        (Pure(ONE), SequentialComposition((LAPLACE, Pure(TINY)))),
        (Pure(ONE), Repeated(LAPLACE, 2)),
        (Pure(2 * ONE), Approximate(ONE, TINY)),  # no δ, or less of it
        (Approximate(2 * ONE, TINY), Approximate(ONE, 2 * TINY)),
        (Pure(900 * ONE), Concentrated(TINY)),  # no ε for what is not pure
        (Approximate(900 * ONE, HALF), GaussianNoise(ONE, ONE, 1)),
        (Concentrated(900 * ONE), LAPLACE),  # no ρ for what is counted by ε
        (Concentrated(Fraction(99, 100)), Repeated(Concentrated(HALF), 2)),  # less ρ
        (SequentialComposition((Concentrated(ONE), Pure(ONE))), Concentrated(HALF)),  # not made of ρs alone
        (Concentrated(ONE), SequentialComposition((Concentrated(HALF), LAPLACE))),
        (BoundedRange(ONE), LAPLACE),  # the same ε, but its Rényi bounds are smaller
        (LAPLACE, Pure(ONE)),
        (LaplaceNoise(ONE, 2), SequentialComposition((LAPLACE, LAPLACE))),
    ],
)
def test_a_charge_for_less_or_for_something_else_covers_nothing(charged: Loss, revealed: Loss) -> None:
    assert not covers(charged, revealed)


def test_a_larger_epsilon_alone_would_not_cover() -> None:
    for charged, revealed in ((BoundedRange(ONE), LAPLACE), (LAPLACE, Pure(Fraction(99, 100)))):
        most, least = charged.renyi(Fraction(2)), revealed.renyi(Fraction(2))
        assert charged.pure >= revealed.pure
        assert most < least
