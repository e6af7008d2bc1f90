"""Calls are recorded, also those of threads and of inner functions; and cases call what they cover."""

from __future__ import annotations

import inspect
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import lapwing
from lapwing.audit.called_functions import called_functions
from lapwing.audit.registry import cases
from lapwing.audit.registry.coverage import covered_objects, exported_claims, meant_object, walked_claims
from lapwing.core.laplace import Laplace
from support.called import calls_of

PACKAGE = Path(lapwing.__file__).parent


def test_calls_are_recorded_also_in_threads() -> None:
    with called_functions() as names:
        noise = Laplace.for_epsilon(1, l1=1)
        thread = Thread(target=noise.sample, args=([0],))
        thread.start()
        thread.join()
    assert {"core/laplace.py: Laplace.for_epsilon", "core/laplace.py: Laplace.sample"} <= names
    with called_functions() as none:
        pass
    assert none == set()


def _own_functions(one: Any) -> set[str]:
    """Return the functions of a class, or of the nearest base that has some; or the function itself."""
    for kind in one.__mro__ if inspect.isclass(one) else (one,):
        path = Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()
        place = f"{path}: {kind.__qualname__}"
        if not inspect.isclass(kind):
            return {place}
        members = [getattr(each, "fget", None) or getattr(each, "__func__", None) or each
                   for each in vars(kind).values()]  # fmt: skip
        names = {each.__name__ for each in members if inspect.isfunction(each)}
        if names:
            return {f"{place}.{name}" for name in names}
    return set()


# Their questions are audited. They ask them through the gate (tests/learn/test_column_search.py).
ASKED_BY_HAND = {"find_bounds", "find_values"}
# The numbers of a class of models: they are checked when a case is built, and its validator reads them.
SETTINGS = {"BestInClass"}


@pytest.mark.slow
def test_every_claim_is_called_by_a_case_that_says_it_covers_it() -> None:
    claims = {meant_object(*claim) for claim in (*exported_claims(), *walked_claims())}
    claims = {one for one in claims if getattr(one, "__module__", "").startswith("lapwing.")}
    with called_functions() as building:  # questions that are functions are built here, and then asked
        known = cases()
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:  # fails if one dies
        called = dict(pool.map(calls_of, range(len(known))))
    by_claim: dict[Any, set[str]] = defaultdict(set)
    for case in known:
        for one in covered_objects(case):
            by_claim[one] |= called[case.name]
    assert len(claims) > 60
    uncalled = {
        one.__qualname__
        for one in claims
        if not _own_functions(one) & (by_claim[one] | (set() if inspect.isclass(one) else building))
    }
    assert uncalled == ASKED_BY_HAND | SETTINGS
