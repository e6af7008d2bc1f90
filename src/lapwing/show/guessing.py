"""The best guess about one of two equally likely facts, from several randomized reports."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from lapwing.core.noise import bernoulli
from lapwing.mechanisms import Laplace

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


def guessed_right(epsilon: Fraction, k: int, people: int) -> float:
    """Return how often the best guess from k noisy counts is right, over people who are in or out."""
    is_in = bernoulli(Fraction(1, 2), people).astype(np.int64)
    answers = Laplace.for_epsilon(epsilon, l1=1).sample(np.tile(is_in, k)).reshape(k, people)
    votes = (answers >= 1).sum(axis=0) * 2 - k
    guessed = np.where(votes == 0, bernoulli(Fraction(1, 2), people), votes > 0)
    return float((guessed == is_in).mean())
