"""The report of an audit as one HTML page without scripts: claimed bounds beside measured ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from lapwing.audit.audit_run import AuditReport, CaseResult
from lapwing.audit.case import Stage, StageResult
from lapwing.core.exact import short
from lapwing.html_views import grid, note
from lapwing.plots.html_page import bar, page, section

MEASURES = {
    Stage.REPLAY: "inputs of all mechanisms on neighbouring data, against their declared sensitivity",
    Stage.EXACT: "all probabilities under both inputs: the true ε, without chance",
    Stage.SAMPLED: "outputs were drawn; the true ε is at least the one found, up to the error",
    Stage.CANARIES: "one training run; the true ε is at least the one found, up to the error",
}

_HEADS = ("claim", "", "stage", "claimed ε", "found ε", "would show", "comparisons", "result")


def shown_epsilon(value: float | None) -> str:
    """Return an ε in words; "–" if there is none."""
    if value is None:
        return "–"
    return short(round(value, 4)) if math.isfinite(value) else "infinite"


def witness_rows(result: CaseResult) -> list[tuple[str, str]]:
    """Return the evidence of a violation as names and texts; nothing if there is none."""
    witness = result.witness
    if witness is None:
        return []
    rows = [("inputs", witness.pair), ("what shows it", witness.event)]
    if witness.at_least is not None:
        claim = shown_epsilon(float(result.case.epsilon))
        rows.append(("true ε", f"at least {shown_epsilon(witness.at_least)}, where {claim} is claimed"))
    for name, value in witness.numbers.items():
        rows.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return [*rows, ("to repeat it", result.command)]


def outcome_of(result: StageResult) -> str:
    """Return the result of a stage in a few words."""
    if result.witness is not None:
        return "VIOLATION"
    return f"could not run: {result.unable}" if result.unable else "no violation found"


def html_report(report: AuditReport) -> bytes:
    """Return the page."""
    caught = sum(bug.is_caught for bug in report.self_check)
    seconds = sum(result.seconds for result in report.cases)
    facts = (
        f"Audited {len(report.cases)} claim{'s' * (len(report.cases) > 1)} with Lapwing {report.version} "
        f"on {report.started:%Y-%m-%d %H:%M} UTC, in {seconds:.0f} s. If every claim is true, this audit "
        f"reports a violation with probability at most {short(report.error)}."
    )
    parts = [
        f"<p><strong>{escape(report.verdict)}</strong></p>",
        note(facts),
        *_violations(report),
        section(
            "Claimed and found",
            note(
                "Blue is the claimed ε, orange the largest ε that a stage found: orange must not be longer."
                ' Replay finds no ε: it compares the inputs of mechanisms. The column "would show" has the '
                "smallest true ε with which the stage would have found a violation."
            ),
            grid(_HEADS, [row for result in report.cases for row in _rows(result)], bars=1, wrapped=7),
        ),
        section(
            "What the stages do",
            grid(("stage", "it compares"), [(s.value, MEASURES[s]) for s in Stage], wrapped=1),
        ),
        section(
            "Self-check",
            note(
                f"{caught} of {len(report.self_check)} planted bugs were caught. A bug that is not caught "
                "would make this report worthless, and is a failure."
            ),
            grid(
                ("planted bug", "stage", "result"),
                [
                    (bug.name, bug.stage.value, "caught" if bug.is_caught else "NOT CAUGHT")
                    for bug in report.self_check
                ],
            ),
        ),
        *_notes(report),
    ]
    return page("Privacy audit", parts)


def _violations(report: AuditReport) -> Iterator[str]:
    for result in report.violations:
        yield section(f"Violation: {result.case.name}", grid(("", ""), witness_rows(result), wrapped=1))


def _rows(case_result: CaseResult) -> Iterator[tuple[str, ...]]:
    for place, result in enumerate(case_result.stages):
        measured = min(result.measured or 0.0, 1000.0)  # an infinite one fills the line, too
        most = max(result.claimed, measured) or 1.0
        drawn = bar(result.claimed / most) + (bar(measured / most, "bar other") if measured else "")
        yield (
            case_result.case.name if not place else "",
            drawn,
            result.stage.value,
            shown_epsilon(result.claimed),
            shown_epsilon(result.measured),
            shown_epsilon(result.could_show),
            f"{result.checks:,}",
            outcome_of(result),
        )


def _notes(report: AuditReport) -> Iterator[str]:
    rows = [
        (case_result.case.name, result.stage.value, line)
        for case_result in report.cases
        for result in case_result.stages
        for line in result.notes
    ]
    if rows:
        yield section("Notes", grid(("claim", "stage", "note"), rows, wrapped=2))
