"""How wrong scores are: probability minus truth, in whole steps, each row by itself.

Claim    a row's error has length at most REACH, in whole numbers, and depends on its own scores and class.
Because  exponentials come from one table (a vectorised `exp` may round by an element's position), the
         rest is single rounded operations in a fixed order, and `shortened` bounds the length.
Test     tests/learn/trainers/test_shape.py
"""

from __future__ import annotations

import numpy as np

from lapwing.learn.trainers.columns import UNKNOWN, Wholes
from lapwing.learn.trainers.shape import Floats, shortened

REACH = 1 << 13  # length of an error, in steps
FINE = 1 << 12  # steps in a score of 1
FAR = 32  # scores beyond count as this

_EXP = np.exp(np.arange(-FAR * FINE, 1) / FINE)  # of scores up to 0
_LOGISTIC = np.rint(REACH / (1 + np.exp(-np.arange(-FAR * FINE, FAR * FINE + 1) / FINE))).astype(np.int64)


def outputs_of(classes: int) -> int:
    """How many scores there are: one tells two classes apart."""
    return 1 if classes == 2 else classes


def errors(scores: Wholes, truth: Wholes) -> Wholes:
    """Probability minus truth in steps, at most REACH long. Rows of unknown class have none.

    Each row by itself: the sum over classes is in a fixed order, and exponentials are from a table.
    """
    scores = np.clip(scores, -FAR * FINE, FAR * FINE)
    if scores.shape[1] == 1:
        wrong = _LOGISTIC[scores + FAR * FINE] - np.where(truth == 1, REACH, 0)[:, None]
    else:
        below = np.maximum(scores - scores.max(axis=1, keepdims=True), -FAR * FINE)
        odds = _EXP[below + FAR * FINE]
        total = np.zeros(len(odds))
        for column in odds.T:
            total = total + column
        share = np.rint(odds / total[:, None] * REACH).astype(np.int64)
        wanted = np.where(truth[:, None] == np.arange(scores.shape[1]), REACH, 0)
        wrong = shortened(share - wanted, REACH, REACH)
    wrong[truth == UNKNOWN] = 0
    return wrong


def likely(scores: Floats) -> Floats:
    """Probabilities of the classes from real scores, where a single one is that of the second class."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = odds / odds.sum(axis=1, keepdims=True)
    return shares
