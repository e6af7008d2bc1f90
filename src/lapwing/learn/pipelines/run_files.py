"""The files of a run: card, receipts, pictures and accepted model; and a log for MLflow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import exact
from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.learn.features import Features
from lapwing.learn.pipelines.components import STATISTIC_KINDS, Learner, TrainerSettings
from lapwing.learn.pipelines.model_card import card_text, model_card
from lapwing.learn.pipelines.training import (
    CARD,
    TrainingOutcome,
    require_same_owner,
    run_folder,
)
from lapwing.plots.learn import ShownAttempt, ShownBin, attempts_picture, calibration_picture
from lapwing.plots.style import save
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.storage.private_file import PUBLIC, replaced_private_file

_FORM = "lapwing model 1"
MOST_BYTES = 1 << 26
_WRONG = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    AssertionError,
)


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """An accepted model. `predict` takes plain values by column."""

    pipeline: str
    features: Features
    trainer: Learner

    def predict(self, values: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Return numbers, or the names of classes."""
        rows = self.features.coded(values)
        if not len(rows):
            return []
        predicted: NDArray[Any] = np.asarray(self.trainer.predict(self.features.table(rows)))
        if not self.features.has_classes:
            return [float(value) for value in predicted]
        return [self.features.class_values[int(place)] for place in predicted]


def model_file_text(outcome: TrainingOutcome) -> str:
    """Return the text of the model file of an accepted run."""
    done = outcome.accepted
    if done is None or done.model is None or done.features is None or outcome.pipeline.trainer.is_statistic:
        raise BadParameter("model", "was not accepted, so there is no model file")
    trainer = outcome.pipeline.trainer
    said = {
        "form": _FORM,
        "pipeline": outcome.pipeline.name,
        "run": outcome.run,
        "trainer": trainer.kind,
        "settings": trainer.plain,
        "epsilon": str(done.epsilon),
        "delta": str(done.delta),
        "receipt": done.receipt.hash,
        "features": done.features,  # as stored: today's policy may differ
        "model": json.loads(done.model),
    }
    return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False)


def load_model(path: str | Path) -> TrainedModel:
    """Read a model file. Reading runs no code and takes bounded time.

    Args:
        path: The model file, `model.json` of an accepted run.

    Returns:
        The model, which predicts from plain values by column.

    Raises:
        BadParameter: If the file cannot be read, or is no model file.

    Example:
        After an accepted run of `durations.toml`:

        ```python
        from lapwing.learn import load_model

        model = load_model("durations.runs/run-1/model.json")
        print(model.predict({"distance": [3.5, 12]}))
        ```
    """
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise BadParameter("model", f"{path} is longer than {MOST_BYTES >> 20} MiB")
        return _model(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise BadParameter("model", f"{path} cannot be read ({error.strerror})") from None
    except BadParameter as error:
        own = error.why if error.name == "model" else f"{error.name} {error.why}"
        raise BadParameter("model", own) from None
    except _WRONG:
        raise BadParameter("model", f"{path} is no model file") from None


def _model(fields: Any) -> TrainedModel:
    if fields["form"] != _FORM:
        raise BadParameter("model", f"is of another form than {_FORM!r}: use another version")
    features = Features.from_json(fields["features"])
    trainer = TrainerSettings(str(fields["trainer"]), dict(fields["settings"])).loaded(
        features,
        epsilon=exact(fields["epsilon"], "epsilon"),
        delta=exact(fields["delta"], "delta"),
        model=json.dumps(fields["model"]).encode(),
    )
    model = TrainedModel(str(fields["pipeline"]), features, trainer)
    # This fails if the numbers do not fit together.
    model.predict({column.name: [None] for column in features.columns})
    return model


CARD_TEXT, RECEIPTS, MODEL, STATISTIC = "card.txt", "receipts.json", "model.json", "statistic.json"
PICTURE, CALIBRATION = "attempts.svg", "calibration.svg"


def write_outputs(outcome: TrainingOutcome, policy: CheckedPolicy, folder: Path) -> dict[str, Path]:
    """Write the files of a run, each completely or not at all.

    An accepted model is written once, and first: a card never describes another model than the one beside
    it.

    Args:
        outcome: The run, as `train` returned it.
        policy: The policy of the stream.
        folder: The folder of the pipeline's runs.

    Returns:
        The path of each file, by a short name such as "card" or "model".

    Raises:
        BadParameter: If the folder holds a run of another pipeline, stream, ledger or analyst.

    Example:
        ```python
        from pathlib import Path

        from lapwing.learn import write_outputs

        print(write_outputs(outcome, stream.policy, Path("durations.runs"))["card"])
        ```
    """
    place = run_folder(folder, outcome.run)
    require_same_owner(place, outcome.owner)
    card = model_card(outcome, policy)
    texts = {
        CARD: json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False),
        CARD_TEXT: card_text(card),
        RECEIPTS: json.dumps(
            [json.loads(attempt.receipt.to_json()) for attempt in outcome.attempts],
            indent=1,
            ensure_ascii=False,
        ),
    }
    once = {}
    if outcome.accepted is not None and outcome.pipeline.trainer.is_statistic:
        once[STATISTIC] = json.dumps(statistic_record(card), indent=1, ensure_ascii=False, allow_nan=False)
    elif outcome.accepted is not None:
        once[MODEL] = model_file_text(outcome)
    for name, text in once.items():
        write_accepted(place / name, text)
    for name, text in texts.items():
        write_whole_file(place / name, text)
    names = [*texts, *once]
    written = {name.partition(".")[0] if name != CARD_TEXT else "card_text": place / name for name in names}
    with suppress(MissingExtra):  # pictures are an extra
        if outcome.attempts:
            what, target = card["validated"]["what"], card["validated"]["target"]
            drawn = attempts_picture(card["pipeline"], attempts_to_plot(card), what=what, target=target)
            save(drawn, place / PICTURE)
            written["picture"] = place / PICTURE
        if "calibration" in card:
            told = card["calibration"]
            drawn = calibration_picture(
                card["pipeline"], bins_to_plot(told), predicted=told["predicted"],
                compared=told["compared_with"], confidence=told["each_interval_holds_with_probability"],
            )  # fmt: skip
            save(drawn, place / CALIBRATION)
            written["calibration"] = place / CALIBRATION
    return written


