"""Statistics that members compute together: questions in SQL, regressions, quantiles, plain vectors.

`statistic_of(spec, data)` makes one from what stands in a consortium's document and a member's own data.
"""

from __future__ import annotations

from lapwing.parties.statistics.kinds import statistic_of
from lapwing.parties.statistics.statistic import Block, JointAnswer, Statistic

__all__ = ["Block", "JointAnswer", "Statistic", "statistic_of"]
