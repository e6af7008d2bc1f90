"""Results of attacks: intervals, violations, settings."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from scipy.stats import beta, binom

from lapwing.audit.attacks.attack_result import (
    VIOLATION_ERROR,
    AttackResult,
    AttackSettings,
    SuccessCount,
    total,
)
from lapwing.audit.attacks.limits import membership_limit
from lapwing.errors import BadParameter


def result(right: int, trials: int = 400) -> AttackResult:
    return AttackResult(
        "differencing", "two counts", knows="Much.", guesses="Whether she is in.", without="exact",
        through="noisy", unprotected=SuccessCount(trials, trials), protected=SuccessCount(right, trials),
        epsilon=Fraction(1), delta=Fraction(0), chance=Fraction(1, 2), limit=membership_limit(1),
        formula="e^ε / (1 + e^ε)",
    )  # fmt: skip


def test_intervals_are_those_of_clopper_and_pearson() -> None:
    found = SuccessCount(37, 120)
    assert found.low == pytest.approx(beta.ppf(0.025, 37, 84), abs=1e-6)
    assert found.high == pytest.approx(beta.ppf(0.975, 38, 83), abs=1e-6)
    assert (SuccessCount(0, 9).low, SuccessCount(9, 9).high) == (0.0, 1.0)
    assert total([found, SuccessCount(1, 2)]) == SuccessCount(38, 122)


def test_a_violation_needs_more_than_bad_luck() -> None:
    limit, trials = float(membership_limit(1)), 400
    least = next(right for right in range(int(limit * trials), trials) if result(right).is_violation)
    assert least > limit * trials + 1
    assert binom.sf(least - 1, trials, limit) <= VIOLATION_ERROR < binom.sf(least - 3, trials, limit)
    assert "VIOLATION" in result(least).sentence
    assert "VIOLATION" not in result(least - 1).sentence


@pytest.mark.parametrize("trials", [40, 51, 52, 60, 100, 400])
def test_too_few_runs_say_that_they_could_show_nothing(trials: int) -> None:
    """At ε 1, 52 guesses are the fewest that show a violation: 0.7311^52 is below 1e-7."""
    found = result(trials // 2, trials)
    assert found.could_show == result(trials, trials).is_violation == (trials >= 52)
    assert found.least_runs == 52
    said = found.to_json()
    assert said["could_show_violation"] == found.could_show
    assert ("could not have shown a violation" in said["sentence"]) == (not found.could_show)
    if found.could_show:
        assert found.least_right == said["violation_needs_right"]
        assert result(found.least_right or 0, trials).is_violation
        assert not result((found.least_right or 0) - 1, trials).is_violation
    else:
        assert said["violation_needs_right"] is None
        assert "at least 52 runs (--runs 52)" in found.weakness


def test_runs_beyond_the_greatest_number_are_not_advised() -> None:
    tiny = replace(result(1, 1), limit=1 - Fraction(1, 10**6))
    assert "Use a smaller ε" in tiny.weakness
    assert replace(tiny, limit=Fraction(1)).least_runs is None


def test_epsilon_is_rounded_down_to_the_unit_of_a_ledger() -> None:
    assert AttackSettings.of("1/3").epsilon == Fraction(333333333, 10**9)
    assert AttackSettings.of("0.123456789999").epsilon == Fraction(123456789, 10**9)
    assert [AttackSettings.of(end).epsilon for end in ("0.05", "8")] == [Fraction(1, 20), 8]


def test_a_broken_rule_is_a_violation() -> None:
    broken = replace(result(200), broken="a third question was answered")
    assert broken.is_violation
    assert "a third question" in broken.sentence
    assert replace(broken, protected=SuccessCount(1, 2)).weakness == ""


def test_the_json_form_has_plain_values() -> None:
    found = json.loads(json.dumps(result(230).to_json()))
    assert found["protected"]["right"] == 230
    assert found["limit"] >= float(membership_limit(1))
    assert found["violation"] is False


@pytest.mark.parametrize(
    "bad",
    [{"epsilon": "0"}, {"epsilon": "0.0499999"}, {"epsilon": "8.0000000001"}, {"runs": 0}, {"runs": 10**6}],
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadParameter):
        AttackSettings.of(**{"epsilon": 1, **bad})  # type: ignore[arg-type]
    with pytest.raises(BadParameter):
        SuccessCount(3, 2)


def test_batches_add_up_and_report_progress() -> None:
    seen: list[tuple[int, int]] = []
    settings = AttackSettings.of(1, 120, lambda done, work: seen.append((done, work)))
    assert list(settings.batches(400, 50)) == [50, 50, 20]
    assert seen == [(0, 120), (50, 120), (100, 120), (120, 120)]
