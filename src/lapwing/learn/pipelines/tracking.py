"""Logging to MLflow (extra `mlflow`): what the card says, which is all public, and the files of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lapwing.errors import MissingExtra, Unavailable

_FROM_VALIDATION = ("what", "target", "bound", "eta", "test_share")
_QUIET = "MLFLOW_DISABLE_TELEMETRY"


def log_to_mlflow(card: dict[str, Any], files: dict[str, Path], uri: str) -> str:
    """Log a run, if MLflow is installed. Gives the id of the run there.

    Nothing but the card and its files is logged, and nobody else is told: MLflow's own reports about its
    use are switched off in this process.
    """
    os.environ[_QUIET] = "true"  # before it is imported: it reports when it is
    try:
        import mlflow  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("mlflow", "Logging to MLflow") from None
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(card["pipeline"])
        place = client.create_experiment(card["pipeline"]) if known is None else known.experiment_id
        tags = {"verdict": card["verdict"], "unit": card["data"]["unit"], "stream": card["data"]["stream"]}
        run = str(client.create_run(place, run_name=f"run {card['run']}", tags=tags).info.run_id)
        for name, value in params_of(card).items():
            client.log_param(run, name, value)
        for name, number, attempt in metrics_of(card):
            client.log_metric(run, name, number, step=attempt)
        for path in files.values():
            client.log_artifact(run, str(path))
        client.set_terminated(run)
    except mlflow.MlflowException as error:
        raise Unavailable(f"MLflow at {uri}: {str(error).splitlines()[0][:500]}") from None
    return run


def params_of(card: dict[str, Any]) -> dict[str, str]:
    """What was declared."""
    named = {"trainer": card["trainer"]["kind"], "strategy": card["strategy"]}
    named |= {f"trainer {name}": value for name, value in card["trainer"].items() if name != "kind"}
    named |= {f"validator {name}": card["validated"][name] for name in _FROM_VALIDATION}
    return {name: str(value) for name, value in named.items() if value is not None}


def metrics_of(card: dict[str, Any]) -> list[tuple[str, float, int]]:
    """What was spent and released: a name, a number, and the attempt."""
    found = []
    for one in card["attempts"]:
        named = {name: one[name] for name in ("epsilon", "delta", "estimate", "bound")}
        named["blocks"] = len(one["blocks"])
        found += [
            (name, float(value), one["attempt"]) for name, value in named.items() if value is not None
        ]
    for name in ("run_epsilon_at_most", "run_delta_at_most"):
        found.append((name, float(card["privacy"][name]), len(card["attempts"])))
    return found
