"""Notebooks: `%%lapwing` shows the price first, and the tutorial runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from IPython.core.error import UsageError

import lapwing
from lapwing.client.remote_answer import RemoteAnswer
from lapwing.client.remote_plan import RemotePlan
from lapwing.examples.visits import write_visits
from lapwing.notebook import run_cell
from lapwing.server.people.person import Role
from lapwing.sql.dataset import Dataset
from support.cases import each
from support.door_process import new_token, running
from support.scripts import ROOT
from support.served import write_data

COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dataset]:
    monkeypatch.chdir(tmp_path)
    write_visits(tmp_path)
    with lapwing.open("visits.toml", analyst="ann") as dataset:
        yield dataset


def _spent(dataset: Dataset) -> bool:
    return dataset.curator.has_ledger and str(dataset.left()) != "ε 3 of 3"


def test_a_cell_shows_its_price_and_charges_nothing(
    visits: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run_cell("visits.toml --epsilon 0.5", COUNT, {})
    assert isinstance(shown, lapwing.Plan)
    assert capsys.readouterr().out == (
        "Nothing was charged. Add --release to be charged ε 0.5 and see the answer.\n"
    )
    assert not visits.curator.has_ledger


def test_release_shows_the_price_then_charges(visits: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"visits": visits}
    answer = run_cell("visits --epsilon 0.5 --release --into answer", f"\n{COUNT}\n", names)
    assert isinstance(answer, lapwing.Answer)
    assert names["answer"] is answer
    assert capsys.readouterr().out.startswith(
        "Costs ε 0.5, or nothing if released before. Budget left: ε 3 of 3"
    )
    assert str(visits.left()) == "ε 2.5 of 3"
    again = run_cell("visits --epsilon 0.5 --release", COUNT, names)
    assert isinstance(again, lapwing.Answer)
    assert again.is_replay


def test_the_price_may_stand_in_the_cell(visits: Dataset) -> None:
    cell = COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5)")
    assert str(run_cell("visits", cell, {"visits": visits}).cost) == "ε 0.5"


def test_an_accuracy_can_be_asked_for(visits: Dataset) -> None:
    shown = run_cell("visits --within 50 --confidence 0.9 --rows 1", COUNT, {"visits": visits})
    assert isinstance(shown, lapwing.Plan)
    half = shown.spread["n"].half
    assert half is not None
    assert half <= 50


@each(
    "line",
    [
        "", "visits", "visits --epsilon", "visits --epsilon 0.5 --within 3", "visits --epsilon x",
        "visits --what", "nothing.toml --epsilon 1", "visits --epsilon 1 'open", "--epsilon 1",
        "visits --epsilon 1 --into 3x", "visits --epsilon 1 --into class", "visits --epsilon 99 --release",
        "visits --epsilon 1 --analyst ben", "visits --eps 1",
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_charges_nothing(line: str, visits: Dataset) -> None:
    with pytest.raises(UsageError):
        run_cell(line, COUNT, {"visits": visits})
    assert not _spent(visits)


def test_refused_sql_is_told(visits: Dataset) -> None:
    with pytest.raises(UsageError, match="rows are never shown"):
        run_cell("visits --epsilon 1 --release", "SELECT stay FROM visits", {"visits": visits})
    assert not _spent(visits)


def test_load_ext_makes_the_magic_known(visits: Dataset) -> None:
    """The tutorial does it in a whole shell, which leaves files behind."""
    shell: Any = Mock(user_ns={"visits": visits})
    lapwing.load_ipython_extension(shell)
    run, how = shell.magics_manager.register_function.call_args
    assert how == {"magic_kind": "cell", "magic_name": "lapwing"}
    assert str(run[0]("visits --epsilon 0.5", COUNT).cost) == "ε 0.5"


def test_the_extension_is_loaded_at_its_use_only() -> None:
    code = "import lapwing, sys; print(*(name in sys.modules for name in ('lapwing.notebook', 'IPython')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert "load_ipython_extension" not in dir(lapwing)


@each("path", NOTEBOOKS)
def test_the_tutorial_runs(path: Path) -> None:
    """All cells in a new process, as a reader runs them."""
    command = [sys.executable, "docs/run_notebook.py", "--check", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_there_is_a_tutorial_with_stored_outputs_and_without_this_computer() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["nbformat"] == 4
        assert any(cell.get("outputs") for cell in notebook["cells"])
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "/tmp/" not in text


def test_a_cell_asks_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a policy file or data here; the token comes from the environment, as JupyterHub gives it."""
    write_data(tmp_path)
    monkeypatch.setenv("LAPWING_TOKEN", new_token(tmp_path, "ann", Role.ANALYST))
    with running(tmp_path) as door:
        line, names = f"{door.address}/visits --epsilon 0.5", dict[str, object]()
        plan = run_cell(line, COUNT, names)
        assert isinstance(plan, RemotePlan)
        assert "<table>" in plan._repr_html_()
        answer = run_cell(f"{line} --release --into answer", COUNT, names)
        assert isinstance(answer, RemoteAnswer)
        assert names["answer"] is answer
        assert not answer.is_replay
        assert plan.release().is_replay
        with lapwing.connect(door.address) as visits:
            again = run_cell("visits --epsilon 0.5 --release", COUNT, {"visits": visits})
            assert isinstance(again, RemoteAnswer)
            assert again.is_replay
        with pytest.raises(UsageError, match="token"):
            run_cell(f"{line} --analyst bob", COUNT, {})
        monkeypatch.setenv("LAPWING_TOKEN", "lapwing_" + "x" * 40)
        with pytest.raises(UsageError):
            run_cell(line, COUNT, {})
