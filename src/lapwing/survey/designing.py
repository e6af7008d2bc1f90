"""A design: how every question of a survey is randomized. The same survey always gets the same design.

Reports: what a device sends. All reports of a survey have one size, whatever they say.

Byte 0 is 255 where all questions are asked, else the number of the question that was. Then come the
messages, in the order of the questions, and zeros up to the size of the longest report.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import round_up
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.odds import posterior_text, stated_odds, worst_ratio
from lapwing.survey.protocol_choice import WorstVariance, choose_protocol, worst_variance_of
from lapwing.survey.questionnaire import (
    DateScale,
    NumberScale,
    Question,
    Questionnaire,
    Several,
    WordCoding,
    decimal_text,
)
from lapwing.survey.randomizers import Randomizer
from lapwing.survey.survey_file import two_coins_count

ALL_QUESTIONS = 255
SIMULATION_BLOCK = 1 << 15  # reports simulated together: long messages would fill the memory
MessagesByQuestion = dict[int, tuple[NDArray[np.int64], NDArray[Any]]]


@dataclass(frozen=True)
class ReportLayout:
    """Where messages lie in a report."""

    randomizers: tuple[Randomizer, ...]
    asks_all: bool

    @property
    def size(self) -> int:
        """Bytes of every report."""
        sizes = [randomizer.size for randomizer in self.randomizers]
        return 1 + (sum(sizes) if self.asks_all else max(sizes))

    def _columns(self) -> Iterator[tuple[int, Randomizer, slice]]:
        start = 1
        for place, randomizer in enumerate(self.randomizers):
            yield place, randomizer, slice(start, start + randomizer.size)
            if self.asks_all:
                start += randomizer.size

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """A report of the messages to all questions, or to one; `BadValue` for the impossible."""
        places = sorted(messages)
        if places != (list(range(len(self.randomizers))) if self.asks_all else places[:1]) or not places:
            wanted = "every question" if self.asks_all else "one question"
            raise BadValue(f"a report has a message to {wanted}")
        if not 0 <= places[-1] < len(self.randomizers):
            raise BadValue("a message belongs to no question")
        if not all(isinstance(messages[place], bytes) for place in places):
            raise BadValue("a message must be bytes")
        if any(len(messages[place]) != self.randomizers[place].size for place in places):
            raise BadValue("a message has not the size that its question asks for")
        head = ALL_QUESTIONS if self.asks_all else places[0]
        report = bytes([head, *b"".join([messages[place] for place in places])]).ljust(self.size, b"\0")
        self.check(report)
        return report

    def unpack(self, reports: NDArray[np.uint8]) -> MessagesByQuestion:
        """For every question the rows that answer it, and their messages, checked."""
        well_formed = isinstance(reports, np.ndarray) and reports.dtype == np.uint8 and reports.ndim == 2
        if not well_formed or reports.shape[1] != self.size:
            raise BadValue(f"a report must have {self.size} bytes")
        heads = reports[:, 0]
        if self.asks_all and bool(np.any(heads != ALL_QUESTIONS)):
            raise BadValue("a report is impossible: it must answer all questions")
        if not self.asks_all and bool(np.any(heads >= len(self.randomizers))):
            raise BadValue("a report is impossible: it answers a question that is not asked")
        found: MessagesByQuestion = {}
        for place, randomizer, columns in self._columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(heads == place)
            sent = reports if self.asks_all else reports[rows]
            if not self.asks_all and bool(np.any(sent[:, columns.stop :])):
                raise BadValue("a report is impossible: there is something after its message")
            found[place] = rows, randomizer.decode(np.ascontiguousarray(sent[:, columns]))
        return found

    def check(self, report: bytes) -> None:
        """`BadValue` unless some device could have sent it."""
        if not isinstance(report, bytes):
            raise BadValue("a report must be bytes")
        self.unpack(np.frombuffer(report, dtype=np.uint8)[np.newaxis])

    def simulate(self, answers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Reports of respondents with these answers: coins are thrown as on devices, many at once."""
        count = len(answers[0])
        if any(len(given) != count for given in answers):
            raise BadParameter("answers", "must be as many to each question")
        reports = np.zeros((count, self.size), dtype=np.uint8)
        for start in range(0, count, SIMULATION_BLOCK):
            self._simulate(
                reports[start : start + SIMULATION_BLOCK],
                [given[start : start + SIMULATION_BLOCK] for given in answers],
            )
        return reports

    def _simulate(self, reports: NDArray[np.uint8], answers: Sequence[NDArray[np.int64]]) -> None:
        if self.asks_all:
            reports[:, 0] = ALL_QUESTIONS
        else:
            reports[:, 0] = uniform_int(0, len(self.randomizers), len(reports))
        for place, randomizer, columns in self._columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(reports[:, 0] == place)
            if len(rows):
                reports[rows, columns] = randomizer.encode(randomizer.sample(answers[place][rows]))


