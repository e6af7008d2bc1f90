"""Plans of joint computations: which protocol, which guarantee, which error, how many bytes."""

from __future__ import annotations

from lapwing.parties.planning.plan import Alternative, JointPlan, plan_jointly
from lapwing.parties.planning.rules import Footing
from lapwing.parties.planning.wish import JointWish

__all__ = ["Alternative", "Footing", "JointPlan", "JointWish", "plan_jointly"]
