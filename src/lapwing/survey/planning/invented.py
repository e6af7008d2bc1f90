"""Invented answers, to try a survey out. They follow simple laws that are told with them.

The law is a person's who does not exist: nothing here is estimated from anybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.noise import bernoulli, uniform_int
from lapwing.survey.questionnaire.coding import Several
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.questionnaire.survey import Question, Survey
from lapwing.survey.questionnaire.words import Word

SILENT = "0.05"  # of those who may
SHOWN = 12
WORDS = ("coffee", "tea", "water", "milk", "juice", "cocoa", "mate", "nothing")
_UNITS = 1 << 40


@dataclass(frozen=True)
class Invented:
    """The numbers of invented answers to a question, and the law they were drawn from."""

    question: Question
    law: str
    answers: NDArray[np.int64]

    def truth(self) -> list[tuple[str, float]]:
        """Shares of the answers, or the mean: what an estimate should come near to."""
        coding = self.question.coding
        if isinstance(coding, Grid | Days):
            told = self.answers[self.answers <= coding.steps]
            mean = float(told.mean()) if len(told) else 0.0
            silent = [("no answer", 1 - len(told) / len(self.answers))] if coding.no_answer else []
            if isinstance(coding, Days):
                return [(f"mean, days after {coding.low}", mean * coding.step), *silent]
            return [("mean", float(coding.low) + mean * float(coding.step)), *silent]
        if isinstance(coding, Several) and not coding.as_set:
            bits = enumerate(coding.labels)
            return [(label, float(np.mean(self.answers >> place & 1))) for place, label in bits]
        codes, counts = np.unique(self.answers, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:SHOWN]
        return [(self.question.said(int(codes[k])), float(counts[k] / len(self.answers))) for k in order]


def invent(survey: Survey, n: int) -> dict[str, Invented]:
    """n invented respondents, by question. Their answers to different questions are independent."""
    return {question.name: _invented(question, n) for question in survey.questions}


def _invented(question: Question, n: int) -> Invented:
    law, answers = _answers(question, n)
    if not question.no_answer:
        return Invented(question, law, answers)
    silent = bernoulli(SILENT, n)
    return Invented(question, f"{law}; 5 % do not answer", np.where(silent, question.code(None), answers))


def _answers(question: Question, n: int) -> tuple[str, NDArray[np.int64]]:
    match question.coding:
        case Grid() | Days() as scale:
            low = uniform_int(0, scale.steps + 1, n)
            return "the mean of two uniform draws, rounded down", (
                low + uniform_int(0, scale.steps + 1, n)
            ) // 2
        case Word() as word:
            fitting = [text for text in WORDS if len(text) <= word.letters] or ["a", "b"]
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
    """0 .. count - 1 in proportion to 1, 1/2, 1/3 … (rounded to whole parts of 2^40)."""
    ends = np.cumsum(_UNITS // np.arange(1, count + 1))
    return np.searchsorted(ends, uniform_int(0, int(ends[-1]), n), side="right").astype(np.int64)
