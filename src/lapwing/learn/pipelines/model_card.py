"""The model card: the model, its data, its price, the bounds that were shown, and their limits.

Everything in it is public: it is computed from the pipeline file, from released numbers and from receipts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from lapwing.core.exact import short
from lapwing.learn.pipelines.attempt import AttemptResult
from lapwing.learn.pipelines.calibration import calibration_lines
from lapwing.learn.pipelines.components import MEAN, statistic_lines
from lapwing.learn.pipelines.training import RunState, TrainingOutcome
from lapwing.learn.stream_blocks import blocks_text
from lapwing.learn.validators import ValidationVerdict, eta_share
from lapwing.ledger.accountant.guarantee import guarantee_in_periods_text
from lapwing.sql.policy.policy import CheckedPolicy

CARD_FORM = "lapwing model card 1"
_UNITS = {
    "person": "one person, with all rows",
    "row": "one row",
    "person-period": "one person in one {every}, with all rows of that {every}",
}
_SHOWN = 12


def model_card(outcome: TrainingOutcome, policy: CheckedPolicy) -> dict[str, Any]:
    """Return the card of a run as plain values, for JSON.

    Args:
        outcome: The run, as `train` returned it.
        policy: The policy of the stream.

    Returns:
        The card. Everything in it is public.

    Example:
        ```python
        from lapwing.learn import card_text, model_card

        print(card_text(model_card(outcome, stream.policy)))
        ```
    """
    pipeline, validator = outcome.pipeline, outcome.pipeline.validator
    last = outcome.attempts[-1] if outcome.attempts else None
    every = policy.blocks.every if policy.blocks is not None else ""
    return {
        "form": CARD_FORM,
        "pipeline": pipeline.name,
        "run": outcome.run,
        "charged": asdict(outcome.owner),
        "verdict": outcome.end.value,
        "words": outcome.words,
        "trainer": {"kind": pipeline.trainer.kind, **pipeline.trainer.plain},
        "learned": {"label": pipeline.label, "features": outcome.features.names, "sql": pipeline.sql},
        "validated": {
            "what": validator.measure,
            "target": float(validator.target),
            "bound": None if validator.bound is None else float(validator.bound),
            "eta": float(validator.eta),
            "eta_of_this_run": float(eta_share(validator.eta, outcome.run)),
            "test_share": None if pipeline.trainer.is_statistic else float(pipeline.test_share),
        },
        "data": {
            "stream": policy.name,
            "unit": _UNITS[policy.protects].format(every=every or "period"),
            "blocks": [] if last is None else list(last.blocks),
        },
        "privacy": _privacy(outcome),
        "attempts": [_attempt(attempt, outcome) for attempt in outcome.attempts],
        "strategy": pipeline.schedule.strategy.value,
        **_released(outcome),
        "limits": _limits(outcome, policy),
    }


def _released(outcome: TrainingOutcome) -> dict[str, Any]:
    """Return the statistic or the calibration that an accepted run released."""
    done, pipeline = outcome.accepted, outcome.pipeline
    if done is None or done.judged is None or done.model is None:
        return {}
    if pipeline.trainer.is_statistic:
        return {"statistic": {**json.loads(done.model), "error_at_most": done.judged.bound}}
    if pipeline.calibration is None or done.calibration is None:
        return {}
    return {"calibration": pipeline.calibration.of(outcome.features).to_json(done.calibration)}


def _privacy(outcome: TrainingOutcome) -> dict[str, Any]:
    last = outcome.attempts[-1] if outcome.attempts else None
    epsilon, delta = worst_block(outcome.attempts)
    return {
        "epsilon": None if last is None else float(last.epsilon),
        "delta": None if last is None else float(last.delta),
        "run_epsilon_at_most": float(epsilon),
        "run_delta_at_most": float(delta),
        "stream_epsilon_for_life": float(outcome.for_life[0]),
        "stream_delta_for_life": float(outcome.for_life[1]),
    }


def worst_block(attempts: Sequence[AttemptResult]) -> tuple[Fraction, Fraction]:
    """Return the sum of ε and of δ over all attempts, of the block that paid most.

    The ledger's bound is lower.
    """
    epsilons: defaultdict[str, Fraction] = defaultdict(Fraction)
    deltas: defaultdict[str, Fraction] = defaultdict(Fraction)
    for attempt in attempts:
        for label in attempt.blocks:
            epsilons[label] += attempt.epsilon
            deltas[label] += attempt.delta
    return max(epsilons.values(), default=Fraction(0)), max(deltas.values(), default=Fraction(0))


def _attempt(attempt: AttemptResult, outcome: TrainingOutcome) -> dict[str, Any]:
    eta, judged = eta_share(outcome.pipeline.validator.eta, outcome.run), attempt.judged
    return {
        "attempt": attempt.number,
        "verdict": "crashed" if judged is None else judged.verdict.value,
        "estimate": None if judged is None else judged.estimate,
        "bound": None if judged is None else judged.bound,
        "holds_with_probability": float(1 - eta_share(eta, attempt.number)),
        "words": "it was charged, and crashed" if judged is None else judged.words,
        "epsilon": float(attempt.epsilon),
        "delta": float(attempt.delta),
        "blocks": list(attempt.blocks),
        "receipt": attempt.receipt.hash,
        "ledger_position": attempt.receipt.position,
    }


def _limits(outcome: TrainingOutcome, policy: CheckedPolicy) -> list[str]:
    pipeline, validator = outcome.pipeline, outcome.pipeline.validator
    unit = "person" if policy.protects == "person" else "unit"
    runs = f"{outcome.run} runs" if outcome.run > 1 else "runs"
    like = "these" if pipeline.trainer.is_statistic else "those that tested"
    if pipeline.trainer.kind == MEAN:
        meant = (
            f"It is about the mean {pipeline.label} of a {unit} (its rows first, then over units), within "
            "bounds."
        )
    elif pipeline.trainer.is_statistic:
        meant = f"It is about one row drawn from each {unit}, and about all bins together."
    elif validator.is_accuracy:
        meant = f"It is about how often a random row of a {unit} is predicted correctly, not about all."
    else:
        meant = (
            f"It is about the mean {validator.loss} of a {unit} (its rows first, then over units), where "
            f"a greater loss than {float(validator.bound or 0):g} counts as that."
        )
    limits = [
        f"The verdict holds for units drawn like {like}, with a probability of at least "
        f"1 - {float(validator.eta):g}, for all {runs} of {pipeline.name} by this analyst "
        f"together. {meant} Units that change over time are not covered.",
        "This probability assumes that features, targets and the start of a run were not chosen by results "
        "on the same units. A pipeline of another name, or of another analyst, has its own probability: "
        "with n pipelines, some verdict is wrong with a probability of up to n times as much.",
        f"Rows whose {pipeline.label} is unknown were left out.",
    ]
    if outcome.end is RunState.REJECTED:
        limits.append(
            f"The rejection is about lines with weights within ±1 (columns and {pipeline.label} scaled to "
            "-1 … 1 by their declared bounds). Another kind of model may do better."
        )
    blocks = policy.blocks
    if blocks is not None and blocks.by == "row":
        limits.append(
            f"For life: {guarantee_in_periods_text(*outcome.for_life)} (A period: {blocks.every}.)"
        )
        if outcome.attempts:
            limits.append(f"By this run alone: {guarantee_in_periods_text(*worst_block(outcome.attempts))}")
        limits.append(
            f"The verdict counts a person in each {blocks.every} as drawn anew. Where the same people come "
            "back, it is less sure than its probability says."
        )
    else:
        limits.append(
            "Each person is in one block for ever, so the loss of a block is the loss of a person, however "
            "long the stream goes on."
        )
    if any(attempt.verdict is ValidationVerdict.RETRY for attempt in outcome.attempts):
        limits.append(
            "Statistics that were not accepted have no proven error, but their attempts were paid for."
            if pipeline.trainer.is_statistic
            else "Models that were not accepted were not kept, but their attempts were paid for."
        )
    if pipeline.calibration is not None:
        limits.append(
            "Calibration is about one row of each testing unit. Each of its intervals holds by itself: of "
            "twenty, one may be wrong."
        )
    return limits


def card_text(card: dict[str, Any]) -> str:
    """Return the card as text for people.

    Args:
        card: The card, as `model_card` returned it.

    Returns:
        The text, with a line break at its end.

    Example:
        ```python
        from lapwing.learn import card_text, model_card

        print(card_text(model_card(outcome, stream.policy)))
        ```
    """
    validated, data, privacy = card["validated"], card["data"], card["privacy"]
    better = "at least" if validated["what"] == "accuracy" else "at most"
    lines = [
        f"{'Model card' if card['learned']['features'] else 'Card'}: {card['pipeline']}, run {card['run']}",
        "",
        f"Verdict     {card['verdict'].upper()}: {card['words']}",
        f"Wanted      {validated['what']} {better} {validated['target']:g}; all runs of this name together "
        f"give a wrong verdict with a probability of at most {validated['eta']:g}, this one (run "
        f"{card['run']}) of at most {validated['eta_of_this_run']:.3g}",
        f"Learned     {_learned(card)}",
        f"Trainer     {_trainer(card['trainer'])}",
        f"Data        {data['stream']}, blocks {list_blocks(data['blocks'])}",
        f"Protects    {data['unit']}",
    ]
    if privacy["epsilon"] is not None:
        lines += [
            f"Price       ε {privacy['epsilon']:g}, δ {short(privacy['delta'])} for the last attempt; all "
            f"together cost no block more than ε {privacy['run_epsilon_at_most']:g}, "
            f"δ {short(privacy['run_delta_at_most'])}",
            f"For life    no block loses more than ε {privacy['stream_epsilon_for_life']:g}, "
            f"δ {short(privacy['stream_delta_for_life'])}, by all pipelines together",
        ]
    lines += ["", "Attempts"]
    for attempt in card["attempts"]:
        used = blocks_text(len(attempt["blocks"]))
        lines.append(
            f"  {attempt['attempt']}  {attempt['verdict']:8}ε {attempt['epsilon']:<8g}{used}  "
            f"{attempt['words']} (receipt {attempt['ledger_position']})"
        )
    if not card["attempts"]:
        lines.append("  none yet")
    if "statistic" in card:
        told = statistic_lines(card["statistic"], card["statistic"]["error_at_most"])
        lines += ["", "Released", *(f"  {line}" for line in told)]
    if "calibration" in card:
        lines += ["", "Calibration", *(f"  {line}" for line in calibration_lines(card["calibration"]))]
    lines += ["", "Known limits", *(f"  - {limit}" for limit in card["limits"])]
    return "\n".join(map(printable, lines)) + "\n"


def printable(text: str) -> str:
    """Replace characters that a terminal would obey by their numbers."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def _learned(card: dict[str, Any]) -> str:
    learned = card["learned"]
    if not learned["features"]:
        return f"the {card['trainer']['kind']} of {learned['label']}"
    return f"{learned['label']} from {', '.join(learned['features'])}"


def _trainer(trainer: dict[str, Any]) -> str:
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in trainer.items() if name != "kind"]
    return ", ".join([trainer["kind"], *settings])


def list_blocks(blocks: Sequence[str]) -> str:
    """Return the names of blocks if they are few, otherwise the first and the last."""
    if not blocks:
        return "none yet"
    if len(blocks) <= _SHOWN:
        return ", ".join(blocks)
    return f"{blocks[0]} … {blocks[-1]} ({len(blocks)})"
