"""`lapwing train` with networks, statistics and calibration, by the guide's own commands."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from lapwing.learn.pipelines.run_files import load_model
from support.shell import Shell

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "learning.md"


def commands() -> list[list[str]]:
    section = GUIDE.read_text().split("## Networks, statistics, calibration")[1].split("\n## ")[0]
    found = re.search(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found
    return [shlex.split(line)[2:] for line in found[1].splitlines()]


@pytest.mark.slow
def test_the_guide_is_true(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = {" ".join(command): shell.good(*command).out for command in commands()}
    assert "ACCEPTED: the accuracy is at least" in said["train more/late.toml"]
    assert "how often late is True, by predicted probability" in said["train more/late.toml"]
    assert "mean of duration: " in said["train more/mean.toml"]
    assert "10 … 20  0." in said["train more/histogram.toml"]
    assert load_model("more/late.runs/run-1/model.json").predict({"distance": [1, 18]}) == [False, True]
    assert Path("more/late.runs/run-1/calibration.svg").exists()
    assert json.loads(Path("more/mean.runs/run-1/statistic.json").read_text())["error_at_most"] <= 2


@pytest.fixture
def rides(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with the example, of which January has come in."""
    monkeypatch.chdir(tmp_path)
    shell.good("train", "example")
    shell.good("stream", "append", "rides.toml", "--through", "2026-01")
    return shell


MISTAKES = [
    ("late.toml", "layers = [8]", "layers = [4096, 4096]", "late.toml:14: trainer.layers: have more"),
    ("late.toml", "duration > 20 AS late", "duration AS late", "late.toml:7: pipeline.label: must"),
    ("late.toml", "= 6000 ", "= 9000000000 ", "late.toml:10: pipeline.units_per_block: and blocks"),
    ("mean.toml", "SELECT duration", "SELECT distance, duration", "mean.toml:6: pipeline.features: "),
    ("mean.toml", 'kind = "mean"', 'kind = "histogram"', "trainer.bins: are needed"),
    ("histogram.toml", "target = 0.03", "target = 3", "histogram.toml:15: validator.target: must be b"),
]


def test_mistakes_that_only_the_policy_shows_have_lines(rides: Shell) -> None:
    for file, old, new, why in MISTAKES:
        path = Path(file)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        done = rides("train", path)
        assert done.code == 2, why
        assert why in done.error
        assert not path.with_suffix(".runs").exists(), why
        path.write_text(text)


def test_without_torch_the_extra_is_named(rides: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("lapwing.learn.sgd")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = rides("train", "late.toml")
    assert done.code == 1
    assert "lapwing[learn]" in done.error
    assert not Path("late.runs").exists()


def test_a_run_is_logged_where_it_is_asked(
    rides: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "mlflow").as_uri()
    done = rides("train", "mean.toml", "--json", "--mlflow", store)
    assert done.code == 0
    assert list((tmp_path / "mlflow").glob(f"*/{done.json['mlflow_run']}/artifacts/statistic.json"))
