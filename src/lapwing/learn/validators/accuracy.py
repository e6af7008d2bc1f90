"""Is the accuracy of a model at least a target?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.cells import places_of
from lapwing.learn.validators.bounds import share_floor
from lapwing.learn.validators.rows import Rows, one_row_each, unit_rows, value_rows
from lapwing.learn.validators.validator import (
    Judged,
    Released,
    Validator,
    Verdict,
    eta_of,
    float_down,
    noise_reach,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyValidator(Validator):
    """How often the model is right about a row that is drawn from a unit.

    Claim    ACCEPT where that is below the target has a probability of at most η/(i(i+1)) at attempt i.
             Loss: epsilon.
    Because  one row of each unit is drawn, so that units are coins; right and wrong ones are counted with
             noise, and a unit is in one of the counts. A third of η each covers the noise of either count,
             and Clopper and Pearson's bound, which falls with the wrong ones and rises with the right ones.
    Test     tests/learn/validators/test_accuracy.py::test_a_bad_model_is_accepted_with_at_most_eta

    `Rows.values` says whether each prediction was right. What says neither counts as wrong.
    """

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        if self.target >= 1:
            raise BadParameter("target", "must lie strictly between 0 and 1")

    @property
    def _l1(self) -> int:
        return 1

    def release(self, rows: Rows) -> Released:
        wanted = "values must say of each row whether it was right: True or False"
        told = value_rows(rows.values, "b", wanted)
        is_right = told if told.dtype == np.bool_ else places_of(told, {True: 1}) == 1
        if rows.of_class is not None:
            raise BadValue("there is no test of a class by accuracy: use a LossValidator")
        drawn = is_right[one_row_each(unit_rows(rows.units, len(is_right)))]
        right = int(np.count_nonzero(drawn))
        return self._made(*self._noise.sample([right, len(drawn) - right]).tolist())

    def judge(self, released: Released, *, attempt: int) -> Judged:
        eta = eta_of(self.eta, attempt)
        right, wrong = self._numbers(released, 2)
        reach = noise_reach(self._noise, eta / 3)
        floor = share_floor(right - reach, wrong + reach, eta / 3)
        estimate = min(max(right / (right + wrong), 0.0), 1.0) if right + wrong > 0 else None
        shown, wanted = float_down(floor), float(self.target)
        if floor >= self.target:
            words = f"the accuracy is at least {shown:.6g}, as wanted ({wanted:.6g})"
            return Judged(Verdict.ACCEPT, estimate, shown, words)
        if floor <= 0:
            return Judged(Verdict.RETRY, estimate, None, "there are too few units for this noise")
        words = f"the accuracy was shown to be at least {shown:.6g}, below {wanted:.6g}"
        return Judged(Verdict.RETRY, estimate, shown, words)
