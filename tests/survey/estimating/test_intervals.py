"""Intervals hold, also for few reports: by exact computation where the law is known."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom, norm, t

from lapwing.errors import BadParameter
from lapwing.survey.estimating.intervals import ConfidenceLevel, RatioMoments, SupportChance
from support.cases import each

LEVEL = ConfidenceLevel.of("0.95")


def coins() -> list[SupportChance]:
    found = [SupportChance(0.75, 0.25)]
    for epsilon in (0.1, 1.0, 4.0):
        e = math.exp(epsilon)
        found += [SupportChance(e / (e + k - 1), 1 / (e + k - 1)) for k in (2, 5, 1000)]
        found += [SupportChance(0.5, 1 / (e + 1)), SupportChance(e / (e + 1), 0.5)]  # unary, Hadamard
    return found


def covered(low: NDArray[np.float64], high: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (low <= share + 1e-12) & (share <= high + 1e-12)
    return found


def sum_law(n: int, held: int, coin: SupportChance) -> NDArray[np.float64]:
    """The law of the count if `held` of n hold the option: a sum of two binomials."""
    one = binom.pmf(np.arange(held + 1), held, coin.inside)
    other = binom.pmf(np.arange(n - held + 1), n - held, coin.outside)
    law = np.zeros(n + 1)
    starts, parts = [], []
    for part in (one, other):
        kept = np.flatnonzero(part > 1e-15)
        starts.append(int(kept[0]))
        parts.append(part[kept[0] : kept[-1] + 1])
    both = np.convolve(*parts)
    law[sum(starts) : sum(starts) + len(both)] = both
    return law


@each("n", [1, 5, 30, 300, 30_000])
@each("coin", coins())
def test_intervals_for_shares_hold_by_exact_computation(coin: SupportChance, n: int) -> None:
    counts = np.arange(n + 1)
    low, high = coin.for_population(counts, n, LEVEL)
    shares = np.linspace(0, 1, 41 if n < 1000 else 11)
    for share in shares:
        law = binom.pmf(counts, n, coin.outside + share * coin.gap)
        assert law[covered(low, high, share)].sum() >= 0.945
    low, high = coin.for_respondents(counts, n, LEVEL)
    for held in sorted({round(share * n) for share in shares[:: 1 if n < 1000 else 2]}):
        assert sum_law(n, held, coin)[covered(low, high, held / n)].sum() >= 0.945


def sharp_coins() -> list[SupportChance]:
    """Of large ε, where a count of one is already telling, and of many options, where chances are small."""
    found = [SupportChance(0.75, 0.25), SupportChance(0.99966, 0.00034), SupportChance(0.745, 0.00025)]
    return [
        *found,
        SupportChance(0.0027, 0.001),
        SupportChance(0.494, 0.017),
        SupportChance(0.5125, 0.4875),
    ]


@each("n", [1, 3, 30, 300])
@each("confidence", ["0.951", "0.99", "0.999", "0.99999"])
@each("coin", sharp_coins())
def test_exact_intervals_hold_with_the_confidence_they_state(
    coin: SupportChance, confidence: str, n: int
) -> None:
    """Exact, with the rounding of floats to spare. Scores had 0.980 at 0.99, and 0.98999 at 0.999."""
    level, counts = ConfidenceLevel.of(confidence), np.arange(n + 1)
    wanted = float(level.confidence) - 1e-12
    low, high = coin.for_population(counts, n, level)
    for share in (0, 0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1):
        law = binom.pmf(counts, n, coin.outside + share * coin.gap)
        assert law[covered(low, high, share)].sum() >= wanted
    inner_low, inner_high = coin.for_respondents(counts, n, level)
    assert (inner_low >= low).all(), "never wider than for the population"
    assert (inner_high <= high).all()
    for held in range(0, n + 1, max(n // 30, 1)):
        law = full_law(n, held, coin)
        assert law[covered(inner_low, inner_high, held / n)].sum() >= wanted
        assert law[covered(low, high, held / n)].sum() >= wanted, "the population's hold for them as well"


def full_law(n: int, held: int, coin: SupportChance) -> NDArray[np.float64]:
    """As `sum_law`, with nothing cut off."""
    one = binom.pmf(np.arange(held + 1), held, coin.inside)
    law: NDArray[np.float64] = np.convolve(one, binom.pmf(np.arange(n - held + 1), n - held, coin.outside))
    return law


@each("risk", ["0.3", "0.05", "0.001"])
def test_intervals_together_are_exact_at_every_confidence(risk: str) -> None:
    """Also where one alone would be from scores: of one interval, or with little confidence."""
    coin, n = SupportChance(0.99966, 0.00034), 30
    level, counts = ConfidenceLevel.of(1 - Fraction(risk)).split(1), np.arange(n + 1)
    low, high = coin.for_population(counts, n, level)
    for share in np.linspace(0, 1, 101):
        law = binom.pmf(counts, n, coin.outside + share * coin.gap)
        assert law[covered(low, high, share)].sum() >= float(level.confidence) - 1e-12


def test_for_respondents_exact_intervals_gain_from_knowing_the_coins() -> None:
    """With large ε the coins hardly matter: 2.58 standard errors would be exact, Chernoff's needs 3.3."""
    coin, n, level = SupportChance(0.98, 0.02), 10_000, ConfidenceLevel.of("0.99")
    low, high = coin.for_respondents(np.array([5_000]), n, level)
    reach = float((high - low)[0]) / 2 / math.sqrt(float(coin.noise_variance(0.5, n)))
    assert 2.58 < reach < 3.4
    low, high = coin.for_population(np.array([5_000]), n, level)
    assert float((high - low)[0]) / 2 / math.sqrt(float(coin.variance(0.5, n))) < 2.62


