"""The functions that a case of the auditor calls. New processes import it, which cannot import a test."""

from __future__ import annotations

from lapwing.audit.called_functions import called_functions
from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.registry import cases

QUICK = StageBudget(seconds=1.0, error=1e-6, is_thorough=False)


def calls_of(number: int) -> tuple[str, set[str]]:
    """Run one case. It is called in a new process each time: caches of others would hide calls."""
    case = cases()[number]
    with called_functions() as names:
        for stage in (Stage.EXACT, Stage.REPLAY):
            if stage in case.stages:
                case.stages[stage](QUICK)
    return case.name, names
