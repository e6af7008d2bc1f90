"""The audit of a consortium file: views of its protocol, and its noise shares against the claimed loss.

Claim    if the exact stage finds no violation, then no coalition of up to t members sees more than noised
         sums in the runs that were tried, and the honest noise in a sum hides a person's rows at the ε (or
         ρ) that the plan gives to each block of each stage; together at most the ε of the agreement.
Because  views are exact (`coalition_views`). A person at h members moves a sum by h times the bound of one
         member. Each block is compared at the whole distance in one cell, which is the worst for Laplace
         noise; noise and distance are divided by the same number, so that laws are short.
Test     tests/audit/test_party_audit.py

Many members are scaled down to three, with t and losses as large as three members allow; notes say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.protocol_views import ViewedSetting, view_stage
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import sqrt_up
from lapwing.core.losses import Concentrated, LaplaceNoise, Pure
from lapwing.errors import BadParameter
from lapwing.mechanisms import GaussianShares, LaplaceShares
from lapwing.parties.consortium import Consortium
from lapwing.parties.joint_plan import JointPlan, epsilon_for_coalition

MOST_MEMBERS = 3
_MODULUS = 5
_LARGEST_SCALE = 20  # up to this, shares are added up one by one; else their sum is one whole noise
_BITS = 256
_ROUNDING = 1e-9  # measured losses are floats
_LARGEST_ORDER, _DEVIATIONS = 72, 17


def case_of_consortium(path: str | Path) -> AuditCase:
    """Return the case of a consortium file. Raise `BadFile` if the file has mistakes."""
    consortium = Consortium.read(Path(path))
    return case_of_plan(consortium.name, consortium.plan)


def case_of_plan(name: str, plan: JointPlan) -> AuditCase:
    """Return the case of a joint plan."""
    needs = plan.requirements
    covers = (plan.protocol_class,)
    stages = {
        Stage.EXACT: _exact(plan),
        Stage.SAMPLED: sampled_stage([_sums(plan)], needs.epsilon, needs.delta),
    }
    return AuditCase(f"consortium {name}", Family.PROTOCOL, covers, needs.epsilon, needs.delta, stages)


def _honest(plan: JointPlan) -> int:
    """Return the least number of honest noises in an opened sum, by the numbers of the agreement alone."""
    needs = plan.requirements
    return 1 if plan.protocol in "AL" else needs.members - needs.coalition - needs.losses


def _block_pairs(plan: JointPlan) -> Iterator[tuple[Fraction, ExactPair]]:
    """Yield for each block the loss that it may cost, and the laws for a person's rows in it."""
    needs = plan.requirements
    if plan.is_local:
        response = plan.row_randomizer
        each = needs.epsilon / needs.people_at
        truth = laws.certain(response.truth_probability()(_BITS))
        first, second = _row_laws(response.options, truth)
        yield each, ExactPair("one row", first, second, Pure(each), each)
        return
    for block, part, shares in zip(plan.blocks, plan.parts, plan.shares, strict=True):
        name = f'block "{block.label}"'
        if isinstance(shares, LaplaceShares):
            yield part, _laplace_pair(plan, name, part, shares)
        else:
            yield part, _gaussian_pair(plan, name, part, shares)


@laws.precise
def _row_laws(options: int, truth: Decimal) -> tuple[laws.Law, laws.Law]:
    """Return the laws of a randomized row under two options. All other options are one outcome."""
    other = (1 - truth) / (options - 1)
    rest = {"another": (options - 2) * other} if options > 2 else {}
    return (
        {"the first": truth, "the second": other, **rest},
        {"the first": other, "the second": truth, **rest},
    )


def _laplace_pair(
    plan: JointPlan, name: str, part: Fraction, shares: LaplaceShares, honest: int | None = None
) -> ExactPair:
    """Return the laws of the honest noise, for a person at h members: one step of h times l1."""
    honest = _honest(plan) if honest is None else honest
    scale = shares.scale / (shares.l1 * plan.requirements.people_at)
    if scale <= _LARGEST_SCALE:
        first, second = laws.shifted_pair(laws.laplace_shares(scale, shares.of, honest), 1)
    elif honest >= shares.of:
        first, second = (laws.laplace(scale, centre, 0, 1) for centre in (0, 1))
    else:
        why = f"{name} has noise for {shares.of} honest members, but only {honest} are there"
        raise BadParameter("consortium", why)
    text = f"{name}: the noise of {honest} honest members, a person's rows at {plan.requirements.people_at}"
    return ExactPair(text, first, second, LaplaceNoise(1 / part, 1), part)


def _gaussian_pair(plan: JointPlan, name: str, part: Fraction, shares: GaussianShares) -> ExactPair:
    """Return the laws of Gaussian noise at the same ratio of noise and distance."""
    needs = plan.requirements
    # If each member's own value is opened, the losses at h members add up: h steps of one member each.
    moved = needs.people_at if plan.protocol == "A" else needs.people_at**2
    sigma = sqrt_up(_honest(plan) * shares.sigma**2 / (shares.l2_squared * moved))
    reach = int(_DEVIATIONS * sigma) + _LARGEST_ORDER + 2
    first, second = (laws.gaussian(sigma, centre, -reach, reach + 1) for centre in (0, 1))
    text = f"{name}: the noise of {_honest(plan)} honest members, a person's rows at {needs.people_at}"
    epsilon = max(zcdp_to_epsilon(part, needs.delta), Fraction(1, 10**9))
    return ExactPair(text, first, second, Concentrated(part), epsilon, needs.delta)


