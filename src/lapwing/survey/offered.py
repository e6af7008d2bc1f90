"""A survey as a device reads it: the owner's statements about price, odds or sizes are not believed.

The device uses only fields that the digest covers, and refuses a survey with an unknown field. So nothing
in a survey can mark one respondent unseen. JSON from the owner has whole numbers only: a browser would
round others, and then the two would not agree on the digest. The page does the same
(survey/pages/offered.js).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Final, NoReturn

from lapwing.canonical_json import canonical_json
from lapwing.config.values import NAME_PATTERN
from lapwing.core.exact import round_up
from lapwing.errors import BadValue, LapwingError
from lapwing.survey import randomizers
from lapwing.survey.credentials import PublicKey
from lapwing.survey.designing import EPSILON_PARTS, LARGEST_SURVEY, ReportLayout
from lapwing.survey.questionnaire import (
    NO_ANSWER,
    AnswerCoding,
    DateScale,
    NumberScale,
    OneOf,
    Ranked,
    Several,
    WordCoding,
)
from lapwing.survey.randomizers.randomizer import Randomizer

_SAFE = (1 << 53) - 1  # what a browser's numbers hold exactly
_MOST = 1 << 62


def parse_exact_json(raw: bytes) -> Any:
    """Return the value of a JSON text.

    Raises `BadValue` if it is malformed, too large, too deep, or has fractions.
    """
    if len(raw) > LARGEST_SURVEY:
        raise BadValue("a survey has at most 16 MB")
    try:
        return json.loads(raw, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        raise BadValue("this is not JSON as surveys have it") from None


def _refuse(_: str) -> NoReturn:
    raise ValueError


def exact_json(value: object) -> str:
    """Return the one text of a value: names sorted, no spaces, only ASCII.

    Raises `BadValue` if a number is not exact in a browser.
    """
    _check(value)
    return canonical_json(value)


def _check(value: object) -> None:
    match value:
        case dict():
            for name, each in value.items():
                require(isinstance(name, str), "a name in it is none")
                _check(each)
        case list():
            for each in value:
                _check(each)
        case int():
            require(is_browser_exact(value), "a number in it is not whole, or too large")
        case _:
            require(isinstance(value, str), "it has a value of no known kind")


def is_browser_exact(number: int) -> bool:
    """Return whether a browser reads a number exactly: small, or a power of two such as the 2^60 words."""
    return abs(number) <= _SAFE or (0 < number <= _MOST and number & (number - 1) == 0)


def require(condition: bool, why: str) -> None:
    """Raise `BadValue` with this reason unless the condition holds."""
    if not condition:
        raise BadValue(why)


def has_exact_fields(value: object, names: Iterable[str]) -> bool:
    """Return whether a value is a table with exactly these names."""
    return isinstance(value, Mapping) and set(value) == set(names)


def require_texts(value: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise `BadValue` unless all of these are texts."""
    require(all(isinstance(value[name], str) for name in names), "one of its texts is none")


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
class OfferedQuestion:
    """One question, with everything that a device needs to answer it."""

    name: str
    text: str
    kind: str
    coding: AnswerCoding
    randomizer: Randomizer


@dataclass(frozen=True)
class OfferedSurvey:
    """A checked survey. `price` is in billionths of ε, computed from the coins of the recipes alone."""

    digest: str
    title: str
    text: str
    layout: ReportLayout
    lifetime: Fraction
    questions: tuple[OfferedQuestion, ...]
    price: int

    @property
    def asks_all(self) -> bool:
        """True if every respondent answers all questions, not one of them."""
        return self.layout.asks_all

    def parts(self, report: bytes) -> Iterator[tuple[OfferedQuestion, bytes]]:
        """Yield the questions that a report of this device answers, with their messages."""
        for place, _, columns in self.layout.columns():
            if self.asks_all or place == report[0]:
                yield self.questions[place], report[columns]


