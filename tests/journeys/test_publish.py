"""A release that is killed by the operating system goes on, and is charged once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import lapwing
from lapwing.examples.town import TOWN_ROWS, write_town
from lapwing.publish import verify_bundle
from support.published import KILLED_RELEASE


def _run(folder: Path, kill_after: int) -> subprocess.CompletedProcess[str]:
    release = ("publish", "run", TOWN_ROWS, "--out", "rows")
    command = [sys.executable, "-c", KILLED_RELEASE, str(kill_after), *release]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("after", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_killed_resumed_verified_and_run_again(after: int, tmp_path: Path) -> None:
    write_town(tmp_path)
    assert _run(tmp_path, after).returncode == -signal.SIGKILL
    assert not (tmp_path / "rows").exists()
    assert _run(tmp_path, after + 2).returncode == -signal.SIGKILL  # and once more
    done = _run(tmp_path, 10**6)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "rows" / "bundle.json").read_text())
    assert verify_bundle(tmp_path / "rows", key=manifest["key"]).findings == ()
    answer = json.loads((tmp_path / "rows" / "measurements.json").read_text())
    steps = [*answer["steps"], *answer["check"]]
    assert [one["result"] is None for one in steps].count(True) == 2  # charged, lost, and never drawn again
    assert sum(Fraction(one["rho"]) for one in steps) <= Fraction(answer["rho"])
    with lapwing.open(tmp_path / "town.toml") as town:
        left = town.left()
    assert _run(tmp_path, 1).returncode == 0  # nothing is charged any more
    with lapwing.open(tmp_path / "town.toml") as town:
        assert town.left() == left
