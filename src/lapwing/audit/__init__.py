"""The auditor: it tries to break every privacy claim, of Lapwing and of functions that others wrote.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.audit.audit_run import AuditReport, run_audit
    from lapwing.audit.case import AuditCase, Stage, StageBudget, StageResult
    from lapwing.audit.function_audit import case_of_function
    from lapwing.audit.query_audit import case_of_query
    from lapwing.audit.registry import cases

_HOMES = {
    "AuditCase": "case",
    "AuditReport": "audit_run",
    "Stage": "case",
    "StageBudget": "case",
    "StageResult": "case",
    "case_of_function": "function_audit",
    "case_of_query": "query_audit",
    "cases": "registry",
    "run_audit": "audit_run",
}
__all__ = [
    "AuditCase", "AuditReport", "Stage", "StageBudget", "StageResult", "case_of_function", "case_of_query",
    "cases", "run_audit",
]  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)
