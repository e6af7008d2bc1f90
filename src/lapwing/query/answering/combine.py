"""Several releases of one additive question, made one sharper answer.

Claim    the interval of the first i releases together holds with probability 1 - η / (i (i + 1)), so that
         all combined ones (i > 1) hold together with probability 1 - η / 2, also if each release was
         decided from the ones before. (The first alone was shown at 1 - η, like any other answer.)
Because  Σ 1 / (i (i + 1)) = 1/2 over i > 1; weights are inverse variances of public scales; the noise of
         the weighted mean is a sum of independent noises whose tail is known.
Test     tests/query/test_combine.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.mechanisms import Gaussian, Laplace
from lapwing.query.answering.estimate import Col, Rows
from lapwing.query.answering.intervals import Noises
from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import Shares, deviation, is_declared
from lapwing.query.language.kinds import Number
from lapwing.query.language.question import KeyValue, Question, Statistic

FEW = 6  # Laplace noises whose law is written down; of more that are alike, its terms cancel


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
    """The confidence of the interval that the first i releases have together."""
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
        is_gaussian = kinds.pop()
        if not is_gaussian and len(scales) > FEW:
            return width_of_many(np.array(scales), float(1 - level)) + 0.5
        return float(Noises(is_gaussian, level).width([np.array(scale) for scale in scales]))
    # Noises of both kinds: each kind with half of the miss.
    half = 1 - (1 - level) / 2
    total = 0.0
    for kind in (True, False):
        mine = [
            pair for pair in zip(mechanisms, weights, strict=True) if isinstance(pair[0], Gaussian) is kind
        ]
        total += half_width_of_mean([one for one, _ in mine], [weight for _, weight in mine], half)
    return total


def width_of_many(scales: NDArray[np.float64], miss: float) -> float:
    """The t with P[|Σ noises| > t] = miss, for Laplace noises, from their characteristic function.

    P[|S| <= t] is 2t/L + 2/π Σ φ(nh) sin(nht) / n with h = 2π/L, but for what lies beyond L - t: L is so
    far out that this is below 1e-15 (Chernoff), and the sum ends where φ is below e^-37.
    """
    a = np.maximum(scales / scales.max(), 1e-3)  # wider, so on the safe side
    far = 2 * (math.log(2e15) - float(np.log1p(-(a**2) / 4).sum()))
    last = 1.0
    while np.log1p((a * last) ** 2).sum() < 37:
        last *= 1.5
    n = np.arange(1, math.ceil(last * far / math.pi) + 1)
    u = n * (math.pi / far)
    phi = np.exp(-sum(np.log1p((one * u) ** 2) for one in a)) / n
    low, high = 0.0, far
    for _ in range(50):
        t = (low + high) / 2
        beyond = 1 - t / far - 2 / math.pi * float((phi * np.sin(u * t)).sum())
        low, high = (t, high) if beyond > miss else (low, t)
    return high * float(scales.max())
