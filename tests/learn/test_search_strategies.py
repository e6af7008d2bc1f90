"""All candidates, or a random number of them: the price, the winner, and no trace of the losers."""

from __future__ import annotations

import gc
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.audit.stages.sampled import Draw, SampledPair, attack_pair
from lapwing.core.conversions import loss_to_epsilon
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import GaussianNoise, ParallelComposition, Pure, Repeated, SequentialComposition
from lapwing.core.selection import Exponential, NoisyMax, PermuteAndFlip
from lapwing.errors import BadParameter
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns
from lapwing.learn.search import (
    CORRECT,
    CandidateResult,
    EveryCandidate,
    RandomRuns,
    Score,
    SearchResult,
    sequential_loss,
)

MILLIONTH = Fraction(1, 10**6)
STEP = GaussianNoise(Fraction(50), Fraction(1), 1)
OTHER = GaussianNoise(Fraction(80), Fraction(1), 1)
SURE = Exponential(Fraction(1000), Fraction(1, 2))


def scored(*scores: int) -> list[CandidateResult]:
    return [CandidateResult(k, b"model %d" % k, score) for k, score in enumerate(scores)]


def test_every_candidate_is_paid_and_so_is_the_choice() -> None:
    """Case A6: a search that pays for its winner only."""
    choice = PermuteAndFlip(Fraction(1, 2), Fraction(1, 2))
    price = EveryCandidate(choice).price([Pure(Fraction(1)), Pure(Fraction(2))], CORRECT)
    assert price == ParallelComposition(
        (SequentialComposition((Pure(Fraction(1)), Pure(Fraction(2)))), Pure(Fraction(1, 2)))
    )
    assert price.pure == 3


def test_fixed_runs_are_priced_as_one() -> None:
    runs = [FixedRun.of((STEP, 3), delta=MILLIONTH), FixedRun.of((STEP, 2), (OTHER, 1), delta=MILLIONTH)]
    merged = sequential_loss(runs)
    assert merged == FixedRun.of((STEP, 5), (OTHER, 1), delta=MILLIONTH)
    epsilon, added = loss_to_epsilon(merged, MILLIONTH), SequentialComposition(tuple(runs)).pair
    assert added is not None
    assert epsilon is not None
    assert epsilon < added[0]


def test_runs_at_different_deltas_are_added_up() -> None:
    runs = (FixedRun.of((STEP, 3), delta=MILLIONTH), FixedRun.of((STEP, 2), delta=2 * MILLIONTH))
    assert sequential_loss(runs) == SequentialComposition(runs)
    assert sequential_loss((runs[0], Pure(Fraction(1)))) == SequentialComposition(
        (runs[0], Pure(Fraction(1)))
    )


def test_the_best_of_all_wins_where_little_privacy_is_asked() -> None:
    tried = scored(3, 900, 5)
    found = EveryCandidate(SURE).find([STEP] * 3, CORRECT, lambda k: tried[k])
    assert found == SearchResult(1, b"model 1")


def test_a_choice_must_be_as_wide_as_its_score() -> None:
    way = EveryCandidate(PermuteAndFlip(Fraction(1), Fraction(1, 2)))
    with pytest.raises(BadParameter, match="sensitivity of 3/2"):
        way.price([STEP], Score(3, lambda *_: 0.0))


def test_other_mechanisms_do_not_choose() -> None:
    with pytest.raises(BadParameter):
        EveryCandidate(NoisyMax.for_epsilon(1, sensitivity=1))  # type: ignore[arg-type]


@pytest.mark.parametrize("padded", [False, True])
def test_random_runs_tell_the_best_that_they_met(padded: bool) -> None:
    """False-alarm rate e^-30: that the better of two is never drawn."""
    tried = scored(3, 10**6)
    way = RandomRuns(PoissonRuns(Fraction(60)), noise=100, delta="1e-6", padded=padded)
    found = way.find([STEP] * 2, CORRECT, lambda k: tried[k])
    assert found is not None
    assert (found.candidate, found.model) == (1, b"model 1")
    assert found.noisy_score is not None
    assert abs(found.noisy_score - 10**6) < 1000


