"""What a member brings to a run, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.ledger import Ledger
from lapwing.parties.contribution import ChargedAccount, Contribution
from lapwing.parties.joint_noise import member_loss
from lapwing.parties.statistics import Statistic
from lapwing.sql.dataset import Dataset
from support.joint import laplace

RUN, OTHER_RUN, CONSORTIUM = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
HISTOGRAM = {"kind": "question", "sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"}
MEDIAN = {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"}
VECTOR = {"kind": "vector", "length": 3, "l1": 1, "l2_squared": 1, "labels": None}
Shares = Sequence[LaplaceShares] | Sequence[GaussianShares]


def contribution(
    statistic: Statistic, data: Dataset | ChargedAccount, shares: Shares | None = None, **more: Any
) -> Contribution:
    own = laplace(statistic, 1, of=2) if shares is None else shares
    chosen: dict[str, Any] = {"run": RUN, "loss": member_loss(own, statistic.stages), **more}
    return Contribution(statistic=statistic, data=data, shares=own, consortium=CONSORTIUM, **chosen)


def left(ledger: Ledger, label: str = "visits") -> Fraction:
    (block,) = ledger.blocks(label)
    return block.left(ledger.account(label).terms)
