"""Every error has a code of its own, and the reference lists all codes."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import lapwing
from lapwing.engines.engine import EngineFailed, TimedOut
from lapwing.errors import AllHeld, BadParameter, LapwingError, Unavailable
from lapwing.ledger.postgres_store import _EntriesInUse

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
# An engine's failure never says its cause, which may depend on one row: not in its code either.
# That others charge is told as any other unavailability.
SAME_CODE: dict[type[LapwingError], type[LapwingError]] = {
    TimedOut: EngineFailed,
    _EntriesInUse: Unavailable,
}


def _all_below(kind: type[LapwingError]) -> Iterator[type[LapwingError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_below(below)


def _errors() -> set[type[LapwingError]]:
    for found in pkgutil.walk_packages(lapwing.__path__, "lapwing."):
        importlib.import_module(found.name)
    return {kind for kind in _all_below(LapwingError) if kind.__module__.startswith("lapwing.")}


def test_every_error_has_its_own_code_which_the_reference_lists() -> None:
    codes = {kind: kind.code for kind in _errors() if kind not in SAME_CODE}
    assert len(codes) == len(set(codes.values())), "two errors share a code"
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes.values())
    assert {kind.code for kind in SAME_CODE} == {kind.code for kind in SAME_CODE.values()}
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(code for code, _, _ in rows) == sorted(codes.values())


def test_an_error_keeps_its_code_and_attributes_in_another_process() -> None:
    error = pickle.loads(pickle.dumps(AllHeld([3, 5])))
    assert (error.code, error.positions) == ("all-held", (3, 5))
    error = pickle.loads(pickle.dumps(BadParameter("epsilon", "must be positive")))
    assert (error.code, error.name, error.why) == ("bad-parameter", "epsilon", "must be positive")
