"""A plan of a survey: errors to expect, and the number of people that a margin needs.

Simulated answers try a survey out. They follow simple laws that are stated with them. Nothing about them is
estimated from anybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, exact, whole
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.errors import BadParameter
from lapwing.survey.designing import Design, RandomizedQuestion, choose_protocol, epsilon_text
from lapwing.survey.questionnaire import (
    MOST_SET_OPTIONS,
    DateScale,
    NumberScale,
    Question,
    Questionnaire,
    Several,
    WordCoding,
    two_coins_cost_text,
    two_coins_count,
)

CONFIDENCE = Fraction(95, 100)
MOST_NEEDED = 10**15
BETTER_FORM_RATIO = 0.95  # a note mentions another form whose error is at most this part


@dataclass(frozen=True)
class QuestionPlan:
    """The plan of one question. Errors are half the width of an interval, at most.

    `population` is for all people: the respondents are a random sample of them. `respondents` is for these
    n alone: only a random part of them may have been asked. Errors are of a share in 0 .. 1 (`scale` is
    1), or of a mean in the question's unit: `scale` is then the width of its range. The requested margin is
    a part of the range.
    """

    part: RandomizedQuestion
    what: str
    unit: str
    scale: float
    population: float
    respondents: float
    needed: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        question = self.part.question
        return {
            "name": question.name,
            "kind": question.kind,
            "protocol": self.part.protocol,
            "why": self.part.why,
            "epsilon": float(epsilon_text(self.part.epsilon)),
            "error_of": self.what,
            "unit": self.unit,
            "error_for_the_population": self.population,
            "error_for_these_respondents": self.respondents,
            "respondents_needed": self.needed,
            "message_bytes": self.part.randomizer.size,
            "odds": self.part.odds,
        }


@dataclass(frozen=True)
class SurveyPlan:
    """A design for n respondents, with the errors to expect."""

    design: Design
    n: int
    margin: Fraction | None
    confidence: Fraction
    lines: tuple[QuestionPlan, ...]

    @property
    def asks(self) -> str:
        """The questions that a respondent is asked, and the reason, in words."""
        count = len(self.design.parts)
        if self.design.asks_all:
            asked = f"Every respondent answers all {count} questions." if count > 1 else ""
        else:
            asked = f"Every respondent answers one of the {count} questions, by chance."
        return f"{asked} {self.design.why}".strip()

    @property
    def notes(self) -> tuple[str, ...]:
        """Further notes for the owner."""
        notes = [_coins_note(part) for part in self.design.parts if two_coins_count(part.question)]
        coins = sum(two_coins_count(part.question) for part in self.design.parts)
        if self.design.asks_all and len(notes) > 1:
            notes.append(f"All coins together cost a respondent {two_coins_cost_text(coins)}.")
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
        """Return the plan as plain data."""
        return {
            "survey": self.design.survey.name,
            "digest": self.design.digest,
            "n": self.n,
            "confidence": float(self.confidence),
            "margin": None if self.margin is None else float(self.margin),
            "epsilon": float(epsilon_text(self.design.epsilon)),
            "ask": "all" if self.design.asks_all else "one",
            "why": self.design.why,
            "cross_tables": self.design.asks_all and len(self.design.parts) > 1,
            "report_bytes": self.design.report_size,
            "questions": [line.to_json() for line in self.lines],
            "notes": list(self.notes),
        }


def plan(
    design: Design, n: int, *, margin: Number | None = None, confidence: Number = CONFIDENCE
) -> SurveyPlan:
    """Predict the errors of n respondents, and the number of respondents that a margin needs.

    Args:
        design: The design of the survey.
        n: The number of respondents.
        margin: A part of the range, such as 0.03 for 3 percentage points; None: not asked.
        confidence: The confidence of the errors, between 0 and 1.

    Returns:
        The plan.

    Raises:
        BadParameter: One of the numbers is out of its range.

    Example:
        >>> made = plan(design(load("tea.toml")), 5000, margin=0.03)
        >>> made.lines[0].needed > 5000
        True
    """
    n = whole(n, "n", at_least=1)
    wanted = None if margin is None else exact(margin, "margin")
    if wanted is not None and not 0 < wanted < 1:
        raise BadParameter("margin", "must lie between 0 and 1: 0.03 is 3 percentage points")
    sure = exact(confidence, "confidence")
    if not 0 < sure < 1:
        raise BadParameter("confidence", "must lie between 0 and 1, such as 0.95")
    lines = tuple([_question_plan(design, part, n, wanted, sure) for part in design.parts])
    return SurveyPlan(design, n, wanted, sure, lines)


def _question_plan(
    design: Design, part: RandomizedQuestion, n: int, margin: Fraction | None, confidence: Fraction
) -> QuestionPlan:
    spread = part.spread.when_asked(design.asked)
    times = NormalDist().inv_cdf(0.5 + float(confidence) / 2)
    what, unit, scale = _error_measure(part)
    needed = None
    if margin is not None:
        needed = math.ceil(min(times**2 * spread.population / float(margin) ** 2, MOST_NEEDED))
    population = scale * times * math.sqrt(spread.population / n)
    respondents = scale * times * math.sqrt(spread.respondents / n)
    return QuestionPlan(part, what, unit, scale, population, respondents, needed)


def _error_measure(part: RandomizedQuestion) -> tuple[str, str, float]:
    match part.question.coding:
        case NumberScale() as grid:
            return "mean", "", float(grid.high - grid.low)
        case DateScale() as days:
            return "mean", "days", float(days.steps * days.step)
        case Several():
            return "any option", "percentage points", 1.0
        case _:
            return "any share", "percentage points", 1.0


def _coins_note(part: RandomizedQuestion) -> str:
    coins = two_coins_count(part.question)
    each = " for each option" if coins > 1 else ""
    return f"{part.question.name}: two coins cost {two_coins_cost_text(coins)}, exactly ln 3{each}."


def _other_form(line: QuestionPlan) -> str | None:
    """Return a note if the other form of a set question would have a smaller error at the same ε."""
    question, part, coding = line.part.question, line.part, line.part.question.coding
    if not isinstance(coding, Several) or question.protocol is not None:
        return None
    if len(coding.options) > MOST_SET_OPTIONS:
        return None
    other = replace(coding, as_set=not coding.as_set)
    spread = choose_protocol(replace(question, coding=other), part.epsilon).spread
    times = math.sqrt(spread.population / part.spread.population)
    if times > BETTER_FORM_RATIO:
        return None
    form = "set" if other.as_set else "bits"
    return f'{question.name}: with as = "{form}" the error would be only {times:.2f} times as large.'


NO_ANSWER_SHARE = "0.05"  # where "no answer" is possible
MOST_SHOWN = 12
SIMULATED_WORDS = ("coffee", "tea", "water", "milk", "juice", "cocoa", "mate", "nothing")
_UNITS = 1 << 40


@dataclass(frozen=True)
class SimulatedAnswers:
    """The numbers of simulated answers to a question, and the law they were drawn from."""

    question: Question
    law: str
    answers: NDArray[np.int64]

    def truth(self) -> list[tuple[str, float]]:
        """Return the true shares of the answers, or the mean, to compare with an estimate."""
        coding = self.question.coding
        if isinstance(coding, NumberScale | DateScale):
            told = self.answers[self.answers <= coding.steps]
            mean = float(told.mean()) if len(told) else 0.0
            silent = [("no answer", 1 - len(told) / len(self.answers))] if coding.no_answer else []
            if isinstance(coding, DateScale):
                return [(f"mean, days after {coding.low}", mean * coding.step), *silent]
            return [("mean", float(coding.low) + mean * float(coding.step)), *silent]
        if isinstance(coding, Several) and not coding.as_set:
            bits = enumerate(coding.labels)
            return [(label, float(np.mean(self.answers >> place & 1))) for place, label in bits]
        codes, counts = np.unique(self.answers, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_SHOWN]
        return [
            (self.question.coding.text_of(int(codes[k])), float(counts[k] / len(self.answers)))
            for k in order
        ]


def simulate_answers(survey: Questionnaire, n: int) -> dict[str, SimulatedAnswers]:
    """Simulate n respondents, by question. Answers to different questions are independent."""
    return {question.name: _simulated(question, n) for question in survey.questions}


def _simulated(question: Question, n: int) -> SimulatedAnswers:
    law, answers = _answers(question, n)
    if question.no_answer:
        law = f"{law}; 5 % do not answer"
        answers = np.where(bernoulli(NO_ANSWER_SHARE, n), question.code(None), answers)
    return SimulatedAnswers(question, law, answers)


def _answers(question: Question, n: int) -> tuple[str, NDArray[np.int64]]:
    match question.coding:
        case NumberScale() | DateScale() as scale:
            first, second = (uniform_int(0, scale.steps + 1, n) for _ in range(2))
            return "the mean of two uniform draws, rounded down", (first + second) // 2
        case WordCoding() as word:
            fitting = [text for text in SIMULATED_WORDS if len(text) <= word.letters] or ["a", "b"]
            codes = np.array([word.code(text) for text in fitting], dtype=np.int64)
            return f"{', '.join(fitting)}: in proportion to 1, 1/2, 1/3 …", codes[_zipf(len(codes), n)]
        case Several() as several:
            masks = np.zeros(n, dtype=np.int64)
            for place in range(len(several.options)):
                masks |= bernoulli(f"1/{place + 2}", n).astype(np.int64) << place
            return "each option by itself: 1/2, 1/3, 1/4 …", masks
        case _:
            count = question.inputs - question.no_answer
            return "options in proportion to 1, 1/2, 1/3 …", _zipf(count, n)


def _zipf(count: int, n: int) -> NDArray[np.int64]:
    """Draw 0 .. count - 1 in proportion to 1, 1/2, 1/3 … (rounded to whole parts of 2^40)."""
    ends = np.cumsum(_UNITS // np.arange(1, count + 1))
    return np.searchsorted(ends, uniform_int(0, int(ends[-1]), n), side="right").astype(np.int64)
