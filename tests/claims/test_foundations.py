"""The facts of the theory, each shown exactly where it can be, else with its false-alarm rate."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.audit.laws import (
    SLACK,
    Law,
    dec,
    exp,
    exponential,
    gaussian,
    independent,
    laplace,
    ln,
    log_ratio,
)
from lapwing.core import sensitivity
from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Pure, Relation, SequentialComposition
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import Exponential
from lapwing.errors import OverBudget
from support.cases import each
from support.exact_laws import excess
from support.streams import SeededStream

LN_3 = ln(3)


def response(truth: Decimal, answer: int) -> Law:
    return {answer: truth, 1 - answer: 1 - truth}


# 1


@each("epsilon", [Fraction(1, 10), Fraction(1)])
def test_fact_1_pure_privacy_bounds_the_probability_of_every_event(epsilon: Fraction) -> None:
    mechanism = Laplace.for_epsilon(epsilon, l1=1)
    one, other = (laplace(mechanism.scale, count, 6, 12) for count in (8, 9))
    for chosen in product((False, True), repeat=len(one)):  # all events
        event = [o for o, inside in zip(one, chosen, strict=True) if inside]
        assert sum(one[o] for o in event) <= exp(epsilon) * sum(other[o] for o in event) + SLACK


def test_fact_1_approximate_privacy_bounds_the_best_event_by_delta() -> None:
    mechanism = Gaussian.for_budget(1, "1e-4", l2_squared=1, dimension=1)
    laws = [gaussian(mechanism.sigma, count, -70, 70) for count in (0, 1)]
    for one, other in (laws, laws[::-1]):
        assert excess(one, other, 1) <= Decimal("1e-4")
    assert excess(laws[0], laws[1], 0) > Decimal("1e-4"), "at ε = 0 there are events beyond δ"


def test_fact_1_a_small_epsilon_is_about_the_relative_change() -> None:
    for k in range(1, 6):
        epsilon = Fraction(1, 10**k)
        assert abs(exp(epsilon) - 1 - dec(epsilon)) < dec(epsilon) ** 2


# 2


def test_fact_2_a_person_who_takes_part_is_harmed_no_more_than_one_who_stays_out() -> None:
    """Smokers and their illness: the finding is the same, up to e^ε, whether or not she took part."""
    epsilon = Fraction(1, 10)
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    ill_smokers = 620
    with_her, without_her = (laplace(scale, count, 0, 1000) for count in (ill_smokers, ill_smokers - 1))
    assert log_ratio(with_her, without_her) <= dec(epsilon) + SLACK
    premium_rises = [count for count in range(1001) if count > 500]  # an insurer acts on the finding
    harm_in, harm_out = (sum(law[c] for c in premium_rises) for law in (with_her, without_her))
    assert harm_in <= exp(epsilon) * harm_out


def test_fact_2_a_finding_about_everybody_applies_to_those_who_stayed_out() -> None:
    """Her premium rises almost surely, by what was learnt from others alone."""
    scale = Laplace.for_epsilon(Fraction(1, 10), l1=1).scale
    without_her = laplace(scale, 619, 0, 1000)
    assert sum(without_her[count] for count in range(501, 1001)) > Decimal("0.99999")


# 3


def test_fact_3_two_coins_are_exactly_ln_3_private() -> None:
    coins = [(first, second) for first in "HT" for second in "HT"]
    says_yes = {  # the protocol itself: heads tells the truth, tails lets the second coin answer
        truth: Fraction(sum(truth if first == "H" else second == "H" for first, second in coins), 4)
        for truth in (True, False)
    }
    assert says_yes == {True: Fraction(3, 4), False: Fraction(1, 4)}
    mechanism = RandomizedResponse.two_coins()
    assert mechanism.truth == says_yes[True]
    found = log_ratio(*(response(dec(Fraction(3, 4)), answer) for answer in (0, 1)))
    assert abs(found - LN_3) < Decimal("1e-20")
    assert 0 <= dec(mechanism.loss.epsilon) - LN_3 < Decimal("1e-20"), "and the claim is rounded up"


@each("questions", [1, 2, 5])
def test_fact_3_m_questions_cost_m_ln_3(questions: int) -> None:
    yes, no = response(dec(Fraction(3, 4)), 1), response(dec(Fraction(3, 4)), 0)
    found = log_ratio(independent(*[yes] * questions), independent(*[no] * questions))
    assert abs(found - questions * LN_3) < Decimal("1e-20")
    loss = SequentialComposition((RandomizedResponse.two_coins().loss,) * questions)
    assert loss.pure is not None
    assert 0 <= dec(loss.pure) - found < Decimal("1e-20")


def test_fact_3_two_times_the_mean_less_a_half_is_unbiased() -> None:
    for n, yes in [(1, 0), (3, 2), (4, 4)]:
        truths = [1] * yes + [0] * (n - yes)
        expected = Fraction(0)
        for reports in product((0, 1), repeat=n):
            pairs = list(zip(truths, reports, strict=True))
            p = math.prod(
                (Fraction(3, 4) if t == r else Fraction(1, 4) for t, r in pairs), start=Fraction(1)
            )
            estimate = 2 * Fraction(sum(reports), n) - Fraction(1, 2)
            assert RandomizedResponse.two_coins().estimate(reports)[1] == pytest.approx(float(estimate))
            expected += p * estimate
        assert expected == Fraction(yes, n)


# 4


@each("options", [2, 4])
@each("epsilon", [Fraction(1, 2), Fraction(2)])
def test_fact_4_general_randomized_response_is_unbiased_and_its_variance_is_the_formula(
    epsilon: Fraction, options: int
) -> None:
    mechanism = RandomizedResponse.for_epsilon(epsilon, options=options)
    truth = exp(epsilon) / (exp(epsilon) + options - 1)
    other = (1 - truth) / (options - 1)
    # One respondent, drawn from a population of which `share` has option 0: all cases.
    for share in (Decimal(0), Decimal("0.3"), Decimal(1)):
        reported = share * truth + (1 - share) * other
        estimates = {told: (told - other) / (truth - other) for told in (0, 1)}
        mean = reported * estimates[1] + (1 - reported) * estimates[0]
        variance = reported * estimates[1] ** 2 + (1 - reported) * estimates[0] ** 2 - mean**2
        assert abs(mean - share) < Decimal("1e-20")
        for n in (1, 100, 10_000):
            error = mechanism.standard_error(n, share=float(share))
            assert error == pytest.approx(math.sqrt(float(variance) / n), rel=1e-9)
            assert error == pytest.approx(mechanism.standard_error(1, share=float(share)) / math.sqrt(n))


def test_fact_4_estimates_from_many_reports_lie_within_six_standard_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """False alarm about 2e-9 for each n."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(71))
    mechanism = RandomizedResponse.for_epsilon(1)
    for n in (1_000, 100_000):
        answers = np.arange(n) % 10 < 3
        error = abs(mechanism.estimate(mechanism.sample(answers))[1] - 0.3)
        assert error < 6 * mechanism.standard_error(n, share=0.3)


