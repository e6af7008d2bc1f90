"""Commands start fast: they do not import what they do not need. Modules are listed, since times vary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lapwing.examples.visits import write_visits

SLOW = {"fastapi", "matplotlib", "pandas", "polars", "pyspark", "scipy", "torch"}
NOT_FOR_HELP = SLOW | {"cryptography", "duckdb", "flint", "numpy", "pyarrow", "sqlglot"}
# The list is printed even if the command ends with sys.exit.
PROGRAM = """
import atexit, json, sys
atexit.register(lambda: print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr))
from lapwing.cli.main import run
*others, last = json.loads(sys.argv.pop())
for arguments in others:
    try:
        run(arguments)
    except SystemExit as end:
        if end.code:
            raise
sys.argv += last
run()
"""


def imported(*commands: list[str], folder: Path, **environment: str) -> set[str]:
    """Run commands in one process of their own. Return the packages that they imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


def test_help_imports_no_library(tmp_path: Path) -> None:
    asked = ("--version", "ask --help", "survey --help", "show", "show --help", "--help")
    assert imported(*map(str.split, asked), folder=tmp_path) & NOT_FOR_HELP == set()


def test_completion_imports_no_library(tmp_path: Path) -> None:
    asked = {"_LAPWING_COMPLETE": "complete_bash", "COMP_WORDS": "lapwing budget x", "COMP_CWORD": "2"}
    assert imported([], folder=tmp_path, **asked) & NOT_FOR_HELP == set()


def test_a_plan_imports_nothing_slow(tmp_path: Path) -> None:
    """The example has a public CSV file, which once imported pandas through pyarrow."""
    write_visits(tmp_path)
    plans = [
        ["plan", "visits.toml", sql, "--epsilon", "0.2"]
        for sql in (
            "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward",
            "SELECT region, COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward GROUP BY region",
        )
    ]
    assert imported(*plans, folder=tmp_path) & SLOW == set()
