"""The auditor: it tries to show that the privacy claims of mechanisms and randomizers are false."""

from lapwing.audit.case import AuditCase, Stage, StageBudget, StageResult
from lapwing.audit.registry import cases

__all__ = ["AuditCase", "Stage", "StageBudget", "StageResult", "cases"]
