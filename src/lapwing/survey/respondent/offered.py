"""A survey as a device reads it: nothing that its owner says about price or odds is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from lapwing.errors import BadValue, LapwingError
from lapwing.exact import exact
from lapwing.survey import randomizers
from lapwing.survey.questionnaire.coding import Coding, OneOf, Ranked, Several
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.questionnaire.words import Word
from lapwing.survey.randomizers.randomizer import Randomizer

ALL_ASKED = 255


@runtime_checkable
class Measured(Protocol):
    """A randomizer that knows its worst ratio exactly, as all do that come from a recipe."""

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers."""


@dataclass(frozen=True)
class Asked:
    """One question, with all that it takes to answer it."""

    name: str
    text: str
    kind: str
    coding: Coding
    recipe: dict[str, Any]
    randomizer: Randomizer

    @property
    def ratio(self) -> Fraction:
        """How many times likelier a message may be with one answer than with another: exact."""
        found = self.randomizer
        assert isinstance(found, Measured)
        return found.ratio


@dataclass(frozen=True)
class Offered:
    """A survey, checked. `price` is in billionths of ε, from the coins of the recipes alone."""

    digest: str
    title: str
    text: str
    asks_all: bool
    report_size: int
    lifetime: Fraction
    questions: tuple[Asked, ...]
    price: int

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """The report: which question (255: all), then the messages in order, filled up with zeros."""
        first = ALL_ASKED if self.asks_all else next(iter(messages))
        report = bytes([first]) + b"".join(messages[place] for place in sorted(messages))
        return report.ljust(self.report_size, b"\0")

    def parts(self, report: bytes) -> Iterator[tuple[Asked, bytes]]:
        """The questions that a report of this device answers, with their messages."""
        start = 1
        for question in self.questions if self.asks_all else [self.questions[report[0]]]:
            end = start + question.randomizer.size
            yield question, report[start:end]
            start = end


def read(public: Mapping[str, Any]) -> Offered:
    """A survey as `Design.public()` or "survey" in /survey.json has it. `BadValue` if not in order."""
    try:
        questions = tuple(question_of(each) for each in public["questions"])
        asks_all = {"all": True, "one": False}[public["ask"]]
        survey = Offered(
            digest=digest(public), title=str(public["title"]), text=str(public["text"]), asks_all=asks_all,
            report_size=int(public["report_size"]), lifetime=exact(public["lifetime"], "lifetime"),
            questions=questions, price=_price(questions, asks_all),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, LapwingError) as error:
        why = f": {error}" if isinstance(error, LapwingError) else ""
        raise BadValue(f"this survey is not in order, so it is not answered{why}") from None
    sizes = [question.randomizer.size for question in questions]
    if not sizes or survey.report_size < 1 + (sum(sizes) if asks_all else max(sizes)):
        raise BadValue("this survey is not in order: its reports cannot be as it says")
    return survey


def digest(public: Mapping[str, Any]) -> str:
    """What names a survey: SHA-256 of its public part. One changed letter makes it another survey."""
    text = json.dumps(public, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def billionths(epsilon: Fraction) -> int:
    """ε in billionths, rounded up."""
    return -(-epsilon.numerator * 10**9 // epsilon.denominator)


def _price(questions: tuple[Asked, ...], asks_all: bool) -> int:
    losses = [question.randomizer.loss.epsilon for question in questions]
    return billionths(sum(losses, Fraction(0)) if asks_all else max(losses))


def question_of(public: Mapping[str, Any]) -> Asked:
    """One question of a survey's public part."""
    recipe = dict(public["recipe"])
    randomizer = randomizers.from_recipe(recipe)
    coding = _coding(public, recipe)
    if coding.inputs != randomizer.inputs:
        raise BadValue("a question and its coins do not fit")
    return Asked(str(public["name"]), str(public["text"]), str(public["kind"]), coding, recipe, randomizer)


def _coding(public: Mapping[str, Any], recipe: Mapping[str, Any]) -> Coding:
    kind, none = public["kind"], bool(public["no_answer"])
    labels = tuple(str(label) for label in public.get("labels") or ())
    options = labels[: len(labels) - none]
    match kind:
        case "several":
            return Several(options, none, as_set=recipe["kind"] != "bits")
        case "ranking":
            return Ranked(options, none)
        case "number":
            low, high, step = (exact(public[key], key) for key in ("low", "high", "step"))
            return Grid(low, high, step, none)
        case "date":
            ends = [date.fromisoformat(public[key]) for key in ("low", "high")]
            return Days(ends[0], ends[1], int(public["step"]), none)
        case "word":
            return Word(int(public["letters"]), none)
        case "yes_no" | "choice" | "rating":
            return OneOf(options, none)
    raise BadValue("a question is of a kind that is not known here")