def write_accepted(path: Path, text: str) -> None:
    """Write an accepted model once. Raise BadParameter if a file of another receipt is there."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["receipt"]
    except FileNotFoundError:
        write_whole_file(path, text)
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        before = None
    if before != json.loads(text)["receipt"]:
        raise BadParameter("folder", f"{path} is there, and is not of this run. Move it away")


def write_whole_file(path: Path, text: str) -> None:
    """Write a file completely or not at all, also through a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_private_file(path, mode=PUBLIC) as file:
        file.write(text.encode())


def statistic_record(card: dict[str, Any]) -> dict[str, Any]:
    """Return the file of an accepted statistic: the released numbers, and their greatest error."""
    last = card["attempts"][-1]
    return {
        "form": "lapwing statistic 1",
        "pipeline": card["pipeline"],
        "run": card["run"],
        **card["statistic"],
        "holds_with_probability": last["holds_with_probability"],
        "epsilon": last["epsilon"],
        "receipt": last["receipt"],
    }


def attempts_to_plot(card: dict[str, Any]) -> list[ShownAttempt]:
    """Return the attempts as they are drawn. The estimate of a mean is left out: it is no error."""
    shows_estimates, attempts = card["trainer"]["kind"] not in STATISTIC_KINDS, []
    for attempt in card["attempts"]:
        estimate, blocks = attempt["estimate"] if shows_estimates else None, len(attempt["blocks"])
        attempts.append(
            ShownAttempt(
                attempt["attempt"],
                estimate,
                attempt["bound"],
                attempt["verdict"],
                blocks,
                attempt["epsilon"],
            )
        )
    return attempts


def bins_to_plot(told: dict[str, Any]) -> list[ShownBin]:
    """Return the bins of a calibration. A mean is drawn only if its interval is narrower than the scale."""
    scale, bins = told["bins"][-1]["to"] - told["bins"][0]["from"], []
    for part in told["bins"]:
        low, high = part["at_least"], part["at_most"]
        mean = part["mean"] if high - low < scale else None
        bins.append(ShownBin(part["from"], part["to"], mean, low, high))
    return bins


_FROM_VALIDATION = ("what", "target", "bound", "eta", "test_share")
_QUIET = "MLFLOW_DISABLE_TELEMETRY"


def log_to_mlflow(card: dict[str, Any], files: dict[str, Path], uri: str) -> str:
    """Log a run to MLflow, and return the id of the run there.

    Only the card and its files are logged. MLflow's own usage reports are switched off in this process.

    Args:
        card: The card, as `model_card` returned it.
        files: The files, as `write_outputs` returned them.
        uri: The tracking URI of MLflow.

    Returns:
        The id of the run in MLflow.

    Raises:
        MissingExtra: If MLflow is not installed.
        Unavailable: If MLflow refuses.

    Example:
        ```python
        from pathlib import Path

        from lapwing.learn import log_to_mlflow, model_card, write_outputs

        store = Path("mlflow").absolute().as_uri()
        files = write_outputs(outcome, stream.policy, Path("durations.runs"))
        print(log_to_mlflow(model_card(outcome, stream.policy), files, store))
        ```
    """
    os.environ[_QUIET] = "true"  # before the import, which sends a report
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
        for name, value in mlflow_params(card).items():
            client.log_param(run, name, value)
        for name, number, attempt in mlflow_metrics(card):
            client.log_metric(run, name, number, step=attempt)
        for path in files.values():
            client.log_artifact(run, str(path))
        client.set_terminated(run)
    except mlflow.MlflowException as error:
        raise Unavailable(f"MLflow at {uri}: {str(error).splitlines()[0][:500]}") from None
    return run


def mlflow_params(card: dict[str, Any]) -> dict[str, str]:
    """Return the declared parameters."""
    named = {"trainer": card["trainer"]["kind"], "strategy": card["strategy"]}
    named |= {f"trainer {name}": value for name, value in card["trainer"].items() if name != "kind"}
    named |= {f"validator {name}": card["validated"][name] for name in _FROM_VALIDATION}
    return {name: str(value) for name, value in named.items() if value is not None}


def mlflow_metrics(card: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Return the numbers that were spent and released: a name, a number, and the attempt."""
    metrics = []
    for attempt in card["attempts"]:
        named = {name: attempt[name] for name in ("epsilon", "delta", "estimate", "bound")}
        named["blocks"] = len(attempt["blocks"])
        metrics += [
            (name, float(value), attempt["attempt"]) for name, value in named.items() if value is not None
        ]
    for name in ("run_epsilon_at_most", "run_delta_at_most"):
        metrics.append((name, float(card["privacy"][name]), len(card["attempts"])))
    return metrics
