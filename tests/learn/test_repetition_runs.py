"""The best of K runs, against its exact law: no output's probability moves by more than was priced."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from flint import arb
from scipy import stats

from lapwing.core.exact import ball, precision
from lapwing.core.losses import Concentrated, GaussianNoise, Loss, Pure
from lapwing.errors import BadParameter
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns, RunCountLaw
from support.cases import each
from support.slowly import slow
from support.streams import CountingStream, SeededStream

LAWS: list[RunCountLaw] = [
    NegativeBinomialRuns.with_mean(10, eta="-0.5"),
    NegativeBinomialRuns.with_mean(10, eta=0),
    NegativeBinomialRuns.with_mean(3, eta="0.5"),
    NegativeBinomialRuns.with_mean(10, eta=1),
    NegativeBinomialRuns.with_mean(5, eta=4),
    PoissonRuns(Fraction(10)),
    PoissonRuns(Fraction(3, 2)),
]
ONE_IN_A_BILLION = 1e-9


def generating(runs: RunCountLaw, x: arb) -> arb:
    """E[x^K] in closed form."""
    if isinstance(runs, PoissonRuns):
        return (ball(runs.rate) * (x - 1)).exp()
    assert isinstance(runs, NegativeBinomialRuns)
    base, eta, gamma = 1 - ball(1 - runs.gamma) * x, ball(runs.eta), ball(runs.gamma)
    if not runs.eta:
        return base.log() / gamma.log()
    return (base**-eta - 1) / (gamma**-eta - 1)


@each("runs", LAWS)
def test_the_probabilities_are_those_of_the_generating_function(runs: RunCountLaw) -> None:
    with precision(256):
        law = list(islice(runs.law(), 4000))
        x = ball(Fraction(9, 10))
        assert abs(float(sum((p * x**k for k, p in enumerate(law)), arb(0)) - generating(runs, x))) < 1e-12
        mean = sum((k * p for k, p in enumerate(law)), arb(0))
        assert float(mean) == pytest.approx(runs.mean, rel=1e-5)


def gaussian_pair(sigma: float, centre: int) -> tuple[list[arb], Loss]:
    """A discrete Gaussian score, centred at `centre`."""
    weights = [
        (-(ball(Fraction(k - centre)) ** 2) / (2 * ball(Fraction(sigma)) ** 2)).exp()
        for k in range(-60, 62)
    ]
    total = sum(weights, arb(0))
    return [w / total for w in weights], GaussianNoise(Fraction(sigma), Fraction(1), 1)


def response_pair(epsilon: Fraction, *, mirrored: bool) -> list[arb]:
    """Randomized response: the worst of all ε-private mechanisms."""
    e = ball(epsilon).exp()
    low, high = 1 / (1 + e), e / (1 + e)
    return [low, high] if mirrored else [high, low]


def best_law(runs: RunCountLaw, base: list[arb]) -> list[arb]:
    """The law of the best of K draws, and of no draw at all."""
    below, law = arb(0), [generating(runs, arb(0))]
    for p in base:
        law.append(generating(runs, below + p) - generating(runs, below))
        below = below + p
    return law


def divergence(one: list[arb], other: list[arb], order: Fraction) -> arb:
    a = ball(order)
    known = [(p, q) for p, q in zip(one, other, strict=True) if not p.is_zero()]
    return sum((p**a * q ** (1 - a) for p, q in known), arb(0)).log() / (a - 1)


@each("runs", LAWS)
@each("order", [Fraction(3, 2), Fraction(2), Fraction(8), Fraction(25)])
def test_the_divergence_of_the_best_gaussian_score_stays_below_its_bound(
    runs: RunCountLaw, order: Fraction
) -> None:
    """Either direction: the neighbour's scores are one higher, or one lower."""
    with precision(512):
        one, loss = gaussian_pair(4.0, 0)
        other, _ = gaussian_pair(4.0, 1)
        bound = runs.renyi(loss, order)
        assert bound is not None
        for p, q in ((one, other), (other, one)):
            exact = divergence(best_law(runs, p), best_law(runs, q), order)
            assert float(exact) <= float(bound) + 1e-12


@each("runs", [law for law in LAWS if isinstance(law, NegativeBinomialRuns)])
@each("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_the_pure_loss_of_the_best_response_stays_below_its_bound(
    runs: RunCountLaw, epsilon: Fraction
) -> None:
    with precision(512):
        one = best_law(runs, response_pair(epsilon, mirrored=False))
        other = best_law(runs, response_pair(epsilon, mirrored=True))
        bound = runs.pure(Pure(epsilon))
        assert bound is not None
        for p, q in zip(one[1:], other[1:], strict=True):
            assert abs(float((p / q).log())) <= float(bound)
        for order in (Fraction(2), Fraction(20)):
            renyi = runs.renyi(Pure(epsilon), order)
            assert renyi is not None
            assert float(divergence(one[1:], other[1:], order)) <= float(renyi)


