"""Calibration of an accepted model: true values of the testing units, by the model's prediction.

Claim    the released numbers have a pure loss of ε for each testing unit, whatever the model. Each bin's
         interval holds the mean of its units with a probability of at least `CONFIDENCE`.
Because  one row of each unit is drawn; its prediction puts it into one bin, to which it adds k and m - k
         whole steps: exactly m in L1. Intervals are those of a mean or a share, with a sixth of the risk
         for each tail of either noise, and of sampling. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_calibration.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.core.exact import set_fields, whole
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Loss, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn import confidence_bounds as bounds
from lapwing.learn.features import Features
from lapwing.learn.table_input import Floats, Wholes, one_row_each
from lapwing.learn.validators import noise_quantile, unit_numbers
from lapwing.sql.row_questions import PrivateRows

MOST_CALIBRATION_BINS = 100
CONFIDENCE = Fraction(19, 20)
_STEPS = 1000  # of a number between its bounds
_ROUNDED = Fraction(1, 2) + Fraction(1, 1 << 20)  # of a step, and the rounding of floats


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """The units whose prediction lies in low … high: about how many, and their mean with its interval.

    All of it is computed from released numbers. `mean` is None if the noise left no units.
    """

    low: float
    high: float
    units: float
    mean: float | None
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """The part of each attempt's ε that testing units pay for calibration, and the number of bins."""

    epsilon: Fraction
    bins: int

    def __post_init__(self) -> None:
        set_fields(self, epsilon=checked_epsilon(self.epsilon), bins=whole(self.bins, "bins", at_least=2))
        if self.bins > MOST_CALIBRATION_BINS:
            raise BadParameter("bins", f"must be at most {MOST_CALIBRATION_BINS}")

    def of(self, features: Features) -> Calibration:
        """Return the calibration of a label: a number, two classes, or more."""
        return Calibration(self, features)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of one label. Predictions and true values are scaled to 0 … 1.

    A number is placed between its bounds. For two classes, the probability of the second class is compared
    with its frequency; for more classes, that of the predicted class with the frequency of correct
    predictions.
    """

    part: CalibrationSettings
    features: Features

    @property
    def steps(self) -> int:
        """The number of steps that a unit adds in total."""
        return 1 if self.features.has_classes else _STEPS

    @property
    def noise(self) -> Laplace:
        """The noise of each number."""
        return Laplace.for_epsilon(self.part.epsilon, l1=self.steps)

    @property
    def loss(self) -> Loss:
        """The loss of each testing unit."""
        return self.noise.loss

    def sums(self, model: Any, rows: PrivateRows) -> Wholes:
        """Return, for each bin, the sums of k and of m - k over its units.

        It is private, and gets noise next.
        """
        sums, kept = np.zeros((self.part.bins, 2), np.int64), np.zeros(len(rows), np.bool_)
        kept[one_row_each(unit_numbers(rows.units, len(rows)), len(rows))] = True
        drawn = rows.where(kept)
        if not len(drawn):
            return sums.ravel()
        predicted, true = self._compared(model, drawn)
        placed = np.clip(np.nan_to_num(predicted) * self.part.bins, 0, self.part.bins - 1).astype(np.int64)
        steps = np.rint(np.clip(true, 0, 1) * self.steps).astype(np.int64)
        np.add.at(sums, placed, np.column_stack([steps, self.steps - steps]))
        return sums.ravel()

    def _compared(self, model: Any, rows: PrivateRows) -> tuple[Floats, Floats]:
        table, truth = self.features.table(rows), self.features.target(rows)
        if not self.features.has_classes:
            low, high = self.features.target_bounds
            predicted = np.asarray(model.predict(table), dtype=np.float64)
            return (predicted - low) / (high - low), (truth - low) / (high - low)
        likely = np.asarray(model.predict_proba(table), dtype=np.float64)
        if likely.shape[1] == 2:
            return likely[:, 1], (truth == 1).astype(np.float64)
        return likely.max(axis=1), (np.asarray(model.predict(table)) == truth).astype(np.float64)

    def release(self, model: Any, rows: PrivateRows) -> bytes:
        """Return the noisy sums as text. Charge the loss first."""
        return json.dumps(self.noise.sample(self.sums(model, rows)).tolist()).encode()

    # Reading a release

    def bins(self, released: bytes) -> list[CalibrationBin]:
        """Return each bin, on the scale of the label."""
        numbers = json.loads(released)
        return [self._bin(k, *numbers[2 * k : 2 * k + 2]) for k in range(self.part.bins)]

    def _bin(self, k: int, of_x: int, of_rest: int) -> CalibrationBin:
        total = of_x + of_rest
        low, high = self._interval(of_x, of_rest)
        start, end = (0, 1) if self.features.has_classes else map(Fraction, self.features.target_bounds)
        wide = end - start
        return CalibrationBin(
            low=float(start + wide * Fraction(k, self.part.bins)),
            high=float(start + wide * Fraction(k + 1, self.part.bins)),
            units=max(total / self.steps, 0.0),
            mean=float(start + wide * bounds.clamped_share(of_x, of_rest)) if total > 0 else None,
            at_least=bounds.float_down(start + wide * low),
            at_most=bounds.float_up(start + wide * high),
        )

    def _interval(self, of_x: int, of_rest: int) -> tuple[Fraction, Fraction]:
        tail = (1 - CONFIDENCE) / 6
        reach, m = noise_quantile(self.noise, tail), self.steps
        if self.features.has_classes:
            floor = bounds.share_floor(of_x - reach, of_rest + reach, tail)
            return floor, bounds.share_ceiling(of_x + reach, of_rest - reach, tail)
        floor = bounds.noisy_mean_floor(of_x, of_rest, reach=reach, most=m, risk=tail)
        ceiling = bounds.noisy_mean_ceiling(of_x, of_rest, reach=reach, most=m, risk=tail)
        return max(floor - _ROUNDED / m, Fraction(0)), min(ceiling + _ROUNDED / m, Fraction(1))

    @property
    def axes(self) -> tuple[str, str]:
        """The names of the prediction and of the value that it is compared with."""
        label = self.features.label
        if not self.features.has_classes:
            return f"predicted {label}", f"mean of the true {label}"
        values = self.features.class_values
        if len(values) == 2:
            return f"predicted probability of {label} = {values[1]}", f"how often {label} is {values[1]}"
        return f"predicted probability of the predicted {label}", "how often that is right"

    def to_json(self, released: bytes) -> dict[str, Any]:
        """Return the section of the model card as plain values."""
        predicted, compared = self.axes
        return {
            "predicted": predicted,
            "compared_with": compared,
            "epsilon": float(self.part.epsilon),
            "each_interval_holds_with_probability": float(CONFIDENCE),
            "bins": [
                {
                    "from": part.low, "to": part.high, "units_about": part.units, "mean": part.mean,
                    "at_least": part.at_least, "at_most": part.at_most,
                }
                for part in self.bins(released)
            ],
        }  # fmt: skip


def calibration_lines(told: dict[str, Any]) -> list[str]:
    """Return the section of the model card as lines of text."""
    lines = [
        f"{told['compared_with']}, by {told['predicted']} (ε {told['epsilon']:g} of the testing units; "
        f"each interval holds with probability {told['each_interval_holds_with_probability']:g})"
    ]
    for part in told["bins"]:
        mean = "too few" if part["mean"] is None else f"{part['mean']:.4g}"
        shown = f"{part['at_least']:.4g} … {part['at_most']:.4g}"
        about = f"about {part['units_about']:.0f} units"
        lines.append(f"{part['from']:g} … {part['to']:g}: {mean} ({shown}), {about}")
    return lines
