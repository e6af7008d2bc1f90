"""The report: one page without scripts, in which hostile names are only text."""

from __future__ import annotations

from fractions import Fraction

from lapwing.audit.audit_run import run_audit
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult, Witness
from lapwing.audit.report import html_report

HOSTILE = "<script>alert('x')</script>"


def test_claims_results_witnesses_and_the_self_check_are_there_as_text() -> None:
    witness = Witness(HOSTILE, "event & more", {HOSTILE: 3}, 2.5)
    broken = AuditCase(
        f"broken {HOSTILE}", Family.FUNCTION, (), Fraction(1), Fraction(0),
        {Stage.SAMPLED: lambda _: StageResult(Stage.SAMPLED, 5, 1.0, 2.5, 1.2, witness, notes=(HOSTILE,))},
    )  # fmt: skip
    unable = AuditCase(
        "unable", Family.FUNCTION, (), Fraction(1), Fraction(0),
        {Stage.EXACT: lambda _: StageResult(Stage.EXACT, 0, 1.0, unable="nothing to enumerate")},
    )  # fmt: skip
    page = html_report(run_audit([broken, unable], StageBudget(seconds=1, is_thorough=False))).decode()
    assert "<script" not in page
    assert "javascript:" not in page
    assert "&lt;script&gt;" in page
    for wanted in (
        "Violation found",
        "at least 2.5",
        "could not run: nothing to enumerate",
        "caught",
        "to repeat it",
    ):
        assert wanted in page
    assert "NOT CAUGHT" not in page
