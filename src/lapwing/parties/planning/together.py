"""What a person loses if more members belong together than a plan is for.

Claim    if so many members put together what they see, all stages together reveal at most this ε (at the
         wish's δ, with Gaussian noise) of a person's rows at the other members.
Because  their own shares of the noise count for nothing, so that a sum has only the others' shares in it,
         less those of the planned losses; and where they are as many as can open a part (Shamir shares,
         seeds of masks), they open every member's number by itself, with one share in it. A sum with fewer
         shares than `of` has the loss that `LaplaceShares.loss_with` says, or the ρ of so many Gaussian
         shares. Blocks and stages add up, and so do the members that have rows of the same person.
Test     tests/parties/planning/test_together.py
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from lapwing.errors import BadParameter
from lapwing.mechanisms import GaussianShares, LaplaceShares
from lapwing.parties.planning.rules import LOCAL, MASKED, OWN_NOISE, SHAMIR
from lapwing.privacy.convert import zcdp_to_epsilon

if TYPE_CHECKING:
    from lapwing.parties.planning.plan import JointPlan

_MOST_SHOWN = 3  # sizes after the planned one, before the last


def epsilon_together(plan: JointPlan, together: int) -> Fraction:
    """If so many members belong together."""
    wish = plan.wish
    if not 0 < together < wish.members:
        raise BadParameter("together", f"must be 1 to {wish.members - 1}: of all others nothing is hidden")
    if plan.protocol in (SHAMIR, MASKED) and together >= plan.threshold:
        return epsilon_with(plan, 1)
    return epsilon_with(plan, max(wish.members - together - wish.losses, 1))


def epsilon_with(plan: JointPlan, present: int) -> Fraction:
    """If only so many honest members' shares are in what is seen."""
    if plan.protocol == LOCAL:
        return plan.wish.epsilon
    h, pure, rho = plan.wish.people_at, Fraction(0), Fraction(0)
    for share in plan.shares:
        if isinstance(share, LaplaceShares):
            pure += h * share.loss_with(present)
        else:
            rho += (h if plan.protocol == OWN_NOISE else h * h) * _rho(share, min(present, share.of))
    if plan.noise == "gaussian":
        return zcdp_to_epsilon(plan.stages * rho, plan.wish.delta)
    return plan.stages * pure


def _rho(share: GaussianShares, present: int) -> Fraction:
    try:
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, present).loss.rho
    except BadParameter:  # so few are not nearly Gaussian; one is, and more of them hide more
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, 1).loss.rho


def protected_against(plan: JointPlan) -> int:
    """The largest coalition that learns no more than the wish's ε."""
    most = plan.wish.coalition
    while most + 1 < plan.wish.members and epsilon_together(plan, most + 1) <= plan.wish.epsilon:
        most += 1
    return most


def losses_together(plan: JointPlan) -> dict[int, Fraction]:
    """ε by how many belong together: as planned, some more, and all but one."""
    t, m = plan.wish.coalition, plan.wish.members
    sizes = {size for size in (t, *range(t + 1, t + 1 + _MOST_SHOWN), m - 1) if 0 < size < m}
    return {size: epsilon_together(plan, size) for size in sorted(sizes)}
