"""Is the accuracy of a model at least a target?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import exact, settle
from lapwing.learn.validators.bounds import share_floor
from lapwing.learn.validators.rows import Rows, one_row_each, unit_rows
from lapwing.learn.validators.validator import (
    Judged,
    Released,
    Validator,
    Verdict,
    checked_eta,
    eta_of,
    float_down,
    noise_reach,
)
from lapwing.mechanisms import Laplace
from lapwing.privacy import Loss
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyValidator(Validator):
    """How often the model is right about a row that is drawn from a unit.

    Claim    ACCEPT where that is below the target has a probability of at most η/(i(i+1)) at attempt i.
             Loss: epsilon.
    Because  one row of each unit is drawn, so that units are coins; right and wrong ones are counted with
             noise, and a unit is in one of the counts. A third of η each covers the noise of either count,
             and Clopper and Pearson's bound, which falls with the wrong ones and rises with the right ones.
    Test     tests/learn/validators/test_accuracy.py::test_a_bad_model_is_accepted_with_at_most_eta

    `Rows.values` says whether each prediction was right.
    """

    target: Fraction
    eta: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        settle(self, target=exact(self.target, "target"), eta=checked_eta(self.eta))
        settle(self, epsilon=checked_epsilon(self.epsilon))
        if not 0 < self.target < 1:
            raise BadParameter("target", "must lie strictly between 0 and 1")

    @property
    def _noise(self) -> Laplace:
        return Laplace.for_epsilon(self.epsilon, l1=1)

    @property
    def loss(self) -> Loss:
        return self._noise.loss

    @property
    def parameters(self) -> Mapping[str, str | int]:
        return {name: str(getattr(self, name)) for name in ("target", "eta", "epsilon")}

    def release(self, rows: Rows) -> Released:
        is_right = np.asarray(rows.values)
        if is_right.size == 0:
            is_right = is_right.astype(np.bool_)
        if is_right.ndim != 1 or is_right.dtype != np.bool_:
            raise BadValue("values must say of each row whether it was right: True or False")
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