FORMAT = 1
LARGEST_SURVEY = 16 << 20  # bytes that a device reads
WARNING_EPSILON = 2  # ε above which the owner is warned
EPSILON_PARTS = 10**9  # ε is told to people and devices in these, rounded up
CROSS_TABLES = "Two answers of one respondent are never seen together: there are no cross tables."


@dataclass(frozen=True)
class RandomizedQuestion:
    """One question with its randomizer. `epsilon` is what a respondent pays for answering it."""

    question: Question
    randomizer: Randomizer
    epsilon: Fraction
    protocol: str
    why: str

    @property
    def odds(self) -> str:
        """The possible messages and their odds, in plain words."""
        return stated_odds(self.randomizer)

    @cached_property
    def spread(self) -> WorstVariance:
        """How far its estimate strays, if everybody is asked."""
        return worst_variance_of(self.randomizer, self.question.coding)


@dataclass(frozen=True)
class Design:
    """A survey and its randomizers. `why` says why all questions are asked, or one."""

    survey: Questionnaire
    asks_all: bool
    parts: tuple[RandomizedQuestion, ...]
    why: str

    @property
    def epsilon(self) -> Fraction:
        """What one respondent loses at most, whichever questions are asked."""
        costs = [part.epsilon for part in self.parts]
        return sum(costs, Fraction(0)) if self.asks_all else max(costs)

    @property
    def warning(self) -> str | None:
        """What the owner must know where the coins hide little: above ε 2."""
        if self.epsilon <= WARNING_EPSILON:
            return None
        ratio = worst_ratio([part.randomizer for part in self.parts], asks_all=self.asks_all)
        two = "sets of answers" if self.asks_all and len(self.parts) > 1 else "answers"
        return (
            f"ε {epsilon_text(self.epsilon)} hides little. If two {two} seem equally likely before, a "
            f"report may make one of them up to {posterior_text(ratio)} likely; at ε 2 that is 88.1 %. Ask for "
            "less, and do not tell people that nobody can find out what they answered."
        )

    @property
    def asked(self) -> Fraction:
        """The share of respondents that each question is put to."""
        return Fraction(1) if self.asks_all else Fraction(1, len(self.parts))

    @property
    def layout(self) -> ReportLayout:
        """Where messages lie in a report."""
        return ReportLayout(tuple([part.randomizer for part in self.parts]), self.asks_all)

    @property
    def report_size(self) -> int:
        """Bytes of a report, the same for all of this survey."""
        return self.layout.size

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """A report of messages, by the place of their question: of all, or of the one that was asked."""
        return self.layout.pack(messages)

    def unpack(self, reports: NDArray[np.uint8]) -> MessagesByQuestion:
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
    return decimal_text(Fraction(round_up(epsilon, EPSILON_PARTS), EPSILON_PARTS))


def _public(part: RandomizedQuestion) -> dict[str, Any]:
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
        case NumberScale() as grid:
            ends = {"low": grid.low, "high": grid.high, "step": grid.step}
            found.update({name: decimal_text(value) for name, value in ends.items()})
        case DateScale() as days:
            found.update(low=str(days.low), high=str(days.high), step=str(days.step))
        case WordCoding() as word:
            found["letters"] = word.letters
        case _:
            pass
    return found


def design(survey: Questionnaire) -> Design:
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


def error_ratio(split: Sequence[RandomizedQuestion], one: Sequence[RandomizedQuestion]) -> float:
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


def _split(survey: Questionnaire) -> tuple[RandomizedQuestion, ...] | None:
    """ε over all questions: coins cost what they cost, the others share the rest in equal parts."""
    fixed = [choose_protocol(question, survey.epsilon).randomizer.loss.epsilon if two_coins_count(question) else Fraction(0)
             for question in survey.questions]  # fmt: skip
    left, free = survey.epsilon - sum(fixed), fixed.count(Fraction(0))
    if left < 0 or (free and left <= 0):
        return None
    share = left / free if free else Fraction(0)
    return _parts(survey.questions, [cost or share for cost in fixed])


def _parts(questions: Sequence[Question], epsilons: Sequence[Fraction]) -> tuple[RandomizedQuestion, ...]:
    made = []
    for question, epsilon in zip(questions, epsilons, strict=True):
        chosen = choose_protocol(question, epsilon)
        cost = chosen.randomizer.loss.epsilon
        made.append(RandomizedQuestion(question, chosen.randomizer, cost, chosen.protocol, chosen.why))
    return tuple(made)
