"""One process of the mutation run (`benchmarks/mutations.py`): the quick audit of this copy of the package.

It prints one JSON object: the outcome (caught, harmless, survived), by which stage, and why.

Without a file it audits everything, a process for each stage of each case, and writes the baseline: the
shares of bounds that are used up, the promises, the seconds, and which functions each stage called. A
mutant of a function needs only the stages that call it: no other can change.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.audit.called_functions import called_functions
from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry import sensitivities
from lapwing.audit.registry.aggregates import aggregate_cases
from lapwing.audit.registry.composed_losses import loss_cases
from lapwing.audit.registry.joint_noise_cases import joint_noise_cases
from lapwing.audit.registry.learning import learning_cases
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.audit.registry.preliminary import preliminary_cases
from lapwing.audit.registry.protocols import protocol_cases
from lapwing.audit.registry.publishing import publishing_cases
from lapwing.audit.registry.randomizers import randomizer_cases
from lapwing.audit.registry.sensitivities import sensitivity_cases
from lapwing.audit.registry.sessions import session_cases
from lapwing.audit.stages import exact, replay, sampled
from lapwing.core.budget import price

DRAWS = 20_000
MILLIONTH = 1e-6
QUICK = StageBudget(seconds=1.0, error=1e-6, is_thorough=False)
THOROUGH = replace(QUICK, is_thorough=True)
Numbers = dict[str, list[float]]
SHARES, PROMISED, USED = "shares", "promised", "used"
FAMILIES: tuple[Callable[[], Iterable[AuditCase]], ...] = (
    mechanism_cases, session_cases, loss_cases, sensitivity_cases, randomizer_cases, aggregate_cases,
    preliminary_cases, protocol_cases, joint_noise_cases, publishing_cases, learning_cases,
)  # fmt: skip


class Watched:
    """What the stages compare: shares of bounds that are used up, promises, and losses of calls.

    A share is the true value divided by the allowed one, the worst of all pairs of a setting: a change may
    raise that of some pairs and not that of the worst one, which counts.
    """

    def __init__(self) -> None:
        self.found: dict[str, Numbers] = {SHARES: {}, PROMISED: {}, USED: {}}
        self.case = ""
        compared, price_of = exact._Judged._compared, replay._exceeded
        statistics = sensitivities._statistics

        def recorded(one: Any) -> Any:
            key = f"{self.case}: {one.pair.description} {one.backwards}"
            setting = key.split(" and ", maxsplit=1)[0].rpartition(":")[0]
            shares = self.found[SHARES].setdefault(setting, [])
            promised = self.found[PROMISED].setdefault(key, [])
            for place, bound in enumerate(compared(one)):
                shares += [0.0] * (place + 1 - len(shares))
                share = float(bound.actual / bound.allowed) if bound.allowed else float(bound.actual > 0)
                shares[place] = max(shares[place], share)
                promised.append(float(bound.allowed))
                yield bound

        def priced(loss: Any, limit: Any) -> Any:
            for name, one in (("used", loss), ("limit", limit)):
                costs = price(one, replay.ORDERS).costs
                self.found[USED].setdefault(f"{self.case}: {name}", [float(cost) for cost in costs])
            return price_of(loss, limit)

        def declared() -> Any:
            for name, one, statistic, neighbours in statistics():
                # The statistics do not change: a smaller declared distance is used up to a larger share.
                distances = [float(one.l1), float(one.l2_squared)]
                self.found[PROMISED][f"sensitivity: {name}"] = distances
                self.found[SHARES][f"sensitivity: {name}"] = [1 / each for each in distances if each]
                yield name, one, statistic, neighbours

        exact._Judged._compared = recorded  # type: ignore[method-assign, assignment]
        replay._exceeded = priced
        sensitivities._statistics = declared


def tell(outcome: str, stage: str = "", why: str = "") -> None:
    """Print the outcome, and end."""
    print(json.dumps({"outcome": outcome, "stage": stage, "why": why}))
    sys.exit()


def attempt(watched: Watched, case: AuditCase, stage: Stage, budget: StageBudget | None = None) -> None:
    """Run one stage of one case. End the process if it finds a violation or cannot run."""
    watched.case = case.name
    result = case.stages[stage](budget or QUICK)
    if result.unable or not result.checks:
        tell("caught", stage.value, f"{case.name}: could not run: {result.unable[:80]}")
    if result.witness is not None:
        tell("caught", stage.value, f"{case.name}: {result.witness.event[:60]}")


Family = Callable[[], Iterable[AuditCase]]


def in_child(action: Callable[[], Any]) -> Any:
    """Return the result of a function that runs in a process of its own. End if it fails."""
    with tempfile.NamedTemporaryFile() as told:
        child = os.fork()
        if not child:
            try:
                Path(told.name).write_text(json.dumps(action()))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            tell("caught", why="without a change")
        return json.loads(Path(told.name).read_text())


def record_baseline(place: Path) -> None:
    """Run every stage without a change, each in a process of its own: caches would hide calls."""
    found: dict[str, Numbers] = {SHARES: {}, PROMISED: {}, USED: {}}
    stages: list[dict[str, Any]] = []
    for family in FAMILIES:
        for name, stage in in_child(partial(listed, family)):
            one = in_child(partial(recorded, family, name, Stage(stage)))
            for kind, numbers in one.pop("found").items():
                found[kind].update(numbers)
            stages.append(one)
    place.write_text(json.dumps({"found": found, "stages": stages}))
    tell("survived")


def listed(family: Family) -> list[tuple[str, str]]:
    """Return the names of the cases of a family, each with its stages without sampling."""
    stages = (Stage.EXACT, Stage.REPLAY)
    return [(case.name, one.value) for case in family() for one in stages if one in case.stages]


def recorded(family: Family, name: str, stage: Stage) -> dict[str, Any]:
    """Build a family and run one stage of one case. Return what it called and found."""
    watched, start = Watched(), time.process_time()
    with called_functions() as calls:
        case = next(one for one in family() if one.name == name)
        attempt(watched, case, stage)
    seconds = time.process_time() - start
    told = {"case": name, "stage": stage.value, "seconds": seconds, "calls": sorted(calls)}
    return {**told, "found": watched.found}


def changes(found: Numbers, before: Numbers, *, slack: float = 1e-12) -> tuple[bool, bool]:
    """Whether some number is below, and whether some number is above its value without the change."""
    below = above = False
    for key in found.keys() & before.keys():
        for one, other in zip(found[key], before[key], strict=False):
            room = slack * max(abs(one), abs(other))
            below, above = below or one < other - room, above or one > other + room
    return below, above


def judged(watched: Watched, before: dict[str, Numbers]) -> tuple[bool, str]:
    """Whether a survivor is harmless, by its numbers; and how they moved, in words."""
    share_below, share_above = changes(watched.found[SHARES], before[SHARES], slack=MILLIONTH)
    promise_below, promise_above = changes(watched.found[PROMISED], before[PROMISED])
    words = [
        text
        for text, holds in (
            ("uses less of its bounds", share_below), ("uses more of its bounds", share_above),
            ("charges less", promise_below), ("charges more", promise_above),
        )
        if holds
    ]  # fmt: skip
    return bool(words) and not share_above, ", ".join(words) or "no law and no charge moved"


def meet_more(watched: Watched, reached: list[tuple[AuditCase, Stage]]) -> None:
    """Run exact stages with all their settings, then 20,000 draws if the change is inside of a sampler."""
    for case, stage in reached:
        if stage is Stage.EXACT:
            attempt(watched, case, stage, THOROUGH)
    if "sampled" in sys.argv:
        sampled._affordable = lambda *_: DRAWS
        for case in {case.name: case for case, _ in reached}.values():
            if Stage.SAMPLED in case.stages:
                attempt(watched, case, Stage.SAMPLED)


def main() -> None:
    """Run the stages that call the function, cheapest first."""
    file, function, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if not file:
        record_baseline(place)
    baseline = json.loads(place.read_text())
    reached = [one for one in baseline["stages"] if f"{file}: {function}" in one["calls"]]
    if not reached:
        tell("survived", why="no case calls this function")
    cases = {case.name: case for family in FAMILIES for case in family()}
    watched, before = Watched(), baseline["found"]
    for one in sorted(reached, key=lambda one: float(one["seconds"])):
        attempt(watched, cases[one["case"]], Stage(one["stage"]))
    is_harmless, words = judged(watched, before)
    if is_harmless:
        tell("harmless", "measured", words)
    meet_more(watched, [(cases[one["case"]], Stage(one["stage"])) for one in reached])
    if file.startswith("sql/") and any(changes(watched.found[USED], before[USED])):
        tell("harmless", "measured", "another division of the budget, found to be within the price")
    tell("survived", why=words)


if __name__ == "__main__":
    main()
