from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest

from lapwing.audit.laws import dec, independent, ln, log_ratio, randomized_response
from lapwing.show.chapters.nobody_trusted import local_lower_bound, local_spread
from support.cases import each
from support.shown import TopicRun
from support.streams import SeededStream


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(2103))


# Two coins


def test_two_coins_report_three_quarters_and_a_quarter() -> None:
    run = TopicRun.of("two-coins", n="2000", share="0.3")
    assert run.table(0) == (("yes", 0.75, 0.25), ("no", 0.25, 0.75))
    assert "probability 3/4" in run.text
    found = dict(run.table(1))
    assert found["ε of one report"] == pytest.approx(float(ln(3)), abs=1e-15)
    assert found["true share of yes"] == 0.3
    seen = found["share of yes reports, first run"]
    assert found["estimate, first run"] == pytest.approx(2 * seen - 0.5)
    exact = math.sqrt(3 / 4 / 2000)
    assert found["standard deviation of the estimate, exact"] == pytest.approx(exact)
    # 400 runs: seven standard errors of a mean, and of a deviation.
    assert found["mean of all estimates"] == pytest.approx(0.3, abs=7 * exact / 20)
    assert found["standard deviation of all estimates"] == pytest.approx(exact, rel=7 / math.sqrt(800))


@each("share", [Fraction(0), Fraction(1, 3), Fraction(1)])
def test_the_spread_of_the_estimate_is_that_of_all_reports(share: Fraction) -> None:
    """Three respondents: over all reports, exactly; the truth of each does not matter."""
    truths, truth = [True] * round(3 * share) + [False] * round(3 * (1 - share)), Fraction(3, 4)
    mean, square = Fraction(0), Fraction(0)
    for sent in product((False, True), repeat=3):
        chance = math.prod(
            (truth if s == t else 1 - truth for s, t in zip(sent, truths, strict=True)), start=Fraction(1)
        )
        estimate = 2 * Fraction(sum(sent), 3) - Fraction(1, 2)
        mean += chance * estimate
        square += chance * estimate**2
    assert mean == share
    assert local_spread(truth, 3) == pytest.approx(math.sqrt(square - mean**2))


# Many questions


def test_m_questions_cost_m_times_ln_3() -> None:
    run = TopicRun.of("many-questions", m="5", n="100")
    laws = [randomized_response(answer, 2, dec(Fraction(3, 4))) for answer in (0, 1)]
    for asked, total, factor, belief, guess, error, kept in run.table(0):
        joint = [independent(*[law] * asked) for law in laws]
        assert total == pytest.approx(float(log_ratio(*joint)))
        assert total == pytest.approx(asked * math.log(3))
        assert factor == 3**asked
        assert belief == pytest.approx(float(Fraction(3**asked, 3**asked + 1)))
        best = sum(max(joint[0][sent], joint[1][sent]) for sent in joint[0]) / 2
        assert guess == pytest.approx(float(best))
        assert error == pytest.approx(math.sqrt(3) / 20)
        p = 3 ** (1 / asked) / (1 + 3 ** (1 / asked))
        assert kept == pytest.approx(math.sqrt(p * (1 - p) / 100) / (2 * p - 1))


# Curator and local


@each("epsilon", [Fraction(1, 2), Fraction(3)])
@each("people", [1, 2, 3])
def test_the_lower_bound_is_the_doubt_that_is_left(epsilon: Fraction, people: int) -> None:
    """Fair coins as truths, the most truthful ε-private reports: this variance is left."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    left = 0.0
    for sent in product((0, 1), repeat=people):
        chances = [0.0] * (people + 1)
        for truths in product((0, 1), repeat=people):
            likely = math.prod(p if s == t else 1 - p for s, t in zip(sent, truths, strict=True))
            chances[sum(truths)] += likely / 2**people
        mean = sum(k * chance for k, chance in enumerate(chances)) / sum(chances)
        left += sum(chance * (k - mean) ** 2 for k, chance in enumerate(chances))
    assert local_lower_bound(epsilon, people) == pytest.approx(math.sqrt(left) / people)


def test_a_curators_error_falls_like_n_and_a_local_one_like_the_root() -> None:
    run = TopicRun.of("curator-and-local", n="1000")
    lines = run.table(1)
    for one, ten in pairwise(lines):
        assert ten[1] == pytest.approx(one[1] / 10)
        assert ten[2] == pytest.approx(one[2] / math.sqrt(10))
        assert ten[3] == pytest.approx(one[3] / math.sqrt(10))
        assert ten[3] < ten[2]
    p = math.e / (1 + math.e)
    for _, curator, local, exact_curator, exact_local in run.table(0):
        assert exact_curator == pytest.approx(math.sqrt(2 / math.e) / (1 - 1 / math.e) / 1000)
        assert exact_local == pytest.approx(math.sqrt(p * (1 - p) / 1000) / (2 * p - 1))
        # Of a root mean square over 2,000 and 200 runs: seven standard errors or more.
        assert curator == pytest.approx(exact_curator, rel=0.2)
        assert local == pytest.approx(exact_local, rel=0.35)
