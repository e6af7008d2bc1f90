"""The audit of a survey file: each question's randomizer exactly, and the ε that the survey announces.

Claim    if the exact stages find no violation, then the ε that the survey announces for each question holds
         for all pairs of answers that were compared, and the announced total holds for a whole report; and
         devices, in Python and in the page's script, send what is stated.
Because  the messages of a report are drawn independently, so their greatest ratios multiply. If only one
         question is asked, which one does not depend on the answers. The coins of the code that devices run
         are enumerated (`device_coins`, `page_script`), where they fall in few enough ways.
Test     tests/audit/test_survey_audit.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.device_coins import Named, with_device_code
from lapwing.audit.message_laws import MOST_MESSAGES, message_count, message_pairs
from lapwing.audit.page_script import page_case
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.survey.designing import Design, RandomizedQuestion, design, epsilon_text
from lapwing.survey.randomize import ByteCoins
from lapwing.survey.survey_file import load

# Probabilities that are computed for one question. A question of up to a million messages is listed anyway.
_PROBABILITIES, _QUICK_PROBABILITIES = 200_000, 4_000


def cases_of_survey(path: str | Path) -> list[AuditCase]:
    """Return the cases of a survey file: the survey, and its page's script.

    Raises:
        BadFile: If the file has mistakes.
    """
    made = design(load(path))
    return [_survey_case(made), _page_case(made)]


def _page_case(made: Design) -> AuditCase:
    named = _named(made)
    widest = max((part.randomizer for part in made.parts), key=lambda randomizer: randomizer.loss.epsilon)
    covers = tuple({type(randomizer): None for _, randomizer in named})
    name = f"survey {made.survey.name}: the page's script"
    return page_case(name, lambda _: named, widest, covers=covers)


def _named(made: Design) -> list[Named]:
    return [(f"question {part.question.name}", part.randomizer) for part in made.parts]


def _survey_case(made: Design) -> AuditCase:
    claimed = Fraction(epsilon_text(made.epsilon))
    covers = tuple({type(part.randomizer): None for part in made.parts})
    stages = {
        Stage.EXACT: with_device_code(_exact(made, claimed), lambda _: _named(made)),
        Stage.SAMPLED: sampled_stage([_reports(made), _sent_reports(made)], claimed, Fraction(0)),
    }
    return AuditCase(f"survey {made.survey.name}", Family.RANDOMIZER, covers, claimed, Fraction(0), stages)


def _exact(made: Design, claimed: Fraction) -> RunStage:
    def run(budget: StageBudget) -> StageResult:
        checks, measured = 0, []
        for part in made.parts:
            announced = Fraction(epsilon_text(part.epsilon))
            result = compare_exactly(_pairs(part, announced, budget), budget, epsilon=announced)
            checks += result.checks
            if result.witness is not None or result.unable:
                whole = float(claimed)
                return replace(result, checks=checks, claimed=whole, could_show=whole, notes=())
            measured.append(result.measured or 0.0)
        total = sum(measured) if made.asks_all else max(measured)
        limit = Fraction(epsilon_text(made.survey.epsilon))
        checks += 1
        witness = None
        if claimed > limit or total > float(claimed) * (1 + 1e-12):
            witness = Witness(
                pair="all answers of one respondent, and all of another",
                event="a whole report: the losses of its messages add up",
                numbers={"announced ε": float(claimed), "ε of the file": float(limit), "true ε": total},
                at_least=total,
            )
        notes = tuple(
            f"{part.question.name}: {part.protocol}, {_messages(part)}, true ε {true:.6g} of "
            f"{float(part.epsilon):.6g}"
            for part, true in zip(made.parts, measured, strict=True)
        )
        return StageResult(
            Stage.EXACT, checks, float(claimed), total, float(claimed), witness=witness, notes=notes
        )

    return run


def _messages(part: RandomizedQuestion) -> str:
    count = message_count(part.randomizer)
    return f"{count:,} messages" if count <= MOST_MESSAGES else "messages by classes (over a million)"


def _pairs(part: RandomizedQuestion, announced: Fraction, budget: StageBudget) -> Iterator[ExactPair]:
    most = _QUICK_PROBABILITIES
    if budget.is_thorough:
        count = message_count(part.randomizer)
        most = max(_PROBABILITIES, 2 * count if count <= MOST_MESSAGES else 0)
    name = f"question {part.question.name} ({part.protocol})"
    return message_pairs(part.randomizer, name, epsilon=announced, most=most)


def _reports(made: Design) -> SampledPair:
    """Return draws of reports: with the first answer to each question, and with the last one."""

    def reports(*, last: bool) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            answers = {
                part.question.name: np.full(size, part.question.inputs - 1 if last else 0, dtype=np.int64)
                for part in made.parts
            }
            return made.simulate(answers).astype(np.int64)

        return draw

    text = "simulated reports with the first answer to each question, and with the last"
    return SampledPair(text, reports(last=False), reports(last=True))


def _sent_reports(made: Design) -> SampledPair:
    """Return draws of reports by the code that devices run: with the first answers, and with the last."""

    def reports(*, last: bool) -> Draw:
        answers = [part.question.inputs - 1 if last else 0 for part in made.parts]

        def report(coins: ByteCoins) -> bytes:
            asked = range(len(answers)) if made.asks_all else [coins.below(len(answers))]
            return made.layout.pack(
                {at: made.parts[at].randomizer.randomize(answers[at], coins) for at in asked}
            )

        def draw(size: int) -> NDArray[np.int64]:
            coins = ByteCoins()
            sent = b"".join(report(coins) for _ in range(size))
            return np.frombuffer(sent, dtype=np.uint8).reshape(size, -1).astype(np.int64)

        return draw

    text = "reports by the device's code, with the first answer to each question, and with the last"
    return SampledPair(text, reports(last=False), reports(last=True))
