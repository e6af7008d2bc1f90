"""The self-check says which planted bugs were caught, and fails if one was not."""

from __future__ import annotations

from lapwing.audit.case import Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.self_check import PlantedBug, run_self_check


def _bug(name: str, result: StageResult, stage: Stage = Stage.EXACT) -> PlantedBug:
    return PlantedBug(name, "all", stage, lambda _: result)


CAUGHT = StageResult(Stage.EXACT, 1, 1.0, measured=1.5, witness=Witness("pair", "event", {}, at_least=1.5))
MISSED = StageResult(Stage.EXACT, 1, 1.0, measured=0.5)


def test_it_holds_if_each_bug_is_caught() -> None:
    check = run_self_check([_bug("a", CAUGHT), _bug("b", CAUGHT)])
    assert check.holds
    assert check.bugs[0].measured == 1.5


def test_one_bug_that_is_missed_fails_it() -> None:
    check = run_self_check([_bug("a", CAUGHT), _bug("b", MISSED)])
    assert not check.holds
    assert [bug.is_caught for bug in check.bugs] == [True, False]


def test_no_bugs_are_no_check() -> None:
    assert not run_self_check([]).holds


def test_a_stage_that_could_not_run_fails_it() -> None:
    check = run_self_check([_bug("a", StageResult(Stage.EXACT, 0, 1.0, unable="no laws"))])
    assert not check.holds
    assert check.bugs[0].why_not == "no laws"


def test_only_the_named_stage_counts() -> None:
    assert not run_self_check([_bug("a", CAUGHT, Stage.REPLAY)]).holds


def test_progress_names_each_bug() -> None:
    told: list[str] = []
    run_self_check([_bug("a", CAUGHT)], StageBudget(progress=told.append))
    assert told == ["self-check: a"]


def test_a_twin_must_hold() -> None:
    well = StageResult(Stage.EXACT, 1, 1.0)
    for twin, holds in (
        (well, True),
        (CAUGHT, False),
        (StageResult(Stage.EXACT, 0, 1.0, unable="no"), False),
    ):
        bug = PlantedBug("a", "all", Stage.EXACT, lambda _: CAUGHT, lambda _, twin=twin: twin)  # type: ignore[misc]
        check = run_self_check([bug])
        assert check.holds is holds
        assert bool(check.bugs[0].why_not) is not holds
