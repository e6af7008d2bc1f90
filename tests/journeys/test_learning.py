"""The guide to learning, by its own commands: stream, append, train, retry, accept, reject, card."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from lapwing.learn.pipelines.run_files import load_model
from support.shell import Shell

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "learning.md"


def commands() -> list[list[str]]:
    section = GUIDE.read_text().split("## In five minutes")[1].split("\n## ")[0]
    found = re.search(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found
    return [shlex.split(line)[2:] for line in found[1].splitlines()]


def test_the_guide_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell, said = Shell(capsys), []
    for command in commands():
        done = shell.good(*command)
        said.append((" ".join(command), done.out))
    trained = [out for command, out in said if command.startswith("train durations")]
    assert "WAITING FOR DATA" in trained[0]
    assert trained[0].count(" retry ") == 2
    assert "ACCEPTED" in trained[1]
    assert "REJECTED" in next(out for command, out in said if command == "train hopeless.toml")
    card = json.loads(Path("durations.runs/run-1/card.json").read_text())
    assert card["verdict"] == "accepted"
    [minutes] = load_model("durations.runs/run-1/model.json").predict({"distance": [10]})
    assert 22 < minutes < 28


def test_the_guide_shows_what_the_example_wants() -> None:
    """Its figures are of a real run, with the example's own target."""
    assert "as wanted (6.1)" in GUIDE.read_text()
