"""Several releases of one question: weights, widths and levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.sql.answers import EACH_KIND_SHARE, SINGLE_SHARE, can_combine, level_of_repeat, narrowest_mean
from lapwing.sql.dataset import Dataset
from lapwing.sql.intervals import NoiseFamily, noise_scale
from lapwing.sql.noising import deviation

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
        [laplace(8)] * 12,
    ],
)  # fmt: skip
def test_the_noise_of_the_mean_lies_within_the_width(mechanisms: list[Laplace | Gaussian]) -> None:
    """False alarms: below 1e-9 each (six standard deviations of a binomial share)."""
    zeros = np.zeros(DRAWS, dtype=np.int64)
    for confidence in (Fraction(1, 2), Fraction(95, 100), Fraction(999, 1000)):
        weights, width = narrowest_mean(mechanisms, confidence)
        mean = sum(w * one.sample(zeros) for w, one in zip(weights, mechanisms, strict=True))
        inverse = sum(1 / deviation(one) ** 2 for one in mechanisms)
        assert np.var(mean) < 2 / inverse  # of the best mean's, by inverse variances
        most = float(1 - confidence) / 2
        assert np.mean(np.abs(mean) > width) <= most + 6 * np.sqrt(most * (1 - most) / DRAWS)


def test_equal_scales_are_averaged_and_a_much_smaller_one_stands_alone() -> None:
    confidence = Fraction(95, 100)
    assert narrowest_mean([laplace(20)] * 4, confidence)[0] == pytest.approx([0.25] * 4)
    assert narrowest_mean([gaussian(20), gaussian(10)], confidence)[0] == pytest.approx([1 / 3, 2 / 3])
    assert narrowest_mean([gaussian(90), gaussian(3)], confidence)[0] == [0, 1]
    assert narrowest_mean([laplace(5), laplace(50)], confidence)[0] == [1, 0]


def test_all_combined_intervals_hold_together() -> None:
    """What sums of one kind, single releases, and sums of both kinds may miss, over any sequence."""
    eta = Fraction(5, 100)

    def missed(share: Fraction, first: int) -> Fraction:
        return sum((1 - level_of_repeat(1 - eta, i, share) for i in range(first, 2000)), Fraction(0))

    first_of_two = 1 - level_of_repeat(
        1 - eta, 1, EACH_KIND_SHARE
    )  # later ones are held as sums of one kind
    assert (
        missed(Fraction(1), 2) + missed(SINGLE_SHARE, 1) + first_of_two + missed(EACH_KIND_SHARE, 1) < eta
    )
    assert EACH_KIND_SHARE <= 1


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
    level = level_of_repeat(confidence, len(mechanisms))
    noises = NoiseFamily(isinstance(mechanisms[0], Gaussian), level)
    scales = [w * noise_scale(one) for w, one in zip(weights, mechanisms, strict=True)]
    return list(weights), float(noises.width([np.array(scale) for scale in scales]))


MENU = [5, 7, 10, 14, 20, 28, 40, 56, 80, 160]


@pytest.mark.parametrize("eta", [Fraction(5, 100), Fraction(1, 5)])
@pytest.mark.parametrize("make", [laplace, gaussian])
# Case C11.
def test_an_epsilon_chosen_from_the_first_release_changes_no_promise(
    make: Callable[[int], Laplace | Gaussian], eta: Fraction
) -> None:
    """Exact: no draws. Of the first alone, the second, and both, one is shown: η/8 + η/24 + η/6."""
    first, seconds = make(20), [make(scale) for scale in MENU]
    assert worst(by_variances, first, seconds, eta) > float(eta / 6) * 1.3  # what was promised before
    assert worst(narrowest_mean, first, seconds, eta) <= float(eta / 3)
    for one in seconds:
        assert worst(narrowest_mean, first, [one], eta) <= float(eta / 6)


def test_nor_does_a_kind_of_noise_that_was_chosen() -> None:
    eta = Fraction(5, 100)
    seconds = [make(scale) for scale in MENU for make in (laplace, gaussian)]
    for first in (laplace(20), gaussian(20)):
        assert worst(narrowest_mean, first, seconds, eta) <= float(eta / 2)


def test_five_releases_each_chosen_from_all_before_hold_together() -> None:
    """Who asks knows all noises, and takes what makes the next miss most likely.

    False alarm: below 1e-9 (six standard deviations of a binomial share).
    """
    eta, menu = Fraction(5, 100), [laplace(8), laplace(20), laplace(50)]
    laws = [law_of(one) for one in menu]
    draws = np.random.default_rng(3)

    def drawn(which: int, count: int) -> Floats:
        values, law = laws[which]
        return draws.choice(values.astype(np.float64), size=count, p=law)

    groups: dict[tuple[int, ...], Floats] = {(1,): drawn(1, DRAWS)[None]}  # by scales: noises of each draw
    missed = 0
    for _ in range(4):
        chosen: dict[tuple[int, ...], list[Floats]] = {}
        for scales, noises in groups.items():
            rules = [narrowest_mean([menu[k] for k in (*scales, new)], 1 - eta) for new in range(3)]
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
    most = float(eta) * ((1 / 2 - 1 / 6) + (1 - 1 / 6) / 4)
    assert 0 < missed / DRAWS <= most + 6 * math.sqrt(most / DRAWS)


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1, 2), 1, 3, 40])
def test_whole_noise_is_within_one_of_continuous_noise(scale: Fraction) -> None:
    """In order of size: P[N ≥ m] lies between P[X ≥ m] and P[X ≥ m - 1] for continuous noise X."""
    for is_gaussian in (False, True):
        mechanism = Gaussian(scale, Fraction(1), 1) if is_gaussian else Laplace(scale, 1)
        values, law = law_of(mechanism)
        m = values[(values >= 1) & (values <= float(12 * scale + 2))]
        tails = np.array([law[values >= k].sum() for k in m])
        x = np.append(m[0] - 1, m) / float(scale)
        beyond = np.array([math.erfc(t / math.sqrt(2)) if is_gaussian else math.exp(-t) for t in x]) / 2
        assert (tails <= beyond[:-1] + 1e-15).all()
        assert (tails >= beyond[1:] - 1e-15).all()


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
    alone = dataset.ask(sql, epsilon=1, noise="laplace")
    assert alone.is_replay
    assert alone.of == 1
