"""Every planted bug is caught, by the stage that is named for it; without the bug, nothing is."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest

import lapwing.audit.registry.searching  # noqa: F401 (it registers a distance)
from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.planted import planted_bugs
from lapwing.audit.planted_distances import DISTANT_INPUTS, distance_bugs
from lapwing.audit.stages import exact, replay
from lapwing.audit.stages.input_distances import FoundDistance, distance
from lapwing.audit.stages.self_check import PlantedBug, run_self_check
from lapwing.core.laplace import Laplace

BUGS = planted_bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_is_caught(bug: PlantedBug) -> None:
    [checked] = run_self_check([bug]).bugs
    assert checked.is_caught, checked.why_not


def test_they_are_those_of_the_issue_and_one_for_each_distance() -> None:
    kinds = [kind for kind in distance.registry if kind.__module__.startswith("lapwing.")]
    assert {bug.name for bug in BUGS} == {
        "noise x 0.8", "no clip", "float Laplace", "one seed in two processes", "charged once, taken twice",
        "permute-and-flip charged ε²/8", "keys from data", "rank by row position",
        "noise sized for all members", "monotone exponential step on L1 scores",
        "charged twice what is claimed", "noise at half σ beside δ₀",
        *(f"inputs too far for {kind.__name__}" for kind in kinds),
    }  # fmt: skip
    assert len(kinds) >= 13
    assert {bug.stage for bug in BUGS} == {Stage.SAMPLED, Stage.REPLAY, Stage.EXACT}


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.twin], ids=lambda bug: bug.name)
def test_each_twin_holds(bug: PlantedBug) -> None:
    assert bug.twin is not None
    found = bug.twin(StageBudget(is_thorough=False))
    assert found.holds, found


def test_all_but_sampled_ones_have_a_twin() -> None:
    assert {bug.stage for bug in BUGS if bug.twin is None} == {Stage.SAMPLED}


@pytest.mark.parametrize("kind", list(DISTANT_INPUTS))
def test_a_blind_distance_is_noticed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*_: object) -> FoundDistance:
        return FoundDistance("blind", Fraction(0), Fraction(1))

    real = distance

    def some_are_blind(mechanism: object, *inputs: Any) -> FoundDistance:
        return blind() if type(mechanism) is kind else real(mechanism, *inputs)

    monkeypatch.setattr(replay, "distance", some_are_blind)
    [bug] = [bug for bug in distance_bugs() if bug.name == f"inputs too far for {kind.__name__}"]
    assert not run_self_check([bug]).holds


def test_a_distance_that_finds_everything_too_far_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def far(*_: object) -> FoundDistance:
        return FoundDistance("far", Fraction(2), Fraction(1))

    monkeypatch.setattr(replay, "distance", far)
    [checked] = run_self_check(distance_bugs()[:1]).bugs
    assert checked.witness is not None
    assert not checked.is_caught
    assert checked.why_not.startswith("without the bug, the stage does not hold: ")


def test_a_distance_without_planted_inputs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(DISTANT_INPUTS, Laplace)
    missed = [bug for bug in run_self_check(distance_bugs()).bugs if not bug.is_caught]
    assert [bug.why_not for bug in missed] == ["Laplace has no planted inputs"]


def test_only_the_curve_shows_the_bug_of_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    [bug] = [bug for bug in BUGS if bug.name == "noise at half σ beside δ₀"]
    [caught] = run_self_check([bug]).bugs
    assert caught.witness is not None
    assert caught.witness.event.startswith("δ at ε = ")
    monkeypatch.setattr(exact, "CURVE", ())
    exact._promise.cache_clear()
    try:
        assert not run_self_check([bug]).holds
    finally:
        exact._promise.cache_clear()


def test_they_need_no_torch_and_little_time() -> None:
    code = (
        "import sys, time\n"
        "from lapwing.audit.planted import planted_bugs\n"
        "from lapwing.audit.stages.self_check import run_self_check\n"
        "start = time.process_time()\n"
        "assert run_self_check(planted_bugs()).holds\n"
        "assert time.process_time() - start < 2, time.process_time() - start\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
