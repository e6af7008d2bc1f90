"""The cases of the auditor, made once for all tests of a process: their plans take a while."""

from __future__ import annotations

from functools import cache

from lapwing.audit import cases
from lapwing.audit.case import AuditCase


@cache
def audit_cases() -> tuple[AuditCase, ...]:
    """Return all cases of the auditor. No test may change one."""
    return tuple(cases())
