"""Small surveys for estimates: questions as text, answers from shares, laws by enumeration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.designing import Design, design
from lapwing.survey.questionnaire import Question
from lapwing.survey.randomizers.randomizer import Messages, Randomizer
from lapwing.survey.survey_file import load

Answers = NDArray[np.int64]


def designed(folder: Path, *questions: str, epsilon: str = "4", ask: str = "all") -> Design:
    """A survey with these questions: TOML lines, `name` and `text` are added."""
    head = (
        f'[survey]\nname = "tried"\ntitle = "Tried"\ntext = "Tried."\nepsilon = {epsilon}\n'
        f'ask = "{ask}"\nstop_after = 1000000\n'
    )
    parts = [
        f'[[questions]]\nname = "q{place}"\ntext = "Question {place}?"\n{lines}\n'
        for place, lines in enumerate(questions)
    ]
    path = folder / "survey.toml"
    path.write_text("\n".join([head, *parts]), encoding="utf-8")
    return design(load(path))


def exactly(question: Question, shares: Sequence[tuple[object, int]], n: int) -> Answers:
    """n answers of which so many parts are each of these, the last one taking up the rest."""
    total = sum(part for _, part in shares)
    counts = [n * part // total for _, part in shares]
    counts[-1] = n - sum(counts[:-1])
    return np.repeat([question.code(answer) for answer, _ in shares], counts)


def law_of(randomizer: Randomizer, rows: NDArray[np.uint8], answer: int) -> list[Fraction]:
    """The exact probability of each of these encoded messages."""
    return [randomizer.probability(answer, row.tobytes()) for row in rows]


def indices(randomizer: Randomizer, count: int) -> tuple[Messages, NDArray[np.uint8]]:
    """All messages that are numbers below `count`: decoded, and as rows."""
    numbers = np.arange(count, dtype=">u8").view(np.uint8).reshape(count, 8)
    rows = np.ascontiguousarray(numbers[:, 8 - randomizer.size :])
    return randomizer.decode(rows), rows


def means(law: Sequence[Fraction], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The expectation of scores (lines) under a law of messages."""
    assert sum(law) == 1
    found: NDArray[np.float64] = np.array([float(p) for p in law]) @ scores
    return found


def by_name(design_: Design, answers: Sequence[Answers]) -> Mapping[str, Answers]:
    """Answers to all questions, by the questions' names."""
    return {part.question.name: given for part, given in zip(design_.parts, answers, strict=True)}
