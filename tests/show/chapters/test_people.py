from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from lapwing.audit.laws import SLACK, dec, exp, laplace, precise
from lapwing.show.chapters.people import finding_probability
from support.cases import each
from support.shown import TopicRun
from support.streams import SeededStream


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(2102))


# Smoking


@precise
def by_all_pairs(epsilon: Fraction, ill: int, well: int) -> Decimal:
    """P[noisy ill > noisy well], over all pairs of noisy counts."""
    scale, reach = 1 / epsilon, 80
    one, other = (laplace(scale, count, count - reach, count + reach) for count in (ill, well))
    return sum((p * q for a, p in one.items() for b, q in other.items() if a > b), Decimal(0))


@each(("ill", "well"), [(5, 3), (3, 3), (0, 4)])
def test_the_finding_has_its_exact_probability(ill: int, well: int) -> None:
    epsilon = Fraction(1)
    assert abs(finding_probability(epsilon, ill, well) - by_all_pairs(epsilon, ill, well)) < SLACK


@each("epsilon", [Fraction(1, 10), Fraction(2)])
def test_the_finding_is_within_the_ratio_with_and_without_mary(epsilon: Fraction) -> None:
    for well in (0, 9, 10, 11, 40):
        one, other = (finding_probability(epsilon, ill, well) for ill in (10, 11))
        assert one < other <= exp(epsilon) * one + SLACK
        assert (1 - one) <= exp(epsilon) * (1 - other) + SLACK


def test_a_study_without_mary_finds_the_same() -> None:
    run = TopicRun.of("smoking")
    with_her, without = run.table(0)
    assert with_her[1] == without[1] + 1
    assert with_her[2] == without[2]
    assert sum(with_her[1:3]) == 1_000
    assert min(with_her[5], without[5]) > 0.999
    factor = math.exp(0.1)
    assert run.table(1)[0][2:] == pytest.approx((1 / (1 + factor), factor / (1 + factor)))
    assert run.table(1)[1][2:] == pytest.approx((1 / (1 + factor**2), factor**2 / (1 + factor**2)))
    assert "staying out does not avoid it" in run.text


@each("risk", ["0", "1"])
def test_a_small_study_of_equal_people_can_be_shown(risk: str) -> None:
    assert TopicRun.of("smoking", n="10", risk=risk, epsilon="0.5").shown.picture().axes


# Odds


@each("epsilon", ["0.1", "1", "2"])
def test_a_belief_of_a_half_ends_between_the_exact_bounds(epsilon: str) -> None:
    e = math.exp(float(epsilon))
    run = TopicRun.of("odds", epsilon=epsilon)
    [row] = [row for row in run.table(0) if row[0] == epsilon]
    assert row[1:4] == pytest.approx((e, 1 / (e + 1), e / (e + 1)))
    assert row[4:] == pytest.approx((1 / (e**2 + 1), e**2 / (e**2 + 1)))


def test_ln_3_takes_a_half_to_a_quarter_or_three_quarters() -> None:
    run = TopicRun.of("odds")
    [row] = [row for row in run.table(0) if row[0] == "ln 3"]
    assert row == ("ln 3", 3.0, 0.25, 0.75, 0.1, 0.9)
    assert "between 25 % and 75 %" in run.text


def test_the_odds_of_every_belief_change_by_the_factor() -> None:
    run = TopicRun.of("odds", epsilon="0.5", prior="0.03")
    for before, *bounds in run.table(1):
        odds = before / (1 - before)
        for factor, low, high in ((math.exp(0.5), *bounds[:2]), (math.exp(1), *bounds[2:])):
            assert high / (1 - high) == pytest.approx(odds * factor)
            assert low / (1 - low) == pytest.approx(odds / factor)
    assert 0.03 in {row[0] for row in run.table(1)}


# Deniability


def test_a_report_of_yes_proves_as_much_as_bayes_says() -> None:
    run = TopicRun.of("deniability", prior="0.2", n="20000")
    yes, no = run.table(0)
    truth = math.e / (1 + math.e)
    assert yes[4] == pytest.approx(0.2 * truth / (0.2 * truth + 0.8 * (1 - truth)))
    assert no[4] == pytest.approx(0.2 * (1 - truth) / (0.2 * (1 - truth) + 0.8 * truth))
    assert yes[1] + no[1] == 4_000
    assert yes[2] + no[2] == 16_000
    assert yes[3] == yes[1] / (yes[1] + yes[2])
    # Six standard deviations of the number of true reports.
    assert yes[1] == pytest.approx(4_000 * truth, abs=6 * math.sqrt(4_000 * truth * (1 - truth)))


def test_fresh_reports_use_deniability_up() -> None:
    run = TopicRun.of("deniability", epsilon="2", prior="0.5")
    for reports, belief in run.table(1):
        assert belief == pytest.approx(1 / (1 + math.exp(-2 * reports)))
    assert dec(Fraction(run.table(1)[0][1])) < exp(2) / (1 + exp(2)) + Decimal("1e-15")