# 6


@each("l1", [1, 4])
def test_fact_6_independent_laplace_draws_protect_a_whole_vector(l1: int) -> None:
    epsilon = Fraction(3, 2)
    scale = Laplace.for_epsilon(epsilon, l1=l1).scale
    assert scale == l1 / epsilon
    ends = (-l1 - 1, l1 + 1)
    home = independent(*[laplace(scale, 0, *ends)] * 2)
    for shift in [(l1, 0), (0, -l1), (l1 // 2, l1 - l1 // 2)]:
        away = independent(*(laplace(scale, x, *ends) for x in shift))
        assert abs(log_ratio(home, away) - dec(epsilon)) < SLACK


@each("scale", [Fraction(1, 2), Fraction(3), Fraction(50)])
def test_fact_6_the_mean_of_the_absolute_noise_is_about_the_scale(scale: Fraction) -> None:
    """For whole noise exactly 2q / (1 - q²), q = e^(-1/b): b up to O(1/b)."""
    reach = int(scale * 80) + 2
    mean = sum(abs(k) * p for k, p in laplace(scale, 0, -reach, reach).items())
    q = exp(-1 / scale)
    assert abs(mean - 2 * q / (1 - q * q)) < Decimal("1e-20")
    assert dec(scale) - 1 / (6 * dec(scale)) < mean < dec(scale)


def test_fact_6_the_drawn_noise_has_that_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm about 2e-9: six standard errors."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(72))
    noise = np.abs(Laplace.for_epsilon(1, l1=20).sample(np.zeros(200_000, dtype=np.int64)))
    assert abs(noise.mean() - 20) < 6 * 20 / math.sqrt(200_000) + 1 / 120


# 7 (every one by brute force in test_sensitivities.py)


def test_fact_7_the_textbook_sensitivities() -> None:
    n = 10_000
    assert sensitivity.count(rows=1).l1 == 1
    assert sensitivity.count(rows=5).l1 == 5, "someone may send five complaints"
    assert sensitivity.proportion(n=n, rows=1).l1 == Fraction(1, n)
    assert sensitivity.mean(low=0, high=1, n=n, rows=1).l1 == Fraction(1, n)
    assert sensitivity.variance(low=0, high=1, n=n, rows=1).l1 == Fraction(n - 1, n**2)
    assert float(sensitivity.deviation(low=0, high=1, n=n, rows=1).l1) == pytest.approx(
        1 / math.sqrt(n), rel=1e-4
    )
    assert sensitivity.histogram(relation=Relation.ADD_REMOVE, rows=1).l1 == 1
    assert sensitivity.histogram(relation=Relation.REPLACE, rows=1).l1 == 2


def test_fact_7_where_n_is_private_a_mean_is_a_noisy_total_over_a_noisy_count() -> None:
    """Both parts are charged, and the pair of them is private."""
    epsilon = Fraction(1)
    laws = []
    for data in ([1, 0, 1], [1, 0, 1, 1]):
        sums = laplace(2 / epsilon, sum(data), -2, 8)
        sizes = laplace(2 / epsilon, len(data), -2, 8)
        laws.append(independent(sums, sizes))
    assert abs(log_ratio(*laws) - dec(epsilon)) < SLACK
    each = Laplace.for_epsilon(epsilon / 2, l1=1).loss
    assert SequentialComposition((each, each)).pure == epsilon


# 8


def test_fact_8_the_loss_stays_within_epsilon_for_laplace_and_exceeds_it_for_gaussian_noise() -> None:
    mechanism = Gaussian.for_budget(1, "1e-5", l2_squared=1, dimension=1)
    one, other = (gaussian(mechanism.sigma, x, -120, 120) for x in (0, 1))
    beyond = [o for o in one if one[o] > exp(1) * other[o]]
    assert beyond
    probability, delta = sum(one[o] for o in beyond), excess(one, other, 1)
    assert delta <= dec(mechanism.delta(1)) <= Decimal("1e-5")
    # The loss exceeds ε with a probability above δ, and only there can δ be spent.
    assert delta < probability < 30 * delta
    still = [o for o in one if one[o] > exp(2) * other[o]]
    assert still, "and no ε ends this"
    pure = Laplace.for_epsilon(1, l1=1)
    assert log_ratio(laplace(pure.scale, 0, -120, 120), laplace(pure.scale, 1, -120, 120)) <= 1 + SLACK


def test_fact_8_gaussian_noise_grows_with_the_root_of_the_dimension_where_laplace_grows_with_it() -> None:
    """k counts of the same people, each moved by one: L1 = k, L2 = √k."""
    widths: dict[str, list[float]] = defaultdict(list)
    for k in (4, 64, 1024):
        widths["gaussian"].append(
            float(Gaussian.for_budget(1, "1e-6", l2_squared=k, dimension=k).sigma) / math.sqrt(k)
        )
        widths["laplace"].append(float(Laplace.for_epsilon(1, l1=k).scale) / k)
    assert max(widths["gaussian"]) / min(widths["gaussian"]) < 1.05
    assert widths["laplace"] == [1.0, 1.0, 1.0]


def test_fact_8_a_delta_of_one_over_n_may_give_a_whole_row_away() -> None:
    """Showing each row with probability δ is (0, δ)-private, and with n rows shows nδ of them."""
    n = 1000
    for delta, shown in ((Fraction(1, n), 1), (Fraction(1, 10 * n), Fraction(1, 10))):
        here: Law = {"her row": dec(delta), "nothing": 1 - dec(delta)}
        there: Law = {"her row": Decimal(0), "nothing": Decimal(1)}
        assert excess(here, there, 0) <= dec(delta)
        assert n * delta == shown


# 9


def test_fact_9_outputs_of_any_kind_are_chosen_in_proportion_to_their_utility() -> None:
    """Which price? Revenue of bids is useless with noise on the price, but not with a good price."""
    bids = [1, 1, 1, 301]
    prices = [1, 100, 301, 302]

    def revenue(price: int, of: list[int]) -> int:
        return price * sum(bid >= price for bid in of)

    utility = [revenue(price, bids) for price in prices]
    assert utility == [4, 100, 301, 0], "a slightly higher price earns nothing at all"
    mechanism = Exponential.for_epsilon(4, sensitivity=302)
    law = exponential(utility, Fraction(4) / (2 * 302))
    assert mechanism.rate == Fraction(4, 604)
    weights = [exp(Fraction(4, 604) * u) for u in utility]
    for i, j in product(range(4), repeat=2):
        assert abs(law[i] / law[j] - weights[i] / weights[j]) < Decimal("1e-20")
    for k in range(4):  # without any one of the bidders
        fewer = [revenue(price, bids[:k] + bids[k + 1 :]) for price in prices]
        assert log_ratio(law, exponential(fewer, Fraction(4, 604))) <= 4 + SLACK


# 10


def test_fact_10_epsilon_adds_up() -> None:
    epsilons = [Fraction(1, 10), Fraction(1, 2), Fraction(1)]
    laws = [[laplace(1 / e, x, 0, 1) for e in epsilons] for x in (0, 1)]
    assert abs(log_ratio(independent(*laws[0]), independent(*laws[1])) - dec(sum(epsilons))) < SLACK
    assert SequentialComposition(tuple(Laplace.for_epsilon(e, l1=1).loss for e in epsilons)).pure == sum(
        epsilons
    )


def test_fact_10_m_uses_cost_m_epsilon_and_the_filter_ends_there_without_delta() -> None:
    account = PrivacyFilter(Terms.of(1, 0))
    charge = account.terms.price(Laplace.for_epsilon("0.1", l1=1).loss)
    for _ in range(10):
        account.admit(charge)
    with pytest.raises(OverBudget):
        account.admit(charge)


@each("strategy", ["bold if winning", "bold if losing", "always bold", "timid first"])
@each(("epsilon", "delta"), [("1", "1e-4"), ("3", "1e-6"), ("0.5", "0.01")])
def test_fact_10_the_filter_never_promises_more_than_holds_for_an_adaptive_analyst(
    strategy: str, epsilon: str, delta: str
) -> None:
    """The analyst asks by randomized response at 1/10 or 2/10 of the budget's step, chosen by the answers.

    All answers are followed to the end, where the filter refuses both. The δ of the whole interaction is
    computed exactly at the ε that was promised.
    """
    terms = Terms.of(epsilon, delta)
    unit = Fraction(epsilon) / 16
    charges = {size: terms.price(Pure(size * unit)) for size in (1, 2)}
    # Answers so far: what is spent, and the log-ratio in units. Then P and Q follow from another.
    alive: dict[tuple[tuple[int, ...], int], float] = {(terms.nothing_spent, 0): 1.0}
    ended: dict[int, float] = defaultdict(float)
    rounds = 0
    while alive:
        following: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)
        for (spent, ratio), p in alive.items():
            bold = {
                "bold if winning": ratio > 0,
                "bold if losing": ratio <= 0,
                "always bold": True,
                "timid first": rounds > 10,
            }[strategy]
            for size in (2, 1) if bold else (1, 2):
                after = terms.after(spent, charges[size])
                if after is not None:
                    truth = 1 / (1 + math.exp(-size * float(unit)))
                    following[(after, ratio + size)] += p * truth
                    following[(after, ratio - size)] += p * (1 - truth)
                    break
            else:
                ended[ratio] += p
        alive, rounds = following, rounds + 1
    assert rounds > 8
    lost = sum(
        p * -math.expm1(float(Fraction(epsilon) - ratio * unit)) for ratio, p in ended.items() if ratio > 16
    )
    assert sum(ended.values()) == pytest.approx(1)
    assert lost <= float(Fraction(delta)) * (1 + 1e-9)
