"""One process of the mutation run (`benchmarks/mutations.py`): the quick audit of this copy of the package.

Prints one JSON object: the outcome (caught, harmless, survived), by which stage, and why. Without a file it
audits everything, and writes the true ε, the promises and the mechanisms of all cases as the baseline.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry.composed_losses import loss_cases
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.registry.sensitivities import sensitivity_cases
from lapwing.audit.stages import exact, replay, sampled
from lapwing.core.budget import price

DRAWS = 20_000
QUICK = StageBudget(seconds=1.0, error=1e-6, is_thorough=False)
Numbers = dict[str, list[float]]
TRUE, PROMISED, USED = "true", "promised", "used"


class Watched:
    """The worst true ε of each case as a share of its claim, the promises, and the losses of calls."""

    def __init__(self) -> None:
        self.found: dict[str, Numbers] = {TRUE: {}, PROMISED: {}, USED: {}}
        self.case = ""
        judge, price_of = exact._Judged.violation, replay._exceeded

        def judged(one: Any) -> Any:
            key = f"{self.case}: {one.pair.description} {one.backwards}"
            # A change may raise the ε of some pairs and not that of the worst one, which counts.
            worst, share = (
                self.found[TRUE].setdefault(key.split(" and ", maxsplit=1)[0].rpartition(":")[0], [0.0]),
                float(one.epsilon),
            )
            worst[0] = max(worst[0], share / float(one.pair.epsilon))
            promise = one.promise
            bounds = [*(each[1] for each in promise.epsilons), *(each[1] for each in promise.renyi)]
            self.found[PROMISED][key] = [float(each) for each in bounds]
            return judge(one)

        def compared(loss: Any, limit: Any) -> Any:
            for name, one in (("used", loss), ("limit", limit)):
                costs = price(one, replay.ORDERS).costs
                self.found[USED].setdefault(f"{self.case}: {name}", [float(cost) for cost in costs])
            return price_of(loss, limit)

        exact._Judged.violation = judged  # type: ignore[method-assign, assignment]
        replay._exceeded = compared


def tell(outcome: str, stage: str = "", why: str = "") -> None:
    """Print the outcome, and end."""
    print(json.dumps({"outcome": outcome, "stage": stage, "why": why}))
    sys.exit()


def attempt(watched: Watched, case: AuditCase, stage: Stage) -> None:
    """Run one stage of one case. End the process if it finds a violation or cannot run."""
    watched.case = case.name
    result = case.stages[stage](QUICK)
    if result.unable or not result.checks:
        tell("caught", stage.value, f"{case.name}: could not run: {result.unable[:80]}")
    if result.witness is not None:
        tell("caught", stage.value, f"{case.name}: {result.witness.event[:60]}")


def later_cases() -> Iterator[list[AuditCase]]:
    """Yield the families that take longer to import and to run."""
    from lapwing.audit.registry.aggregates import aggregate_cases  # noqa: PLC0415

    yield aggregate_cases()
    from lapwing.audit.registry.publishing import publishing_cases  # noqa: PLC0415

    yield publishing_cases()
    from lapwing.audit.registry.protocols import protocol_cases  # noqa: PLC0415
    from lapwing.audit.registry.randomizers import randomizer_cases  # noqa: PLC0415

    yield [*randomizer_cases(), *protocol_cases()]
    from lapwing.audit.registry.learning import learning_cases  # noqa: PLC0415

    # A network is trained on samples with the same noise and losses as DP-SGD, and takes 11 s.
    yield [case for case in learning_cases() if "network" not in case.name]


def changes(found: Numbers, before: Numbers) -> tuple[bool, bool]:
    """Whether some number is below, and whether some number is above its value without the change."""
    below = above = False
    for key in found.keys() & before.keys():
        for one, other in zip(found[key], before[key], strict=False):
            slack = 1e-12 * max(abs(one), abs(other))
            below, above = below or one < other - slack, above or one > other + slack
    return below, above


def judged(watched: Watched, before: dict[str, Numbers]) -> tuple[bool, str]:
    """Whether a survivor is harmless, by its numbers; and how they moved, in words."""
    true_below, true_above = changes(watched.found[TRUE], before[TRUE])
    promise_below, promise_above = changes(watched.found[PROMISED], before[PROMISED])
    words = [
        text
        for text, holds in (
            ("reveals less", true_below), ("reveals more", true_above),
            ("charges less", promise_below), ("charges more", promise_above),
        )
        if holds
    ]  # fmt: skip
    is_harmless = bool(words) and not true_above and not promise_below
    return is_harmless, ", ".join(words) or "no law and no charge moved"


def main() -> None:  # noqa: C901, PLR0912 (one stage after another)
    """Audit, cheapest stages first."""
    file, place = sys.argv[1], Path(sys.argv[2])
    before: dict[str, Numbers] | None = json.loads(place.read_text()) if file else None
    watched = Watched()
    module = f"lapwing.{file.removesuffix('.py').replace('/', '.')}"

    def is_about_this(case: AuditCase) -> bool:
        return any(one.__module__ == module for one in case.covers)

    quick = [*mechanism_cases(), *loss_cases(), *sensitivity_cases()]
    quick.sort(key=lambda case: not is_about_this(case))
    if not file.startswith("sql/"):
        for case in quick:
            attempt(watched, case, Stage.EXACT)
    if before is not None and not file.startswith("sql/"):
        is_harmless, words = judged(watched, before)
        if is_harmless:
            tell("harmless", "measured", words)
    if before is not None and "sampled" in sys.argv:
        sampled._affordable = lambda *_: DRAWS
        for case in quick:
            if Stage.SAMPLED in case.stages and is_about_this(case):
                attempt(watched, case, Stage.SAMPLED)
    if "short" in sys.argv and before is not None and not file.startswith("sql/"):
        tell("survived", why=judged(watched, before)[1])
    for cases in later_cases():
        for case in cases:
            for stage in (Stage.REPLAY, Stage.EXACT):
                if stage in case.stages:
                    attempt(watched, case, stage)
        if before is None or file.startswith("sql/"):
            break  # queries alone use these files, and the baseline needs no more
    if before is None:
        place.write_text(json.dumps(watched.found))
        tell("survived")
    assert before is not None
    is_harmless, words = judged(watched, before)
    if is_harmless:
        tell("harmless", "measured", words)
    if file.startswith("sql/"):
        less, more = changes(watched.found[USED], before[USED])
        if less or more:
            tell("harmless", "measured", "another division of the budget, found to be within the price")
    tell("survived", why=words)


if __name__ == "__main__":
    main()
