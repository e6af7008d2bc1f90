"""A design: how every question of a survey is randomized. The same survey always gets the same design."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import round_up
from lapwing.survey.planning.choose import choose
from lapwing.survey.planning.odds import likely, odds_of, worst_ratio
from lapwing.survey.planning.reports import Layout, Sorted
from lapwing.survey.planning.spread import Spread, spread_of
from lapwing.survey.questionnaire.coding import Several
from lapwing.survey.questionnaire.question_file import coins_of
from lapwing.survey.questionnaire.scales import Days, Grid, decimal_text
from lapwing.survey.questionnaire.survey import Question, Survey
from lapwing.survey.questionnaire.words import Word
from lapwing.survey.randomizers import Randomizer

FORMAT = 1
LARGEST_SURVEY = 16 << 20  # bytes that a device reads
MUCH = 2  # ε above which the owner is warned
NANO = 10**9  # ε is told to people and devices in these, rounded up
CROSS_TABLES = "Two answers of one respondent are never seen together: there are no cross tables."


@dataclass(frozen=True)
class Part:
    """One question with its randomizer. `epsilon` is what a respondent pays for answering it."""

    question: Question
    randomizer: Randomizer
    epsilon: Fraction
    protocol: str
    why: str

    @property
    def odds(self) -> str:
        """The possible messages and their odds, in plain words."""
        return odds_of(self.randomizer)

    @cached_property
    def spread(self) -> Spread:
        """How far its estimate strays, if everybody is asked."""
        return spread_of(self.randomizer, self.question.coding)


@dataclass(frozen=True)
class Design:
    """A survey and its randomizers. `why` says why all questions are asked, or one."""

    survey: Survey
    asks_all: bool
    parts: tuple[Part, ...]
    why: str

    @property
    def epsilon(self) -> Fraction:
        """What one respondent loses at most, whichever questions are asked."""
        costs = [part.epsilon for part in self.parts]
        return sum(costs, Fraction(0)) if self.asks_all else max(costs)

    @property
    def warning(self) -> str | None:
        """What the owner must know where the coins hide little: above ε 2."""
        if self.epsilon <= MUCH:
            return None
        ratio = worst_ratio([part.randomizer for part in self.parts], asks_all=self.asks_all)
        two = "sets of answers" if self.asks_all and len(self.parts) > 1 else "answers"
        return (
            f"ε {epsilon_text(self.epsilon)} hides little. If two {two} seem equally likely before, a "
            f"report may make one of them up to {likely(ratio)} likely; at ε 2 that is 88.1 %. Ask for "
            "less, and do not tell people that nobody can find out what they answered."
        )

    @property
    def asked(self) -> Fraction:
        """The share of respondents that each question is put to."""
        return Fraction(1) if self.asks_all else Fraction(1, len(self.parts))

    @property
    def layout(self) -> Layout:
        """Where messages lie in a report."""
        return Layout(tuple([part.randomizer for part in self.parts]), self.asks_all)

    @property
    def report_size(self) -> int:
        """Bytes of a report, the same for all of this survey."""
        return self.layout.size

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """A report of messages, by the place of their question: of all, or of the one that was asked."""
        return self.layout.pack(messages)

    def unpack(self, reports: NDArray[np.uint8]) -> Sorted:
        """For every question the rows that answer it, and their messages; `BadValue` for the impossible."""
        return self.layout.unpack(reports)

    def check(self, report: bytes) -> None:
        """`BadValue` unless some device could have sent this report."""
        self.layout.check(report)

    def simulate(self, answers: Mapping[str, NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Reports of respondents with these answers (numbers, one array for every question)."""
        names = [part.question.name for part in self.parts]
        if set(answers) != set(names):
            raise BadParameter("answers", "must be those to every question of the survey, by name")
        return self.layout.simulate([answers[name] for name in names])

    def public(self) -> dict[str, Any]:
        """All that a device needs, as JSON. It has nothing in it that may not be known."""
        survey = self.survey
        return {
            "format": FORMAT,
            "name": survey.name,
            "title": survey.title,
            "text": survey.text,
            "ask": "all" if self.asks_all else "one",
            "epsilon": epsilon_text(self.epsilon),
            "lifetime": epsilon_text(survey.lifetime),
            "stops": survey.stops,
            "report_size": self.report_size,
            "questions": [_public(part) for part in self.parts],
        }

    @cached_property
    def digest(self) -> str:
        """The fingerprint of `public()`: reports belong to exactly this."""
        text = json.dumps(self.public(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def epsilon_text(epsilon: Fraction) -> str:
    """ε as a decimal, rounded up to whole billionths."""
    return decimal_text(Fraction(round_up(epsilon, NANO), NANO))


def _public(part: Part) -> dict[str, Any]:
    question = part.question
    found: dict[str, Any] = {
        "name": question.name,
        "text": question.text,
        "kind": question.kind,
        "about": question.about,
        "labels": list(question.labels),
        "no_answer": question.no_answer,
        "inputs": question.inputs,
        "epsilon": epsilon_text(part.epsilon),
        "protocol": part.protocol,
        "odds": part.odds,
        "size": part.randomizer.size,
        "recipe": part.randomizer.recipe(),
    }
    match question.coding:
        case Several() as several:
            found["as"] = "set" if several.as_set else "bits"
        case Grid() as grid:
            ends = {"low": grid.low, "high": grid.high, "step": grid.step}
            found.update({name: decimal_text(value) for name, value in ends.items()})
        case Days() as days:
            found.update(low=str(days.low), high=str(days.high), step=str(days.step))
        case Word() as word:
            found["letters"] = word.letters
        case _:
            pass
    return found


def design(survey: Survey) -> Design:
    """The design of a survey: for each question the protocol with the best known variance.

    ε is split over all questions, in equal parts, or one question is asked at random with all of ε:
    whichever has the smaller error, unless the survey says which.
    """
    if survey.ask == "all" or len(survey.questions) == 1:
        found = _split(survey)
        if found is None:
            raise BadParameter("epsilon", "is too small for the coins of all questions together")
        only = "There is one question." if len(survey.questions) == 1 else "The survey says so: ask = all."
        return Design(survey, asks_all=True, parts=found, why=only)
    one = _parts(survey.questions, [survey.epsilon] * len(survey.questions))
    if survey.ask == "one":
        return Design(
            survey, asks_all=False, parts=one, why=f"The survey says so: ask = one. {CROSS_TABLES}"
        )
    found = _split(survey)
    if found is None:
        why = f"The coins of all questions together cost more than ε {epsilon_text(survey.epsilon)}."
        return Design(survey, asks_all=False, parts=one, why=f"{why} {CROSS_TABLES}")
    times = error_ratio(found, one)
    if times > 1:
        why = f"That has the smaller error: with ε split over all it would be {times:.2f} times as large."
        return Design(survey, asks_all=False, parts=one, why=f"{why} {CROSS_TABLES}")
    why = f"That has the smaller error: with one question each it would be {1 / times:.2f} times as large."
    return Design(survey, asks_all=True, parts=found, why=why)


def error_ratio(split: Sequence[Part], one: Sequence[Part]) -> float:
    """How many times larger the errors are if all are asked than if one is: the geometric mean.

    Errors of different kinds have different units; their ratios do not. For alike questions this is
    simply the ratio.
    """
    share = Fraction(1, len(one))
    logs = [
        math.log(a.spread.population) - math.log(b.spread.when_asked(share).population)
        for a, b in zip(split, one, strict=True)
    ]
    return math.exp(math.fsum(logs) / len(logs) / 2)


def _split(survey: Survey) -> tuple[Part, ...] | None:
    """ε over all questions: coins cost what they cost, the others share the rest in equal parts."""
    fixed = [choose(question, survey.epsilon).randomizer.loss.epsilon if coins_of(question) else Fraction(0)
             for question in survey.questions]  # fmt: skip
    left, free = survey.epsilon - sum(fixed), fixed.count(Fraction(0))
    if left < 0 or (free and left <= 0):
        return None
    share = left / free if free else Fraction(0)
    return _parts(survey.questions, [cost or share for cost in fixed])


def _parts(questions: Sequence[Question], epsilons: Sequence[Fraction]) -> tuple[Part, ...]:
    made = []
    for question, epsilon in zip(questions, epsilons, strict=True):
        chosen = choose(question, epsilon)
        cost = chosen.randomizer.loss.epsilon
        made.append(Part(question, chosen.randomizer, cost, chosen.protocol, chosen.why))
    return tuple(made)
