"""`lapwing train`: verdicts, exit codes, JSON, mistakes with lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lapwing.cli.main import run
from support.cases import each
from support.shell import Shell


@pytest.fixture
def rides(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with the example, of which January has come in."""
    monkeypatch.chdir(tmp_path)
    shell.good("train", "example")
    shell.good("stream", "append", "rides.toml", "--through", "2026-01")
    return shell


def test_a_run_that_waits_has_done_its_work(rides: Shell) -> None:
    done = rides.good("train", "durations.toml")
    assert "WAITING FOR DATA" in done.out
    lines, table = done.out.split("durations, run 1")
    assert table.count("retry") == 2
    assert lines.startswith("attempt 1: 1 block (2026-01), ε 0.5\nattempt 1: retry, the loss was")
    assert Path("durations.runs/run-1/card.txt").exists()
    assert not Path("durations.runs/run-1/model.json").exists()


def test_verdicts_are_plain_in_json(rides: Shell) -> None:
    found = rides.good("train", "hopeless.toml", "--json").json
    assert found["verdict"] == "rejected"
    assert found["attempts"][-1]["verdict"] == "reject"
    assert Path(found["files"]["card"]).exists()
    assert "model" not in found["files"]
    again = rides.good("train", "hopeless.toml", "--json").json
    assert again == found


def test_over_budget_is_exit_code_3_and_leaves_a_card(rides: Shell) -> None:
    path = Path("durations.toml")
    path.write_text(path.read_text().replace("epsilon = [0.5, 1.0]", "epsilon = [9.0, 9.0]"))
    done = rides("train", path)
    assert (done.code, done.error) == (3, "")
    assert "OVER BUDGET" in done.out
    assert "none yet" in Path("durations.runs/run-1/card.txt").read_text()


@each(
    ("old", "new", "why"),
    [
        ('label = "duration"', 'label = "speed"', "durations.toml:7: pipeline.label: "),
        ("SELECT distance, duration", "SELECT distance, rider, duration", "durations.toml:6: pipeline.f"),
        ("target = 6.1", "target = 61", "durations.toml:18: validator.target: "),
        ("delta = 1e-9", "delta = 1e-2", "durations.toml:8: pipeline.delta: must be at most 4e-8"),
        ("epsilon = [0.5", "epsilon = [1e-9", "durations.toml:23: strategy.epsilon: is so small"),
        ("blocks = [1, 8]", "blocks = [99, 99]", "durations.toml:24: strategy.blocks: begin with 99"),
        ('stream = "rides.toml"', 'stream = "ride.toml"', "ride.toml: there is no such file"),
    ],
)
def test_mistakes_have_lines(rides: Shell, old: str, new: str, why: str) -> None:
    path = Path("durations.toml")
    text = path.read_text()
    path.write_text(text.replace(old, new))
    done = rides("train", path)
    path.write_text(text)
    assert done.code == 2
    assert why in done.error
    assert not Path("durations.runs").exists()


def test_the_example_can_be_repeated_and_writes_over_nothing(rides: Shell) -> None:
    """Data, ledger and appended months stay as they are: nothing renews a budget."""
    rides.good("stream", "append", "rides.toml", "arriving/2026-02.parquet", "--through", "2026-02")
    files = sorted(path for path in Path().rglob("*") if path.is_file())
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    assert any(path.name == "lapwing.ledger" for path in files)
    again = rides.good("train", "example")
    assert "left as it was" in again.out
    assert "lapwing train durations.toml" in again.out
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    assert files == sorted(path for path in Path().rglob("*") if path.is_file())


def test_the_example_is_not_mixed_with_other_files(rides: Shell) -> None:
    path = Path("mean.toml")
    text = path.read_text()
    path.write_text(text + "# mine\n")
    done = rides("train", "example")
    assert (done.code, "mean.toml exists" in done.error) == (2, True)
    path.unlink()
    done = rides("train", "example")
    assert (done.code, "are missing" in done.error) == (2, True)
    Path("other/rides").mkdir(parents=True)
    done = rides("train", "example", "other")
    assert (done.code, "other/rides exists" in done.error) == (2, True)
    assert [path.name for path in Path("other").iterdir()] == ["rides"]


def test_without_a_stream_there_is_nothing_to_learn(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = shell("train", "nothing.toml")
    assert done.code == 2
    assert "lapwing train example" in done.error


def test_mlflow_is_said_to_be_missing_after_the_card_is_written(
    rides: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    done = rides("train", "durations.toml", "--mlflow", "nowhere")
    assert done.code == 1
    assert "lapwing[mlflow]" in done.error
    assert Path("durations.runs/run-1/card.json").exists()


def test_it_stands_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["train", "--help"])
    assert "--new-run" in capsys.readouterr().out
