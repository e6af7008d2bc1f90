"""The same question, many times."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.averaging import PARTS, _through_the_gate, averaging
from lapwing.audit.attacks.offices import Offices
from lapwing.audit.attacks.temporary_gate import part_of


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in averaging(AttackSettings.of(1, 50)):
        assert found.unprotected.rate >= 0.9
        assert found.protected.rate < 0.97
        assert not found.is_violation, found.sentence


def test_lapwing_answers_ten_times_and_no_more() -> None:
    [found] = averaging(AttackSettings.of(1, 5))
    assert "gave 10 new answers" in found.notes[1]
    late = [point.protected for point in found.over_time if point.after >= 10]
    assert len({(one.right, one.trials) for one in late}) == 1


def test_the_attacker_uses_the_mean_of_all_answers(tmp_path: Path) -> None:
    """The answers are whole numbers, and can be computed back from means that were not moved to 0."""
    means = _through_the_gate(Offices.drawn(20), tmp_path, Fraction(1), part_of(Fraction(1), PARTS))
    assert len(means) == PARTS
    answers = [k * mean - (k - 1) * before for k, (before, mean) in enumerate(pairwise(means), 2)]
    untouched = np.min(means, axis=0) > 0
    assert untouched.any()
    whole = np.array(answers)[:, untouched]
    assert np.abs(whole - np.round(whole)).max() < 1e-6
    assert (np.std(whole, axis=0) > 0).all()


def test_a_gate_that_gives_no_answer_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.audit.attacks.averaging.part_of", lambda epsilon, parts: 2 * epsilon)
    [found] = averaging(AttackSettings.of(1, 5))
    assert found.is_violation
    assert "gave no answer" in found.sentence


def test_a_gate_that_never_refuses_is_called_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price that is a tenth of the true one lets more answers through than the promise has room for."""
    monkeypatch.setattr("lapwing.audit.attacks.averaging.part_of", lambda epsilon, parts: epsilon / 100)
    [found] = averaging(AttackSettings.of(1, 5))
    assert found.is_violation
    assert "13 answers" in found.sentence
