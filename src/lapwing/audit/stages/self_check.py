"""The self-check: mechanisms that are broken on purpose must each be caught by a named stage.

Claim    an audit whose self-check holds has stages that can find each of these mistakes.
Because  each bug goes through the same stage as the claims that are audited, and the stage must report a
         violation. Its correct twin goes through the stage, too, and must hold: so the stage does not
         report everything. If one of these fails, the audit fails.
Test     tests/audit/stages/test_self_check.py, tests/audit/test_planted.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A mechanism that is broken on purpose.

    Args:
        name: A short name.
        wrong: What is wrong with it, in words.
        stage: The stage that must catch it.
        run: That stage, on the broken mechanism.
        twin: That stage, on the same mechanism without the bug. It must hold. None: it has no twin.
    """

    name: str
    wrong: str
    stage: Stage
    run: RunStage
    twin: RunStage | None = None


@dataclass(frozen=True, slots=True)
class CheckedBug:
    """The result of the check of one planted bug.

    Args:
        name: The bug's name.
        wrong: What is wrong with it.
        stage: The stage that must catch it.
        claimed: The ε that the broken mechanism claims.
        measured: The largest ε that the stage found; None if it found another kind of violation.
        witness: The violation; None if the bug was not caught.
        why_not: Why the stage could not run, or what it said about the twin; empty if all is well.
        seconds: How long it took.
        is_twin_well: Whether the stage holds for the same mechanism without the bug.
    """

    name: str
    wrong: str
    stage: Stage
    claimed: float
    measured: float | None
    witness: Witness | None
    why_not: str
    seconds: float
    is_twin_well: bool = True

    @property
    def is_caught(self) -> bool:
        """True if the stage reported a violation, and none without the bug."""
        return self.witness is not None and self.is_twin_well


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The results of all planted bugs."""

    bugs: tuple[CheckedBug, ...]

    @property
    def holds(self) -> bool:
        """True if there are bugs, and each of them was caught."""
        return bool(self.bugs) and all(bug.is_caught for bug in self.bugs)


def run_self_check(bugs: Sequence[PlantedBug], budget: StageBudget | None = None) -> SelfCheck:
    """Run each planted bug through its stage. The budget's error and progress are used."""
    given = budget or StageBudget(is_thorough=False)
    return SelfCheck(tuple(_checked(bug, given) for bug in bugs))


def _result(stage: Stage, run: RunStage, budget: StageBudget) -> StageResult:
    """Run a stage. An error is a reason why the bug was not caught, and does not end the audit."""
    try:
        return run(budget)
    except Exception as error:  # its text is safe to show: all data is generated
        return StageResult(stage, 0, 0.0, unable=f"it failed with {type(error).__name__}: {error}")


def _checked(bug: PlantedBug, budget: StageBudget) -> CheckedBug:
    budget.progress(f"self-check: {bug.name}")
    start = time.monotonic()
    quickly = StageBudget(budget.seconds, budget.error, is_thorough=False)
    result = _result(bug.stage, bug.run, quickly)
    twin = None if bug.twin is None else _result(bug.stage, bug.twin, quickly)
    seconds = time.monotonic() - start
    is_well = twin is None or (twin.holds and twin.stage is bug.stage)
    why_not = result.unable
    if twin is not None and not is_well:
        said = twin.unable or (twin.witness.event if twin.witness is not None else "another stage ran")
        why_not = why_not or f"without the bug, the stage does not hold: {said}"
    witness = result.witness if result.stage is bug.stage else None
    measured = result.measured if witness is None or witness.at_least is None else witness.at_least
    return CheckedBug(
        bug.name, bug.wrong, bug.stage, result.claimed, measured, witness, why_not, seconds, is_well
    )
