"""Every mechanism is argued, exported, tried, attacked and of one shape: one test tells all that lacks."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lapwing import core, mechanisms
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.laplace import Laplace
from support.audit_cases import audit_cases
from support.mechanisms import TRIED

ROOT = Path(__file__).parents[2]
TABLE = "tests/support/mechanisms.py"


def _is_mechanism(value: Any, module: str) -> bool:
    """Return whether a module defines this class, and it claims a loss and draws something."""
    draws = hasattr(value, "sample") or hasattr(value, "start")
    is_own = inspect.isclass(value) and value.__module__ == module and value.__name__[0] != "_"
    return is_own and draws and hasattr(value, "loss") and not inspect.isabstract(value)


def _all() -> list[type]:
    """Return all mechanisms of `lapwing.core`, exported or not."""
    names = [f"lapwing.core.{module.name}" for module in pkgutil.iter_modules(core.__path__)]
    return [
        value
        for name in names
        for value in vars(import_module(name)).values()
        if _is_mechanism(value, name)
    ]


ALL = _all()


def _page(mechanism: type) -> str:
    """Return the name of the mechanism's files: above_threshold."""
    return re.sub("(?<!^)([A-Z])", r"_\1", mechanism.__name__).lower()


def _lacks_in_its_class(mechanism: type) -> Iterator[str]:
    home, text = f"src/{mechanism.__module__.replace('.', '/')}.py", inspect.getdoc(mechanism) or ""
    for word in ("Claim", "Because"):
        if not re.search(rf"^ *{word} +\S", text, re.MULTILINE):
            yield f"{home}: a line of the docstring that begins with {word}"
    cited = re.search(r"Test\s+(claims/\S+)::(\w+)", text)
    if not cited:
        yield f"{home}: a line of the docstring, Test     claims/test_{_page(mechanism)}.py::test_NAME"
    else:
        claims = ROOT / "tests" / cited[1]
        if not claims.exists() or f"def {cited[2]}(" not in claims.read_text():
            yield f"tests/{cited[1]}: def {cited[2]}() -> None"
    for method in ("loss", "metric", "spread"):
        if not hasattr(mechanism, method):
            yield f"{home}: `{method}`"
    if not getattr(getattr(mechanism, "__dataclass_params__", None), "frozen", False):
        yield f"{home}: @dataclass(frozen=True, slots=True)"


def _lacks_on_pages(mechanism: type) -> Iterator[str]:
    page, arguments = _page(mechanism), ROOT / "docs" / "arguments"
    said = (arguments / f"{page}.md").read_text() if (arguments / f"{page}.md").exists() else ""
    for part in ("Claim", "Proof", "Tested by"):
        if not re.search(rf"^(\*\*|## ){part}", said, re.MULTILINE):
            yield f"docs/arguments/{page}.md: ## {part}"
    if f"({page}.md)" not in (arguments / "README.md").read_text():
        yield f"docs/arguments/README.md: | [{page.replace('_', ' ')}]({page}.md) | THE CLAIM, SHORT |"


def missing(mechanism: type) -> Iterator[str]:
    """Yield all that a mechanism lacks: the file, and what to add to it."""
    name = mechanism.__name__
    yield from _lacks_in_its_class(mechanism)
    yield from _lacks_on_pages(mechanism)
    if name not in mechanisms.__all__ or getattr(mechanisms, name, None) is not mechanism:
        line = f"from {mechanism.__module__} import {name}"
        yield f'src/lapwing/mechanisms.py: {line}, and "{name}" in __all__'
    if mechanism not in {covered for case in audit_cases() for covered in case.covers}:
        yield f"src/lapwing/audit/registry/mechanisms.py: a `mechanism_case` of {name} in `mechanism_cases`"
    if mechanism not in [type(tried.mechanism) for tried in TRIED]:
        made = f"{name}.for_epsilon(1, …), lambda m: m.sample(…), {{INPUT: …}}, [lambda e: …]"
        yield f"{TABLE}: Tried({made}) in TRIED"


def test_no_mechanism_lacks_anything() -> None:
    lacks = [f"{mechanism.__name__}: {line}" for mechanism in ALL for line in missing(mechanism)]
    assert not lacks, "add:\n" + "\n".join(lacks)


def test_the_mechanisms_are_found_without_a_list() -> None:
    exported = {
        value
        for name in mechanisms.__all__
        if inspect.isclass(value := getattr(mechanisms, name)) and hasattr(value, "loss")
    }
    assert set(ALL) == exported
    assert len(ALL) >= 12


class Planted(Laplace):
    """It has nothing."""


def test_all_that_a_new_mechanism_lacks_is_told_at_once() -> None:
    told = list(missing(Planted))
    for file in (
        "tests/shape/test_mechanisms.py",  # its home: the docstring
        "src/lapwing/mechanisms.py",
        "docs/arguments/planted.md",
        "docs/arguments/README.md",
        "src/lapwing/audit/registry/mechanisms.py",
        TABLE,
    ):
        assert any(Path(file).name in line for line in told), file


@pytest.mark.parametrize("tried", TRIED, ids=lambda tried: type(tried.mechanism).__name__)
def test_the_metric_is_the_distance_that_was_declared(tried: Any) -> None:
    metric, mechanism = tried.mechanism.metric, tried.mechanism
    assert isinstance(metric, InputMetric)
    assert isinstance(metric.distance, Distance)
    by_distance = {
        Distance.L1: "l1", Distance.L2_SQUARED: "l2_squared", Distance.L_INFINITY: "sensitivity",
        Distance.ROWS: "rows", Distance.KEYS: "keys",
    }  # fmt: skip
    name = by_distance.get(metric.distance)
    assert metric.bound == (1 if name is None else getattr(mechanism, name))
    assert metric.relation is getattr(mechanism, "relation", metric.relation)


def test_R3_only_noise_draws_random_numbers() -> None:
    source = ROOT / "src" / "lapwing" / "core" / "random_stream.py"
    other_sources = re.compile(r"np\.random|import random\b|import secrets|os\.urandom|getrandom")
    for path in (ROOT / "src").rglob("*.py"):
        if path != source:
            assert not other_sources.search(path.read_text()), path
