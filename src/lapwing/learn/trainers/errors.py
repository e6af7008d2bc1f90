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
_FAR_EXP = np.exp(-FAR * np.arange(25.0))  # beyond, it is 0
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
        share = np.rint(odds / _added(odds)[:, None] * REACH).astype(np.int64)
        wanted = np.where(truth[:, None] == np.arange(scores.shape[1]), REACH, 0)
        wrong = shortened(share - wanted, REACH, REACH)
    wrong[truth == UNKNOWN] = 0
    return wrong


def likely(scores: Floats) -> Floats:
    """Probabilities of the classes from real scores, where a single one is that of the second class.

    Each row by itself, as above.
    """
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    odds = _exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = odds / _added(odds)[:, None]
    return shares


def _added(odds: Floats) -> Floats:
    total = np.zeros(len(odds))
    for column in odds.T:
        total = total + column
    return total


def _exp(below: Floats) -> Floats:
    """exp of numbers up to 0, by tables and single operations: to about 15 digits."""
    far = np.minimum(np.floor(-below / FAR), len(_FAR_EXP) - 1)
    near = np.maximum(below + far * FAR, -FAR)
    step = np.rint(near * FINE)
    rest = near - step / FINE  # at most half a step: four terms are enough
    series = 1 + rest * (1 + rest / 2 * (1 + rest / 3 * (1 + rest / 4)))
    found: Floats = _FAR_EXP[far.astype(np.int64)] * _EXP[step.astype(np.int64) + FAR * FINE] * series
    return found
