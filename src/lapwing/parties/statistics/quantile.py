"""A quantile of all members' rows, by binary search over counts.

Claim    with the stated confidence, the number of rows below the answer is at most f·n + w, and that of
         rows up to it at least f·n - w, where w is known before anything runs; and the interval holds the
         true quantile of the truncated rows.
Because  each stage opens the number of rows at or below a threshold, and the number of rows above it. The
         decision whether the first is f of both has the noise (f - 1)·e + f·e', which stays within ±w in
         all stages together (a union bound). The answer stands between a threshold with the decision "not
         yet" and one with the decision "enough". If a count is off by more than w, the decision is certain,
         and bounds the quantile. A threshold depends on opened sums alone, so that the losses of stages
         add up like any others.
Test     tests/parties/statistics/test_quantile.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lapwing.core.exact import Number, exact
from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import Ints, OpenedSum
from lapwing.parties.statistics.statistic import DatasetStatistic, JointAnswer, Noise, clamp_to_range
from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows, decode_key
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.pricing.noise_widths import NoiseFamily, noise_scale
from lapwing.sql.question.regression_sums import ordered_column, rows_below

MEMBERS_CHANGED = "Not all stages are sums over the same members: some were lost on the way."


@dataclass(frozen=True, slots=True)
class _Range:
    """The codes among which the quantile may still lie, from `low` to `high`."""

    low: int
    high: int

    @property
    def threshold(self) -> int:
        return (self.low + self.high) // 2

    def after(self, *, enough: bool) -> _Range:
        """Return the range after a stage. `enough`: the rows up to the threshold reach the fraction."""
        middle = self.threshold
        return _Range(self.low, middle) if enough else _Range(min(middle + 1, self.high), self.high)


class QuantileStatistic(DatasetStatistic):
    """The least value that at least a given fraction of all rows does not exceed."""

    def __init__(self, dataset: Dataset, table: str, column: str, fraction: Number) -> None:
        """Bind the quantile to a column with declared bounds. Nothing is read."""
        self._fraction = exact(fraction, "fraction")
        if not 0 < self._fraction < 1:
            raise BadParameter("fraction", "must lie strictly between 0 and 1")
        self._table, self._column = table, column
        self._dataset = dataset
        own, self._codes = ordered_column(dataset.policy, table, column)
        self._kind = own.kind
        super().__init__(self._asked(_Range(self._codes[0], self._codes[-1])))  # the first stage's question
        self.spec = {"kind": "quantile", "table": table, "column": column, "fraction": str(self._fraction)}
        self.title = f"the {float(self._fraction):g} quantile of {column} in {table}"
        self.stages = (len(self._codes) - 1).bit_length()

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """Return this member's counts of rows up to and above the stage's threshold, without noise."""
        return clamp_to_range(self._asked(self._searched(earlier[:stage])[-1]).exact())

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """Return the quantile with its interval."""
        ranges = self._searched(opened)
        level = 1 - (1 - confidence) / len(opened)  # of each stage, so that all hold together
        low, high, ranks = self._codes[0], self._codes[-1], 0.0
        for asked, counts, noise in zip(ranges, opened, noises, strict=False):
            width = self._width(self._summed(noise), level)
            ranks = max(ranks, width)
            excess = self._excess(counts)
            if excess > width:
                high = min(high, asked.threshold)
            elif excess < -width:
                low = max(low, asked.threshold + 1)
        at = ranges[-1].threshold
        low, high = min(low, at), max(high, at)
        values, lows, highs = (self._decoded(code) for code in (at, low, high))
        note = f"rank within ±{ranks:,.4g} rows of {float(self._fraction):g} of all"
        rows = AnswerRows([AnswerColumn(self._column, values, lows, highs, note, ranks)], 1)
        notes = () if len({counts.contributors for counts in opened}) == 1 else (MEMBERS_CHANGED,)
        return self._answered(rows, opened, confidence, notes)

    def _asked(self, where: _Range) -> JointQuestion:
        question = rows_below(self._dataset.policy, self._table, self._column, where.threshold)
        return JointQuestion(self._dataset, question, f"quantile of {self._table}.{self._column}")

    def _searched(self, opened: Sequence[OpenedSum]) -> list[_Range]:
        """Return the range before the first stage, and the range after each stage."""
        ranges = [_Range(self._codes[0], self._codes[-1])]
        for counts in opened:
            ranges.append(ranges[-1].after(enough=self._excess(counts) >= 0))
        return ranges

    def _excess(self, counts: OpenedSum) -> Fraction:
        """Return how many more rows lie at or below the threshold than the fraction of all."""
        under, above = (int(value) for value in counts.values)
        return under - self._fraction * (under + above)

    def _width(self, noises: Sequence[Any], level: Fraction) -> float:
        (noise,) = noises
        own, share = noise_scale(noise), float(self._fraction)
        return float(NoiseFamily.of(noise, level).width([(1 - share) * own, share * own]))

    def _decoded(self, code: int) -> Any:
        value = decode_key(self._kind, code)
        return np.array([value], dtype=None if isinstance(value, int | float) else object)
