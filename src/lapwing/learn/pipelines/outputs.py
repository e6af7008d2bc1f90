"""What a run leaves behind, in its folder: card, receipts, picture, and the model if it was accepted."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from lapwing.errors import MissingExtra
from lapwing.learn.pipelines.card import card_of, card_text
from lapwing.learn.pipelines.model import model_text
from lapwing.learn.pipelines.notes import write_file
from lapwing.learn.pipelines.running import Outcome, folder_of
from lapwing.plots.learn import Shown, attempts_picture
from lapwing.plots.style import save
from lapwing.query.policies.policy import Policy

CARD, CARD_TEXT, RECEIPTS, MODEL, PICTURE = (
    "card.json", "card.txt", "receipts.json", "model.json", "attempts.svg",
)  # fmt: skip


def write_outputs(outcome: Outcome, policy: Policy, folder: Path) -> dict[str, Path]:
    """Write all of it, each file whole or not at all. Gives what is where."""
    place = folder_of(folder, outcome.run)
    card = card_of(outcome, policy)
    texts = {
        CARD: json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False),
        CARD_TEXT: card_text(card),
        RECEIPTS: json.dumps(
            [json.loads(one.receipt.to_json()) for one in outcome.attempts], indent=1, ensure_ascii=False
        ),
    }
    if outcome.accepted is not None:
        texts[MODEL] = model_text(outcome)
    for name, text in texts.items():
        write_file(place / name, text)
    written = {name.partition(".")[0] if name != CARD_TEXT else "card_text": place / name for name in texts}
    if outcome.attempts:
        with suppress(MissingExtra):  # the picture is an extra
            save(
                attempts_picture(outcome.pipeline.name, shown(outcome), **_scale(outcome)), place / PICTURE
            )
            written["picture"] = place / PICTURE
    return written


def shown(outcome: Outcome) -> list[Shown]:
    """The attempts, as they are drawn."""
    return [
        Shown(
            one.number,
            None if one.judged is None else one.judged.estimate,
            None if one.judged is None or one.judged.verdict.value == "reject" else one.judged.bound,
            "crashed" if one.judged is None else one.judged.verdict.value,
            len(one.blocks),
            float(one.epsilon),
        )
        for one in outcome.attempts
    ]


def _scale(outcome: Outcome) -> dict[str, Any]:
    validator = outcome.pipeline.validator
    return {"what": validator.loss or "accuracy", "target": float(validator.target)}


def log_to_mlflow(card: dict[str, Any], files: dict[str, Path], uri: str) -> str:
    """Log a run to MLflow, if it is installed. Gives the id of the run there."""
    try:
        import mlflow  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("mlflow", "Logging to MLflow") from None
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(card["pipeline"])
    with mlflow.start_run(run_name=f"run {card['run']}") as run:
        mlflow.set_tags({"verdict": card["verdict"], "unit": card["data"]["unit"]})
        mlflow.log_params({"trainer": card["trainer"]["kind"], "strategy": card["strategy"]})
        for one in card["attempts"]:
            named = {"epsilon": one["epsilon"], "blocks": len(one["blocks"]), "bound": one["bound"]}
            numbers = {name: float(value) for name, value in named.items() if value is not None}
            mlflow.log_metrics(numbers, step=one["attempt"])
        for path in files.values():
            mlflow.log_artifact(str(path))
        return str(run.info.run_id)
