"""`import lapwing` gives the public names, and nothing is loaded before it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import lapwing
from support.cases import each

NAMES = [
    "Answer",
    "Budget",
    "Consortium",
    "Curator",
    "Dataset",
    "Gate",
    "LapwingError",
    "Ledger",
    "OverBudget",
    "Pipeline",
    "Plan",
    "Policy",
    "Refused",
    "Respondent",
    "Stream",
    "Survey",
    "Table",
    "__version__",
    "between",
    "connect",
    "explain",
    "losses",
    "mechanisms",
    "noise",
    "open",
    "questions",
    "take_part",
    "train",
    "verify",
]


def test_the_exported_names_are_these() -> None:
    assert sorted(lapwing.__all__) == sorted(NAMES)
    assert dir(lapwing) == sorted(NAMES)


@each("name", NAMES)
def test_each_name_is_there_and_documented(name: str) -> None:
    value = getattr(lapwing, name)
    assert name == "__version__" or inspect.getdoc(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(lapwing, "nothing")  # noqa: B009


def test_import_loads_no_engine_and_no_numpy() -> None:
    code = "import lapwing, sys; print([m for m in ('numpy', 'duckdb', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