def test_random_runs_cost_the_repetition_of_the_worst_candidate() -> None:
    way = RandomRuns(PoissonRuns(Fraction(10)), noise=100, delta="1e-6", padded=True)
    cheap, dear = way.price([OTHER, OTHER], CORRECT), way.price([OTHER, STEP], CORRECT)
    composed = FixedRun.of((STEP, 10), delta=MILLIONTH).pair[0]
    assert cheap.pure is not None
    assert dear.pure is not None
    assert cheap.pure < dear.pure < composed
    scores = RandomRuns(PoissonRuns(Fraction(10)), noise=10, delta="1e-6", padded=True)
    noisy = scores.price([OTHER], CORRECT).pure
    assert noisy is not None
    assert noisy > dear.pure


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_draws_do_not_contradict_the_price(padded: bool) -> None:
    """Neighbours' scores are one apart. The auditor's false-alarm rate is 1e-9."""
    way = RandomRuns(PoissonRuns(Fraction(5)), noise=2, delta="0.001", padded=padded)
    price = way.price([OTHER], CORRECT)

    def drawn(score: int) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            found = [
                way.find([OTHER], CORRECT, lambda k: CandidateResult(k, b"", score)) for _ in range(size)
            ]
            return np.array([-100 if one is None else one.noisy_score for one in found], dtype=np.int64)

        return draw

    assert price.pure is not None
    pair = SampledPair("scores one apart", drawn(0), drawn(1))
    assert attack_pair(pair, price.pure, price.delta0, draws=3_000, error=1e-9).holds


def test_padded_runs_are_always_as_many() -> None:
    way = RandomRuns(PoissonRuns(Fraction(3)), noise=100, delta="1e-6", padded=True)
    seen = set()
    for _ in range(5):
        tried: list[int] = []

        def attempt(candidate: int, done: list[int] = tried) -> CandidateResult:
            done.append(candidate)
            return CandidateResult(candidate, b"model", 1)

        way.find([STEP] * 2, CORRECT, attempt)
        seen.add(len(tried))
    assert seen == {way.repetition([STEP] * 2, CORRECT).most}


def test_without_a_run_nothing_is_found() -> None:
    way = RandomRuns(PoissonRuns(Fraction(1, 10**6)), noise=100, delta="1e-6", padded=False)
    assert way.find([STEP], CORRECT, lambda _: pytest.fail("was tried")) is None


class Traced(bytes):
    """A model that can be looked for."""


def test_losers_are_not_kept() -> None:
    way = RandomRuns(NegativeBinomialRuns.with_mean(20, eta=8), noise=100, delta="1e-6", padded=False)
    found = way.find([STEP], CORRECT, lambda k: CandidateResult(k, Traced(b"model"), 1))
    gc.collect()
    assert found is not None
    assert sum(type(one) is Traced for one in gc.get_objects()) <= 1


def test_the_order_of_outputs_is_total() -> None:
    """Equal noisy scores: the earlier candidate wins if it was drawn at all. False-alarm rate e^-30."""
    way = RandomRuns(PoissonRuns(Fraction(60)), noise=Fraction(1, 10), delta="1e-6", padded=False)
    tried = scored(5, 5)
    found = way.find([STEP] * 2, CORRECT, lambda k: tried[k])
    assert found is not None
    assert found.candidate == 0


@pytest.mark.parametrize("noise", [0, -1, "nan"])
def test_noise_must_be_above_zero(noise: object) -> None:
    with pytest.raises(BadParameter):
        RandomRuns(PoissonRuns(Fraction(10)), noise=noise, delta="1e-6", padded=True)  # type: ignore[arg-type]


def test_runs_must_be_a_law() -> None:
    with pytest.raises(BadParameter):
        RandomRuns(10, noise=1, delta="1e-6", padded=True)  # type: ignore[arg-type]


def test_repeated_losses_are_as_they_are() -> None:
    assert sequential_loss([Repeated(STEP, 2)]) == SequentialComposition((Repeated(STEP, 2),))
