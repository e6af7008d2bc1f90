"""What is lost if more members belong together than planned; and what a policy demands of that."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from lapwing.audit.coalition_views import NOTHING_LOST, Basis, leaked, worst_loss
from lapwing.core.laplace import LaplaceShares
from lapwing.errors import BadParameter
from lapwing.parties.joint_plan import (
    JointPlan,
    epsilon_by_coalition,
    epsilon_for_coalition,
    epsilon_with_honest_shares,
    largest_protected_coalition,
    plan_jointly,
)
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.requirements import JointRequirements, protocol_setting
from lapwing.parties.statistics import CellBlock
from support.raised import named


def plan_of(members: int, coalition: int, losses: int = 0, *, length: int = 1, **other: Any) -> JointPlan:
    asked: dict[str, Any] = {
        "members": members, "coalition": coalition, "losses": losses, "people_at": 1,
        "adversary": "bounded", "protocol": "C", "epsilon": Fraction(1), "delta": Fraction(0),
        "noise": "auto",
    }  # fmt: skip
    return plan_jointly(JointRequirements(**(asked | other)), [CellBlock("cells", length, 1, 1)])


def test_two_of_ten_who_belong_together_learn_3_19_at_a_planned_1() -> None:
    found = epsilon_by_coalition(plan_of(10, 1))
    assert {size: round(float(epsilon), 2) for size, epsilon in found.items()} == {
        1: 1.0, 2: 3.19, 3: 3.19, 4: 3.19, 9: 3.19,
    }  # fmt: skip


def test_additive_shares_lose_little_by_little() -> None:
    share = LaplaceShares.for_epsilon(1, l1=1, of=9)
    found = epsilon_by_coalition(plan_of(10, 1, protocol="B"))
    assert found == {size: share.loss_with(10 - size) for size in (1, 2, 3, 4, 9)}


@pytest.mark.parametrize("letter", ["B", "C", "D"])
@pytest.mark.parametrize(("members", "coalition", "modulus"), [(3, 1, 5), (4, 1, 5), (5, 1, 7)])
def test_it_is_what_such_a_view_tells(letter: str, members: int, coalition: int, modulus: int) -> None:
    """By the exact law of all views: at most that, and of the very shares that are counted."""
    plan = plan_of(members, coalition, protocol=letter)
    setting = Setting(members=members, coalition=coalition, losses=0, length=1, modulus=modulus)
    world = Basis(setting)
    rehearsal = world.run(PROTOCOLS[letter], setting, NOTHING_LOST)
    for size in range(coalition, members):
        said = float(epsilon_for_coalition(plan, size))
        for some in combinations(range(members), size):
            rows = leaked(world, rehearsal, frozenset(some))
            assert float(worst_loss(rows, modulus, plan.honest)) <= said
            is_alone = said == float(epsilon_with_honest_shares(plan, 1))
            assert (len(rows) == members - size) == (is_alone or size == members - 1)


def test_as_planned_it_is_what_was_wished_for() -> None:
    for letter in "ABCD":
        plan = plan_of(7, 2, 1, protocol=letter)
        assert epsilon_by_coalition(plan)[2] == 1
    assert epsilon_by_coalition(plan_of(7, 2, people_at=3, length=4))[2] == 1
    assert epsilon_by_coalition(plan_of(7, 2, noise="gaussian", delta=Fraction(1, 10**6)))[2] <= 1


def test_a_person_at_several_members_loses_at_each() -> None:
    one, three = (epsilon_by_coalition(plan_of(7, 2, people_at=h, epsilon=Fraction(h)))[3] for h in (1, 3))
    assert three == 3 * one


def test_gaussian_shares_lose_as_their_variance_says() -> None:
    found = epsilon_by_coalition(plan_of(10, 1, protocol="B", noise="gaussian", delta=Fraction(1, 10**6)))
    assert sorted(found.values()) == list(found.values())
    assert 2.8 < found[9] < 3.6  # ρ is nine times as large


def test_who_hides_alone_is_protected_from_all() -> None:
    assert largest_protected_coalition(plan_of(5, 1, protocol="A")) == 4
    assert largest_protected_coalition(plan_of(5, 1)) == 1
    assert largest_protected_coalition(plan_of(5, 4, protocol="B")) == 4


@pytest.mark.parametrize("together", [0, 5])
def test_there_must_be_somebody_on_both_sides(together: int) -> None:
    plan = plan_of(5, 1)
    with pytest.raises(BadParameter, check=named("together")):
        epsilon_for_coalition(plan, together)


class TestTheQuorum:
    """Unsaid, the safest that the planned losses leave."""

    @pytest.mark.parametrize(
        ("members", "coalition", "losses", "quorum", "number"),
        [
            (5, 2, 0, "majority", 3),  # one set only: everybody's
            (5, 2, 1, "honest", 4),
            (10, 4, 2, "honest", 8),
            (10, 4, 3, "majority", 6),
            (4, 1, 1, "honest", 3),
        ],
    )
    def test_is_chosen(self, members: int, coalition: int, losses: int, quorum: str, number: int) -> None:
        wish = plan_of(members, coalition, losses).requirements
        assert wish.quorum == quorum
        assert protocol_setting(wish, 1).quorum == number

    def test_is_above_half_of_members_and_coalition(self) -> None:
        for members in range(2, 30):
            for coalition in range(1, members):
                setting = Setting(
                    members=members, coalition=coalition, losses=0, length=1, honest_quorum=True
                )
                assert 2 * setting.quorum > members + coalition >= 2 * (setting.quorum - 1)

    @pytest.mark.parametrize("letter", ["B", "C", "D"])
    def test_leaves_so_many_losses(self, letter: str) -> None:
        assert plan_of(10, 4, 2, protocol=letter, quorum="honest").requirements.most_losses == 2
        with pytest.raises(BadParameter, match="losses must be at most 2"):
            plan_of(10, 4, 3, protocol=letter, quorum="honest")

    def test_is_told_with_what_it_costs(self) -> None:
        [safe] = plan_of(5, 2, 1).notes
        assert "4 of 5 members must agree" in safe
        assert "At most 1 may fail between sharing and agreeing" in safe
        [other] = plan_of(5, 2, 1, quorum="majority").notes
        assert "could isolate a member: ε 1.67514 instead of 1" in other
        assert 'quorum = "honest"' in other

    def test_of_own_noise_is_a_majority(self) -> None:
        plan = plan_of(5, 2, 1, protocol="A", quorum="honest")
        assert plan.threshold == 3
        assert plan.notes == ()

    def test_must_be_known(self) -> None:
        with pytest.raises(BadParameter, check=named("quorum")):
            plan_of(5, 2, 1, quorum="all")
