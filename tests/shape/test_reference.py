"""Every public name is in the Python reference with the sections that apply to it, and its examples run."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import lapwing
from lapwing.core import Pure, Relation
from lapwing.engines.engine import TimedOut
from lapwing.errors import Held
from lapwing.examples.own_functions import write_own_functions
from lapwing.examples.rides import write_rides
from lapwing.examples.town import write_town
from lapwing.examples.visits import write_visits
from lapwing.learn import load_pipeline, write_outputs
from lapwing.ledger import Ledger, Spending, Target, Unit
from lapwing.parties import JointRequirements
from lapwing.server.people.person import Role
from lapwing.sql.reading.reader import Reader
from support.door_process import new_token, running
from support.published import copied_bundle
from support.scripts import ROOT, load_script
from support.served import COUNT, write_data

LENGTHY = {
    "learn": ("card_text", "load_model", "log_to_mlflow", "model_card", "write_outputs"),  # after training
    "audit": ("AuditReport", "case_of_query", "run_audit"),
}
PERSON: dict[str, Any] = {"unit": Unit.PERSON, "relation": Relation.ADD_REMOVE}


check_reference = load_script("docs/check_reference.py")
NAMES = dict(check_reference.public_names())


def page_of(package: str) -> str:
    return str((ROOT / "docs" / check_reference.PAGES[package]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", check_reference.PAGES)
def test_the_page_of_a_package_has_its_public_names_and_no_others(package: str) -> None:
    assert check_reference.mistakes(package, page_of(package)) == []


def test_a_module_that_is_shown_as_a_whole_is_on_its_page() -> None:
    for module, page in check_reference.MODULES.items():
        assert f"\n::: {module}\n" in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_what_is_wrong_with_a_page_is_told() -> None:
    begun = "```python\nimport lapwing\n```\n"
    found = check_reference.mistakes(
        "lapwing", f"{begun}::: lapwing.open\n::: lapwing.sql.curator.Curator\n"
    )
    assert "lapwing.Curator is not on the page reference/python.md" in found
    assert "lapwing.sql.curator.Curator is on the page reference/python.md, and is no public name" in found
    assert not any("lapwing.open" in line or "example" in line for line in found)
    late = check_reference.mistakes("lapwing", f"# Python\n\n::: lapwing.open\n{begun}")
    assert "begin with an example" in late[-1]


def test_the_first_page_and_the_menu_have_all_packages() -> None:
    first, menu = page_of("lapwing"), (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for package, page in check_reference.PAGES.items():
        assert f": {page}\n" in menu, package
        assert package == "lapwing" or f"[{package}]({package}.md)" in first


# What the docs import beside the reference: none of it is promised to stay.
BESIDE = {
    "lapwing.audit.attacks": "settings of `lapwing attack`, in its guide",
    "lapwing.core": "losses, budgets and relations, in First steps",
    "lapwing.examples": "writes the invented data of the examples",
    "lapwing.learn.trainers": "estimators for scikit-learn's tools",
    "lapwing.plots": "the pictures of the guides",
    "lapwing.show": "what `lapwing show` computes",
}


def _imported(code: str) -> Iterator[str]:
    """Yield the names of Lapwing that an example imports, or uses of `import lapwing`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lapwing":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("lapwing."))
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "lapwing"
        ):
            yield f"lapwing.{node.attr}"


