"""The examples in docstrings of the core and the ledger run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SRC).with_suffix("").parts)
    for path in [*(SRC / "lapwing/core").glob("*.py"), *(SRC / "lapwing/ledger").glob("*.py")]
    if ">>> " in path.read_text(encoding="utf-8") and path.stem != "__init__"
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "state"))
    found = doctest.testmod(import_module(name))
    assert found.attempted
    assert not found.failed