def scaled_setting(plan: JointPlan) -> tuple[ViewedSetting, str]:
    """Return the protocol's setting with at most three members, and a note if it was scaled down."""
    needs, kind = plan.requirements, plan.protocol_class
    members = min(needs.members, MOST_MEMBERS)
    quorum = needs.quorum == "honest"
    scaled = f"views of {members} members stand for those of {needs.members}"
    note = "" if members == needs.members else scaled
    for coalition in range(min(needs.coalition, members - 1), -1, -1):
        for losses in range(min(needs.losses, members - coalition - 1), -1, -1):
            viewed = ViewedSetting(kind, members, coalition, losses, _MODULUS, honest_quorum=quorum)
            if kind.refusal(viewed.setting) is None:
                return viewed, note
    raise BadParameter("consortium", "has a protocol that no small group can run: it cannot be audited")


def _exact(plan: JointPlan) -> RunStage:
    def run(budget: StageBudget) -> StageResult:
        viewed, note = scaled_setting(plan)
        views = view_stage(lambda _: [viewed])(budget)
        if views.witness is not None:
            claimed = float(plan.requirements.epsilon)
            return StageResult(Stage.EXACT, views.checks, claimed, witness=views.witness, notes=views.notes)
        noise = compare_noise(plan, budget)
        notes = (*filter(None, [note]), *views.notes)
        return replace(noise, checks=views.checks + noise.checks, notes=notes)

    return run


def compare_noise(plan: JointPlan, budget: StageBudget) -> StageResult:
    """Compare the honest noise of each block of a plan with the block's part, and all parts with ε."""
    needs = plan.requirements
    claimed, checks, total, spent = float(needs.epsilon), 0, 0.0, Fraction(0)
    for part, pair in _block_pairs(plan):
        result = compare_exactly([pair], budget, epsilon=pair.epsilon, delta=pair.delta)
        checks += result.checks
        total += result.measured or 0.0
        spent += part
        if result.witness is not None:
            return StageResult(Stage.EXACT, checks, claimed, result.measured, claimed, result.witness)
    checks += 1
    steps = needs.people_at if plan.is_local else plan.stages
    is_pure = plan.is_local or plan.noise == "laplace"
    promised = steps * spent if is_pure else zcdp_to_epsilon(steps * spent, needs.delta)
    witness = None
    if promised > needs.epsilon:
        witness = Witness(
            pair="the rows of one person, and none",
            event=f"all blocks of {plan.stages} stages: their losses add up",
            numbers={"ε of the agreement": claimed, "ε of the parts": float(promised)},
            at_least=float(promised) if is_pure else None,
        )
    measured = steps * total if is_pure else None
    compared = StageResult(Stage.EXACT, checks, claimed, measured, claimed, witness)
    return compared if witness is not None else replace(compared, witness=_larger_coalition(plan, budget))


def _larger_coalition(plan: JointPlan, budget: StageBudget) -> Witness | None:
    """Compare the ε that is stated for one member more than planned with the noise that is left then.

    Only Laplace shares have short laws for fewer members than planned.
    """
    needs, together = plan.requirements, plan.requirements.coalition + 1
    left = needs.members - together - needs.losses
    narrow = [
        (block.label, shares)
        for block, shares in zip(plan.blocks, plan.shares, strict=False)
        if isinstance(shares, LaplaceShares)
        and shares.scale <= _LARGEST_SCALE * shares.l1 * needs.people_at
    ]
    if plan.protocol in "AL" or left < 1 or not narrow or len(narrow) < len(plan.blocks):
        return None
    stated, total = epsilon_for_coalition(plan, together), Fraction(0)
    for label, shares in narrow:
        pair = _laplace_pair(plan, f'block "{label}"', stated, shares, left)
        result = compare_exactly([pair], budget, epsilon=stated)
        if result.witness is not None:
            return result.witness
        total += Fraction(result.measured or 0.0)
    if float(plan.stages * total) <= float(stated) * (1 + _ROUNDING):
        return None
    return Witness(
        pair="the rows of one person, and none",
        event=f"what {together} members see together: {left} honest noises are left",
        numbers={"ε that is stated": float(stated), "ε of the noise": float(plan.stages * total)},
        at_least=float(plan.stages * total),
    )


def _sums(plan: JointPlan) -> SampledPair:
    """Return draws of the honest noise in the first block, for a person who is there or not."""
    needs = plan.requirements

    def sums(present: int) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            if plan.is_local:
                return plan.row_randomizer.sample(np.full(size, present))
            shares = plan.shares[0]
            if isinstance(shares, LaplaceShares):
                distance, each = shares.l1 * needs.people_at, shares
            else:
                distance = int(shares.l2_squared**0.5) * (1 if plan.protocol == "A" else needs.people_at)
                each = GaussianShares(shares.sigma, shares.l2_squared, size, 1)  # type: ignore[assignment]
            values = np.full(size, present * distance, dtype=np.int64)
            for _ in range(_honest(plan)):
                values = each.sample(values)
            return values

        return draw

    return SampledPair(f'sums of "{plan.blocks[0].label}"; a person is there or not', sums(0), sums(1))
