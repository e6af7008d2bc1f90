"""What a run leaves behind, in its folder: card, receipts, picture, and the model if it was accepted."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from lapwing.errors import MissingExtra
from lapwing.learn.pipelines.calibration import CONFIDENCE, is_told
from lapwing.learn.pipelines.card import card_of, card_text
from lapwing.learn.pipelines.model import model_text
from lapwing.learn.pipelines.places import CARD, folder_of, require_own, write_file, write_once
from lapwing.learn.pipelines.running import Outcome
from lapwing.plots.learn import Shown, ShownBin, attempts_picture, calibration_picture
from lapwing.plots.style import save
from lapwing.query.policies.policy import Policy

CARD_TEXT, RECEIPTS, MODEL, STATISTIC = "card.txt", "receipts.json", "model.json", "statistic.json"
PICTURE, CALIBRATION = "attempts.svg", "calibration.svg"


def write_outputs(outcome: Outcome, policy: Policy, folder: Path) -> dict[str, Path]:
    """Write all of it, each file whole or not at all. Gives what is where.

    What was accepted is written once, and first: no card is about another model than the one beside it.
    """
    place = folder_of(folder, outcome.run)
    require_own(place, outcome.whose)
    card = card_of(outcome, policy)
    texts = {
        CARD: json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False),
        CARD_TEXT: card_text(card),
        RECEIPTS: json.dumps(
            [json.loads(one.receipt.to_json()) for one in outcome.attempts], indent=1, ensure_ascii=False
        ),
    }
    once = {}
    if outcome.accepted is not None and outcome.pipeline.trainer.is_statistic:
        once[STATISTIC] = json.dumps(statistic_of(card), indent=1, ensure_ascii=False, allow_nan=False)
    elif outcome.accepted is not None:
        once[MODEL] = model_text(outcome)
    for name, text in once.items():
        write_once(place / name, text)
    for name, text in texts.items():
        write_file(place / name, text)
    names = [*texts, *once]
    written = {name.partition(".")[0] if name != CARD_TEXT else "card_text": place / name for name in names}
    with suppress(MissingExtra):  # pictures are an extra
        if outcome.attempts:
            attempts = attempts_picture(outcome.pipeline.name, shown(outcome), **_scale(outcome))
            save(attempts, place / PICTURE)
            written["picture"] = place / PICTURE
        if (bins := shown_bins(outcome)) is not None:
            save(calibration_picture(outcome.pipeline.name, bins, **_axes(outcome)), place / CALIBRATION)
            written["calibration"] = place / CALIBRATION
    return written


def statistic_of(card: dict[str, Any]) -> dict[str, Any]:
    """The file of an accepted statistic: what was released, and how far it is off at most."""
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


def shown(outcome: Outcome) -> list[Shown]:
    """The attempts, as they are drawn. The estimate of a mean is no error, and has another scale."""
    is_statistic = outcome.pipeline.trainer.is_statistic
    return [
        Shown(
            one.number,
            None if one.judged is None or is_statistic else one.judged.estimate,
            None if one.judged is None else one.judged.bound,
            "crashed" if one.judged is None else one.judged.verdict.value,
            len(one.blocks),
            float(one.epsilon),
        )
        for one in outcome.attempts
    ]


def _scale(outcome: Outcome) -> dict[str, Any]:
    validator = outcome.pipeline.validator
    return {"what": validator.what, "target": float(validator.target)}


def shown_bins(outcome: Outcome) -> list[ShownBin] | None:
    """How calibrated an accepted model is, as it is drawn; None where nobody paid for it."""
    done, part = outcome.accepted, outcome.pipeline.calibration
    if done is None or part is None or done.calibration is None:
        return None
    bins = part.of(outcome.features).bins(done.calibration)
    return [
        ShownBin(one.low, one.high, one.mean if is_told(one, bins) else None, one.at_least, one.at_most)
        for one in bins
    ]


def _axes(outcome: Outcome) -> dict[str, Any]:
    assert outcome.pipeline.calibration is not None
    predicted, compared = outcome.pipeline.calibration.of(outcome.features).axes
    return {"predicted": predicted, "compared": compared, "confidence": float(CONFIDENCE)}
