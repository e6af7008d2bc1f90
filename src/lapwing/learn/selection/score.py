"""How good a model is, as a sum over test units of small whole numbers.

Claim    adding a unit raises every model's score by 0 to `most`, and changes nothing else. So choices that
         only look at differences of scores have sensitivity most / 2.
Because  a unit has one row, drawn from its own; each row is predicted by itself (floats of a batch may
         depend on who else is in it); what a row scores is clipped. Subtract most/2 for each unit from all
         scores: the differences are the same, and a unit now moves each by at most most / 2.
Test     tests/learn/selection/test_score.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import settle, whole

Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Score:
    """`of(truth, predicted)` gives a number for one row, 0 (bad) to `most` (good).

    It is rounded down to a whole number. What is not a number counts as 0, and so does a row for which it
    fails: try it on made-up rows first.
    """

    most: int
    of: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        settle(self, most=whole(self.most, "most", at_least=1))
        if not callable(self.of):
            raise BadParameter("of", "must be a function of a truth and a prediction")

    @property
    def sensitivity(self) -> Fraction:
        """How far one unit moves a score, for a choice that looks at differences only."""
        return Fraction(self.most, 2)

    def total(self, model: Any, rows: Table, truth: Table) -> int:
        """The sum over the rows, one of each unit."""
        return sum(self._of_row(model, rows[k : k + 1], truth[k]) for k in range(len(rows)))

    def _of_row(self, model: Any, row: Table, truth: Any) -> int:
        try:
            with np.errstate(all="ignore"):
                worth = float(self.of(truth, model.predict(row)[0]))
        except Exception:  # an error would tell that such a row is there
            return 0
        return int(np.clip(np.nan_to_num(np.floor(worth), nan=0.0), 0, self.most))


def _is_right(truth: Any, predicted: Any) -> float:
    return float(bool(truth == predicted))


CORRECT = Score(1, _is_right)
