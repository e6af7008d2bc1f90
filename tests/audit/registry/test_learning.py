"""Everything that learning exports has a case, and no case needs an extra before it runs."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.registry import learning
from lapwing.audit.registry.coverage import learning_exports
from lapwing.audit.registry.learning import learning_cases
from lapwing.learn import trainers
from lapwing.learn.trainers import NaiveBayes
from support.slowly import slow

CASES = {case.name: case for case in learning_cases()}


def covered(family: Family) -> set[str]:
    return {name for case in CASES.values() for name in case.covers if case.family is family}


@pytest.mark.parametrize("family", [Family.TRAINER, Family.VALIDATOR, Family.SELECTION])
def test_every_export_has_a_case(family: Family) -> None:
    exported = learning_exports()[family]
    assert len(exported) >= 5
    assert set(exported) <= covered(family)


def test_a_new_trainer_without_a_case_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "Unlisted", type("Unlisted", (NaiveBayes,), {}), raising=False)
    monkeypatch.setattr(trainers, "__all__", [*trainers.__all__, "Unlisted"])
    missing = set(learning_exports()[Family.TRAINER]) - covered(Family.TRAINER)
    assert missing == {"lapwing.learn.trainers.Unlisted"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_case_has_a_stage_beyond_sampling(case: AuditCase) -> None:
    assert Stage.REPLAY in case.stages
    assert case.epsilon > 0
    assert 0 <= case.delta < Fraction(1, 1000)


def test_names_are_given_once() -> None:
    assert len(CASES) == len(learning_cases())


def test_the_cases_need_no_extra_until_they_run() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['sklearn'] = sys.modules['sklearn.base'] = None\n"
        "from lapwing.audit.registry.learning import learning_cases\n"
        "from lapwing.audit.case import Stage, StageBudget\n"
        "budget = StageBudget(is_thorough=False)\n"
        "for case in learning_cases():\n"
        "    if case.name in ('naive Bayes', 'DP-SGD', 'k-means', 'attempt: mean'):\n"
        "        assert 'learn' in case.stages[Stage.REPLAY](budget).unable, case.name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["naive Bayes", slow("DP-SGD")])
def test_canaries_leave_our_trainers_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "CANARIES", 400)
    result = CASES[name].stages[Stage.CANARIES](StageBudget())
    assert result.holds
    assert result.measured is not None
    assert result.measured <= 1


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_case_holds_in_a_thorough_audit(case: AuditCase) -> None:
    for stage, run in case.stages.items():
        if stage is not Stage.SAMPLED:
            result = run(StageBudget(seconds=10))
            assert result.holds, result
