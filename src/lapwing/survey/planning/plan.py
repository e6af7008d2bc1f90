"""What a survey will be able to tell: errors to expect, and how many people a margin needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from lapwing.errors import BadParameter
from lapwing.exact import Number, exact, whole
from lapwing.survey.planning.choose import choose
from lapwing.survey.planning.design import Design, Part, epsilon_text
from lapwing.survey.planning.spread import spread_of
from lapwing.survey.questionnaire.coding import Several
from lapwing.survey.questionnaire.file import cost_of_coins
from lapwing.survey.questionnaire.question_file import SET_AT_MOST, coins_of
from lapwing.survey.questionnaire.scales import Days, Grid

CONFIDENCE = Fraction(95, 100)
MOST_NEEDED = 10**15
BETTER = 0.95  # another form is worth a word from here on


@dataclass(frozen=True)
class Line:
    """What the plan says of one question. Errors are half the width of an interval, at most.

    `population` is for all people, of whom the respondents are a random sample; `respondents` for these n
    alone, of whom some may have been drawn to be asked. Errors are of a share in 0 .. 1 (`scale` is 1), or
    of a mean in the question's unit: `scale` is then the width of its range. The wished-for margin is a
    part of the range.
    """

    part: Part
    what: str
    unit: str
    scale: float
    population: float
    respondents: float
    needed: int | None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        question = self.part.question
        return {
            "name": question.name,
            "kind": question.kind,
            "protocol": self.part.protocol,
            "why": self.part.why,
            "epsilon": epsilon_text(self.part.epsilon),
            "error_of": self.what,
            "unit": self.unit,
            "error_for_the_population": self.population,
            "error_for_these_respondents": self.respondents,
            "respondents_needed": self.needed,
            "message_bytes": self.part.randomizer.size,
            "odds": self.part.odds,
        }


@dataclass(frozen=True)
class Plan:
    """A design for n respondents."""

    design: Design
    n: int
    margin: Fraction | None
    confidence: Fraction
    lines: tuple[Line, ...]

    @property
    def asks(self) -> str:
        """Which questions a respondent is asked, and why."""
        count = len(self.design.parts)
        if self.design.asks_all:
            asked = f"Every respondent answers all {count} questions." if count > 1 else ""
        else:
            asked = f"Every respondent answers one of the {count} questions, by chance."
        return f"{asked} {self.design.why}".strip()

    @property
    def notes(self) -> tuple[str, ...]:
        """What else the owner should know."""
        notes = [_coins_note(part) for part in self.design.parts if coins_of(part.question)]
        coins = sum(coins_of(part.question) for part in self.design.parts)
        if self.design.asks_all and len(notes) > 1:
            notes.append(f"All coins together cost a respondent {cost_of_coins(coins)}.")
        if self.design.warning:
            notes.insert(0, self.design.warning)
        notes += [note for line in self.lines if (note := _other_form(line))]
        if any(part.question.no_answer for part in self.design.parts):
            notes.append("Errors are as if everybody answered; those who do not make a mean less certain.")
        if any(part.question.about == "distribution" for part in self.design.parts):
            notes.append("For a distribution the error is that of its mean; its shape has no such formula.")
        survey = self.design.survey
        notes.append(f"The survey ends {survey.stops}. Looking at results earlier does not change that.")
        if survey.stop_after is not None and survey.stop_after < self.n:
            notes.append(f"That is before {self.n:,} respondents have answered.")
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "survey": self.design.survey.name,
            "digest": self.design.digest,
            "n": self.n,
            "confidence": float(self.confidence),
            "margin": None if self.margin is None else float(self.margin),
            "epsilon": epsilon_text(self.design.epsilon),
            "ask": "all" if self.design.asks_all else "one",
            "why": self.design.why,
            "cross_tables": self.design.asks_all and len(self.design.parts) > 1,
            "report_bytes": self.design.report_size,
            "questions": [line.to_json() for line in self.lines],
            "notes": list(self.notes),
        }


def plan(design: Design, n: int, *, margin: Number | None = None, confidence: Number = CONFIDENCE) -> Plan:
    """Errors to expect from n respondents, and how many a margin (a part of the range) needs."""
    n = whole(n, "n", at_least=1)
    wanted = None if margin is None else exact(margin, "margin")
    if wanted is not None and not 0 < wanted < 1:
        raise BadParameter("margin", "must lie between 0 and 1: 0.03 is 3 percentage points")
    sure = exact(confidence, "confidence")
    if not 0 < sure < 1:
        raise BadParameter("confidence", "must lie between 0 and 1, such as 0.95")
    lines = tuple([_line(design, part, n, wanted, sure) for part in design.parts])
    return Plan(design, n, wanted, sure, lines)


def _line(design: Design, part: Part, n: int, margin: Fraction | None, confidence: Fraction) -> Line:
    spread = part.spread.when_asked(design.asked)
    times = NormalDist().inv_cdf(0.5 + float(confidence) / 2)
    what, unit, scale = _measured(part)
    needed = None
    if margin is not None:
        needed = math.ceil(min(times**2 * spread.population / float(margin) ** 2, MOST_NEEDED))
    return Line(
        part,
        what,
        unit,
        scale,
        population=scale * times * math.sqrt(spread.population / n),
        respondents=scale * times * math.sqrt(spread.respondents / n),
        needed=needed,
    )


def _measured(part: Part) -> tuple[str, str, float]:
    match part.question.coding:
        case Grid() as grid:
            return "mean", "", float(grid.high - grid.low)
        case Days() as days:
            return "mean", "days", float(days.steps * days.step)
        case Several():
            return "any option", "percentage points", 1.0
        case _:
            return "any share", "percentage points", 1.0


def _coins_note(part: Part) -> str:
    coins = coins_of(part.question)
    each = " for each option" if coins > 1 else ""
    return f"{part.question.name}: two coins cost {cost_of_coins(coins)}, exactly ln 3{each}."


def _other_form(line: Line) -> str | None:
    """Whether bits instead of sets, or sets instead of bits, would have a smaller error at the same ε."""
    question, part = line.part.question, line.part
    coding = question.coding
    if (
        not isinstance(coding, Several)
        or len(coding.options) > SET_AT_MOST
        or question.protocol is not None
    ):
        return None
    other = replace(coding, as_set=not coding.as_set)
    spread = spread_of(choose(replace(question, coding=other), part.epsilon).randomizer, other)
    times = math.sqrt(spread.population / part.spread.population)
    if times > BETTER:
        return None
    form = "set" if other.as_set else "bits"
    return f'{question.name}: with as = "{form}" the error would be only {times:.2f} times as large.'