@each("coin", sharp_coins())
def test_respondents_who_were_drawn_from_all_have_the_populations_interval(coin: SupportChance) -> None:
    """Exact: 20 reports of 50 respondents, drawn without replacement, some of whom hold the option."""
    everybody, n, level = 50, 20, ConfidenceLevel.of("0.95").split(3)
    counts = np.arange(n + 1)
    low, high = coin.for_population(counts, n, level)
    for held in range(everybody + 1):
        drawn = hypergeom.pmf(counts, everybody, held, n)
        law = np.sum([drawn[k] * full_law(n, k, coin) for k in range(n + 1)], axis=0)
        assert law[covered(low, high, held / everybody)].sum() >= float(level.confidence) - 1e-12


@pytest.mark.slow
@each(("everybody", "n"), [(2, 1), (10, 5), (60, 30), (240, 30), (2400, 300)])
@each("coin", coins())
def test_for_all_respondents_the_interval_has_the_drawing_in_it(
    coin: SupportChance, everybody: int, n: int
) -> None:
    """Exact, at 95 %, by the law of the count where n of everybody were drawn to be asked."""
    counts = np.arange(n + 1)
    low, high = coin.for_respondents(counts, n, LEVEL, total=everybody)
    laws = np.array([full_law(n, held, coin) for held in range(n + 1)])
    for held in sorted({round(share * everybody) for share in np.linspace(0, 1, 41)}):
        law = hypergeom.pmf(counts, everybody, held, n) @ laws
        assert law[covered(low, high, held / everybody)].sum() >= 0.945
        shares = coin.share(counts, n)
        error = float(coin.noise_variance(held / everybody, n, total=everybody))
        assert law @ (shares - held / everybody) ** 2 == pytest.approx(error)


def test_a_share_is_unbiased_and_two_coins_are_twice_the_mean_less_a_half() -> None:
    coin = SupportChance(0.75, 0.25)
    assert coin.share(np.arange(11), 10) == pytest.approx([2 * count / 10 - 0.5 for count in range(11)])
    for held in (0, 3, 10):
        law = sum_law(10, held, coin)
        shares = coin.share(np.arange(11), 10)
        assert law @ shares == pytest.approx(held / 10, abs=1e-12)
        assert law @ (shares - held / 10) ** 2 == pytest.approx(float(coin.noise_variance(held / 10, 10)))
        law = binom.pmf(np.arange(11), 10, 0.25 + held / 10 / 2)
        assert law @ (shares - held / 10) ** 2 == pytest.approx(float(coin.variance(held / 10, 10)))


def test_intervals_are_no_wider_than_they_need_to_be() -> None:
    """For many reports they are the plain ones: 1.96 standard errors."""
    coin, n = SupportChance(0.75, 0.25), 1_000_000
    low, high = coin.for_population(np.array([400_000]), n, LEVEL)
    error = float(np.sqrt(coin.variance(0.3, n)))
    assert float((high - low)[0]) == pytest.approx(2 * 1.96 * error, rel=0.01)


@each("n", [5, 10, 30, 1000])
def test_the_quantile_is_near_students(n: int) -> None:
    assert LEVEL.t(n) == pytest.approx(t.ppf(0.975, n - 1), rel=0.02)
    assert LEVEL.z == pytest.approx(norm.ppf(0.975))


def test_many_intervals_together_take_a_part_of_the_risk_each() -> None:
    assert LEVEL.split(50).z == pytest.approx(norm.ppf(1 - 0.05 / 100))


@each("confidence", [0, 1, "nan", -1])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(BadParameter):
        ConfidenceLevel.of(confidence)


def test_a_ratio_has_all_values_that_are_not_rejected() -> None:
    moments = RatioMoments(0.3, 0.6, 0.0004, 0.0001, 0.0001)
    low, high = moments.interval(1.96, 0, 1)
    for r in (low, high):
        spread = 0.0004 - 2 * r * 0.0001 + r * r * 0.0001
        assert (0.3 - r * 0.6) ** 2 == pytest.approx(1.96**2 * spread)
    assert low < moments.value < high
    assert moments.error() == pytest.approx((high - low) / 2 / 1.96, rel=0.02)


def test_where_the_bottom_may_be_0_nothing_is_known() -> None:
    assert RatioMoments(0.3, 0.01, 0.01, 0.01, 0.0).interval(1.96, 0, 1) == (0, 1)
    assert math.isnan(RatioMoments(0.3, -0.1, 0.01, 0.01, 0.0).value)
    assert math.isnan(RatioMoments(0.3, -0.1, 0.01, 0.01, 0.0).error())


def test_a_ratio_whose_top_and_bottom_vary_together_has_no_error() -> None:
    """On every processor: what rounding leaves of terms that cancel is not an error."""
    for part in (1 / 3, 0.1, 0.018315638888734):
        top, var = part * 0.7, part * part * 0.003
        assert RatioMoments(top, 0.7, var * (1 + 2e-16), 0.003, part * 0.003).error() == 0
    error = RatioMoments(0.07, 0.7, 0.00003 + 1e-12, 0.003, 0.0003).error()
    assert error == pytest.approx(1e-6 / 0.7, rel=1e-3)
