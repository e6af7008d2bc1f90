"""An invented history for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np

from lapwing.core.budget import Terms
from lapwing.core.losses import GaussianNoise, LaplaceNoise, Loss
from lapwing.ledger.budget_history import (
    HISTORY_HALVINGS,
    BudgetGrant,
    BudgetHistory,
    estimate_remaining,
    grant_of,
)


def clinic() -> BudgetHistory:
    """A year of an invented clinic: patients by the quarter of their first visit, and one raise."""
    terms, raised = Terms.of(1, "1e-6"), Terms.of("0.5", "1e-7")
    small, count = GaussianNoise(Fraction(40), Fraction(1), 1), LaplaceNoise(Fraction(20), 1)
    names = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
    sums = [terms.nothing_spent] * len(names)
    times: list[datetime] = []
    rows: list[list[float]] = []
    grants: list[BudgetGrant] = []
    account, start = terms, datetime(2026, 1, 1, tzinfo=UTC)

    def look(day: int, opened: int) -> None:
        lefts = estimate_remaining(account, np.array(sums, np.int64), halvings=HISTORY_HALVINGS).tolist()
        times.append(start + timedelta(days=day))
        rows.append([left if k < opened else np.nan for k, left in enumerate(lefts)])

    def charge(loss: Loss, blocks: Sequence[int]) -> None:
        for k in blocks:
            after = account.after(sums[k], account.price(loss))
            sums[k] = sums[k] if after is None else after

    grants.append(grant_of(terms, start))
    for day in range(0, 366, 5):
        opened = min(day // 91 + 1, len(names))
        if day == 300:
            account, sums = raised, [raised.nothing_spent] * len(names)
            grants.append(grant_of(raised, start + timedelta(days=day)))
        elif day % 30 == 10:
            charge(count, range(opened))
        elif day:
            charge(small, [k for k in range(opened) if (day // 5 + k) % 3 == 0])
        look(day, opened)
    return BudgetHistory("clinic", tuple(times), names, np.array(rows), tuple(grants), ())
