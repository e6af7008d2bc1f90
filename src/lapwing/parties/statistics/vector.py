"""A vector of whole numbers that a member brings as it is: its bounds are declared, not enforced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lapwing.errors import BadParameter, BadValue
from lapwing.mechanisms import RandomizedResponse
from lapwing.mechanisms.values import whole_values
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.statistics.statistic import Block, Ints, JointAnswer, Noise, Statistic, fitting
from lapwing.query.answering.estimate import Col, Rows
from lapwing.query.answering.intervals import half_width


class Vector(Statistic):
    """Numbers from elsewhere. Whoever computes them answers for `l1` and `l2_squared`: they say how far one
    unit's rows can move one member's numbers.

    In the local model every unit counts once, in one cell: the numbers are how many chose each.
    """

    def __init__(
        self,
        values: ArrayLike | None,
        *,
        length: int,
        l1: int,
        l2_squared: int,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Without values it can be planned and answered, but brings nothing."""
        self._block = Block("cells", length, l1, l2_squared)
        if labels is not None and (isinstance(labels, str) or len(labels) != length):
            raise BadParameter("labels", f"must be {length} names, one for each cell")
        if labels is not None and not all(isinstance(label, str) and label for label in labels):
            raise BadParameter("labels", "must be texts")
        self._labels = None if labels is None else tuple(labels)
        self._values = None if values is None else fitting(whole_values(values))
        if self._values is not None and len(self._values) != length:
            raise BadValue(f"there must be {length} numbers")

    @property
    def spec(self) -> dict[str, Any]:
        block = self._block
        labels = None if self._labels is None else list(self._labels)
        bounds = {"length": block.length, "l1": block.l1, "l2_squared": block.l2_squared}
        return {"kind": "vector", **bounds, "labels": labels}

    @property
    def title(self) -> str:
        return f"the sum of vectors of {self._block.length:,} numbers"

    @property
    def meaning(self) -> str:
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self._block,)

    @property
    def why_not_local(self) -> str:
        if self._block.l1 != 1 or self._block.length < 2:
            return (
                "a row randomizes itself among cells of which it fills one: l1 = 1, and two or more cells"
            )
        return ""

    def exact(self, stage: int, earlier: Sequence[Opened]) -> Ints:
        if self._values is None:
            raise BadParameter("values", "were not given: this vector can only be planned")
        return self._values.copy()

    def answer(
        self, opened: Sequence[Opened], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        ((noise,),), (found,) = noises, opened
        if isinstance(noise, RandomizedResponse):
            values, low, high, notes = _local(found.values, noise, confidence)
        else:
            half = half_width(noise, confidence)
            values, notes = found.values, ()
            low, high = values - half, values + half
        names = np.empty(len(found.values), dtype=object)
        names[:] = self._labels or [str(place) for place in range(len(names))]
        rows = Rows([Col("cell", names), Col("value", values, low, high)], len(names))
        return self._answered(rows, opened, confidence, notes)


def _local(tally: Ints, response: RandomizedResponse, confidence: Fraction) -> tuple[Any, Any, Any, Any]:
    """How many chose each option, from how many reported it. Everybody reports, so their number is known.

    Unbiased; the interval is Hoeffding's, for any data.
    """
    n = int(tally.sum())
    if n < 1 or len(tally) != response.options or tally.min() < 0:
        raise BadValue("reports must be counted for every option, and there must be some")
    truth = float(response.truth_probability()(256))
    other = (1 - truth) / (response.options - 1)
    values = (tally - n * other) / (truth - other)
    half = n * response.spread(confidence, n=n)
    return values, np.maximum(values - half, 0), np.minimum(values + half, n), (f"{n:,} rows reported.",)
