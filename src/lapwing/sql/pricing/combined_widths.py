"""Several releases of one additive question: the narrowest interval that all of them give.

One release alone (the newest or another) or the mean of a *run* of releases is shown: the narrowest. Only
scales decide which. So no answer is wider than its release alone, whatever was asked before.

A run begins with the first release of its kind of noise. Each later one of that kind is added to it, is
left out, or begins the next run, whichever gives the mean the least standard deviation. (So cheap releases
do not spoil the mean of better ones.)

Claim    let 1 - η be the confidence. The interval of a release alone misses with probability at most η,
         given all before. All intervals of means together miss with at most 2η. So after k releases,
         anything shown is wrong with at most (k + 2) η, also if whether to ask, ε and the kind of noise
         were decided from the answers before. If they were not, each interval misses with at most η.
Because  weights are inverse scales. Noise divided by its scale has the same distribution, however the scale
         was decided, so a mean's noise is a sum of independent noises of scale 1. (With weights by inverse
         variances, a chosen ε could keep or reduce noise that is known to be far off.) Whether a release
         joins a run is decided before its noise is drawn. The first m of run r are held at 2η / (r (r + 1))
         / (m (m - 1)), which adds up to 2η over all r and all m > 1.
Test     tests/sql/pricing/test_combined_widths.py; docs/arguments/query-noise.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from lapwing.core.exact import halve
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.sql.pricing.noise_shares import BudgetShares
from lapwing.sql.pricing.noise_widths import half_width, noise_scale
from lapwing.sql.question.bound_query import (
    BoundQuery,
    KeyValue,
    NoisyAggregate,
    has_declared_keys,
    step_of,
)

MEANS_SHARE = 2  # all means together may miss with this many times η
_TRIED = 20  # means whose width is computed: those that would be narrowest if noises were normal


def can_combine(question: BoundQuery) -> bool:
    """Return whether all outputs are additive, over declared keys, in a fixed order of rows."""
    if question.having is not None or question.order or question.limit is not None or question.offset:
        return False
    values = [output.value for output in question.outputs]
    is_additive = all(
        isinstance(value, KeyValue)
        or (isinstance(value, NoisyAggregate) and value.function in ("count", "sum"))
        for value in values
    )
    return len(question.sets) == 1 and has_declared_keys(question, 0) and is_additive


def most_wrong(confidence: float, releases: int) -> float:
    """Return a bound on the probability that any interval shown after some releases is wrong."""
    return min((releases + MEANS_SHARE * (releases > 1)) * (1 - confidence), 1.0)


def half_widths(releases: Sequence[BudgetShares], confidence: Fraction) -> dict[str, float]:
    """Return the half-width of each additive column that all releases of a question give."""
    halves = {}
    for output in releases[-1].question.outputs:
        if isinstance(output.value, NoisyAggregate):
            (part,) = output.value.parts
            _, half = narrowest_mean([shares.mechanism(0, part) for shares in releases], confidence)
            halves[output.name] = float(step_of(output.value)) * half
    return halves


@dataclass(frozen=True, slots=True)
class Run:
    """Releases of one kind of noise whose mean is held, in order. `totals` are the first Σ 1 / scale."""

    number: int
    is_gaussian: bool
    members: list[int] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def add(self, member: int, scale: float) -> None:
        """Add a release."""
        self.members.append(member)
        self.totals.append((self.totals[-1] if self.totals else 0.0) + 1 / scale)

    def level(self, first: int, confidence: Fraction) -> Fraction:
        """Return the probability with which the mean of the first `first` members may miss."""
        share = Fraction(MEANS_SHARE, self.number * (self.number + 1))
        return share * (1 - confidence) / (first * (first - 1))


def runs_of(mechanisms: Sequence[Laplace | Gaussian]) -> list[Run]:
    """Return the runs that releases form, by their scales alone."""
    runs: list[Run] = []
    last: dict[bool, Run] = {}
    for member, mechanism in enumerate(mechanisms):
        is_gaussian, scale = isinstance(mechanism, Gaussian), noise_scale(mechanism)
        run = last.get(is_gaussian)
        alone, longer, kept = scale, math.inf, math.inf  # standard deviations, in units of their kind
        if run is not None:
            size, total = len(run.members), run.totals[-1]
            longer, kept = math.sqrt(size + 1) / (total + 1 / scale), math.sqrt(size) / total
        if run is None or alone < min(longer, kept):
            run = last[is_gaussian] = Run(len(runs) + 1, is_gaussian)
            runs.append(run)
            run.add(member, scale)
        elif longer < kept:
            run.add(member, scale)
    return runs


def narrowest_mean(
    mechanisms: Sequence[Laplace | Gaussian], confidence: Fraction
) -> tuple[list[float], float]:
    """Return weights of the releases, and the half-width of the narrowest mean: of one, or of a run."""
    alone = [half_width(mechanism, confidence) for mechanism in mechanisms]
    half = float(min(alone))
    newest = max(number for number, width in enumerate(alone) if width == half)
    weights = {newest: 1.0}
    means = [(run, first) for run in runs_of(mechanisms) for first in range(2, len(run.members) + 1)]

    def if_normal(mean: tuple[Run, int]) -> float:
        run, first = mean
        width = -NormalDist().inv_cdf(float(run.level(first, confidence)) / 2)
        return width * math.sqrt(first * (1 if run.is_gaussian else 2)) / run.totals[first - 1]

    for run, first in sorted(means, key=if_normal)[:_TRIED]:
        own, width = mean_of_run(mechanisms, run, first, confidence)
        if width < half:
            weights, half = own, width
    return [weights.get(number, 0.0) for number in range(len(mechanisms))], half


def mean_of_run(
    mechanisms: Sequence[Laplace | Gaussian], run: Run, first: int, confidence: Fraction
) -> tuple[dict[int, float], float]:
    """Return the weights of the first members of a run, and the half-width of their mean."""
    total = run.totals[first - 1]
    weights = {member: 1 / noise_scale(mechanisms[member]) / total for member in run.members[:first]}
    width = width_of_sum(first, run.level(first, confidence), is_gaussian=run.is_gaussian) / total
    return weights, width + sum(w * farthest(mechanisms[member]) for member, w in weights.items())


def farthest(mechanism: Laplace | Gaussian) -> float:
    """Return a bound on the distance of whole noise from continuous noise, in order of size."""
    if isinstance(mechanism, Gaussian):
        return 1.0
    scale = float(mechanism.scale)
    return 1 - scale * (math.log(2) - math.log1p(math.exp(-1 / scale)))


@lru_cache(maxsize=4096)
def width_of_sum(count: int, miss: Fraction, *, is_gaussian: bool) -> float:
    """Return the t with P[|Z_1 + … + Z_count| > t] = miss, for continuous noises of scale 1."""
    beyond = float(miss)
    if is_gaussian:
        return -NormalDist().inv_cdf(beyond / 2) * math.sqrt(count)
    # A sum of Laplace noises is a difference of two Gamma variables G - H, and G > t + H if fewer than
    # `count` events of a Poisson process of that length have happened. No term is negative.
    k = np.arange(count)
    logs = np.array([math.lgamma(n + 1) for n in range(2 * count)])
    fewer = np.cumsum(np.exp(logs[count - 1 + k] - logs[count - 1] - logs[k] - (count + k) * math.log(2)))

    def is_wide(t: float) -> bool:
        return not 2 * float(np.exp(k * math.log(t) - t - logs[k]) @ fewer[::-1]) > beyond

    return halve(is_wide, 0.0, 4 * count - 2 * math.log(beyond), times=60)[1]
