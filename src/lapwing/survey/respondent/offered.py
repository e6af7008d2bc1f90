"""A survey as a device reads it: nothing that its owner says about price, odds or sizes is believed.

What is used is what the digest names, and there is no field in a survey that is not known here: nothing in
it can mark one respondent unseen. The page does the same (server/pages/offered.js).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Final

from lapwing.errors import BadValue, LapwingError
from lapwing.survey import randomizers
from lapwing.survey.credentials import PublicKey
from lapwing.survey.planning.odds import worst_ratio
from lapwing.survey.questionnaire.coding import NO_ANSWER, Coding, OneOf, Ranked, Several
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.questionnaire.words import Word
from lapwing.survey.randomizers.randomizer import Randomizer
from lapwing.survey.respondent.exactly import are_texts, canonical, has_exactly, require
from lapwing.toml.section import NAME

ALL_ASKED = 255
MOST_QUESTIONS = 100
MOST_IN_SETS = 12
MOST_STEPS = 1 << 16
MOST_LETTERS = 12
_SURVEY = (
    "format", "name", "title", "text", "ask", "epsilon", "lifetime", "stops", "report_size", "questions",
)  # fmt: skip
_QUESTION = (
    "name", "text", "kind", "about", "labels", "no_answer", "inputs", "epsilon", "protocol", "odds", "size",
    "recipe",
)  # fmt: skip
_RANGE = ("low", "high", "step")
# What a kind has besides, and the least and most options there are to choose from.
_KINDS: Final[Mapping[str, tuple[tuple[str, ...], int, int]]] = {
    "yes_no": ((), 2, 2),
    "choice": ((), 2, 1 << 20),
    "several": (("as",), 2, 60),
    "rating": ((), 2, 100),
    "ranking": ((), 2, 6),
    "number": (_RANGE, 0, 0),
    "date": (_RANGE, 0, 0),
    "word": (("letters",), 0, 0),
}
_EPSILON = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_DECIMAL = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,18})?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_STEP = re.compile(r"[1-9][0-9]{0,4}")


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
        return worst_ratio([self.randomizer], asks_all=True)


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

    @property
    def ratio(self) -> Fraction:
        """How many times likelier a whole report may be with some answers than with others: exact."""
        return worst_ratio([each.randomizer for each in self.questions], asks_all=self.asks_all)

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
        require(has_exactly(public, _SURVEY), "it has other fields than a survey has")
        are_texts(public, ("name", "title", "text", "ask", "epsilon", "lifetime", "stops"))
        named = digest(public)
        require(_is_whole(public["format"]) and public["format"] == 1, "it is of a newer kind")
        require(public["ask"] in ("all", "one"), "it asks neither all questions nor one")
        listed = public["questions"]
        require(isinstance(listed, list) and 1 <= len(listed) <= MOST_QUESTIONS,
                "it has no questions, or too many")  # fmt: skip
        questions = tuple([_checked(each) for each in listed])
        require(len({each.name for each in questions}) == len(questions), "two questions have one name")
        asks_all, sizes = public["ask"] == "all", [each.randomizer.size for each in questions]
        wanted = 1 + (sum(sizes) if asks_all else max(sizes))
        require(_is_whole(public["report_size"]) and public["report_size"] == wanted,
                "its reports cannot be of the size that it says")  # fmt: skip
        require(_EPSILON.fullmatch(public["lifetime"]) is not None, "its lifetime is not a number")
        return Offered(
            digest=named, title=public["title"], text=public["text"], asks_all=asks_all, report_size=wanted,
            lifetime=Fraction(public["lifetime"]), questions=questions, price=_price(questions, asks_all),
        )  # fmt: skip
    except (LapwingError, RecursionError, MemoryError, UnicodeError) as error:
        why = f": {error}" if isinstance(error, LapwingError) else ""
        raise BadValue(f"this survey is not in order, so it is not answered{why}") from None


def digest(public: Mapping[str, Any]) -> str:
    """What names a survey: SHA-256 of its public part. One changed letter makes it another survey."""
    return hashlib.sha256(canonical(public).encode()).hexdigest()


def fingerprint(digest: str, key: PublicKey) -> str:
    """A survey and the key that signs for it, in 128 bits to compare by eye: 8 groups of 4 digits.

    The first half of SHA-256 of the digest's bytes, then n, then e, as `PublicKey.to_json` writes them. Who
    is given a survey or a key of their own sees another one than everybody else.
    """
    written = key.to_json()
    whole = hashlib.sha256(bytes.fromhex(digest + written["n"] + written["e"])).hexdigest()
    return grouped(whole[:32])


def grouped(digits: str) -> str:
    """Digits in groups of four."""
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def billionths(epsilon: Fraction) -> int:
    """ε in billionths, rounded up."""
    return -(-epsilon.numerator * 10**9 // epsilon.denominator)


def _price(questions: tuple[Asked, ...], asks_all: bool) -> int:
    losses = [question.randomizer.loss.epsilon for question in questions]
    return billionths(sum(losses, Fraction(0)) if asks_all else max(losses))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(public: object) -> Asked:
    """One question, with no other fields than its kind has, and all of them right."""
    kind = public.get("kind") if isinstance(public, Mapping) else None
    if not isinstance(public, Mapping) or not isinstance(kind, str) or kind not in _KINDS:
        raise BadValue("a question is of a kind that is not known here")
    require(
        has_exactly(public, (*_QUESTION, *_KINDS[kind][0])), "a question has other fields than its kind"
    )
    are_texts(public, ("name", "text", "about", "epsilon", "protocol", "odds"))
    require(NAME.fullmatch(public["name"]) is not None, "a question has an impossible name")
    _check_labels(public)
    asked = question_of(public)
    if kind == "several":
        wanted = "bits" if asked.recipe["kind"] == "bits" else "set"
        require(public["as"] == wanted, "a recipe does not fit")
    counts = (public["inputs"], public["size"])
    require(all(map(_is_whole, counts)) and counts == (asked.randomizer.inputs, asked.randomizer.size),
            "a recipe does not fit its question")  # fmt: skip
    return asked


def _check_labels(public: Mapping[str, Any]) -> None:
    labels, none = public["labels"], public["no_answer"]
    _, least, most = _KINDS[public["kind"]]
    fine = isinstance(labels, list) and all(isinstance(label, str) and label for label in labels)
    require(fine and isinstance(none, bool), "the options of a question are not texts")
    require(len(set(labels)) == len(labels), "an option of a question comes twice")
    if not most:
        require(not labels, "a question has options that it cannot have")
        return
    require((NO_ANSWER in labels) == none and (not none or labels[-1] == NO_ANSWER),
            "a question is not clear about no answer")  # fmt: skip
    most = MOST_IN_SETS if public.get("as") == "set" else most
    require(least <= len(labels) - none <= most, "a question has too few or too many options")


def question_of(public: Mapping[str, Any]) -> Asked:
    """One question of a survey's public part: what it takes to answer it, and to say the odds."""
    randomizer = randomizers.from_recipe(public["recipe"])
    recipe = dict(public["recipe"])
    coding = _coding(public, recipe)
    require(coding.inputs == randomizer.inputs, "a question and its coins do not fit")
    return Asked(public["name"], public["text"], public["kind"], coding, recipe, randomizer)


