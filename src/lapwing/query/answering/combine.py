"""Several releases of one additive question, made one sharper answer.

Claim    the intervals of all combined answers (of two releases, of three, …) hold together with probability
         1 - η, also if each release, its ε and its kind of noise were decided from the ones before. η is
         fixed in advance. (The first alone was shown at 1 - η, like any other answer.)
Because  weights are inverse scales: noise in units of its scale has the same law whatever the scale was
         decided from, so that the mean's noise is a sum of independent noises of one scale. (Weights by
         inverse variances would let a chosen ε keep or thin out noise that is known to be far off.) One
         release alone is the other choice. Σ 1 / (i (i + 1)) is 1, and 1/2 over i > 1: so sums of one kind
         of noise miss with η / 2, single releases with η / 4, and what a second kind adds with η / 4.
Test     tests/query/test_combine.py; docs/arguments/query-noise.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.mechanisms import Gaussian, Laplace
from lapwing.query.answering.estimate import Col, Rows
from lapwing.query.answering.intervals import Noises, half_width, noise_scale
from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import Shares, is_declared
from lapwing.query.language.kinds import Number
from lapwing.query.language.question import KeyValue, Question, Statistic

FEW = 6  # Laplace noises whose law is written down; of more that are alike, its terms cancel
# What a release alone, and each of two kinds of noise, may miss, in shares of what one kind may.
ALONE, EACH_OF_TWO = Fraction(1, 4), Fraction(1, 6)


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


def level_of_repeat(confidence: Fraction, repeat: int, share: Fraction = Fraction(1)) -> Fraction:
    """The confidence at which the i-th noise alone, or the first i together, are held."""
    return 1 - share * (1 - confidence) / (repeat * (repeat + 1))


def combined(releases: Sequence[tuple[Shares, Noisy]], rows: Rows, confidence: Fraction) -> Rows:
    """The newest answer's rows with the values of all releases together."""
    question = releases[-1][0].question
    columns = []
    for output, column in zip(question.outputs, rows.columns, strict=True):
        if not isinstance(output.value, Statistic):
            columns.append(column)
            continue
        (part,) = output.value.parts
        mechanisms = [shares.mechanism(0, part) for shares, _ in releases]
        weights, half = narrowest_mean(mechanisms, confidence)
        mean = sum(w * noisy.parts[part] for w, (_, noisy) in zip(weights, releases, strict=True))
        step = 1.0
        if output.value.function == "sum":
            assert isinstance(output.value.number, Number)
            step = float(output.value.number.step)
        values, low, high = (np.asarray(v * step) for v in (mean, mean - half, mean + half))
        if output.value.function == "count":
            values, low, high = (np.maximum(v, 0) for v in (values, low, high))
        columns.append(Col(column.name, values, low, high, column.note))
    return Rows(columns, rows.length, rows.agree)


def narrowest_mean(
    mechanisms: Sequence[Laplace | Gaussian], confidence: Fraction
) -> tuple[list[float], float]:
    """Weights of the releases and the half-width of their mean's interval: of all, or of one alone.

    Scales alone decide which. `confidence` is that of a single answer.
    """
    alone = [
        half_width(mechanism, level_of_repeat(confidence, number, ALONE))
        for number, mechanism in enumerate(mechanisms, 1)
    ]
    inverse = [1 / _in_deviations(mechanism) for mechanism in mechanisms]
    weights = [each / sum(inverse) for each in inverse]
    together = half_width_of_mean(mechanisms, weights, confidence)
    if min(alone) > together:
        return weights, together
    best = alone.index(min(alone))
    return [float(number == best) for number in range(len(alone))], float(alone[best])


def _in_deviations(mechanism: Laplace | Gaussian) -> float:
    """The scale, times what makes it a deviation if noise were continuous."""
    return noise_scale(mechanism) * (1 if isinstance(mechanism, Gaussian) else math.sqrt(2))


def half_width_of_mean(
    mechanisms: Sequence[Laplace | Gaussian], weights: Sequence[float], confidence: Fraction
) -> float:
    """How far a mean by inverse scales may be off. Whole noise is within 1 of continuous noise."""
    kinds = [
        [
            weight * noise_scale(one)
            for one, weight in zip(mechanisms, weights, strict=True)
            if isinstance(one, Gaussian) is is_gaussian
        ]
        for is_gaussian in (False, True)
    ]
    share = EACH_OF_TWO if all(kinds) else Fraction(1)
    total = 1.0
    for is_gaussian, scales in enumerate(kinds):
        if scales:
            level = level_of_repeat(confidence, len(scales), share)
            total += _width(scales, is_gaussian=bool(is_gaussian), level=level)
    return total


def _width(scales: list[float], *, is_gaussian: bool, level: Fraction) -> float:
    """The half-width of a sum of continuous noises."""
    if not is_gaussian and len(scales) > FEW:
        return width_of_many(np.array(scales), float(1 - level))
    return float(Noises(is_gaussian, level).width([np.array(scale) for scale in scales])) - 0.5


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
