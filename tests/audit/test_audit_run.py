"""Audits: stages in order, the first violation ends a case, and nothing passes that did not run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from lapwing.audit.audit_run import ALL_STAGES, EXACT_STAGES, WITH_CHANCE, run_audit, run_case
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult, Witness
from lapwing.audit.planted import planted_bugs
from lapwing.audit.registry.preliminary import preliminary_cases
from lapwing.audit.report import html_report
from lapwing.audit.stages.self_check import PlantedBug
from lapwing.errors import BadParameter, MissingExtra, Unavailable
from support.audit_cases import audit_cases
from support.slowly import slow

ONE = Fraction(1)
QUICK = StageBudget(seconds=1, is_thorough=False)
BROKEN = Witness("0 and 1", "the output is 0", {"P": 0.9}, 2.5)


@pytest.fixture
def one_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check has one bug: all of them are tested elsewhere."""
    bugs = [bug for bug in planted_bugs() if bug.stage is Stage.EXACT][:1]
    monkeypatch.setattr("lapwing.audit.planted.planted_bugs", lambda: bugs)


def held(stage: Stage) -> StageResult:
    return StageResult(stage, 1, 1.0, measured=0.5, could_show=1.0)


def case_with(**stages: Callable[[StageBudget], StageResult]) -> AuditCase:
    found = {Stage[name.upper()]: run for name, run in stages.items()}
    return AuditCase("a claim", Family.FUNCTION, (), ONE, Fraction(0), found)


@pytest.mark.usefixtures("one_bug")
def test_stages_run_cheapest_first_and_the_first_violation_is_the_last() -> None:
    seen: list[Stage] = []

    def run(stage: Stage, witness: Witness | None) -> Callable[[StageBudget], StageResult]:
        def stage_of(_: StageBudget) -> StageResult:
            seen.append(stage)
            return StageResult(stage, 3, 1.0, witness=witness)

        return stage_of

    case = case_with(
        sampled=run(Stage.SAMPLED, None), exact=run(Stage.EXACT, BROKEN), replay=run(Stage.REPLAY, None)
    )
    result = run_case(case, QUICK)
    assert seen == [Stage.REPLAY, Stage.EXACT]
    assert result.witness is BROKEN
    report = run_audit([case], QUICK)
    assert not report.passed
    assert report.verdict == "Violation found: a claim."
    assert "lapwing audit mechanism 'a claim'" in report.violations[0].command


def _raise(error: Exception) -> Callable[[StageBudget], StageResult]:
    def run(_: StageBudget) -> StageResult:
        raise error

    return run


@pytest.mark.usefixtures("one_bug")
@pytest.mark.parametrize(
    "exact",
    [
        _raise(MissingExtra("learn", "torch")),
        _raise(Unavailable("no server")),
        _raise(KeyError("a mistake")),
        _raise(BadParameter("run", "2 values have 1 noises: each needs one")),
        lambda _: StageResult(Stage.EXACT, 0, 1.0),
        lambda _: StageResult(Stage.EXACT, 0, 1.0, unable="there is nothing to enumerate"),
    ],
)
def test_a_stage_that_could_not_run_is_named_and_does_not_pass(
    exact: Callable[[StageBudget], StageResult],
) -> None:
    case = case_with(replay=lambda _: held(Stage.REPLAY), exact=exact)
    report = run_audit([case], QUICK)
    assert report.violations == ()
    assert not report.passed
    assert report.cases[0].unable[0].startswith("exact: ")
    assert "could not run" in report.verdict


@pytest.mark.usefixtures("one_bug")
def test_an_error_in_one_case_does_not_end_the_audit_of_the_others() -> None:
    failing = case_with(exact=_raise(BadParameter("run", "has more than 100,000 paths")))
    report = run_audit([failing, case_with(exact=lambda _: held(Stage.EXACT))], QUICK)
    assert [bool(case.unable) for case in report.cases] == [True, False]
    assert "paths" in report.to_json()["cases"][0]["stages"][0]["unable"]
    assert b"paths" in html_report(report)


@pytest.mark.usefixtures("one_bug")
def test_a_case_of_which_no_stage_was_asked_for_does_not_pass() -> None:
    case = case_with(sampled=lambda _: held(Stage.SAMPLED))
    assert not run_audit([case], QUICK, stages=EXACT_STAGES).passed
    assert run_audit([case], QUICK, stages=ALL_STAGES).passed


@pytest.mark.usefixtures("one_bug")
def test_time_and_error_are_divided_over_all_stages_with_chance() -> None:
    budgets: list[StageBudget] = []

    def run(budget: StageBudget) -> StageResult:
        budgets.append(budget)
        return held(Stage.SAMPLED)

    several = [case_with(sampled=run, canaries=run, exact=lambda _: held(Stage.EXACT)) for _ in range(3)]
    report = run_audit(several, StageBudget(seconds=12, error=6e-6))
    assert [one.seconds for one in budgets] == [2] * 6
    assert [one.error for one in budgets] == pytest.approx(
        [1e-6] * 6
    )  # 6e-6, half of it to three of each kind
    assert report.error == 6e-6


def test_an_audit_that_misses_a_planted_bug_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lapwing.audit.planted._exact_bugs",
        lambda: [_harmless()],
    )
    report = run_audit([case_with(exact=lambda _: held(Stage.EXACT))], QUICK)
    assert [bug.name for bug in report.missed] == ["harmless"]
    assert not report.passed
    assert report.verdict.startswith("The audit failed its self-check: it did not catch harmless.")


