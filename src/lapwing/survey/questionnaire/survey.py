"""A survey: its questions, what a respondent may lose by all of them together, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Literal

from lapwing.errors import BadParameter
from lapwing.survey.questionnaire.coding import Coding
from lapwing.toml.section import did_you_mean

Kind = Literal["yes_no", "choice", "several", "rating", "ranking", "number", "date", "word"]
About = Literal["shares", "mean", "distribution", "words"]
Ask = Literal["auto", "all", "one"]


@dataclass(frozen=True)
class Question:
    """One question. `coding` numbers its possible answers; `about` is what will be estimated."""

    name: str
    text: str
    kind: Kind
    coding: Coding
    about: About
    protocol: str | None = None  # what the owner forces; None: the best one known

    @property
    def labels(self) -> tuple[str, ...]:
        """What people choose from, "no answer" last; empty for numbers, dates and words."""
        return self.coding.labels

    @property
    def inputs(self) -> int:
        """Answers are 0 .. inputs - 1."""
        return self.coding.inputs

    @property
    def no_answer(self) -> bool:
        """Whether not answering is one of the answers."""
        return self.coding.no_answer

    def code(self, answer: object) -> int:
        """The number of an answer; None is no answer. `BadValue` for what is no possible answer."""
        return self.coding.code(answer)

    def said(self, code: int) -> str:
        """An answer in words, from its number."""
        return self.coding.said(code)


@dataclass(frozen=True)
class Survey:
    """What a survey file says. It is made by `load`, which checks it."""

    path: Path
    name: str
    title: str
    text: str
    epsilon: Fraction  # of one respondent, for all questions together
    ask: Ask
    questions: tuple[Question, ...]
    stop_after: int | None  # reports
    until: date | None
    honest: int | None  # reports that are believed to be honest, for the shuffled ε
    shuffled: bool
    lifetime: Fraction  # what a device may send over all surveys
    ledger: str
    ledger_keys: str
    ledger_anchor: str
    reports: str  # where they are stored: a path, or postgresql://

    def question(self, name: str) -> Question:
        """The question of a name."""
        return self.questions[self.place(name)]

    def place(self, name: str) -> int:
        """Which question has a name, from 0."""
        names = [question.name for question in self.questions]
        if name not in names:
            raise BadParameter("question", f"there is none of this name. {did_you_mean(name, names)}")
        return names.index(name)

    @property
    def stops(self) -> str:
        """The stopping rule in words."""
        rules = []
        if self.stop_after is not None:
            rules.append(f"after {self.stop_after:,} reports")
        if self.until is not None:
            rules.append(f"at the end of {self.until} (UTC)")
        return " or ".join(rules) + (", whichever comes first" if len(rules) > 1 else "")
