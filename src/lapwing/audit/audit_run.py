"""Audits: run the stages of cases, cheapest first, and report what was found.

Claim    if every audited claim is true, an audit reports a violation with probability at most `error`.
Because  replay and exact comparisons have no chance in them. All sampled stages and canaries of an audit
         share `error` equally (a union bound), and each keeps within its part.
Test     tests/audit/test_audit_run.py

An audit never says that something is private. It says that no violation was found, and the smallest ε that
each stage could have shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from shlex import quote
from typing import Any

from lapwing.audit.case import AuditCase, CannotGenerate, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.self_check import CheckedBug, run_self_check
from lapwing.errors import BadParameter, LapwingError, MissingExtra, Unavailable

WITH_CHANCE = (Stage.SAMPLED, Stage.CANARIES)
EXACT_STAGES = (Stage.REPLAY, Stage.EXACT)
ALL_STAGES = tuple(Stage)
AUDIT_FORMAT = 2  # of `AuditReport.to_json`, which privacy reports read


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The results of one case.

    Args:
        case: The claim that was audited.
        stages: The results, in the order in which the stages ran. The first violation is the last result.
        seconds: The time that the case took.
        command: A command that repeats the audit of this case.
    """

    case: AuditCase
    stages: tuple[StageResult, ...]
    seconds: float
    command: str

    @property
    def witness(self) -> Witness | None:
        """The violation; None if there was none."""
        return next((result.witness for result in self.stages if result.witness is not None), None)

    @property
    def unable(self) -> tuple[str, ...]:
        """The stages that could not run, each with its reason."""
        reasons = [f"{result.stage.value}: {result.unable}" for result in self.stages if result.unable]
        return tuple(reasons) if self.stages else ("no stage of this case was asked for",)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        case = self.case
        return {
            "name": case.name,
            "family": case.family.value,
            "epsilon": float(case.epsilon),
            "delta": float(case.delta),
            "seconds": round(self.seconds, 3),
            "command": self.command,
            "stages": [_stage_json(result) for result in self.stages],
        }


def _number(value: float | str | None) -> float | str | None:
    """Return a number as JSON has it; an infinite one as a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "infinite" if value > 0 else str(value)
    return value


def _stage_json(result: StageResult) -> dict[str, Any]:
    witness = result.witness
    return {
        "stage": result.stage.value,
        "checks": result.checks,
        "claimed": result.claimed,
        "measured": _number(result.measured),
        "could_show": _number(result.could_show),
        "unable": result.unable or None,
        "notes": list(result.notes),
        "witness": None
        if witness is None
        else {
            **asdict(witness),
            "numbers": {name: _number(value) for name, value in witness.numbers.items()},
            "at_least": _number(witness.at_least),
        },
    }


PASSED = "No violation found. That is no proof: see what each stage could have shown."


def audit_failure(
    is_caught: Mapping[str, bool], violations: Sequence[str], incomplete: Sequence[str],
    uncovered: Sequence[str],
) -> str:  # fmt: skip
    """Return why an audit did not pass, in one sentence; nothing if it passed. Privacy reports ask it, too.

    Args:
        is_caught: For each planted bug of the self-check, whether it was caught.
        violations: The names of the claims that are false.
        incomplete: The names of the claims with a stage that could not run.
        uncovered: What the registry lacks, in words.
    """
    missed = [name for name, caught in is_caught.items() if not caught]
    if not is_caught:
        return "The audit has no planted bugs to check itself with. Do not rely on it."
    if missed:
        return f"The audit failed its self-check: it did not catch {', '.join(missed)}. Do not rely on it."
    if violations:
        return f"Violation found: {', '.join(violations)}."
    if uncovered:
        return f"Not passed: {'; '.join(uncovered)}. No violation was found in the others."
    if incomplete:
        names = ", ".join(incomplete)
        return f"Not passed: some stages could not run ({names}). No violation was found by the others."
    return ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The results of an audit, with the self-check that shows that its stages can catch anything.

    Args:
        cases: The results of the cases.
        self_check: The planted bugs, and whether they were caught.
        error: The greatest probability of a false alarm.
        started: When the audit began (UTC).
        version: The version of Lapwing.
        uncovered: What the registry lacks, in words; only an audit of all claims looks for it.
        is_quick: Whether a few settings of each claim were tried instead of all.

    Example:
        >>> from lapwing.audit import StageBudget, cases, run_audit
        >>> report = run_audit(cases()[:1], StageBudget(seconds=2, is_thorough=False))
        >>> report.passed, len(report.missed)
        (True, 0)
    """

    cases: tuple[CaseResult, ...]
    self_check: tuple[CheckedBug, ...]
    error: float
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    version: str = ""
    uncovered: tuple[str, ...] = ()
    is_quick: bool = False

    @property
    def violations(self) -> tuple[CaseResult, ...]:
        """The cases whose claim is false."""
        return tuple(result for result in self.cases if result.witness is not None)

    @property
    def incomplete(self) -> tuple[CaseResult, ...]:
        """The cases with a stage that could not run. They did not pass."""
        return tuple(result for result in self.cases if result.unable and result.witness is None)

    @property
    def missed(self) -> tuple[CheckedBug, ...]:
        """The planted bugs that were not caught: then the audit itself is worth nothing."""
        return tuple(bug for bug in self.self_check if not bug.is_caught)

    @property
    def passed(self) -> bool:
        """True if everything ran, no violation was found, and the self-check caught every planted bug."""
        return bool(self.cases) and not self._failure

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return self._failure or PASSED

    @property
    def _failure(self) -> str:
        return audit_failure(
            {bug.name: bug.is_caught for bug in self.self_check},
            [result.case.name for result in self.violations],
            [result.case.name for result in self.incomplete],
            self.uncovered,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "lapwing": "audit",
            "format": AUDIT_FORMAT,
            "passed": self.passed,
            "quick": self.is_quick,
            "verdict": self.verdict,
            "error_probability": self.error,
            "uncovered": list(self.uncovered),
            "started": self.started.isoformat(timespec="seconds"),
            "version": self.version,
            "self_check": [
                {
                    "name": bug.name,
                    "wrong": bug.wrong,
                    "stage": bug.stage.value,
                    "claimed": bug.claimed,
                    "measured": _number(bug.measured),
                    "caught": bug.is_caught,
                    "why_not": bug.why_not or None,
                }
                for bug in self.self_check
            ],
            "cases": [result.to_json() for result in self.cases],
        }


