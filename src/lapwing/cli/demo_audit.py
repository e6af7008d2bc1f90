"""The part of `lapwing demo` that audits: one claim is held up, and one planted bug is caught."""

from __future__ import annotations

from lapwing.audit.audit_run import EXACT_STAGES, run_case
from lapwing.audit.case import StageBudget
from lapwing.audit.planted import planted_bugs
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.stages.self_check import run_self_check
from lapwing.cli import console

QUICK = StageBudget(seconds=2, is_thorough=False)
HELD, PLANTED = "Laplace", "noise x 0.8"


def tell_audit() -> None:
    """Audit one mechanism of Lapwing, and one that is broken on purpose."""
    [case] = [one for one in mechanism_cases() if one.name == HELD]
    [bug] = [one for one in planted_bugs() if one.name == PLANTED]
    result = run_case(case, QUICK, EXACT_STAGES)
    [caught] = run_self_check([bug], QUICK).bugs
    exact = result.stages[-1]
    verdict = "no violation found" if result.witness is None and not result.unable else "VIOLATION"
    outcome = "caught" if caught.is_caught else "NOT CAUGHT"
    found = (
        f"the true ε is at least {caught.measured:.2f}" if caught.measured is not None else "it is caught"
    )
    with console.page() as out:
        out.heading("The auditor: it tries to break every claim, on generated data")
        out.points(
            f"{case.name} noise, claimed ε {float(case.epsilon):g}: {verdict} in {exact.checks} "
            f"comparisons of exact probabilities. The largest true ε is {exact.measured:.4f}.",
            f"Broken on purpose ({bug.wrong}), claimed ε {caught.claimed:g}: {outcome} by the "
            f"{caught.stage.value} stage, {found}.",
        )
        out.indented("Try `lapwing audit all --quick`, and `lapwing attack all`.")