def test_the_docs_use_what_the_reference_has() -> None:
    public = {
        f"{package}.{name}" for package in check_reference.PAGES for name in import_module(package).__all__
    }
    beside = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for code in re.findall(
            r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for name in set(_imported(code)) - public:
                if name.rpartition(".")[0] in check_reference.MODULES:
                    continue
                known = [module for module in BESIDE if name.startswith(f"{module}.")]
                assert known, f"{page.name}: {name} is not in the reference"
                beside.update(known)
    assert beside == set(BESIDE), "none of these is left over"


def test_sections_that_are_missing_are_told() -> None:
    def halve(number: int) -> int:
        """Return half of an even number."""
        if number % 2:
            raise ValueError
        return number // 2

    assert check_reference.missing_sections(halve) == ["Example", "Args", "Returns", "Raises"]


# Names that examples use without an import, and below what else they find in their folder.
KNOWN = {
    name.rpartition(".")[2]: value
    for name, value in NAMES.items()
    if name != "lapwing.open" and not name.startswith("lapwing.questions.")  # sum, min and max are Python's
}
KNOWN |= {"Fraction": Fraction, "Path": Path, "Pure": Pure, "Relation": Relation, "np": np}


def _sql(stack: ExitStack) -> dict[str, Any]:
    """The example of `lapwing example`, opened and asked once, and a town with one private table."""
    write_visits(Path())
    write_town(Path())
    town = stack.enter_context(lapwing.open("town.toml", analyst="ann"))
    curator = stack.enter_context(lapwing.Curator("visits.toml"))
    dataset = stack.enter_context(lapwing.open("visits.toml", analyst="ann"))
    plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
    answer = dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
    with patch.object(Reader, "exact", side_effect=TimedOut), pytest.raises(Held) as held:
        dataset.ask("SELECT COUNT(*) FROM patients", epsilon="0.1")
    names = {"curator": curator, "dataset": dataset, "plan": plan, "answer": answer, "lapwing": lapwing}
    return {**names, "town": town, "failed": held.value.position}


def _ledger(stack: ExitStack) -> dict[str, Any]:
    """A ledger with one account, and the price of a release."""
    ledger = stack.enter_context(Ledger.create("patients.ledger"))
    ledger.open_account("patients", epsilon=1, delta="1e-6", **PERSON)
    price = Spending(
        targets=[Target("patients")], loss=Pure(Fraction(1, 10)), **PERSON,
        mechanism="example", parameters={}, request=b"how many?",
    )  # fmt: skip
    return {"ledger": ledger, "price": price}


def _survey(stack: ExitStack) -> dict[str, Any]:
    """A survey of one question."""
    lines = ["[survey]", 'name = "tea"', "epsilon = 1.0", "stop_after = 100"]
    lines += ["[[questions]]", 'name = "tea"', 'text = "Tea?"', 'kind = "yes_no"']
    Path("tea.toml").write_text("\n".join(lines))
    return {}


def _parties(stack: ExitStack) -> dict[str, Any]:
    """The requirements of three members."""
    needs = JointRequirements(
        members=3, coalition=1, losses=0, people_at=1, adversary="unbounded", protocol="auto",
        epsilon=Fraction(1), delta=Fraction(0), noise="auto",
    )  # fmt: skip
    return {"needs": needs}


def _learn(stack: ExitStack) -> dict[str, Any]:
    """The example of `lapwing train example`, a ledger, and the data set of `lapwing example`."""
    write_rides(Path())
    write_visits(Path())
    return {**_ledger(stack), "dataset": stack.enter_context(lapwing.open("visits.toml", analyst="ann"))}


def _trained(stack: ExitStack) -> dict[str, Any]:
    """An outcome of the example's first pipeline, with its files."""
    write_rides(Path())
    pipeline = load_pipeline("durations.toml")
    stream = stack.enter_context(lapwing.Stream.open(pipeline.stream))
    stream.append(through="2026-01")
    for file in sorted(Path("arriving").iterdir()):
        stream.append(file, through=file.stem)
    outcome = lapwing.train(stream, pipeline, Path("durations.runs"))
    write_outputs(outcome, stream.policy, Path("durations.runs"))
    return {"stream": stream, "outcome": outcome}


def _publish(stack: ExitStack) -> dict[str, Any]:
    """The example of `lapwing publish example`, and the bundle of its rows."""
    write_town(Path())
    copied_bundle("rows", Path()).rename("published")
    return {}


def _audit(stack: ExitStack) -> dict[str, Any]:
    """The examples of `lapwing example`, prepared, and of `lapwing audit example`."""
    write_visits(Path())
    write_own_functions(Path())
    with lapwing.open("visits.toml", analyst="ann") as dataset:
        dataset.prepare()
    return {}


def _client(stack: ExitStack) -> dict[str, Any]:
    """A server of one data set, a token for it, and what was asked there once."""
    write_data(Path())
    token = new_token(Path(), "ann", Role.ANALYST)
    door = stack.enter_context(running(Path()))
    visits = stack.enter_context(lapwing.connect(f"{door.address}/visits", token=token))
    plan = visits.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
    batch = visits.batch([COUNT, "SELECT AVG(stay) FROM visits"], epsilon=1)
    answer = visits.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
    names = {"visits": visits, "plan": plan, "answer": answer, "batch": batch, "lapwing": lapwing}
    return {**names, "url": f"{door.address}/visits", "token": token}


WORLDS: dict[str, Callable[[ExitStack], dict[str, Any]]] = {
    "sql": _sql, "ledger": _ledger, "survey": _survey, "parties": _parties, "learn": _learn, "errors": _sql,
    "questions": _sql, "publish": _publish, "audit": _audit, "client": _client,
}  # fmt: skip


class _OnlyShown(doctest.OutputChecker):
    """Accepts any output of an example that shows none: noise differs from run to run."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def _names() -> Iterator[object]:
    lengthy = {f"lapwing.{part}.{name}" for part, names in LENGTHY.items() for name in names}
    for name, value in NAMES.items():
        if callable(value):
            yield pytest.param(name, marks=[pytest.mark.slow] if name in lengthy else [])


@pytest.mark.parametrize("name", list(_names()))
def test_examples_of_the_reference_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the name, and then those of its methods in their order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    value = NAMES[name]
    runner = doctest.DocTestRunner(checker=_OnlyShown(), optionflags=doctest.ELLIPSIS, verbose=False)
    failures: list[str] = []
    with ExitStack() as stack:
        part = value.__module__.split(".")[1]
        world = _trained if name.rpartition(".")[2] in LENGTHY["learn"] else WORLDS.get(part, lambda _: {})
        names = {**KNOWN, **world(stack)}
        tests = doctest.DocTestFinder(exclude_empty=True).find(value, name, globs=names)
        for test in sorted(tests, key=lambda one: one.lineno or 0):
            test.globs = names
            runner.run(test, out=failures.append, clear_globs=False)
        for code in re.findall(r"^ *```python\n(.*?)^ *```", value.__doc__ or "", re.MULTILINE | re.DOTALL):
            exec(compile(_dedented(code), name, "exec"), names)
    assert not failures, "".join(failures)


def _dedented(code: str) -> str:
    lines = code.splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)
