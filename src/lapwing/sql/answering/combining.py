"""The narrowest interval that several releases of one additive question give.

`lapwing.sql.pricing.combined_widths` says which releases are used, and why the intervals hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.pricing.combined_widths import (
    narrowest_mean,
)
from lapwing.sql.pricing.noise_shares import BudgetShares
from lapwing.sql.question.bound_query import (
    NoisyAggregate,
    step_of,
)


def combine_releases(
    releases: Sequence[tuple[BudgetShares, NoisyGrouping]], rows: AnswerRows, confidence: Fraction
) -> AnswerRows:
    """Return an answer's rows with the narrowest intervals that all releases of its question give."""
    question = releases[-1][0].question
    columns = []
    for output, column in zip(question.outputs, rows.columns, strict=True):
        if not isinstance(output.value, NoisyAggregate):
            columns.append(column)
            continue
        (part,) = output.value.parts
        weights, half = narrowest_mean([shares.mechanism(0, part) for shares, _ in releases], confidence)
        used = [(w, noisy) for w, (_, noisy) in zip(weights, releases, strict=True) if w]
        mean = sum(w * noisy.parts[part] for w, noisy in used)
        step = float(step_of(output.value))
        values, low, high = (np.asarray(v * step) for v in (mean, mean - half, mean + half))
        if output.value.function == "count":
            values, low, high = (np.maximum(v, 0) for v in (values, low, high))
        columns.append(AnswerColumn(column.name, values, low, high, column.note))
    return AnswerRows(columns, rows.length, rows.agree)
