"""Several parties: joint statistics when an adversary may hold all members but one.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.parties.consortium import Consortium
    from lapwing.parties.joint_plan import plan_jointly
    from lapwing.parties.member import take_part
    from lapwing.parties.requirements import JointRequirements
    from lapwing.parties.simulation import simulate
    from lapwing.parties.statistics import CellBlock

_HOMES = {
    "CellBlock": "statistics",
    "Consortium": "consortium",
    "JointRequirements": "requirements",
    "plan_jointly": "joint_plan",
    "simulate": "simulation",
    "take_part": "member",
}
__all__ = ["CellBlock", "Consortium", "JointRequirements", "plan_jointly", "simulate", "take_part"]
__getattr__ = lazy_names(__name__, _HOMES)
