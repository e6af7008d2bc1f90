"""A statistic as a pipeline: a mean or a histogram leaves when its error is shown to be small.

Claim    an attempt costs each unit of its blocks the attempt's ε, without any δ; and what is released, with
         the error that was shown for it, is made of the noisy numbers alone.
Because  a unit adds one vector within the validator's L1 bound, whatever rows it has; there is no test
         half, as the error is bounded from the same numbers. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_statistics.py
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.features.feature import ends_of
from lapwing.learn.validators import HistogramValidator, Judged, MeanValidator, Released, StatisticValidator
from lapwing.learn.validators import Rows as Judging
from lapwing.query.language.kinds import Number
from lapwing.query.rows import Rows

MEAN, HISTOGRAM = "mean", "histogram"
KINDS = (MEAN, HISTOGRAM)
MOST_BINS = 1 << 10


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of the label. `bins`: into how many equal parts a number's range is cut."""

    kind: str
    features: Features
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.features.columns:
            raise BadParameter("features", "must be the label alone: a statistic is of one column")
        is_number = isinstance(self.features.label_kind, Number)
        if self.kind == MEAN and not is_number:
            raise BadParameter("label", "must be a number: others have no mean")
        if self.kind == HISTOGRAM and not is_number and not self.features.has_classes:
            raise BadParameter("label", "must be a number, or have declared values")
        if self.kind == HISTOGRAM and is_number is (self.bins is None):
            why = "are needed: into how many equal parts is it cut?" if is_number else "are its values"
            raise BadParameter("bins", why)
        if self.ends[0] >= self.ends[1]:
            raise BadParameter("label", "has only one value")

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest code of the label."""
        assert self.features.label_kind is not None
        return ends_of(self.features.label, self.features.label_kind)

    @property
    def _step(self) -> Fraction:
        kind = self.features.label_kind
        return kind.step if isinstance(kind, Number) else Fraction(1)

    def validator(self, *, target: Fraction, eta: Fraction, epsilon: Fraction) -> StatisticValidator:
        """Of its error."""
        if self.kind == HISTOGRAM:
            bins = self.bins or self.ends[1] + 1
            return HistogramValidator(target=target, eta=eta, epsilon=epsilon, bins=bins)
        low, high = (code * self._step for code in self.ends)
        return MeanValidator(target=target, eta=eta, epsilon=epsilon, low=low, high=high, step=self._step)

    def values(self, rows: Rows) -> Judging:
        """What the validator adds up, for each row. Private."""
        column = rows.columns[self.features.label]
        first, last = self.ends
        if self.kind == MEAN:
            return Judging(self.features.target(rows), units=rows.units)
        places = np.clip(column.codes, first, last) - first
        if self.bins is not None:
            places = np.minimum(places * self.bins // (last - first), self.bins - 1)
        return Judging(np.where(column.known, places, -1), units=rows.units)

    def told(self, validator: StatisticValidator, released: Released, judged: Judged) -> dict[str, Any]:
        """What was released, for people. Public."""
        if isinstance(validator, HistogramValidator):
            shares = validator.shares(released) or ()
            shown = [{**one, "share": share} for one, share in zip(self._parts(), shares, strict=True)]
            return {"kind": self.kind, "of": self.features.label, "bins": shown}
        return {"kind": self.kind, "of": self.features.label, "mean": judged.estimate}

    def _parts(self) -> list[dict[str, Any]]:
        if self.bins is None:
            return [{"value": value} for value in self.features.class_values]
        first, last = (code * self._step for code in self.ends)
        edges = [float(first + (last - first) * k / self.bins) for k in range(self.bins + 1)]
        return [{"from": low, "to": high} for low, high in pairwise(edges)]


def statistic_lines(told: dict[str, Any], error: float | None) -> list[str]:
    """The same as lines of a card. `error`: what each number is at most off by."""
    off = "" if error is None else f" ± {error:.6g}"
    if told["kind"] == MEAN:
        return [f"mean of {told['of']}: {told['mean']:.6g}{off}"]
    named = [
        (str(one["value"]) if "value" in one else f"{one['from']:g} … {one['to']:g}", one["share"])
        for one in told["bins"]
    ]
    wide = max(len(name) for name, _ in named)
    return [f"{name:>{wide}}  {share:.4f}{off}" for name, share in named]
