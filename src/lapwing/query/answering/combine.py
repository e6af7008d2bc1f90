"""Several releases of one additive question, made one sharper answer.

Claim    the i-th repeat's interval holds with probability 1 - η / (i (i + 1)), so that all of them hold
         together with probability 1 - η, also if each repeat was decided from the ones before.
Because  Σ 1 / (i (i + 1)) = 1; weights are inverse variances of public scales; the noise of the weighted
         mean is a sum of independent noises whose tail is known.
Test     tests/query/test_combine.py
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from lapwing.mechanisms import Gaussian, Laplace
from lapwing.query.answering.estimate import Col, Rows
from lapwing.query.answering.intervals import Noises
from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import Shares, deviation, is_declared
from lapwing.query.language.kinds import Number
from lapwing.query.language.question import KeyValue, Question, Statistic


def can_be_combined(question: Question) -> bool:
    """Whether all that is shown is additive, over declared keys, in rows that stay in their places."""
    plain = (
        question.having is None and not question.order and question.limit is None and not question.offset
    )
    return (
        plain
        and len(question.sets) == 1
        and is_declared(question, 0)
        and all(
            isinstance(output.value, KeyValue)
            or (isinstance(output.value, Statistic) and output.value.function in ("count", "sum"))
            for output in question.outputs
        )
    )


def level_of_repeat(confidence: Fraction, repeat: int) -> Fraction:
    """The confidence of the i-th repeat's interval."""
    return 1 - (1 - confidence) / (repeat * (repeat + 1))


def combined(releases: Sequence[tuple[Shares, Noisy]], rows: Rows, confidence: Fraction) -> Rows:
    """The newest answer's rows with the values of all releases together."""
    question = releases[-1][0].question
    level = level_of_repeat(confidence, len(releases))
    columns = []
    for output, column in zip(question.outputs, rows.columns, strict=True):
        if not isinstance(output.value, Statistic):
            columns.append(column)
            continue
        (part,) = output.value.parts
        mechanisms = [shares.mechanism(0, part) for shares, _ in releases]
        weights = np.array([1 / deviation(mechanism) ** 2 for mechanism in mechanisms])
        weights /= weights.sum()
        mean = sum(w * noisy.parts[part] for w, (_, noisy) in zip(weights, releases, strict=True))
        half = half_width_of_mean(mechanisms, list(weights), level)
        step = 1.0
        if output.value.function == "sum":
            assert isinstance(output.value.number, Number)
            step = float(output.value.number.step)
        values, low, high = (np.asarray(v * step) for v in (mean, mean - half, mean + half))
        if output.value.function == "count":
            values, low, high = (np.maximum(v, 0) for v in (values, low, high))
        columns.append(Col(column.name, values, low, high, column.note))
    return Rows(columns, rows.length, rows.agree)


def half_width_of_mean(
    mechanisms: Sequence[Laplace | Gaussian], weights: Sequence[float], level: Fraction
) -> float:
    """How far the weighted mean of several noises may be off."""
    kinds = {isinstance(mechanism, Gaussian) for mechanism in mechanisms}
    if len(kinds) == 1:
        scales = [
            weight * float(one.sigma if isinstance(one, Gaussian) else one.scale)
            for one, weight in zip(mechanisms, weights, strict=True)
        ]
        return float(Noises(kinds.pop(), level).width([np.array(scale) for scale in scales]))
    # Noises of both kinds: each kind with half of the miss.
    half = 1 - (1 - level) / 2
    total = 0.0
    for kind in (True, False):
        mine = [
            pair for pair in zip(mechanisms, weights, strict=True) if isinstance(pair[0], Gaussian) is kind
        ]
        total += half_width_of_mean([one for one, _ in mine], [weight for _, weight in mine], half)
    return total
