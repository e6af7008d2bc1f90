"""MLflow: the card and the files of a run are logged to a real store; without MLflow the extra is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lapwing.errors import Unavailable
from lapwing.learn.pipelines.model_card import model_card
from lapwing.learn.pipelines.pipeline import load_pipeline
from lapwing.learn.pipelines.run_files import load_model, log_to_mlflow, write_outputs
from lapwing.learn.pipelines.training import train
from lapwing.learn.stream import Stream

if TYPE_CHECKING:  # a second, for every worker that runs other tests
    from mlflow.tracking import MlflowClient


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder. MLflow wants to be asked for that by name."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlflow").as_uri()


def logged(store: str, run: str) -> tuple[Any, MlflowClient]:
    from mlflow.tracking import MlflowClient  # noqa: PLC0415

    client = MlflowClient(tracking_uri=store)
    return client.get_run(run).data, client


def test_a_run_is_logged_with_what_was_released_and_nothing_else(
    full: Stream, folder: Path, store: str
) -> None:
    outcome = train(full, load_pipeline(folder / "durations.toml"), folder / "runs")
    files, card = write_outputs(outcome, full.policy, folder / "runs"), model_card(outcome, full.policy)
    run = log_to_mlflow(card, files, store)
    data, client = logged(store, run)
    assert data.params["trainer"] == "linear regression"
    assert data.params["validator target"] == "6.1"
    assert data.tags["verdict"] == "accepted"
    allowed = {"epsilon", "delta", "estimate", "bound", "blocks"}
    assert set(data.metrics) == allowed | {"run_epsilon_at_most", "run_delta_at_most"}
    for one in card["attempts"]:
        for name in allowed - {"blocks"}:
            history = {at.step: at.value for at in client.get_metric_history(run, name)}
            assert history[one["attempt"]] == one[name]
    names = {one.path for one in client.list_artifacts(run)}
    assert names == {"card.json", "card.txt", "receipts.json", "model.json", "attempts.svg"}
    kept = Path(client.download_artifacts(run, "card.json"))
    assert json.loads(kept.read_text()) == card
    model = load_model(client.download_artifacts(run, "model.json"))
    assert 20 < model.predict({"distance": [10]})[0] < 30
    assert client.get_run(run).info.status == "FINISHED"


def test_statistics_and_runs_of_one_pipeline_go_to_one_experiment(
    stream: Stream, folder: Path, store: str
) -> None:
    outcome = train(stream, load_pipeline(folder / "mean.toml"), folder / "runs")
    files, card = write_outputs(outcome, stream.policy, folder / "runs"), model_card(outcome, stream.policy)
    runs = [log_to_mlflow(card, files, store) for _ in range(2)]
    data, client = logged(store, runs[0])
    assert data.metrics["estimate"] == card["statistic"]["mean"]
    assert "validator test_share" not in data.params
    assert len({client.get_run(run).info.experiment_id for run in runs}) == 1
    assert "statistic.json" in {one.path for one in client.list_artifacts(runs[0])}


def test_mlflow_is_told_to_tell_nobody(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    with pytest.raises(KeyError):
        log_to_mlflow({}, {}, store)
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    from mlflow.telemetry import get_telemetry_client  # noqa: PLC0415

    assert get_telemetry_client() is None


def test_a_store_that_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(Unavailable, match="MLflow at file://"):
        log_to_mlflow({"pipeline": "x"}, {}, (tmp_path / "other").as_uri())
