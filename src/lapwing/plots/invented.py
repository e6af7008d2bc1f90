"""An invented history for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np

from lapwing.ledger.views.course import HALVINGS, Course, Grant, granted
from lapwing.ledger.views.left import nearly
from lapwing.privacy import GaussianNoise, LaplaceNoise, Loss, Terms


def clinic() -> Course:
    """A year of an invented clinic: patients by the quarter of their first visit, and one raise."""
    terms, raised = Terms.of(1, "1e-6"), Terms.of("0.5", "1e-7")
    small, count = GaussianNoise(Fraction(40), Fraction(1), 1), LaplaceNoise(Fraction(20), 1)
    names = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
    sums = [terms.nothing_spent] * len(names)
    times: list[datetime] = []
    rows: list[list[float]] = []
    grants: list[Grant] = []
    account, start = terms, datetime(2026, 1, 1, tzinfo=UTC)

    def look(day: int, opened: int) -> None:
        lefts = nearly(account, np.array(sums, np.int64), halvings=HALVINGS).tolist()
        times.append(start + timedelta(days=day))
        rows.append([left if k < opened else np.nan for k, left in enumerate(lefts)])

    def charge(loss: Loss, blocks: Sequence[int]) -> None:
        for k in blocks:
            after = account.after(sums[k], account.price(loss))
            sums[k] = sums[k] if after is None else after

    grants.append(granted(terms, start))
    for day in range(0, 366, 5):
        opened = min(day // 91 + 1, len(names))
        if day == 300:
            account, sums = raised, [raised.nothing_spent] * len(names)
            grants.append(granted(raised, start + timedelta(days=day)))
        elif day % 30 == 10:
            charge(count, range(opened))
        elif day:
            charge(small, [k for k in range(opened) if (day // 5 + k) % 3 == 0])
        look(day, opened)
    return Course("clinic", tuple(times), names, np.array(rows), tuple(grants), ())
