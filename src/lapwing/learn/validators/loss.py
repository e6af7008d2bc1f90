"""Is the loss of a model at most a target?"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import positive, settle, whole
from lapwing.learn.validators.bounds import mean_ceiling, mean_floor
from lapwing.learn.validators.rows import (
    OfClass,
    Rounding,
    Rows,
    in_steps,
    real_rows,
    step_count,
    unit_means,
    unit_rows,
)
from lapwing.learn.validators.validator import (
    Judged,
    Released,
    Validator,
    Verdict,
    eta_of,
    float_down,
    float_up,
    noise_reach,
)
from lapwing.mechanisms import Laplace
from lapwing.privacy import Loss, Sum
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class BestInClass:
    """Pay `epsilon` more to learn whether a class of so many `models` has none that meets the target.

    The class is fixed before its rows are read, and finite: the least sum must be the least one itself,
    since an approximate minimum can move by more than one unit's loss.
    """

    models: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        settle(self, models=whole(self.models, "models", at_least=1), epsilon=checked_epsilon(self.epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossValidator(Validator):
    """The mean loss, clipped to [0, bound], of a unit: the mean over its rows, then over units.

    Claim    ACCEPT where that is above the target, and REJECT where a model of the class is at or below it,
             have each a probability of at most η/(i(i+1)) at attempt i. Loss: epsilon, and that of `best`.
    Because  with k of most = bound / step steps for each unit, rounded up, (Σ k, Σ (most - k)) is released
             with noise: a unit adds k and most - k, so exactly `most` in L1. A third of η each covers the
             noise of the first sum, that of the second, and the sampling of units.
    Test     tests/learn/validators/test_loss.py::test_a_bad_model_is_accepted_with_at_most_eta

    The model must not depend on the rows' units (`split_of`), which are drawn independently from those that
    the verdict is about. A missing loss counts as `bound`.
    """

    bound: Fraction
    step: Fraction
    best: BestInClass | None = None

    def __post_init__(self) -> None:
        Validator.__post_init__(self)
        settle(self, bound=positive(self.bound, "bound"), step=positive(self.step, "step"))
        step_count(self.bound, self.step, "bound")
        if self.target >= self.bound:
            raise BadParameter("target", "must lie strictly between 0 and the bound")
        if self.best is not None and not isinstance(self.best, BestInClass):
            raise BadParameter("best", "must be a BestInClass")

    @property
    def _l1(self) -> int:
        return step_count(self.bound, self.step, "bound")

    def _noise_of(self, best: BestInClass) -> Laplace:
        return Laplace.for_epsilon(best.epsilon, l1=self._l1)

    @property
    def loss(self) -> Loss:
        own = self._noise.loss
        return own if self.best is None else Sum((own, self._noise_of(self.best).loss))

    def _shown(self) -> dict[str, str | int]:
        shown = Validator._shown(self)
        del shown["best"]
        if self.best is not None:
            shown |= {"class models": self.best.models, "class epsilon": str(self.best.epsilon)}
        return shown

    def release(self, rows: Rows) -> Released:
        self._check_class(rows.of_class)
        losses = real_rows(rows.values)
        units = unit_rows(rows.units, len(losses))
        steps = unit_means(in_steps(losses, self.step, self._l1, Rounding.UP), units, Rounding.UP)
        lost = int(steps.sum())
        noisy = self._noise.sample([lost, self._l1 * len(steps) - lost])
        if self.best is None or rows.of_class is None:
            return self._made(*noisy.tolist())
        least, spared = self._least(rows.of_class)
        noisy_least = self._noise_of(self.best).sample([least, spared])
        return self._made(*noisy.tolist(), *noisy_least.tolist())

    def _check_class(self, of_class: OfClass | None) -> None:
        declared, came = self.best and self.best.models, of_class and len(of_class.losses)
        if declared != came:
            raise BadValue("losses of the class are needed for as many models as `best` declares")

    def _least(self, of_class: OfClass) -> tuple[int, int]:
        """The least sum of steps over the class, and what the sum could have been beyond it.

        Rounded down: a class must not look worse than it is.
        """
        each = [real_rows(losses) for losses in of_class.losses]
        if len({len(losses) for losses in each}) != 1:
            raise BadValue("every model of the class must have a loss for each row")
        units = unit_rows(of_class.units, len(each[0]))
        sums = [
            int(unit_means(in_steps(one, self.step, self._l1, Rounding.DOWN), units, Rounding.DOWN).sum())
            for one in each
        ]
        least = min(sums)
        return least, self._l1 * len(np.unique(units)) - least

    def judge(self, released: Released, *, attempt: int) -> Judged:
        eta = eta_of(self.eta, attempt)
        lost, spared, *of_class = self._numbers(released, 2 if self.best is None else 4)
        reach = noise_reach(self._noise, eta / 3)
        ceiling = self.bound * mean_ceiling(
            Fraction(lost + reach, self._l1), Fraction(spared - reach, self._l1), eta / 3
        )
        estimate = self._estimate(lost, spared)
        if ceiling <= self.target:
            words = f"the loss is at most {float_up(ceiling):.6g}, as wanted ({float(self.target):.6g})"
            return Judged(Verdict.ACCEPT, estimate, float_up(ceiling), words)
        if of_class and self.best is not None:
            floor = self._class_floor(of_class[0], of_class[1], self.best, eta)
            if floor > self.target:
                words = f"no model of the class loses less than {float_down(floor):.6g}"
                return Judged(Verdict.REJECT, self._estimate(*of_class), float_down(floor), words)
        if ceiling >= self.bound:
            return Judged(Verdict.RETRY, estimate, None, "there are too few units for this noise")
        words = f"the loss was shown to be at most {float_up(ceiling):.6g}, above {float(self.target):.6g}"
        return Judged(Verdict.RETRY, estimate, float_up(ceiling), words)

    def _class_floor(self, least: int, spared: int, best: BestInClass, eta: Fraction) -> Fraction:
        """With a probability of 1 - eta, all models of the class lose at least so much."""
        reach = noise_reach(self._noise_of(best), eta / 3)
        low, high = Fraction(least - reach, self._l1), Fraction(spared + reach, self._l1)
        return self.bound * mean_floor(low, high, eta / 3)

    def _estimate(self, lost: int, spared: int) -> float | None:
        if lost + spared <= 0:
            return None
        return float(self.bound * min(max(Fraction(lost, lost + spared), Fraction(0)), Fraction(1)))
