"""Coverage: all that makes a privacy claim has a case, and a stage beyond sampling or a written reason.

Claims are found by walking modules, whether they are exported or not:

- mechanisms: classes with an observed method, and classes of `lapwing.core` with a loss;
- survey randomizers, protocols, joint statistics, contributions, validators, laws of a number of runs and
  strategies of a search: the subclasses of their bases;
- trainers: classes with `fit` that take a payer;
- questions that are built by hand: functions of `lapwing.sql` that return a bound query.

Left out are classes and functions whose names begin with an underscore, abstract classes, and typing
protocols: nobody can use them by themselves, and those who inherit from them are found. The exports of all
parts are looked at besides.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from lapwing import mechanisms
from lapwing.audit.case import AuditCase, Family, Stage
from lapwing.core.losses import Loss
from lapwing.learn.repetition import RunCountLaw
from lapwing.learn.validators import Validator
from lapwing.parties.contribution import Contribution, LocalContribution
from lapwing.parties.protocols.protocol import Protocol
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.statistics import Statistic
from lapwing.publish.release_file import METHODS
from lapwing.sql.question.aggregates import AGGREGATES
from lapwing.survey import randomizers
from lapwing.survey.randomizers.randomizer import Randomizer

BEYOND_SAMPLING = {Stage.REPLAY, Stage.EXACT}
WALKED = (
    "lapwing.core",
    "lapwing.learn",
    "lapwing.publish",
    "lapwing.parties",
    "lapwing.survey.randomizers",
    "lapwing.sql",
)
_BOUND_QUERY = re.compile(r"\b(BoundQuery|RegressionSums)\b")
# The binder's own questions are covered by aggregates. `bound_query` has the type itself.
_OF_BINDER = tuple(
    f"lapwing.sql.question.{name}"
    for name in (
        "aggregates",
        "analysis",
        "bind",
        "bound_query",
        "from_clause",
        "grouping",
        "scalar",
        "scope",
    )
)


def exported_claims() -> Iterator[tuple[Family, Any]]:
    """Yield everything in Lapwing that its parts export and that makes a privacy claim."""
    for kind in _classes(mechanisms, mechanisms.__all__):
        if hasattr(kind, "loss") or _has_observed_method(kind):
            yield Family.MECHANISM, kind
    for kind in _classes(randomizers, randomizers.__all__):
        if hasattr(kind, "sample") and not inspect.isabstract(kind):
            yield Family.RANDOMIZER, kind
    for name in AGGREGATES:
        yield Family.AGGREGATE, name
    for protocol in (*PROTOCOLS.values(), Contribution, LocalContribution):
        yield Family.PROTOCOL, protocol
    for method in METHODS:
        yield Family.PUBLISHING, method
    for family, names in learning_exports().items():
        yield from ((family, name) for name in names)


def learning_exports() -> dict[Family, tuple[str, ...]]:
    """Return the names of all trainers, validators and ways to select, as the packages have them.

    A test compares them with what the cases cover, so that nothing new is left out. It imports the extra
    `learn`.
    """
    from lapwing.learn import column_search, repetition, search, trainers, validators  # noqa: PLC0415
    from lapwing.learn.trainers.estimator import Trainer  # noqa: PLC0415 (an extra)

    exported = {name: getattr(trainers, name) for name in trainers.__all__}
    made = [
        name
        for name, member in exported.items()
        if isinstance(member, type) and issubclass(member, Trainer)
    ]
    tests = _concrete(validators, Validator)
    searches = [
        name
        for name, member in vars(column_search).items()
        if name.startswith("find_") and callable(member)
    ]
    return {
        Family.TRAINER: (*(f"{trainers.__name__}.{name}" for name in made), "lapwing.learn.PrivateTrainer"),
        Family.VALIDATOR: (*tests, f"{validators.__name__}.BestInClass"),
        Family.SELECTION: (
            *_concrete(search, search.SearchStrategy),
            *_concrete(repetition, repetition.RunCountLaw),
            f"{search.__name__}.Search",
            *(f"{column_search.__name__}.{name}" for name in searches),
        ),
    }


def _concrete(module: ModuleType, base: type) -> list[str]:
    """Return the names of the classes of a module that have no abstract methods."""
    kinds = [
        member for member in vars(module).values() if isinstance(member, type) and issubclass(member, base)
    ]
    return [
        f"{module.__name__}.{kind.__name__}"
        for kind in kinds
        if kind.__module__ == module.__name__ and not inspect.isabstract(kind)
    ]


def _classes(module: Any, names: Iterable[str]) -> Iterator[Any]:
    return (member for name in names if inspect.isclass(member := getattr(module, name)))


def walked_claims() -> Iterator[tuple[Family, Any]]:
    """Yield everything in the modules of Lapwing that makes a privacy claim, exported or not.

    Raises:
        ImportError: If a module needs an extra that is not installed. Most raise `MissingExtra`.
    """
    from lapwing.learn.search import SearchStrategy  # noqa: PLC0415 (an extra)

    bases: Mapping[type, Family] = {
        Randomizer: Family.RANDOMIZER,
        Protocol: Family.PROTOCOL,
        Statistic: Family.PROTOCOL,
        Validator: Family.VALIDATOR,
        RunCountLaw: Family.SELECTION,
        SearchStrategy: Family.SELECTION,
    }
    for module in walked_modules():
        for member in _defined(module):
            if inspect.isclass(member):
                family = _family(member, module, bases)
            else:
                family = Family.AGGREGATE if _builds_question(member, module) else None
            if family is not None:
                yield family, member


def walked_modules() -> Iterator[ModuleType]:
    """Yield all modules of the packages `WALKED`."""
    for name in WALKED:
        package = importlib.import_module(name)
        yield package
        for entry in pkgutil.walk_packages(package.__path__, f"{name}."):
            yield importlib.import_module(entry.name)


def _defined(module: ModuleType) -> list[Any]:
    """Return the classes and functions that a module defines and that can be used by themselves."""
    return [
        member
        for name, member in list(vars(module).items())  # a list: a lazy name may be added on the way
        if not name.startswith("_")
        and getattr(member, "__module__", None) == module.__name__
        and (inspect.isfunction(member) or (inspect.isclass(member) and _is_usable(member)))
    ]


def _is_usable(kind: type) -> bool:
    return not inspect.isabstract(kind) and not getattr(kind, "_is_protocol", False)


def _family(kind: type, module: ModuleType, bases: Mapping[type, Family]) -> Family | None:
    """Return the family of the claim that a class makes; None if it makes none."""
    for base, family in bases.items():
        if issubclass(kind, base):
            return family
    if _has_observed_method(kind):
        return Family.MECHANISM
    if module.__name__.startswith("lapwing.core") and _declares_loss(kind) and not issubclass(kind, Loss):
        return Family.MECHANISM
    return Family.TRAINER if _trains(kind) else None


def _has_observed_method(kind: type) -> bool:
    own = [member for base in kind.__mro__ for member in vars(base).values() if inspect.isfunction(member)]
    return any(getattr(member, "is_observed", False) for member in own)


def _declares_loss(kind: type) -> bool:
    return hasattr(kind, "loss") or any(
        "loss" in vars(base).get("__annotations__", {}) for base in kind.__mro__
    )


def _trains(kind: type) -> bool:
    """Tell whether a class has a method `fit`, and takes a payer when it is made or fitted."""
    fit = getattr(kind, "fit", None)
    if not inspect.isfunction(fit):
        return False
    taken = {*inspect.signature(kind).parameters, *inspect.signature(fit).parameters}
    return "payer" in taken


def _builds_question(function: Any, module: ModuleType) -> bool:
    if not module.__name__.startswith("lapwing.sql.") or module.__name__.startswith(_OF_BINDER):
        return False
    return bool(_BOUND_QUERY.search(str(function.__annotations__.get("return", ""))))


def uncovered(cases: Iterable[AuditCase]) -> list[str]:
    """Return what is missing in the registry, in words: nothing, if the registry is complete.

    A claim without a case; a case that only samples and gives no reason; a case without any stage.
    """
    known = list(cases)
    try:
        claims = [*exported_claims(), *walked_claims()]
    except ImportError as error:  # also MissingExtra
        return [f"not all claims could be listed: {error}"]
    covered = {claim for case in known for claim in covered_objects(case)}
    missing: dict[Any, str] = {}  # by object: some are exported and walked
    for family, claim in claims:
        if (key := meant_object(family, claim)) not in covered:
            missing.setdefault(key, f"{family.value} {getattr(claim, '__name__', claim)} has no case")
    mistakes = list(missing.values())
    for case in known:
        if not case.stages:
            mistakes.append(f"{case.name} has no stage")
        elif not BEYOND_SAMPLING & set(case.stages) and not case.reason:
            mistakes.append(f"{case.name} has no stage beyond sampling, and no reason for that")
    return mistakes


def covered_objects(case: AuditCase) -> set[Any]:
    """Return the classes and functions that a case says it covers; names that name none with its family."""
    return {meant_object(case.family, claim) for claim in case.covers}


def meant_object(family: Family, claim: Any) -> Any:
    """Return the object that a dotted name names; other names with their family; objects as they are."""
    if not isinstance(claim, str):
        return claim
    return pkgutil.resolve_name(claim) if "." in claim else (family, claim)