Progress = Callable[[int, int, str], None]


def run_audit(
    cases: Sequence[AuditCase],
    budget: StageBudget | None = None,
    *,
    stages: Iterable[Stage] = ALL_STAGES,
    commands: Mapping[str, str] | None = None,
    uncovered: Sequence[str] = (),
    progress: Progress = lambda _done, _of, _what: None,
) -> AuditReport:
    """Audit cases, and check that the stages catch planted bugs.

    Args:
        cases: The claims.
        budget: The seconds of sampling and the error, of all cases together.
        stages: The stages to run, of those that a case has.
        commands: For each case's name, the command that repeats it.
        uncovered: What the registry lacks, in words. An audit with anything here does not pass.
        progress: Called before each case with its number, the number of cases, and its name.

    Returns:
        The report. Look at `passed` and `verdict`.

    Raises:
        BadParameter: If there are no cases, or the limits are out of range.

    Example:
        >>> from lapwing.audit import StageBudget, cases, run_audit
        >>> laplace = [case for case in cases() if case.name == "Laplace"]
        >>> run_audit(laplace, StageBudget(seconds=1, is_thorough=False)).verdict
        'No violation found. That is no proof: see what each stage could have shown.'
    """
    whole = budget or StageBudget()
    if not cases:
        raise BadParameter("cases", "there is nothing to audit")
    if not (whole.seconds > 0 and 0 < whole.error < 1):
        raise BadParameter("seconds", "must be above 0, and the error strictly between 0 and 1")
    wanted = tuple(stages)
    counts = {
        stage: sum(stage in case.stages for case in cases) for stage in wanted if stage in WITH_CHANCE
    }
    shares = sum(count > 0 for count in counts.values())
    seconds = whole.seconds / max(sum(counts.values()), 1)
    # Each kind of stage gets an equal share of the error. Canaries are few and need more of it.
    budgets = {
        stage: replace(whole, seconds=seconds, error=whole.error / max(shares * counts.get(stage, 0), 1))
        for stage in wanted
    }
    started = datetime.now(UTC)
    progress(0, len(cases) + 1, "self-check")
    from lapwing.audit.planted import planted_bugs  # noqa: PLC0415  who reads records needs no bugs

    caught = run_self_check(planted_bugs(), replace(whole, is_thorough=False)).bugs
    results = []
    for number, case in enumerate(cases):
        progress(number + 1, len(cases) + 1, case.name)
        results.append(_run_stages(case, budgets, (commands or {}).get(case.name, "")))
    progress(len(cases) + 1, len(cases) + 1, "")
    return AuditReport(
        tuple(results), caught, whole.error, started, version("lapwing"), tuple(uncovered),
        is_quick=not whole.is_thorough,
    )  # fmt: skip


def run_case(
    case: AuditCase, budget: StageBudget, stages: Iterable[Stage] = ALL_STAGES, command: str = ""
) -> CaseResult:
    """Run the stages of one case, cheapest first. The first violation ends it."""
    return _run_stages(case, dict.fromkeys(stages, budget), command)


def _run_stages(case: AuditCase, budgets: Mapping[Stage, StageBudget], command: str) -> CaseResult:
    begun, results = time.perf_counter(), []
    for stage in Stage:
        if stage in budgets and stage in case.stages:
            results.append(_run_stage(case, stage, budgets[stage]))
            if results[-1].witness is not None:
                break
    return CaseResult(
        case,
        tuple(results),
        time.perf_counter() - begun,
        command or f"lapwing audit mechanism {quote(case.name)}",
    )


def _run_stage(case: AuditCase, stage: Stage, budget: StageBudget) -> StageResult:
    """Run one stage. An error inside it is a reason why it could not run, and never counts as passed."""
    try:
        result = case.stages[stage](budget)
    except MissingExtra as missing:
        return StageResult(stage, 0, float(case.epsilon), unable=str(missing))
    except CannotGenerate as error:
        return StageResult(stage, 0, float(case.epsilon), unable=f"its people were not generated: {error}")
    except Exception as error:  # its text is safe to show: all data is generated
        told = "" if isinstance(error, LapwingError) else f"{type(error).__name__}: "
        why = f"it failed with an error, which correct code never does: {told}{error}"
        if isinstance(error, Unavailable):
            why = str(error)
        return StageResult(stage, 0, float(case.epsilon), unable=why)
    if not result.checks and result.witness is None and not result.unable:
        return replace(result, unable="it compared nothing")
    return result
