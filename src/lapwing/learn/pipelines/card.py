"""The model card: what was learned from whom, at which price, what was shown, and what was not.

Everything in it is public: it is made of the pipeline's file, of released numbers and of receipts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.learn.pipelines.attempt import Attempted
from lapwing.learn.pipelines.running import End, Outcome
from lapwing.learn.validators import Verdict, eta_of
from lapwing.query.policies.policy import Policy

FORM = "lapwing model card 1"
_UNITS = {
    "person": "one person, with all rows",
    "row": "one row",
    "person-period": "one person in one {every}, with all rows of that {every}",
}
_SHOWN = 12


def card_of(outcome: Outcome, policy: Policy) -> dict[str, Any]:
    """The card as plain values."""
    pipeline, validator = outcome.pipeline, outcome.pipeline.validator
    last = outcome.attempts[-1] if outcome.attempts else None
    every = policy.blocks.every if policy.blocks is not None else ""
    return {
        "form": FORM,
        "pipeline": pipeline.name,
        "run": outcome.run,
        "verdict": outcome.end.value,
        "words": outcome.words,
        "trainer": {"kind": pipeline.trainer.kind, **pipeline.trainer.settings},
        "learned": {"label": pipeline.label, "features": outcome.features.names, "sql": pipeline.sql},
        "validated": {
            "what": validator.loss or "accuracy",
            "target": float(validator.target),
            "bound": None if validator.bound is None else float(validator.bound),
            "eta": float(validator.eta),
            "runs_since_a_verdict": outcome.series,
            "test_share": float(pipeline.test_share),
        },
        "data": {
            "stream": policy.name,
            "unit": _UNITS[policy.protects].format(every=every or "period"),
            "blocks": [] if last is None else list(last.blocks),
        },
        "privacy": _privacy(outcome, policy),
        "attempts": [_attempt(one, outcome) for one in outcome.attempts],
        "strategy": pipeline.schedule.strategy.value,
        "limits": _limits(outcome, policy),
    }


def _privacy(outcome: Outcome, policy: Policy) -> dict[str, Any]:
    last = outcome.attempts[-1] if outcome.attempts else None
    epsilon, delta = worst_block(outcome.attempts)
    return {
        "epsilon": None if last is None else float(last.epsilon),
        "delta": None if last is None else float(last.delta),
        "run_epsilon_at_most": float(epsilon),
        "run_delta_at_most": float(delta),
        "stream_epsilon_for_life": float(policy.epsilon),
        "stream_delta_for_life": float(policy.delta),
    }


def worst_block(attempts: Sequence[Attempted]) -> tuple[Fraction, Fraction]:
    """What all attempts together cost the block that paid most, by adding up. The ledger knows less."""
    epsilons: defaultdict[str, Fraction] = defaultdict(Fraction)
    deltas: defaultdict[str, Fraction] = defaultdict(Fraction)
    for one in attempts:
        for label in one.blocks:
            epsilons[label] += one.epsilon
            deltas[label] += one.delta
    return max(epsilons.values(), default=Fraction(0)), max(deltas.values(), default=Fraction(0))


def _attempt(one: Attempted, outcome: Outcome) -> dict[str, Any]:
    series, eta = outcome.series, outcome.pipeline.validator.eta
    judged = one.judged
    return {
        "attempt": one.number,
        "verdict": "crashed" if judged is None else judged.verdict.value,
        "estimate": None if judged is None else judged.estimate,
        "bound": None if judged is None else judged.bound,
        "holds_with_probability": float(1 - eta_of(eta / (series * (series + 1)), one.number)),
        "words": "it was charged, and crashed" if judged is None else judged.words,
        "epsilon": float(one.epsilon),
        "delta": float(one.delta),
        "blocks": list(one.blocks),
        "receipt": one.receipt.hash,
        "ledger_position": one.receipt.position,
    }


def _limits(outcome: Outcome, policy: Policy) -> list[str]:
    pipeline, validator = outcome.pipeline, outcome.pipeline.validator
    unit = "person" if policy.protects == "person" else "unit"
    if validator.is_accuracy:
        meant = f"It is about how often a row drawn from a {unit} is predicted rightly, not about all rows."
    else:
        meant = (
            f"It is about the mean {validator.loss} of a {unit} (its rows first, then over units), where "
            f"what is beyond {float(validator.bound or 0):g} counts as that."
        )
    limits = [
        f"The verdict holds for units drawn like those that tested, with a probability of at least "
        f"1 - {float(validator.eta):g}. {meant} Units that change over time are not covered.",
        "Its probability supposes that nobody chose features, targets, or when to begin a run, by looking "
        "at results on the same units. Several pipelines have several such probabilities.",
        f"Rows whose {pipeline.label} is unknown were left out, in training and in testing.",
    ]
    if outcome.end is End.REJECTED:
        limits.append(
            f"The rejection is about lines with weights within ±1 (columns and {pipeline.label} scaled to "
            "-1 … 1 by their declared bounds). Another kind of model may do better."
        )
    blocks = policy.blocks
    if blocks is not None and blocks.by == "row":
        most = max((len(one.blocks) for one in outcome.attempts), default=1)
        limits.append(
            f"What is protected is a person in one {blocks.every}. Somebody with rows in several of them "
            f"loses what each of them loses, added up: in k of the {most} blocks of this run up to k times "
            f"as much, and over the stream's life up to k times ε {float(policy.epsilon):g}."
        )
        limits.append(
            f"The verdict counts a person in each {blocks.every} as drawn anew. Where the same people come "
            "back, it is less sure than its probability says."
        )
    else:
        limits.append(
            "Each person is in one block for ever, so what one block loses is what a person loses, however "
            "long the stream goes on."
        )
    if any(one.verdict is Verdict.RETRY for one in outcome.attempts):
        limits.append("Models that were not accepted were not kept, but their attempts were paid for.")
    return limits


def card_text(card: dict[str, Any]) -> str:
    """The card for people."""
    validated, data, privacy = card["validated"], card["data"], card["privacy"]
    better = "at least" if validated["what"] == "accuracy" else "at most"
    lines = [
        f"Model card: {card['pipeline']}, run {card['run']}",
        "",
        f"Verdict     {card['verdict'].upper()}: {card['words']}",
        f"Wanted      {validated['what']} {better} {validated['target']:g}; a wrong verdict has a "
        f"probability of at most {validated['eta']:g}",
        f"Learned     {card['learned']['label']} from {', '.join(card['learned']['features'])}",
        f"Trainer     {card['trainer']['kind']}",
        f"Data        {data['stream']}, blocks {listed(data['blocks'])}",
        f"Protects    {data['unit']}",
    ]
    if privacy["epsilon"] is not None:
        lines += [
            f"Price       ε {privacy['epsilon']:g}, δ {privacy['delta']:g} for the last attempt; all "
            f"together cost no block more than ε {privacy['run_epsilon_at_most']:g}, "
            f"δ {privacy['run_delta_at_most']:.3g}",
            f"For life    no block loses more than ε {privacy['stream_epsilon_for_life']:g}, "
            f"δ {privacy['stream_delta_for_life']:g}, by all pipelines together",
        ]
    lines += ["", "Attempts"]
    for one in card["attempts"]:
        lines.append(
            f"  {one['attempt']}  {one['verdict']:8}ε {one['epsilon']:<8g}{len(one['blocks'])} blocks  "
            f"{one['words']} (receipt {one['ledger_position']})"
        )
    if not card["attempts"]:
        lines.append("  none yet")
    lines += ["", "Known limits", *(f"  - {limit}" for limit in card["limits"])]
    return "\n".join(lines) + "\n"


def listed(blocks: Sequence[str]) -> str:
    """Names of blocks, if they are few; else the ends."""
    if not blocks:
        return "none yet"
    if len(blocks) <= _SHOWN:
        return ", ".join(blocks)
    return f"{blocks[0]} … {blocks[-1]} ({len(blocks)})"
