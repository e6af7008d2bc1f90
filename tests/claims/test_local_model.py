"""Facts 3 to 5 for surveys: two coins, general randomized response, and what the local model costs.

The coins themselves are in test_foundations.py and test_randomized_response.py. Here are those of a survey,
with its own randomizers, plans and estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lapwing.audit.laws import dec, exp, ln
from lapwing.core.exact import log_up
from lapwing.core.laplace import Laplace
from lapwing.survey.estimating.intervals import support_chance_of
from lapwing.survey.estimating.survey_estimates import estimate
from lapwing.survey.randomizers import KaryResponse
from support.cases import each
from support.estimated import by_name, designed
from support.streams import SeededStream

COINS = 'kind = "yes_no"\nprotocol = "two_coins"\nno_answer = false'


# 3


def test_fact_3_the_coins_of_a_survey_are_exactly_ln_3() -> None:
    coins = KaryResponse.two_coins()
    law = {(answer, sent): coins.probability(answer, bytes([sent])) for answer in (0, 1) for sent in (0, 1)}
    assert law == {
        (0, 0): Fraction(3, 4),
        (0, 1): Fraction(1, 4),
        (1, 0): Fraction(1, 4),
        (1, 1): Fraction(3, 4),
    }
    worst = max(law[one, sent] / law[other, sent] for one, other, sent in product((0, 1), repeat=3))
    assert worst == 3
    assert 0 <= dec(coins.loss.epsilon) - ln(3) < Decimal("1e-20"), "rounded up"


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_fact_3_m_questions_of_a_survey_cost_m_ln_3(questions: int, tmp_path: Path) -> None:
    made = designed(tmp_path, *[COINS] * questions, epsilon="5")
    assert made.asks_all
    coins = KaryResponse.two_coins()
    worst = max(
        math.prod(
            (coins.probability(0, bytes([m])) / coins.probability(1, bytes([m])) for m in sent),
            start=Fraction(1),
        )
        for sent in product((0, 1), repeat=questions)
    )
    assert worst == 3**questions, "over all reports of a respondent who changes every answer"
    assert 0 <= made.epsilon - questions * Fraction(ln(3)) < Fraction(1, 10**19)


def test_fact_3_the_estimate_of_a_survey_is_twice_the_mean_less_a_half(tmp_path: Path) -> None:
    made = designed(tmp_path, COINS, epsilon="2")
    truths = (0, 0, 1)
    expected = Fraction(0)
    for sent in product((0, 1), repeat=3):
        rows = np.array([list(made.layout.pack({0: bytes([m])})) for m in sent], dtype=np.uint8)
        found = estimate(made, rows).answers[0].table("share").estimates[1].value
        assert found == pytest.approx(2 * sum(sent) / 3 - 1 / 2)
        p = math.prod(
            (Fraction(3, 4) if t == m else Fraction(1, 4) for t, m in zip(truths, sent, strict=True)),
            start=Fraction(1),
        )
        expected += p * (2 * Fraction(sum(sent), 3) - Fraction(1, 2))
    assert expected == Fraction(1, 3)


# 4


@each("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
@each("options", [2, 5])
def test_fact_4_the_truth_has_the_greatest_odds_that_epsilon_allows(
    epsilon: Fraction, options: int
) -> None:
    choice = KaryResponse.for_epsilon(epsilon, options=options)
    ideal = exp(epsilon) / (exp(epsilon) + options - 1)
    assert 0 <= ideal - dec(choice.inside) < Decimal(2) ** -48, "the next coin of 48 bits below it"
    assert dec(choice.inside / choice.outside) <= exp(epsilon)


@each("options", [2, 5])
def test_fact_4_shares_are_unbiased_with_the_variance_of_the_formula(options: int) -> None:
    """One respondent, by the exact law of the coins: no false alarm."""
    choice = KaryResponse.for_epsilon(1, options=options)
    coin = support_chance_of(choice)
    for share in (0.0, 0.3, 1.0):
        seen = coin.outside + share * coin.gap
        scores = coin.share([0, 1], 1)
        mean = (1 - seen) * scores[0] + seen * scores[1]
        assert mean == pytest.approx(share, abs=1e-12)
        variance = (1 - seen) * scores[0] ** 2 + seen * scores[1] ** 2 - mean**2
        for n in (1, 100, 10**6):
            assert float(coin.variance(share, n)) == pytest.approx(variance / n)


# 5


@each("epsilon", [Fraction(1, 10), Fraction(1), log_up(3), Fraction(5)])
def test_fact_5_a_prior_of_a_half_ends_between_the_exact_bounds(epsilon: Fraction) -> None:
    """Whatever is sent, belief stays in [1 / (e^ε + 1), e^ε / (e^ε + 1)]; two options reach both ends."""
    low, high = 1 / (exp(epsilon) + 1), exp(epsilon) / (exp(epsilon) + 1)
    for options in (2, 3, 8):
        choice = KaryResponse.for_epsilon(epsilon, options=options)
        for one, other in ((0, 1), (1, 0)):
            for sent in range(options):
                p, q = (choice.probability(answer, bytes([sent])) for answer in (one, other))
                posterior = dec(p / (p + q))
                assert low <= posterior <= high
    coins = KaryResponse.for_epsilon(epsilon, options=2)
    reached = dec(coins.probability(0, bytes([0])))
    assert high - reached < Decimal(2) ** -48, "and the coins are the next ones of 48 bits"


class Measured(NamedTuple):
    """Root mean square errors of a share with n people: asked locally, and held by a curator."""

    n: int
    local: float
    curator: float


def slope(sizes: Sequence[int], errors: Sequence[float]) -> float:
    """How errors fall with n: the exponent of the best power law."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def measured(folder: Path, sizes: tuple[int, ...], reports: int) -> list[Measured]:
    """Errors of the real survey and the real curator at ε = 1, with fresh noise for every size."""
    made = designed(folder, 'kind = "yes_no"\nno_answer = false', epsilon="1")
    noise = Laplace.for_epsilon(1, l1=1)
    found = []
    for n in sizes:
        answers = np.arange(n) % 2
        runs = reports // n
        local = [
            estimate(made, made.simulate(by_name(made, [answers])))
            .answers[0]
            .table("share")
            .estimates[1]
            .value
            for _ in range(runs)
        ]
        curator = noise.sample(np.full(runs, int(answers.sum()))) / n
        errors = [float(np.sqrt(np.mean((np.array(e) - answers.mean()) ** 2))) for e in (local, curator)]
        found.append(Measured(n, *errors))
    return found


@pytest.mark.slow
def test_fact_5_the_error_of_a_survey_falls_like_the_root_and_a_curators_like_n(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm about 1e-11 each: the bounds are seven standard errors of a slope, 0.014 and 0.021."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(540))
    points = measured(tmp_path, (100, 300, 1_000, 3_000), 600_000)
    sizes = [point.n for point in points]
    assert slope(sizes, [point.local for point in points]) == pytest.approx(-0.5, abs=0.1)
    assert slope(sizes, [point.curator for point in points]) == pytest.approx(-1.0, abs=0.15)
    coin = support_chance_of(KaryResponse.for_epsilon(1, options=2))
    for point in points:
        expected = math.sqrt(float(coin.noise_variance(0.5, point.n)))
        # Of a root mean square over 200 runs or more: 6 standard errors are below 0.31 of it.
        assert point.local == pytest.approx(expected, rel=0.31)
