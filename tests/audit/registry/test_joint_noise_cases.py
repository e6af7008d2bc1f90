"""Joint plans and contributions hold their claims, and mistakes in them are noticed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.registry.joint_noise_cases import SETTINGS, joint_noise_cases, local_rows, planned_noise
from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Loss
from lapwing.parties import joint_noise
from lapwing.parties.contribution import LocalContribution
from lapwing.parties.joint_plan import JointPlan, epsilon_with_honest_shares

QUICK = StageBudget(is_thorough=False)
CASES = {case.name: case for case in joint_noise_cases()}


@pytest.mark.slow
def test_all_settings_hold() -> None:
    assert planned_noise(SETTINGS)(StageBudget()).holds


def test_the_settings_have_all_protocols_and_both_noises() -> None:
    plans = [setting.plan for setting in SETTINGS]
    assert {plan.protocol for plan in plans} == set("ABCDL")
    assert {plan.noise for plan in plans} == {"laplace", "gaussian"}
    assert max(plan.stages for plan in plans) > 1
    assert max(plan.requirements.people_at for plan in plans) > 2


def _one_more(shares: Any) -> Any:
    return replace(shares, of=shares.of + 1)


def _person_at_one(shares: Any) -> Any:
    if isinstance(shares, LaplaceShares):
        return LaplaceShares.for_epsilon(2 * Fraction(shares.l1) / shares.scale, l1=shares.l1, of=shares.of)
    return GaussianShares(shares.sigma / 2, shares.l2_squared, shares.dimension, shares.of)


@pytest.mark.parametrize("mistake", [_one_more, _person_at_one])
def test_too_little_noise_is_a_violation(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = JointPlan.shares.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(JointPlan, "shares", property(lambda plan: tuple(map(mistake, right(plan)))))
    [five] = [one for one in SETTINGS if (one.protocol, one.noise, one.members) == ("C", "laplace", 5)]
    assert planned_noise([five])(QUICK).witness is not None


def test_rows_randomized_at_twice_the_price_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(plan: JointPlan) -> Any:
        needs = plan.requirements
        return joint_noise.row_randomizer(replace(needs, epsilon=2 * needs.epsilon), plan.blocks[0])

    monkeypatch.setattr(JointPlan, "row_randomizer", property(generous))
    local = [one for one in SETTINGS if one.protocol == "L"]
    assert planned_noise(local)(QUICK).witness is not None


def test_stages_that_are_charged_once_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(shares: Any, _stages: int) -> Loss:
        return joint_noise.member_loss(shares, 1)

    monkeypatch.setattr("lapwing.parties.joint_plan.member_loss", once)
    monkeypatch.setattr("lapwing.parties.contribution.member_loss", once)
    found = CASES["joint statistic: a quantile"].stages[Stage.REPLAY](QUICK).witness
    assert found is not None
    assert "add up to more" in found.event


def test_rows_that_are_not_randomized_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalContribution, "_noised", lambda _self, values: np.maximum(values, 0))
    found = local_rows(QUICK).witness
    assert found is not None
    assert found.event == "not every row is randomized once"


def test_what_members_charge_for_one_person_adds_up_to_the_whole() -> None:
    for setting in SETTINGS:
        plan = setting.plan
        if plan.noise == "laplace":
            assert plan.loss.pure is not None
            assert setting.people_at * plan.loss.pure == 1


def test_a_stated_epsilon_that_forgets_lost_members_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(plan: JointPlan, together: int) -> Fraction:
        return epsilon_with_honest_shares(plan, plan.requirements.members - together)

    monkeypatch.setattr("lapwing.audit.party_audit.epsilon_for_coalition", forgetful)
    found = planned_noise([one for one in SETTINGS if one.protocol == "B" and one.losses])(QUICK).witness
    assert found is not None
