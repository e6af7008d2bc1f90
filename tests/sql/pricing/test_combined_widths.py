"""Several releases of one question: weights, widths and levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.combined_widths import (
    MEANS_SHARE,
    Run,
    can_combine,
    farthest,
    mean_of_run,
    most_wrong,
    narrowest_mean,
    runs_of,
    width_of_sum,
)
from lapwing.sql.pricing.noise_shares import deviation
from lapwing.sql.pricing.noise_widths import NoiseFamily, half_width, noise_scale

Open = Callable[..., Dataset]
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
DRAWS = 40_000


def laplace(scale: int) -> Laplace:
    return Laplace(Fraction(scale), 1)


def gaussian(sigma: int) -> Gaussian:
    return Gaussian.for_rho(Fraction(1, 2 * sigma * sigma), l2_squared=1, dimension=DRAWS)


@pytest.mark.parametrize(
    "mechanisms",
    [
        [laplace(5), laplace(5)], [laplace(1), laplace(40)], [laplace(3), laplace(4), laplace(9)],
        [gaussian(6), gaussian(30)], [laplace(7), gaussian(7)], [laplace(50), laplace(60), gaussian(9)],
        [laplace(8)] * 12, [gaussian(9)] * 3, [laplace(900), *[laplace(8)] * 9],
    ],
)  # fmt: skip
def test_the_noise_of_the_mean_lies_within_the_width(mechanisms: list[Laplace | Gaussian]) -> None:
    """False alarms: below 1e-9 each (six standard deviations of a binomial share)."""
    zeros = np.zeros(DRAWS, dtype=np.int64)
    for confidence in (Fraction(1, 2), Fraction(95, 100), Fraction(999, 1000)):
        weights, width = narrowest_mean(mechanisms, confidence)
        mean = sum(w * one.sample(zeros) for w, one in zip(weights, mechanisms, strict=True))
        is_one = sum(map(bool, weights)) == 1
        most = float(1 - confidence) / (1 if is_one else 2)
        assert np.mean(np.abs(mean) > width) <= most + 6 * np.sqrt(most * (1 - most) / DRAWS)


SCALES = [1, 2, 3, 5, 8, 9, 20, 50, 300]


@pytest.mark.parametrize("make", [laplace, gaussian])
# Case C16.
def test_no_interval_is_wider_than_any_release_alone(
    make: Callable[[int], Laplace | Gaussian],
) -> None:
    for confidence in (Fraction(1, 2), Fraction(95, 100), Fraction(999, 1000)):
        for scales in itertools.product(SCALES, repeat=3):
            mechanisms = [make(scale) for scale in scales]
            _, half = narrowest_mean(mechanisms, confidence)
            assert half <= min(half_width(one, confidence) for one in mechanisms)


# Case C16.
def test_equal_releases_are_all_averaged_and_get_narrower_each_time() -> None:
    for make in (laplace, gaussian):
        before = math.inf
        for count in range(1, 30):
            weights, half = narrowest_mean([make(20)] * count, Fraction(95, 100))
            assert weights == pytest.approx([1 / count] * count)
            assert half < before
            before = half


# Case C16.
@pytest.mark.parametrize("count", [1, 30])
def test_cheap_releases_do_not_spoil_the_mean_of_better_ones(count: int) -> None:
    """Neither before nor after them."""
    confidence, cheap, good = Fraction(95, 100), [laplace(10**5)] * count, [laplace(20)] * 9
    weights, half = narrowest_mean([*cheap, *good], confidence)
    assert weights == pytest.approx([0] * count + [1 / 9] * 9)
    assert half < 0.7 * half_width(laplace(20), confidence)
    assert narrowest_mean([*good, *cheap], confidence)[0] == pytest.approx([1 / 9] * 9 + [0] * count)


def test_a_much_smaller_scale_stands_alone() -> None:
    confidence = Fraction(95, 100)
    assert narrowest_mean([gaussian(20), gaussian(15)], confidence)[0] == pytest.approx([3 / 7, 4 / 7])
    assert narrowest_mean([gaussian(90), gaussian(3)], confidence)[0] == [0, 1]
    assert narrowest_mean([laplace(5), laplace(50)], confidence)[0] == [1, 0]
    assert narrowest_mean([laplace(5), gaussian(50)], confidence)[0] == [1, 0]


def test_all_means_together_miss_with_what_is_said() -> None:
    eta = Fraction(5, 100)
    runs = [Run(number, is_gaussian=False) for number in range(1, 60)]
    missed = sum((run.level(first, 1 - eta) for run in runs for first in range(2, 60)), Fraction(0))
    assert 0.95 * MEANS_SHARE * eta < missed < MEANS_SHARE * eta
    assert most_wrong(0.95, 1) == pytest.approx(0.05)
    assert most_wrong(0.95, 3) == pytest.approx(0.25)
    assert most_wrong(0.95, 40) == 1


def test_runs_are_formed_by_scales_in_the_order_of_releases() -> None:
    made: list[Laplace | Gaussian] = [laplace(100), laplace(100), gaussian(9), laplace(10), laplace(90)]
    made += [laplace(12), gaussian(9)]
    assert [run.members for run in runs_of(made)] == [[0, 1], [2, 6], [3, 5]]
    for known in range(1, len(made)):  # what comes later changes nothing
        for run, later in zip(runs_of(made[:known]), runs_of(made), strict=False):
            assert run.members == later.members[: len(run.members)]
            assert (run.number, run.is_gaussian) == (later.number, later.is_gaussian)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40, 3000])
@pytest.mark.parametrize("miss", [Fraction(1, 4), Fraction(1, 100), Fraction(1, 10**7)])
def test_the_width_of_a_sum_is_exact(count: int, miss: Fraction) -> None:
    """Against SciPy: a sum of Laplace noises is Gamma minus Gamma."""
    t = width_of_sum(count, miss, is_gaussian=False)
    shape = stats.gamma(count)
    beyond, _ = integrate.quad(
        lambda h: shape.pdf(h) * shape.sf(t + h), *shape.ppf([1e-13, 1 - 1e-13]), limit=400, epsrel=1e-9
    )
    assert 2 * beyond == pytest.approx(float(miss), rel=1e-6)
    t = width_of_sum(count, miss, is_gaussian=True)
    assert 2 * stats.norm.sf(t / math.sqrt(count)) == pytest.approx(float(miss), rel=1e-9)


Law = tuple[Whole, Floats]
Rule = Callable[[Sequence[Laplace | Gaussian], Fraction], tuple[list[float], float]]


def law_of(mechanism: Laplace | Gaussian) -> Law:
    """All values that count, and their probabilities."""
    scale = noise_scale(mechanism)
    values = np.arange(-math.ceil(45 * scale), math.ceil(45 * scale) + 1)
    is_gaussian = isinstance(mechanism, Gaussian)
    law = np.exp(-((values / scale) ** 2) / 2 if is_gaussian else -np.abs(values) / scale)
    return values, law / law.sum()


def missing(noise: Floats, weight: float, newest: Law, half: float) -> Floats:
    """P[|noise + weight · newest| > half], for each of the known noises."""
    values, law = newest
    below = np.append(0.0, np.cumsum(law))
    first = np.searchsorted(weight * values, -half - noise, side="left")
    after = np.searchsorted(weight * values, half - noise, side="right")
    return np.asarray(1 - np.maximum(below[after] - below[first], 0.0))


def worst(rule: Rule, first: Laplace | Gaussian, seconds: list[Laplace | Gaussian], eta: Fraction) -> float:
    """P[the second interval misses] if who asks knows the first noise and takes the worst second one."""
    values, law = law_of(first)
    most = np.zeros(len(values))
    for second in seconds:
        (mine, its), half = rule([first, second], 1 - eta)
        most = np.maximum(most, missing(mine * values.astype(np.float64), its, law_of(second), half))
    return float(law @ most)


def by_variances(
    mechanisms: Sequence[Laplace | Gaussian], confidence: Fraction
) -> tuple[list[float], float]:
    """The rule for releases that were fixed in advance: best there, and wrong where ε was chosen."""
    weights = np.array([1 / deviation(one) ** 2 for one in mechanisms])
    weights /= weights.sum()
    noises = NoiseFamily(isinstance(mechanisms[0], Gaussian), 1 - (1 - confidence) / 2)
    scales = [w * noise_scale(one) for w, one in zip(weights, mechanisms, strict=True)]
    return list(weights), float(noises.width([np.array(scale) for scale in scales]))


def by_newest_mean(
    mechanisms: Sequence[Laplace | Gaussian], confidence: Fraction
) -> tuple[list[float], float]:
    """The mean that the newest release is part of, whether it is shown or not; without one, no end."""
    newest = len(mechanisms) - 1
    for run in runs_of(mechanisms):
        if len(run.members) > 1 and run.members[-1] == newest:
            weights, half = mean_of_run(mechanisms, run, len(run.members), confidence)
            return [weights.get(number, 0.0) for number in range(len(mechanisms))], half
    return [0.0] * newest + [1.0], math.inf


MENU = [9, 11, 14, 20, 28, 40, 47]  # a second one beside 20 that joins its run


@pytest.mark.parametrize("eta", [Fraction(5, 100), Fraction(1, 5)])
@pytest.mark.parametrize("make", [laplace, gaussian])
# Case C11.
def test_an_epsilon_chosen_from_the_first_release_changes_no_promise(
    make: Callable[[int], Laplace | Gaussian], eta: Fraction
) -> None:
    """Exact: no draws. The mean of both is held at η/2, the first and the second at η each."""
    first, seconds = make(20), [make(scale) for scale in MENU]
    assert all(len(runs_of([first, one])) == 1 for one in seconds)
    assert worst(by_variances, first, seconds, eta) > float(eta / 2) * 1.1  # as if ε were not chosen
    assert worst(by_newest_mean, first, seconds, eta) <= float(eta / 2)
    more = [*seconds, make(2), make(200)]
    assert float(eta) * 1.4 < worst(narrowest_mean, first, more, eta) <= float(eta) * 5 / 2
    for one in more:  # fixed in advance
        assert worst(narrowest_mean, first, [one], eta) <= float(eta)


# Case C11.
def test_nor_does_a_kind_of_noise_that_was_chosen() -> None:
    eta = Fraction(5, 100)
    seconds = [make(scale) for scale in MENU for make in (laplace, gaussian)]
    for first in (laplace(20), gaussian(20)):
        assert worst(by_newest_mean, first, seconds, eta) <= float(eta / 2)
        assert worst(narrowest_mean, first, seconds, eta) <= float(eta) * 5 / 2


def missed_by_greedy(rule: Rule, menu: list[Laplace | Gaussian], releases: int, eta: Fraction) -> float:
    """How often an interval of a rule misses, at one of the releases.

    Who asks knows all noises, and takes what makes the next interval miss most likely.
    """
    laws = [law_of(one) for one in menu]
    draws = np.random.default_rng(3)

    def drawn(which: int, count: int) -> Floats:
        values, law = laws[which]
        return draws.choice(values.astype(np.float64), size=count, p=law)

    groups: dict[tuple[int, ...], Floats] = {(): np.zeros((0, DRAWS))}  # by scales: noises of each draw
    missed = 0
    for _ in range(releases):
        chosen: dict[tuple[int, ...], list[Floats]] = {}
        for scales, noises in groups.items():
            rules = [rule([menu[k] for k in (*scales, new)], 1 - eta) for new in range(len(menu))]
            chances = [
                missing(np.array(weights[:-1]) @ noises, weights[-1], laws[new], half)
                for new, (weights, half) in enumerate(rules)
            ]
            best = np.argmax(chances, axis=0)
            for new, (weights, half) in enumerate(rules):
                known = noises[:, best == new]
                both = np.vstack([known, drawn(new, known.shape[1])])
                holds = np.abs(np.array(weights) @ both) <= half
                missed += int((~holds).sum())
                chosen.setdefault((*scales, new), []).append(both[:, holds])
        groups = {scales: np.hstack(found) for scales, found in chosen.items()}
    return missed / DRAWS


@pytest.mark.parametrize(
    "menu", [[laplace(8), laplace(20), laplace(50)], [gaussian(6), laplace(20), gaussian(20)]]
)
# Case C11.
def test_five_releases_each_chosen_from_all_before_hold_together(menu: list[Laplace | Gaussian]) -> None:
    """False alarm: below 1e-9 (six standard deviations of a binomial share)."""
    eta = Fraction(5, 100)
    for rule, most in ((narrowest_mean, most_wrong(0.95, 5)), (by_newest_mean, MEANS_SHARE * float(eta))):
        missed = missed_by_greedy(rule, menu, 5, eta)
        assert 0 < missed <= most + 6 * math.sqrt(most / DRAWS)


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1, 2), 1, 3, 40])
def test_whole_noise_is_as_near_to_continuous_noise_as_is_said(scale: Fraction) -> None:
    """In order of size: P[N ≥ m] lies between P[X ≥ m - 1 + far] and P[X ≥ m - far], X continuous."""
    for is_gaussian in (False, True):
        mechanism = Gaussian(scale, Fraction(1), 1) if is_gaussian else Laplace(scale, 1)
        values, law = law_of(mechanism)
        m = values[(values >= 1) & (values <= float(12 * scale + 2))]
        tails = np.array([law[values >= k].sum() for k in m])
        far = farthest(mechanism)
        assert 0.5 <= far <= 1
        for x, sign in ((m - far, -1), (m - 1 + far, 1)):
            u = x / float(scale)
            beyond = [math.erfc(v / math.sqrt(2)) / 2 if is_gaussian else math.exp(-v) / 2 for v in u]
            assert (sign * (tails - beyond) >= -1e-14).all()


@pytest.mark.parametrize(
    ("sql", "additive"),
    [
        ("SELECT ward, COUNT(*), SUM(stay) FROM visits GROUP BY ward", True),
        ("SELECT COUNT(DISTINCT patient_id) FROM visits", True),
        ("SELECT AVG(stay) FROM visits", False),
        ("SELECT COUNT(*) + 1 FROM visits", False),
        ("SELECT MEDIAN(stay) FROM visits", False),
        ("SELECT name, COUNT(*) FROM visits GROUP BY name", False),
        ("SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward LIMIT 1", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 9", False),
    ],
)
def test_what_can_be_combined(opened: Open, sql: str, additive: bool) -> None:
    assert can_combine(opened().plan(sql, epsilon=1).question) is additive


def test_noises_of_both_kinds_are_combined(opened: Open) -> None:
    dataset = opened()
    sql = "SELECT ward, COUNT(*) AS n, SUM(stay) AS s FROM visits GROUP BY ward"
    dataset.ask(sql, epsilon=1, noise="laplace")
    both = dataset.ask(sql, epsilon=3, noise="gaussian", delta="1e-8")
    assert both.of == 2
    n, s = both.columns[1:]
    for column, exact in ((n, [200, 400]), (s, [1000, 2000])):
        assert column.low is not None
        assert column.high is not None
        assert (column.low <= column.values).all()
        assert (column.values <= column.high).all()
        assert np.abs(column.values - exact).max() < 100 * (1 if column is n else 10)
    again = dataset.ask(sql, epsilon=1, noise="laplace")
    assert again.is_replay
    assert again.of == 2
    assert (again.columns[1].values == n.values).all()
