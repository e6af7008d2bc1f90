"""Every public name is in the Python reference with the sections that apply to it, and its examples run."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
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
from lapwing.sql.reading.reader import Reader
from support.published import copied_bundle
from support.scripts import ROOT, load_script

LENGTHY = {
    "learn": ("card_text", "load_model", "log_to_mlflow", "model_card", "write_outputs"),  # after training
    "audit": ("AuditReport", "case_of_query", "run_audit"),
}
PERSON: dict[str, Any] = {"unit": Unit.PERSON, "relation": Relation.ADD_REMOVE}


check_reference = load_script("docs/check_reference.py")
NAMES = dict(check_reference.public_names())


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs" / check_reference.PAGE).read_text(encoding="utf-8")
    assert check_reference.mistakes(page) == []


def test_a_name_that_is_missing_is_told() -> None:
    found = check_reference.mistakes("::: lapwing.open\n")
    assert "lapwing.Curator is not on the page reference/python.md" in found
    assert not any("lapwing.open" in line for line in found)


def test_sections_that_are_missing_are_told() -> None:
    def halve(number: int) -> int:
        """Return half of an even number."""
        if number % 2:
            raise ValueError
        return number // 2

    assert check_reference.missing_sections(halve) == ["Example", "Args", "Returns", "Raises"]


# Names that examples use without an import, and below what else they find in their folder.
KNOWN = {name.rpartition(".")[2]: value for name, value in NAMES.items() if name != "lapwing.open"}
KNOWN |= {"Fraction": Fraction, "Path": Path, "Pure": Pure, "Relation": Relation, "np": np}


def _sql(stack: ExitStack) -> dict[str, Any]:
    """The example of `lapwing example`, opened and asked once."""
    write_visits(Path())
    curator = stack.enter_context(lapwing.Curator("visits.toml"))
    dataset = stack.enter_context(lapwing.open("visits.toml", analyst="ann"))
    plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
    answer = dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
    with patch.object(Reader, "exact", side_effect=TimedOut), pytest.raises(Held) as held:
        dataset.ask("SELECT COUNT(*) FROM patients", epsilon="0.1")
    names = {"curator": curator, "dataset": dataset, "plan": plan, "answer": answer, "lapwing": lapwing}
    return {**names, "failed": held.value.position}


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


WORLDS: dict[str, Callable[[ExitStack], dict[str, Any]]] = {
    "sql": _sql, "ledger": _ledger, "survey": _survey, "parties": _parties, "learn": _learn, "errors": _sql,
    "publish": _publish, "audit": _audit,
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
