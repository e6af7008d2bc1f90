"""Commands start fast: they do not import what they do not need. Modules are listed, since times vary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.examples.visits import write_visits

SLOW = {"fastapi", "matplotlib", "pandas", "polars", "pyspark", "scipy", "torch"}
NOT_FOR_HELP = SLOW | {"cryptography", "duckdb", "flint", "numpy", "pyarrow", "sqlglot"}
# The list is printed even if the command ends with sys.exit.
PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr))
from lapwing.cli.main import run
run()
"""


def imported(*arguments: str, folder: Path, **environment: str) -> set[str]:
    """Run a command in a process of its own. Return the packages that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "command",
    [["--help"], ["--version"], ["ask", "--help"], ["survey", "--help"], ["show"], ["show", "--help"]],
)
def test_help_imports_no_library(command: list[str], tmp_path: Path) -> None:
    assert imported(*command, folder=tmp_path) & NOT_FOR_HELP == set()


def test_completion_imports_no_library(tmp_path: Path) -> None:
    asked = {"_LAPWING_COMPLETE": "complete_bash", "COMP_WORDS": "lapwing budget x", "COMP_CWORD": "2"}
    assert imported(folder=tmp_path, **asked) & NOT_FOR_HELP == set()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward",
        "SELECT region, COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY region",
    ],
)
def test_a_plan_imports_nothing_slow(sql: str, tmp_path: Path) -> None:
    """The example has a public CSV file, which once imported pandas through pyarrow."""
    write_visits(tmp_path)
    assert imported("plan", "visits.toml", sql, "--epsilon", "0.2", folder=tmp_path) & SLOW == set()
