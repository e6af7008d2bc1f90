"""The cases of losses: releases one after another, about disjoint units, on samples; noise for a given ρ.

Replays add up the losses of all calls, and compare the sum with the charge. Here that sum itself is
compared with exact laws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, Family, Stage
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.core import losses
from lapwing.core.composition import StatedLoss, compose, parallel, poisson_sampled
from lapwing.core.conversions import loss_to_epsilon
from lapwing.core.fixed_run import FixedRun
from lapwing.mechanisms import Gaussian, GaussianShares, Laplace, RandomizedResponse

DELTA = Fraction(1, 100)
HALF, ONE = Fraction(1, 2), Fraction(1)
# Gaussian laws are listed as far as Rényi values at order 72 need, and e^-144 beyond.
_DEVIATIONS, _LARGEST_ORDER = 17, 72


def loss_cases() -> list[AuditCase]:
    """Return the cases of losses."""
    return [
        _case("releases one after another", (Laplace, RandomizedResponse), _sequences, Fraction(3, 2)),
        _case("releases about disjoint units", (Laplace,), _disjoint, ONE),
        _case("Gaussian noise on a sample", (Gaussian,), _samples, ONE, DELTA),
        _case("Gaussian noise for ρ", (Gaussian, GaussianShares), _for_rho, ONE, DELTA),
        _case("stated losses", (StatedLoss,), _stated, Fraction(3, 2)),
        _case("runs of fixed steps", (Gaussian,), _fixed_runs, ONE, DELTA),
    ]


def _case(
    name: str,
    covers: tuple[Any, ...],
    pairs: Callable[[], Iterator[ExactPair]],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
) -> AuditCase:
    stages = {Stage.EXACT: exact_stage(lambda _: pairs(), epsilon=epsilon, delta=delta)}
    return AuditCase(name, Family.MECHANISM, covers, epsilon, delta, stages)


def _sequences() -> Iterator[ExactPair]:
    """Yield the joint laws of several answers about the same person, who is there or not."""
    first, second = losses.LaplaceNoise(ONE, 1), losses.LaplaceNoise(Fraction(4), 2)
    absent, there = (
        laws.independent(laws.laplace(ONE, moved, 0, 1), laws.laplace(Fraction(4), 2 * moved, 0, 2))
        for moved in (0, 1)
    )
    both = losses.SequentialComposition((first, second))
    yield ExactPair("two Laplace answers: (0, 0) and (1, 2)", absent, there, both, Fraction(3, 2))
    for scale in (ONE, Fraction(2, 5)):
        absent, there = (laws.independent(*[laws.laplace(scale, moved, 0, 1)] * 3) for moved in (0, 1))
        name = f"three Laplace answers at scale {scale}: zeros and ones"
        yield ExactPair(name, absent, there, losses.Repeated(losses.LaplaceNoise(scale, 1), 3), 3 / scale)
    # With probability δ a report tells the answer; otherwise it is randomized response.
    told = losses.Approximate(ONE, DELTA)
    absent, there = (laws.independent(_or_told(answer), _or_told(answer)) for answer in (0, 1))
    name = "two reports, each certain with probability δ"
    yield ExactPair(name, absent, there, losses.Repeated(told, 2), Fraction(2), 2 * DELTA)
    response = laws.randomized_response
    truth = laws.exp(ONE) / (1 + laws.exp(ONE))
    absent, there = (laws.independent(_or_told(answer), response(answer, 2, truth)) for answer in (0, 1))
    mixed = losses.SequentialComposition((told, losses.Pure(ONE)))
    yield ExactPair("a certain report or not, and another", absent, there, mixed, Fraction(2), DELTA)


@laws.precise
def _or_told(answer: int) -> laws.Law:
    """Return the law of (whether the answer is told, report): told with probability δ."""
    truth, told = laws.exp(ONE) / (1 + laws.exp(ONE)), laws.dec(DELTA)
    hidden = laws.randomized_response(answer, 2, truth)
    return {
        **{(False, report): (1 - told) * p for report, p in hidden.items()},
        **{(True, report): told * (report == answer) for report in (0, 1)},
    }


def _disjoint() -> Iterator[ExactPair]:
    """Yield the joint laws of two answers about different people, one of whom is there or not."""
    scales = (ONE, Fraction(2))
    each = tuple(losses.LaplaceNoise(scale, 1) for scale in scales)
    for moved in ((1, 0), (0, 1)):
        first, second = (
            laws.independent(
                *(laws.laplace(s, d * there, 0, 1) for s, d in zip(scales, moved, strict=True))
            )
            for there in (0, 1)
        )
        loss = losses.ParallelComposition(each)
        yield ExactPair(f"two Laplace answers: (0, 0) and {moved}", first, second, loss, ONE)


def _stated() -> Iterator[ExactPair]:
    """Yield laws beside what stated losses say of them: ε at δ, and δ at ε."""
    relation = losses.Relation.ADD_REMOVE
    told, pure = losses.Approximate(ONE, DELTA), losses.Pure(HALF)
    truth = laws.exp(HALF) / (1 + laws.exp(HALF))
    response = [laws.randomized_response(answer, 2, truth) for answer in (0, 1)]
    certain = [_or_told(answer) for answer in (0, 1)]
    both = [laws.independent(first, second) for first, second in zip(certain, response, strict=True)]
    apart = [laws.independent(law, response[0]) for law in certain]
    tenth = Fraction(1, 10)
    for name, (first, second), loss in (
        ("a certain report or not, and another", both, compose(told, pure, relation=relation)),
        ("reports of two people, one of whom is there or not", apart,
         parallel(told, pure, relation=relation)),
        ("a report on a sample", (response[0], _mixed(response[0], response[1], tenth)),
         poisson_sampled(pure, rate=tenth, relation=relation)),
        ("a certain report or not, on a sample", (certain[0], _mixed(certain[0], certain[1], HALF)),
         poisson_sampled(told, rate=HALF, relation=relation)),
    ):  # fmt: skip
        for delta in (loss.loss.delta0, loss.loss.delta0 + Fraction(1, 1000)):
            text = f"{name}, δ = {float(delta):g}"
            yield ExactPair(text, first, second, loss.loss, loss.epsilon(delta=delta), delta)
        for epsilon in (Fraction(1, 100), Fraction(1, 4)):
            needed = loss.delta(epsilon=epsilon)
            yield ExactPair(f"{name}, δ at ε = {epsilon}", first, second, loss.loss, epsilon, needed)


def _reach(sigma: Fraction) -> int:
    return int(_DEVIATIONS * sigma) + _LARGEST_ORDER + 2


def _samples() -> Iterator[ExactPair]:
    """Yield the laws of Gaussian noise on a Poisson sample, in which a person may be."""
    for sigma, rate in ((Fraction(1), Fraction(1, 10)), (Fraction(2), HALF), (Fraction(3), ONE)):
        loss = losses.SampledGaussian(rate, losses.GaussianNoise(sigma, ONE, 1))
        reach = _reach(sigma)
        absent, drawn = (laws.gaussian(sigma, centre, -reach, reach + 1) for centre in (0, 1))
        there = _mixed(absent, drawn, rate)
        name = f"a sample at rate {rate}, σ = {sigma}: nobody, and a person"
        yield _judged(name, absent, there, loss)
        twice = losses.Repeated(loss, 2)
        if sigma == 1:
            first, second = laws.independent(absent, absent), laws.independent(there, there)
            yield _judged(f"{name}, in two steps", first, second, twice)


@laws.precise
def _mixed(absent: laws.Law, drawn: laws.Law, rate: Fraction) -> laws.Law:
    inside = laws.dec(rate)
    return {outcome: (1 - inside) * p + inside * drawn[outcome] for outcome, p in absent.items()}


def _fixed_runs() -> Iterator[ExactPair]:
    """Yield the laws of runs whose steps are fixed beforehand, beside the pair (ε, δ) that is charged.

    Of two dimensions, the second is the same for both inputs, and is left out of the laws.
    """
    two, tenth = Fraction(2), Fraction(1, 10)
    for sigma, rate, steps, dimension in (
        (two, ONE, 1, 1), (two, ONE, 2, 1), (ONE, tenth, 2, 1), (two, ONE, 2, 2), (two, tenth, 2, 2),
    ):  # fmt: skip
        reach = _reach(sigma)
        absent, drawn = (laws.gaussian(sigma, centre, -reach, reach + 1) for centre in (0, 1))
        there = _mixed(absent, drawn, rate)
        noise = losses.GaussianNoise(sigma, ONE, dimension)
        loss = FixedRun.of(
            (noise if rate == 1 else losses.SampledGaussian(rate, noise), steps), delta=DELTA
        )
        first, second = laws.independent(*[absent] * steps), laws.independent(*[there] * steps)
        epsilon, delta = loss.pair
        name = f"{steps} steps at rate {rate}, σ = {sigma}, {dimension} numbers: nobody, and a person"
        yield ExactPair(name, first, second, loss, epsilon, delta)


def _for_rho() -> Iterator[ExactPair]:
    """Yield the laws of noise that is made for a given ρ, beside that ρ."""
    for rho, squared in ((Fraction(1, 10), 1), (Fraction(1, 2), 4)):
        sigma = Gaussian.for_rho(rho, l2_squared=squared, dimension=1).sigma
        distance, reach = int(squared**0.5), _reach(sigma) + _LARGEST_ORDER
        first, second = (laws.gaussian(sigma, c, -reach, reach + distance) for c in (0, distance))
        yield _judged(f"ρ = {rho}: 0 and {distance}", first, second, losses.Concentrated(rho))
        shares = GaussianShares.for_rho(rho, l2_squared=squared, dimension=1, of=2)
        sums = laws.gaussian_shares(shares.sigma, 2, reach // 2 + 20)
        first, second = laws.shifted_pair(sums, distance)
        yield _judged(f"ρ = {rho}, two shares: 0 and {distance}", first, second, losses.Concentrated(rho))


def _judged(name: str, first: laws.Law, second: laws.Law, loss: losses.Loss) -> ExactPair:
    """Return a pair with the ε that a loss without a pure ε has at δ."""
    epsilon = loss_to_epsilon(loss, DELTA)
    return ExactPair(name, first, second, loss, epsilon or ONE, DELTA)