def read_offered(public: Mapping[str, Any]) -> OfferedSurvey:
    """Read the public part of a survey, from `Design.public()` or "survey" in /survey.json.

    Raises `BadValue` if something in it is wrong.
    """
    try:
        require(has_exact_fields(public, _SURVEY), "it has other fields than a survey has")
        require_texts(public, ("name", "title", "text", "ask", "epsilon", "lifetime", "stops"))
        named = survey_digest(public)
        require(_is_whole(public["format"]) and public["format"] == 1, "it is of a newer kind")
        require(public["ask"] in ("all", "one"), "it asks neither all questions nor one")
        listed = public["questions"]
        require(isinstance(listed, list) and 1 <= len(listed) <= MOST_QUESTIONS,
                "it has no questions, or too many")  # fmt: skip
        questions = tuple([_checked_question(each) for each in listed])
        require(len({each.name for each in questions}) == len(questions), "two questions have one name")
        layout = ReportLayout(tuple([each.randomizer for each in questions]), public["ask"] == "all")
        require(_is_whole(public["report_size"]) and public["report_size"] == layout.size,
                "its reports cannot be of the size that it says")  # fmt: skip
        require(_EPSILON.fullmatch(public["lifetime"]) is not None, "its lifetime is not a number")
        price, lifetime = billionths(layout.epsilon), Fraction(public["lifetime"])
        return OfferedSurvey(named, public["title"], public["text"], layout, lifetime, questions, price)
    except (LapwingError, RecursionError, MemoryError, UnicodeError) as error:
        why = f": {error}" if isinstance(error, LapwingError) else ""
        raise BadValue(f"this survey is not in order, so it is not answered{why}") from None


def survey_digest(public: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a survey's public part. One changed letter makes it another survey."""
    return hashlib.sha256(exact_json(public).encode()).hexdigest()


def fingerprint(digest: str, key: PublicKey) -> str:
    """Return 128 bits of a survey and its signing key to compare by eye: 8 groups of 4 digits.

    They are the first half of SHA-256 of the digest's bytes, then n, then e, as `PublicKey.to_json` writes
    them. A respondent who was given a survey or a key of their own sees other digits than everybody else.
    """
    written = key.to_json()
    whole = hashlib.sha256(bytes.fromhex(digest + written["n"] + written["e"])).hexdigest()
    return grouped_digits(whole[:32])


def grouped_digits(digits: str) -> str:
    """Return digits in groups of four."""
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def billionths(epsilon: Fraction) -> int:
    """Return ε in billionths, rounded up."""
    return round_up(epsilon, EPSILON_PARTS)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_question(public: object) -> OfferedQuestion:
    """Return one question. Raise `BadValue` unless it has exactly the fields of its kind, all correct."""
    kind = public.get("kind") if isinstance(public, Mapping) else None
    if not isinstance(public, Mapping) or not isinstance(kind, str) or kind not in _KINDS:
        raise BadValue("a question is of a kind that is not known here")
    require(
        has_exact_fields(public, (*_QUESTION, *_KINDS[kind][0])),
        "a question has other fields than its kind",
    )
    require_texts(public, ("name", "text", "about", "epsilon", "protocol", "odds"))
    require(NAME_PATTERN.fullmatch(public["name"]) is not None, "a question has an impossible name")
    _check_labels(public)
    asked = offered_question(public)
    if kind == "several":
        wanted = "bits" if asked.randomizer.kind == "bits" else "set"
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


def offered_question(public: Mapping[str, Any]) -> OfferedQuestion:
    """Return one question of a survey's public part, with its coding and its randomizer."""
    randomizer = randomizers.from_recipe(public["recipe"])
    coding = _coding(public, as_set=randomizer.kind != "bits")
    require(coding.inputs == randomizer.inputs, "a question and its coins do not fit")
    return OfferedQuestion(public["name"], public["text"], public["kind"], coding, randomizer)


def _coding(public: Mapping[str, Any], *, as_set: bool) -> AnswerCoding:
    kind, none = public["kind"], public["no_answer"]
    labels = tuple(public["labels"])
    options = labels[: len(labels) - none]
    match kind:
        case "several":
            return Several(options, none, as_set=as_set)
        case "ranking":
            return Ranked(options, none)
        case "number":
            return _grid(public, none)
        case "date":
            return _days(public, none)
        case "word":
            letters = public["letters"]
            require(_is_whole(letters) and 1 <= letters <= MOST_LETTERS, "a word has impossible letters")
            return WordCoding(letters, none)
    return OneOf(options, none)


def _grid(public: Mapping[str, Any], none: bool) -> NumberScale:
    require_texts(public, _RANGE)
    require(all(_DECIMAL.fullmatch(public[key]) for key in _RANGE), "the range of a question is impossible")
    low, high, step = (Fraction(public[key]) for key in _RANGE)
    require(step > 0 and low < high, "the range of a question is impossible")
    require((high - low) % step == 0, "the steps of a question do not fit its range")
    require((high - low) / step <= MOST_STEPS, "a question has too many steps")
    return NumberScale(low, high, step, none)


def _days(public: Mapping[str, Any], none: bool) -> DateScale:
    require_texts(public, _RANGE)
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
    return DateScale(low, high, step, none)
