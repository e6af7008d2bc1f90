"""A design: how every question of a survey is randomized. The same survey always gets the same design.

A report is one respondent's messages. All reports of a survey have one size, whatever they say. Byte 0 is
255 where all questions are asked, else the number of the question that was asked. Then come the messages,
in the order of the questions, and zeros up to the size of the longest report.

`choose_protocol` takes the randomizer with the best variance known within an ε, unless the owner forces
one. `WorstVariance` predicts the error before anybody has answered. Shares are in 0 .. 1; numbers and dates
count from `low` as 0 to `high` as 1. For sets it is the share of an option, over all sets that have it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.canonical_json import canonical_json
from lapwing.core.chances import posterior_text
from lapwing.core.exact import round_up
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter, BadValue
from lapwing.survey import randomizers
from lapwing.survey.questionnaire import (
    AnswerCoding,
    DateScale,
    NumberScale,
    Question,
    Questionnaire,
    Several,
    WordCoding,
    decimal_text,
    two_coins_count,
)
from lapwing.survey.randomizers.randomizer import ODDS, Randomizer

ALL_QUESTIONS = 255
SIMULATION_BLOCK = 1 << 15  # reports simulated together: long messages would fill the memory
MessagesByQuestion = dict[int, tuple[NDArray[np.int64], NDArray[Any]]]


@dataclass(frozen=True)
class ReportLayout:
    """The places of messages in a report."""

    randomizers: tuple[Randomizer, ...]
    asks_all: bool

    @property
    def size(self) -> int:
        """The bytes of every report."""
        sizes = [randomizer.size for randomizer in self.randomizers]
        return 1 + (sum(sizes) if self.asks_all else max(sizes))

    @property
    def epsilon(self) -> Fraction:
        """The greatest loss of one respondent, whichever questions are asked."""
        costs = [randomizer.loss.epsilon for randomizer in self.randomizers]
        return sum(costs, Fraction(0)) if self.asks_all else max(costs)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a report's probabilities under two sets of answers: exact."""
        ratios = [randomizer.ratio for randomizer in self.randomizers]
        return math.prod(ratios, start=Fraction(1)) if self.asks_all else max(ratios)

    def columns(self) -> Iterator[tuple[int, Randomizer, slice]]:
        """Yield the place of each question, its randomizer, and the bytes of its message."""
        start = 1
        for place, randomizer in enumerate(self.randomizers):
            yield place, randomizer, slice(start, start + randomizer.size)
            if self.asks_all:
                start += randomizer.size

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """Make a report of the messages to all questions, or one. Raise `BadValue` if it is impossible."""
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
        """Return for every question the rows that answer it, and their messages.

        Raises `BadValue` if a report is impossible.
        """
        well_formed = isinstance(reports, np.ndarray) and reports.dtype == np.uint8 and reports.ndim == 2
        if not well_formed or reports.shape[1] != self.size:
            raise BadValue(f"a report must have {self.size} bytes")
        heads = reports[:, 0]
        if self.asks_all and bool(np.any(heads != ALL_QUESTIONS)):
            raise BadValue("a report is impossible: it must answer all questions")
        if not self.asks_all and bool(np.any(heads >= len(self.randomizers))):
            raise BadValue("a report is impossible: it answers a question that is not asked")
        messages: MessagesByQuestion = {}
        for place, randomizer, columns in self.columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(heads == place)
            sent = reports if self.asks_all else reports[rows]
            if not self.asks_all and bool(np.any(sent[:, columns.stop :])):
                raise BadValue("a report is impossible: there is something after its message")
            messages[place] = rows, randomizer.decode(np.ascontiguousarray(sent[:, columns]))
        return messages

    def check(self, report: bytes) -> None:
        """Raise `BadValue` unless some device could have sent this report."""
        if not isinstance(report, bytes):
            raise BadValue("a report must be bytes")
        self.unpack(np.frombuffer(report, dtype=np.uint8)[np.newaxis])

    def simulate(self, answers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Simulate the reports of respondents with these answers (numbers, one array per question)."""
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
        for place, randomizer, columns in self.columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(reports[:, 0] == place)
            if len(rows):
                reports[rows, columns] = randomizer.encode(randomizer.sample(answers[place][rows]))


HALF = Fraction(1, 2)
_ListOracle = randomizers.KaryResponse | randomizers.SubsetSelection  # a message lists options
QUARTER = 0.25


@dataclass(frozen=True)
class WorstVariance:
    """n times the greatest variance of an estimate over all true answers.

    `respondents` is for the share or mean of the n people who take part, `population` for that of all
    people, of whom they are a random sample.
    """

    population: float
    respondents: float

    def when_asked(self, share: Fraction) -> WorstVariance:
        """Return the variance where a random share of n is asked. `respondents` are still all n."""
        part = float(share)
        drawn = part * self.respondents + (1 - part) * self.population
        return WorstVariance(self.population / part, drawn / part)


def worst_variance_of(randomizer: Randomizer, coding: AnswerCoding | None = None) -> WorstVariance:
    """Return the variance of the worst share, or of the worst mean for numbers and dates.

    `coding` says whether the answers are sets.
    """
    if isinstance(coding, Several) and coding.as_set and isinstance(randomizer, _ListOracle):
        return _of_options(randomizer, len(coding.options))
    if isinstance(randomizer, randomizers.PrefixResponse):
        inner = [worst_variance_of(oracle) for oracle in randomizer.inner]
        worst = max(inner, key=lambda spread: spread.population)
        return worst.when_asked(Fraction(1, len(inner)))
    if isinstance(randomizer, randomizers.FrequencyOracle):
        return _of_shares(randomizer.inside, randomizer.outside)
    assert isinstance(randomizer, randomizers.NumericRandomizer)
    noise = randomizer.worst_variance()
    # Numbers in 0 .. 1 have a variance of at most 1/4 themselves.
    return WorstVariance(noise + QUARTER, noise)


def _of_shares(inside: Fraction, outside: Fraction) -> WorstVariance:
    """Return the variance of a coin with chance outside + share (inside - outside)."""
    gap = (inside - outside) ** 2
    seen = min(max(HALF, outside), inside)
    noise = max(inside * (1 - inside), outside * (1 - outside))
    return WorstVariance(float(seen * (1 - seen) / gap), float(noise / gap))


def _of_options(randomizer: _ListOracle, options: int) -> WorstVariance:
    """Return the variance of an option's share among sets. A score counts the sets with the option.

    A report lists d of k sets, of which s have the option. It lists the true set with chance p; the rest of
    the list is drawn from the other k - 1 sets without replacement.
    """
    k, s, p = randomizer.inputs, 1 << (options - 1), randomizer.inside
    d = randomizer.chosen if isinstance(randomizer, randomizers.SubsetSelection) else 1
    held = _variance(p, _drawn(k - 1, s - 1, d - 1, 1), _drawn(k - 1, s - 1, d, 0))
    other = _variance(p, _drawn(k - 1, s, d - 1, 0), _drawn(k - 1, s, d, 0))
    gap = (p - randomizer.outside) ** 2
    inner, outer = held / gap, other / gap
    # The whole variance is greatest at this share.
    share = min(max((1 + inner - outer) / 2, Fraction(0)), Fraction(1))
    whole = share * inner + (1 - share) * outer + share * (1 - share)
    return WorstVariance(float(whole), float(max(inner, outer)))


def _drawn(population: int, good: int, draws: int, plus: int) -> tuple[Fraction, Fraction]:
    """Return mean and variance of `plus` + the good ones among `draws` without replacement."""
    part = Fraction(good, population)
    left = Fraction(population - draws, max(population - 1, 1))
    return draws * part + plus, draws * part * (1 - part) * left


def _variance(
    chance: Fraction, first: tuple[Fraction, Fraction], second: tuple[Fraction, Fraction]
) -> Fraction:
    """Return the variance of a mixture of two laws, given by mean and variance."""
    inside = chance * first[1] + (1 - chance) * second[1]
    return inside + chance * (1 - chance) * (first[0] - second[0]) ** 2


@dataclass(frozen=True)
class RandomizedQuestion:
    """One question with its randomizer, the name of the protocol, and the reason for it."""

    question: Question
    randomizer: Randomizer
    protocol: str
    why: str

    @cached_property
    def epsilon(self) -> Fraction:
        """The loss of a respondent who answers it."""
        return self.randomizer.loss.epsilon

    @property
    def odds(self) -> str:
        """The possible messages and their odds, as the public part of the survey states them."""
        return self.randomizer.stated_odds()

    @cached_property
    def spread(self) -> WorstVariance:
        """The worst variance of its estimate, if everybody is asked."""
        return worst_variance_of(self.randomizer, self.question.coding)


MOST_SUBSET_OPTIONS = 4097  # options: all sets of 12, and no answer
MOST_HADAMARD_EPSILON = Fraction(1)
MOST_DUCHI_EPSILON = Fraction(61, 100)


def choose_protocol(question: Question, epsilon: Fraction) -> RandomizedQuestion:
    """Return a question with its randomizer within ε. Two coins cost ln 3 each, whatever ε is."""
    coding = question.coding
    if coins := two_coins_count(question):
        return _two_coins(question, coins)
    if isinstance(coding, Several) and not coding.as_set:
        bits = randomizers.BitwiseResponse.for_epsilon(epsilon, options=coding.bits)
        name = f"randomized response for each of {coding.bits} bits"
        return RandomizedQuestion(question, bits, name, "every option is a yes or no of its own")
    if isinstance(coding, WordCoding):
        words = randomizers.PrefixResponse.for_epsilon(epsilon, letters=coding.letters)
        why = "words are too many to count: frequent beginnings are found first, then what follows them"
        return RandomizedQuestion(question, words, "heavy hitters by prefixes", why)
    if isinstance(coding, NumberScale | DateScale):
        return _scale(question, coding, epsilon)
    return _shares(question, epsilon)


def _two_coins(question: Question, coins: int) -> RandomizedQuestion:
    made: Randomizer = randomizers.KaryResponse.two_coins()
    if isinstance(question.coding, Several):
        made = randomizers.BitwiseResponse(question.coding.bits, 3 * ODDS // 4)
    cost = "ln 3" if coins == 1 else f"{coins} ln 3, ln 3 for each option"
    why = f"forced: the textbook's coins, which cost exactly {cost}"
    return RandomizedQuestion(question, made, "two coins", why)


_FORCED = "forced by the survey"
# By the name in a survey file: the randomizer, and the name of the protocol for people.
_ORACLES: dict[str, tuple[Any, str]] = {
    "choice": (randomizers.KaryResponse, "randomized response over {0.options:,} options"),
    "subset": (randomizers.SubsetSelection, "subset selection, {0.chosen:,} of {0.options:,}"),
    "hadamard": (randomizers.HadamardResponse, "Hadamard response"),
    "projective": (randomizers.ProjectiveResponse, "projective-geometry response"),
    "unary": (randomizers.UnaryEncoding, "unary encoding"),
}
_SCALES: dict[str, tuple[Any, str]] = {
    "duchi": (randomizers.DuchiResponse, "Duchi's method"),
    "piecewise": (randomizers.Piecewise, "the piecewise method"),
    "hybrid": (randomizers.HybridResponse, "hybrid of Duchi and piecewise"),
    "square_wave": (randomizers.SquareWave, "square wave"),
}


def _shares(question: Question, epsilon: Fraction) -> RandomizedQuestion:
    k, protocol, why = question.inputs, question.protocol, _FORCED
    if protocol is None and k == 2:
        protocol, why = "choice", "for two options nothing has a smaller error"
    elif protocol is None and k <= MOST_SUBSET_OPTIONS:
        chosen = randomizers.SubsetSelection.for_epsilon(epsilon, options=k).chosen
        protocol = "choice" if chosen == 1 else "subset"
        why = f"the smallest error known for {k:,} options at this ε"
    elif protocol is None and epsilon <= MOST_HADAMARD_EPSILON:
        protocol, why = "hadamard", f"short messages for {k:,} options; near the best error up to ε 1"
    elif protocol is None:
        protocol, why = "projective", f"short messages for {k:,} options; near the best error above ε 1"
    maker, name = _ORACLES[protocol]
    made: Randomizer = maker.for_epsilon(epsilon, options=k)
    if protocol == "choice" and k == 2:
        name = "randomized response"
    return RandomizedQuestion(question, made, name.format(made), why)


def _scale(question: Question, coding: NumberScale | DateScale, epsilon: Fraction) -> RandomizedQuestion:
    protocol, why = question.protocol, _FORCED
    if protocol is None and question.about == "distribution":
        protocol, why = "square_wave", "the smallest error known for whole distributions"
    elif protocol is None and epsilon <= MOST_DUCHI_EPSILON:
        protocol, why = "duchi", "the smallest error known for means up to ε 0.61"
    elif protocol is None:
        protocol, why = "hybrid", "the smallest error known for means above ε 0.61"
    maker, name = _SCALES[protocol]
    made: Randomizer = maker.for_epsilon(epsilon, steps=coding.steps, none=coding.no_answer)
    return RandomizedQuestion(question, made, name, why)


FORMAT = 1
LARGEST_SURVEY = 16 << 20  # bytes that a device reads
WARNING_EPSILON = 2  # ε above which the owner is warned
EPSILON_PARTS = 10**9  # ε is stated to people and devices in these, rounded up
CROSS_TABLES = "Two answers of one respondent are never seen together: there are no cross tables."


@dataclass(frozen=True)
class Design:
    """A survey and its randomizers. `why` says why all questions are asked, or only one."""

    survey: Questionnaire
    asks_all: bool
    parts: tuple[RandomizedQuestion, ...]
    why: str

    @property
    def epsilon(self) -> Fraction:
        """The greatest loss of one respondent, whichever questions are asked."""
        return self.layout.epsilon

    @property
    def warning(self) -> str | None:
        """A warning for the owner where the coins hide little, above ε 2; else None."""
        if self.epsilon <= WARNING_EPSILON:
            return None
        two = "sets of answers" if self.asks_all and len(self.parts) > 1 else "answers"
        return (
            f"ε {epsilon_text(self.epsilon)} hides little. If two {two} seem equally likely before, a "
            f"report may make one of them up to {posterior_text(self.layout.ratio)} likely; at ε 2 that is "
            "88.1 %. Ask for less, and do not tell people that nobody can find out what they answered."
        )

    @property
    def asked(self) -> Fraction:
        """The share of respondents who are asked each question."""
        return Fraction(1) if self.asks_all else Fraction(1, len(self.parts))

    @property
    def layout(self) -> ReportLayout:
        """The places of messages in a report."""
        return ReportLayout(tuple([part.randomizer for part in self.parts]), self.asks_all)

    @property
    def report_size(self) -> int:
        """The bytes of a report, the same for all of this survey."""
        return self.layout.size

    def unpack(self, reports: NDArray[np.uint8]) -> MessagesByQuestion:
        """Return for every question the rows that answer it, and their messages.

        Raises `BadValue` if a report is impossible.
        """
        return self.layout.unpack(reports)

    def check(self, report: bytes) -> None:
        """Raise `BadValue` unless some device could have sent this report."""
        self.layout.check(report)

    def simulate(self, answers: Mapping[str, NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Simulate the reports of respondents with these answers (numbers, one array per question)."""
        names = [part.question.name for part in self.parts]
        if set(answers) != set(names):
            raise BadParameter("answers", "must be those to every question of the survey, by name")
        return self.layout.simulate([answers[name] for name in names])

    def public(self) -> dict[str, Any]:
        """Return everything that a device needs, as JSON. Nothing in it is secret."""
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
        """The SHA-256 of `public()`. Reports belong to exactly this public part."""
        return hashlib.sha256(canonical_json(self.public()).encode()).hexdigest()


def epsilon_text(epsilon: Fraction) -> str:
    """Return ε as a decimal, rounded up to whole billionths."""
    return decimal_text(Fraction(round_up(epsilon, EPSILON_PARTS), EPSILON_PARTS))


def _public(part: RandomizedQuestion) -> dict[str, Any]:
    question = part.question
    fields: dict[str, Any] = {
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
            fields["as"] = "set" if several.as_set else "bits"
        case NumberScale() as grid:
            ends = {"low": grid.low, "high": grid.high, "step": grid.step}
            fields.update({name: decimal_text(value) for name, value in ends.items()})
        case DateScale() as days:
            fields.update(low=str(days.low), high=str(days.high), step=str(days.step))
        case WordCoding() as word:
            fields["letters"] = word.letters
        case _:
            pass
    return fields


def design(survey: Questionnaire) -> Design:
    """Choose for each question the protocol with the best known variance.

    ε is split over all questions, in equal parts, or one question is asked at random with all of ε. The
    design takes the one with the smaller error, unless the survey says which.

    Args:
        survey: The questionnaire, from `load`.

    Returns:
        The design. The same questionnaire always gives the same design.

    Raises:
        BadParameter: ε is too small for the protocols.

    Example:
        >>> made = design(load("tea.toml"))
        >>> made.asks_all, len(made.digest)
        (True, 64)
    """
    why = "There is one question." if len(survey.questions) == 1 else "The survey says so: ask = all."
    asks_all = survey.ask == "all" or len(survey.questions) == 1
    split = _split(survey) if asks_all or survey.ask == "auto" else None
    if asks_all:
        if split is None:
            raise BadParameter("epsilon", "is too small for the coins of all questions together")
        return Design(survey, asks_all=True, parts=split, why=why)
    single = tuple([choose_protocol(question, survey.epsilon) for question in survey.questions])
    times = 1.0 if split is None else error_ratio(split, single)
    if survey.ask == "one":
        why = "The survey says so: ask = one."
    elif split is None:
        why = f"The coins of all questions together cost more than ε {epsilon_text(survey.epsilon)}."
    elif times > 1:
        why = f"That has the smaller error: with ε split over all it would be {times:.2f} times as large."
    else:
        why = "That has the smaller error: with one question each it would be "
        return Design(survey, asks_all=True, parts=split, why=f"{why}{1 / times:.2f} times as large.")
    return Design(survey, asks_all=False, parts=single, why=f"{why} {CROSS_TABLES}")


def error_ratio(split: Sequence[RandomizedQuestion], single: Sequence[RandomizedQuestion]) -> float:
    """Return how many times larger the errors are if all questions are asked than if one is.

    It is the geometric mean: errors of different kinds have different units, but their ratios have none.
    """
    share = Fraction(1, len(single))
    logs = [
        math.log(a.spread.population) - math.log(b.spread.when_asked(share).population)
        for a, b in zip(split, single, strict=True)
    ]
    return math.exp(math.fsum(logs) / len(logs) / 2)


def _split(survey: Questionnaire) -> tuple[RandomizedQuestion, ...] | None:
    """Split ε over all questions: two coins have a fixed cost, the others get equal parts of the rest.

    Returns None if ε is too small for the two coins.
    """
    fixed = [
        choose_protocol(question, survey.epsilon).epsilon if two_coins_count(question) else Fraction(0)
        for question in survey.questions
    ]
    left, free = survey.epsilon - sum(fixed), fixed.count(Fraction(0))
    if left < 0 or (free and left <= 0):
        return None
    share = left / free if free else Fraction(0)
    return tuple(
        [
            choose_protocol(question, cost or share)
            for question, cost in zip(survey.questions, fixed, strict=True)
        ]
    )
