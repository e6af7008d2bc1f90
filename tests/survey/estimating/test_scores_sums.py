"""Running sums give unbiased means and both kinds of variance: by enumeration of all reports."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from lapwing.survey.estimating.intervals import ConfidenceLevel, RatioMoments
from lapwing.survey.estimating.scores import ReportScores, ScoreLimits, ScoreSums

TRUTH, LIE = 0.7, 0.15  # three options: yes, no, none
VALUES = np.array([2.0, 1.0, 0.0])  # of a function that is 0 for no answer


def scores_of(reports: list[int]) -> ReportScores:
    supports = np.eye(3)[reports]

    def score(
        values: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        found: np.ndarray[tuple[int], np.dtype[np.float64]] = (supports @ values - LIE * values.sum()) / (
            TRUTH - LIE
        )
        return found

    return ReportScores(
        score(VALUES)[:, None], 1 - score(np.array([0.0, 0.0, 1.0])), score(VALUES**2)[:, None]
    )


def moments(reports: list[int], *, noise_only: bool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sums = ScoreSums(1)
    sums.add(scores_of(reports))
    n = len(reports)
    if noise_only:  # the raw estimate, before it is compared with what is possible
        top2, both, bottom2 = sums._top2[0], sums._both[0], sums._bottom2
        parts = top2 - sums._square[0], bottom2 - sums._bottom, both - sums._top[0]
        return np.array([sums._top[0] / n, sums._bottom / n, *(part / n**2 for part in parts)])
    found = sums.moments(0)
    return np.array([found.top, found.bottom, found.var_top, found.var_bottom, found.cov])


def test_both_variances_are_unbiased() -> None:
    answers = [0, 1, 1, 2]
    f, g = VALUES[answers], np.array([1.0, 1.0, 1.0, 0.0])
    first, second = np.zeros(2), np.zeros((2, 2))
    expected = np.zeros(5)
    for reports in product(range(3), repeat=4):
        p = np.prod([TRUTH if r == a else LIE for r, a in zip(reports, answers, strict=True)])
        found = moments(list(reports), noise_only=True)
        first += p * found[:2]
        second += p * np.outer(found[:2], found[:2])
        expected += p * found
    assert first == pytest.approx([f.mean(), g.mean()])
    true = second - np.outer(first, first)
    assert expected[2:] == pytest.approx([true[0, 0], true[1, 1], true[0, 1]])


def test_the_variance_for_a_population_is_unbiased() -> None:
    shares = np.array([0.5, 0.2, 0.3])
    reported = LIE + shares * (TRUTH - LIE)
    first, second, expected = np.zeros(2), np.zeros((2, 2)), np.zeros(3)
    for reports in product(range(3), repeat=3):
        p = np.prod(reported[list(reports)])
        sums = ScoreSums(1)
        scores = scores_of(list(reports))
        sums.add(scores)
        top, bottom = scores.top[:, 0], scores.bottom
        mean = np.array([top.mean(), bottom.mean()])
        first += p * mean
        second += p * np.outer(mean, mean)
        found = sums.moments(0)
        assert found.var_top == pytest.approx(top.var(ddof=1) / 3)
        expected += p * np.array([found.var_top, found.var_bottom, found.cov])
    true = second - np.outer(first, first)
    assert expected == pytest.approx([true[0, 0], true[1, 1], true[0, 1]])


def test_the_variance_for_those_who_were_drawn_is_unbiased() -> None:
    """All ways to draw two of four respondents, and all that they may send."""
    answers, n = [0, 1, 1, 2], 2
    first, second, expected = np.zeros(2), np.zeros((2, 2)), np.zeros(3)
    for drawn in combinations(answers, n):
        for reports in product(range(3), repeat=n):
            p = np.prod([TRUTH if r == a else LIE for r, a in zip(reports, drawn, strict=True)]) / 6
            noise = RatioMoments(*moments(list(reports), noise_only=True))
            whole = RatioMoments(*moments(list(reports), noise_only=False))
            found = noise.mixed(whole, 1 - n / len(answers))
            mean = np.array([found.top, found.bottom])
            first += p * mean
            second += p * np.outer(mean, mean)
            expected += p * np.array([found.var_top, found.var_bottom, found.cov])
    true = second - np.outer(first, first)
    assert expected == pytest.approx([true[0, 0], true[1, 1], true[0, 1]])


def test_blocks_add_up() -> None:
    reports = [0, 1, 2, 1, 1, 0, 2, 2]
    whole, parts = ScoreSums(1), ScoreSums(1)
    whole.add(scores_of(reports))
    for start in (0, 3, 6):
        parts.add(scores_of(reports[start : start + 3]))
    assert parts.moments(0).var_top == pytest.approx(whole.moments(0).var_top)
    assert parts.n == whole.n


def test_one_report_says_nothing() -> None:
    sums = ScoreSums(1)
    sums.add(scores_of([0]))
    interval = sums.interval(0, ConfidenceLevel.of("0.9"), ScoreLimits(0.0, 2.0, 1.0, 1.0))
    assert (interval.low, interval.high) == (0.0, 2.0)


def test_within_a_group_all_scores_are_weighed() -> None:
    scores = scores_of([0, 2])
    weighed = scores.times(np.array([2.0, -1.0]))
    assert weighed.top[:, 0] == pytest.approx(scores.top[:, 0] * [2, -1])
    assert weighed.bottom == pytest.approx(scores.bottom * [2, -1])
    assert weighed.of_all().bottom == pytest.approx([1, 1])
    assert ReportScores(scores.top, scores.bottom, None).times(np.ones(2)).square is None