def test_a_fixed_number_of_runs_would_cost_more_than_that() -> None:
    """The reason for a random number: the best of always ten responses is nearly ten times as telling."""
    low, high = 1 / (1 + math.e), math.e / (1 + math.e)
    fixed = math.log(high**10 / low**10)  # that none of ten was high
    bound = NegativeBinomialRuns.with_mean(10, eta=0).pure(Pure(Fraction(1)))
    assert bound is not None
    assert fixed > 4 * float(bound)


@each("runs", [LAWS[1], LAWS[3], LAWS[5]])
@pytest.mark.parametrize("size", [200, slow(10_000)])
def test_the_number_of_runs_follows_its_law(runs: RunCountLaw, size: int) -> None:
    """Chi-square; false-alarm rate 1e-9 each."""
    draws = Counter(min(runs.draw(), 20) for _ in range(size))
    with precision(128):
        law = [float(p) for p in islice(runs.law(), 20)]
    expected = np.array([*law, 1 - sum(law)]) * size
    seen = np.array([draws[k] for k in range(21)])
    kept = expected >= 5
    statistic = float(((seen - expected)[kept] ** 2 / expected[kept]).sum())
    assert stats.chi2.sf(statistic, int(kept.sum())) > ONE_IN_A_BILLION
    assert seen[expected == 0].sum() == 0


def test_runs_are_cut_off_where_they_may_be() -> None:
    runs = PoissonRuns(Fraction(10))
    most = runs.most(Fraction(1, 10**9))
    assert stats.poisson.sf(most, 10) <= 1e-9 < stats.poisson.sf(most - 1, 10)
    assert max(runs.draw(most=3) for _ in range(50)) <= 3


def test_poisson_runs_want_a_base_whose_small_losses_are_known() -> None:
    with pytest.raises(BadParameter, match="or Gaussian noise"):
        PoissonRuns(Fraction(10)).renyi(Pure(Fraction(1)), Fraction(2))
    with pytest.raises(BadParameter, match="or Gaussian noise"):
        PoissonRuns(Fraction(10)).renyi(Concentrated(Fraction(1, 8)), Fraction(2))


@each(("eta", "gamma"), [("-1", "0.5"), ("65", "0.5"), ("1", "0"), ("1", "1")])
def test_a_law_that_does_not_exist_cannot_be_made(eta: str, gamma: str) -> None:
    with pytest.raises(BadParameter):
        NegativeBinomialRuns(Fraction(eta), Fraction(gamma))


@each("mean", [1, 0, 1001, "nan"])
def test_a_mean_must_be_above_one(mean: object) -> None:
    with pytest.raises(BadParameter):
        NegativeBinomialRuns.with_mean(mean, eta=0)  # type: ignore[arg-type]


@each("rate", [0, -1, 1001])
def test_a_poisson_rate_must_be_above_zero(rate: int) -> None:
    with pytest.raises(BadParameter):
        PoissonRuns(Fraction(rate))


@pytest.mark.parametrize("runs", [LAWS[1], LAWS[3], LAWS[5]], ids=repr)
def test_the_work_of_a_draw_does_not_tell_the_number(
    runs: RunCountLaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word each, and no more ball arithmetic once the table stands: a padded search hides its K."""
    most = runs.most(Fraction(1, 10**7))
    runs.draw(most=most)
    stream = CountingStream(SeededStream(11))
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", stream)
    monkeypatch.setattr(type(runs), "law", lambda _: pytest.fail("the law was computed again"))
    work: dict[int, set[int]] = {}
    for _ in range(300):
        before = stream.bytes_taken
        work.setdefault(runs.draw(most=most), set()).add(stream.bytes_taken - before)
    assert min(work) <= 2 * runs.mean / 3 < 2 * runs.mean <= max(work)
    assert set.union(*work.values()) == {8}


@pytest.mark.parametrize("runs", [LAWS[1], LAWS[5]], ids=repr)
def test_what_is_cut_off_is_added_at_the_end(runs: RunCountLaw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square of min(K, 4); false-alarm rate 1e-9, once for this seed."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(12))
    draws = Counter(runs.draw(most=4) for _ in range(3000))
    with precision(128):
        law = [float(p) for p in islice(runs.law(), 4)]
    expected = 3000 * np.array([*law, 1 - sum(law)])
    seen = np.array([draws[k] for k in range(5)])
    kept = expected > 0
    assert seen[~kept].sum() == 0
    statistic = float(((seen - expected)[kept] ** 2 / expected[kept]).sum())
    assert stats.chi2.sf(statistic, int(kept.sum()) - 1) > ONE_IN_A_BILLION


def test_more_runs_than_a_table_holds_are_refused() -> None:
    with pytest.raises(BadParameter, match="4,095"):
        NegativeBinomialRuns.with_mean(1000, eta=1).most(Fraction(1, 10**9))