def _coding(public: Mapping[str, Any], recipe: Mapping[str, Any]) -> Coding:
    kind, none = public["kind"], public["no_answer"]
    labels = tuple(public["labels"])
    options = labels[: len(labels) - none]
    match kind:
        case "several":
            return Several(options, none, as_set=recipe["kind"] != "bits")
        case "ranking":
            return Ranked(options, none)
        case "number":
            return _grid(public, none)
        case "date":
            return _days(public, none)
        case "word":
            letters = public["letters"]
            require(_is_whole(letters) and 1 <= letters <= MOST_LETTERS, "a word has impossible letters")
            return Word(letters, none)
    return OneOf(options, none)


def _grid(public: Mapping[str, Any], none: bool) -> Grid:
    are_texts(public, _RANGE)
    require(all(_DECIMAL.fullmatch(public[key]) for key in _RANGE), "the range of a question is impossible")
    low, high, step = (Fraction(public[key]) for key in _RANGE)
    require(step > 0 and low < high, "the range of a question is impossible")
    require((high - low) % step == 0, "the steps of a question do not fit its range")
    require((high - low) / step <= MOST_STEPS, "a question has too many steps")
    return Grid(low, high, step, none)


def _days(public: Mapping[str, Any], none: bool) -> Days:
    are_texts(public, _RANGE)
    ends = [public["low"], public["high"]]
    written = all(_DAY.fullmatch(end) for end in ends) and _STEP.fullmatch(public["step"])
    require(bool(written), "the range of a question is impossible")
    try:
        low, high = (date.fromisoformat(end) for end in ends)
    except ValueError:
        raise BadValue("the range of a question is impossible") from None
    step = int(public["step"])
    require(low < high and step <= (high - low).days, "the range of a question is impossible")
    require((high - low).days // step <= MOST_STEPS, "a question has too many steps")
    return Days(low, high, step, none)