def test_an_audit_without_planted_bugs_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.audit.planted.planted_bugs", list)
    report = run_audit([case_with(exact=lambda _: held(Stage.EXACT))], QUICK)
    assert not report.passed
    assert "no planted bugs" in report.verdict


def _harmless() -> PlantedBug:
    return PlantedBug("harmless", "nothing is wrong", Stage.EXACT, lambda _: held(Stage.EXACT))


@pytest.mark.usefixtures("one_bug")
def test_an_audit_does_not_pass_if_a_claim_has_no_case() -> None:
    case = case_with(exact=lambda _: held(Stage.EXACT))
    report = run_audit([case], QUICK, uncovered=["mechanism Planted has no case"])
    assert not report.passed
    assert report.verdict.startswith("Not passed: mechanism Planted has no case.")
    assert report.to_json()["uncovered"] == ["mechanism Planted has no case"]
    assert run_audit([case], QUICK).passed


@pytest.mark.usefixtures("one_bug")
def test_nothing_to_audit_and_senseless_limits_are_refused() -> None:
    case = case_with(exact=lambda _: held(Stage.EXACT))
    for claims, budget in (([], QUICK), ([case], StageBudget(seconds=0)), ([case], StageBudget(error=0.0))):
        with pytest.raises(BadParameter):
            run_audit(claims, budget)


def test_a_report_is_plain_json() -> None:
    case = case_with(replay=lambda _: StageResult(Stage.REPLAY, 2, 1.0, witness=BROKEN))
    found = json.loads(json.dumps(run_audit([case], QUICK).to_json(), allow_nan=False))
    assert found["quick"] is True
    assert found["passed"] is False
    assert 0 < found["error_probability"] < 1
    assert found["cases"][0]["stages"][0]["witness"]["numbers"] == {"P": 0.9}
    assert all(bug["caught"] for bug in found["self_check"])


@pytest.mark.usefixtures("one_bug")
def test_an_infinite_epsilon_is_told_in_json_and_html() -> None:
    worst = Witness("0 and 1", "no noise at all", {"true": math.inf}, math.inf)
    case = case_with(exact=lambda _: StageResult(Stage.EXACT, 1, 1.0, math.inf, witness=worst))
    report = run_audit([case], QUICK)
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    [stage] = found["cases"][0]["stages"]
    assert stage["measured"] == stage["witness"]["at_least"] == "infinite"
    page = html_report(report).decode()
    assert "at least infinite" in page
    assert "nan%" not in page


ALL = audit_cases()
LENGTHY = {  # a second of computing or more, each beside another case of the same mechanism
    "runs of fixed steps",
    "logistic regression on samples",
    "attempt: network",
    "publish: adaptive with a check",
    "publish: tree with a check",
    "search over every candidate, permute-and-flip",
    "search over every candidate, exponential mechanism",
    "DP-SGD, two rows of a unit",
    "SQL: GROUPING SETS of undeclared keys",
    "SQL: QUANTILE",
    "SQL: SUM with Gaussian noise",  # each case of SQL is replayed with the other noise, too
    "SQL: months of arrival",
    "SQL: undeclared keys with Gaussian noise",
    "SQL: undeclared keys with a median",
    "best of a negative binomial number of runs",
}

PRELIMINARY = {case.name for case in preliminary_cases()}


def test_named_claims_exist() -> None:
    assert {case.name for case in ALL} >= LENGTHY | PRELIMINARY
    assert not LENGTHY & PRELIMINARY


@pytest.mark.parametrize(
    "case",
    [slow(case) if case.name in LENGTHY else case for case in ALL],
    ids=[case.name for case in ALL],
)
def test_replay_and_exact_probabilities_break_no_claim_of_lapwing(case: AuditCase) -> None:
    """The quick settings of `lapwing audit all --quick --exact-only`, claim by claim."""
    result = run_case(case, QUICK, EXACT_STAGES)
    assert result.witness is None, result.witness
    assert result.unable == ()
    for stage in result.stages:
        if stage.stage is Stage.REPLAY and case.name in PRELIMINARY:
            # Nothing less would do: some neighbour moves a number as far as declared.
            assert any(note.startswith("largest distance: 1 ") for note in stage.notes)
        if stage.stage is Stage.EXACT:
            assert stage.checks >= 40
            # The tried neighbours come near the claim, so that a violation would show.
            assert stage.measured is None or 0.4 < stage.measured <= float(case.epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_all_settings_break_no_claim_of_lapwing(case: AuditCase) -> None:
    result = run_case(case, StageBudget(), EXACT_STAGES)
    assert result.witness is None, result.witness
    assert result.unable == ()


DRAWN = [case for case in ALL if set(WITH_CHANCE) & set(case.stages)]


@pytest.mark.slow
@pytest.mark.parametrize("case", DRAWN, ids=[case.name for case in DRAWN])
def test_samples_and_canaries_break_no_claim_of_lapwing(case: AuditCase) -> None:
    result = run_case(case, StageBudget(seconds=8, error=1e-6 / 20, is_thorough=False), WITH_CHANCE)
    assert result.witness is None, result.witness
    assert result.unable == ()
