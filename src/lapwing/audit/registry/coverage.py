"""Coverage: all that makes a privacy claim has a case, and a stage beyond sampling or a written reason."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from lapwing import mechanisms
from lapwing.audit.case import AuditCase, Family, Stage
from lapwing.audit.registry.learning import learning_exports
from lapwing.parties.contribution import LocalContribution
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.publish.release_file import METHODS
from lapwing.sql.binding.aggregates import AGGREGATES
from lapwing.survey import randomizers

BEYOND_SAMPLING = {Stage.REPLAY, Stage.EXACT}


def exported_claims() -> Iterator[tuple[Family, Any]]:
    """Yield everything in Lapwing that makes a privacy claim, found by walking the exports of its parts."""
    for one in _classes(mechanisms, mechanisms.__all__):
        if hasattr(one, "loss"):
            yield Family.MECHANISM, one
    for one in _classes(randomizers, randomizers.__all__):
        if hasattr(one, "sample") and not inspect.isabstract(one):
            yield Family.RANDOMIZER, one
    for name in AGGREGATES:
        yield Family.AGGREGATE, name
    for protocol in (*PROTOCOLS.values(), LocalContribution):
        yield Family.PROTOCOL, protocol
    for method in METHODS:
        yield Family.PUBLISHING, method
    for family, names in learning_exports().items():
        yield from ((family, name) for name in names)


def _classes(module: Any, names: Iterable[str]) -> Iterator[Any]:
    return (one for name in names if inspect.isclass(one := getattr(module, name)))


def uncovered(cases: Iterable[AuditCase]) -> list[str]:
    """Return what is missing in the registry, in words: nothing, if the registry is complete.

    A claim without a case; a case that only samples and gives no reason; a case without any stage.
    """
    known = list(cases)
    covered = {(case.family, one) for case in known for one in case.covers}
    missing = [
        f"{family.value} {getattr(one, '__name__', one)} has no case"
        for family, one in exported_claims()
        if (family, one) not in covered
    ]
    for case in known:
        if not case.stages:
            missing.append(f"{case.name} has no stage")
        elif not BEYOND_SAMPLING & set(case.stages) and not case.reason:
            missing.append(f"{case.name} has no stage beyond sampling, and no reason for that")
    return missing
