"""The best guess about one of two equally likely facts, from several randomized reports."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

_DIGITS = 60


def best_guess(truth: Decimal, reports: int) -> Decimal:
    """Return how often the best guess is right, from this many reports that each tell the truth so often.

    There are two equally likely facts. The best guess is the majority; a fair coin decides a draw.
    """
    with localcontext(prec=_DIGITS, Emin=-(10**9), Emax=10**9):
        right = Decimal(0)
        for told in range((reports + 1) // 2, reports + 1):
            chance = math.comb(reports, told) * truth**told * (1 - truth) ** (reports - told)
            right += chance / 2 if 2 * told == reports else chance
        return right


def counts_up_to(most: int, points: int) -> list[int]:
    """Return at most about `points` whole numbers from 1 to `most`, which rise evenly."""
    return sorted({1 + round((most - 1) * k / max(points - 1, 1)) for k in range(points)})
