"""A survey: its questions, what a respondent may lose by all of them together, and when it ends.

How an answer becomes a whole number, 0 .. inputs - 1: the same in Python and in the browser.

| kind | the number of an answer |
|---|---|
| one of a few (`OneOf`) | the position of its label; "no answer" is the last label |
| several, bit by bit | the sum of 2^j over the chosen options j; "no answer" is one more option |
| several, as a set | the same sum; "no answer" is 2^options |
| an order (`Ranked`) | its place in the dictionary of all orders; "no answer" comes after them all |
| a number or a date | how many steps it lies above `low`; "no answer" is one more than `high` |
| a word | its letters as digits to the base 32, a = 1, filled up with 0 on the right; "no answer" is 0 |

What is no possible answer raises `BadValue`, which never shows the answer.

Numbers and dates, numbered by steps from the lowest.

Words, numbered by their letters: five bits each, the first letter highest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Literal, Protocol

from lapwing.config.section import did_you_mean
from lapwing.core.exact import exact
from lapwing.errors import BadParameter, BadValue

NO_ANSWER = "no answer"


class AnswerCoding(Protocol):
    """The possible answers to a question, numbered."""

    @property
    def no_answer(self) -> bool:
        """Whether not answering is one of them."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What people choose from, "no answer" last; empty where they write something themselves."""

    @property
    def inputs(self) -> int:
        """Answers are 0 .. inputs - 1."""

    def code(self, answer: object) -> int:
        """The number of an answer; None stands for no answer."""

    def said(self, code: int) -> str:
        """An answer in words, from its number."""


def is_no_answer(answer: object) -> bool:
    """Whether an answer is none."""
    return answer is None or (isinstance(answer, str) and answer == NO_ANSWER)


def require_no_answer_allowed(coding: AnswerCoding) -> None:
    """Raise where a question must be answered."""
    if not coding.no_answer:
        raise BadValue("this question has to be answered")


def checked_code(coding: AnswerCoding, code: int) -> int:
    """The number of a possible answer."""
    if not 0 <= code < coding.inputs:
        raise BadValue(f"the number of an answer must lie in 0 .. {coding.inputs - 1}")
    return int(code)


def _with_none(options: tuple[str, ...], no_answer: bool) -> tuple[str, ...]:
    return (*options, NO_ANSWER) if no_answer else options


def _option_list(options: Sequence[str]) -> str:
    if len(options) > 12:
        return f"one of the {len(options):,} options"
    return f"one of: {', '.join(options)}"


@dataclass(frozen=True)
class OneOf:
    """One of a list of options."""

    options: tuple[str, ...]
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return _with_none(self.options, self.no_answer)

    @property
    def inputs(self) -> int:
        return len(self.options) + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a label. A number stands for its digits, true for "yes" and false for "no"."""
        if is_no_answer(answer):
            require_no_answer_allowed(self)
            return len(self.options)
        if isinstance(answer, bool):
            answer = "yes" if answer else "no"
        try:
            return self.options.index(str(answer))
        except ValueError:
            raise BadValue(f"the answer must be {_option_list(self.options)}") from None

    def said(self, code: int) -> str:
        return self.labels[checked_code(self, code)]


@dataclass(frozen=True)
class Several:
    """Any of a list of options: each one a bit of its own, or the whole set as one answer."""

    options: tuple[str, ...]
    no_answer: bool
    as_set: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return _with_none(self.options, self.no_answer)

    @property
    def bits(self) -> int:
        """How many bits are randomized one by one."""
        return len(self.options) + self.no_answer

    @property
    def inputs(self) -> int:
        return (1 << len(self.options)) + self.no_answer if self.as_set else 1 << self.bits

    def code(self, answer: object) -> int:
        """`answer` is a list or set of labels; an empty one says that none of them holds."""
        if is_no_answer(answer):
            require_no_answer_allowed(self)
            return 1 << len(self.options)
        chosen = _label_places(answer, self.options)
        return sum(1 << place for place in chosen)

    def said(self, code: int) -> str:
        code = checked_code(self, code)
        chosen = [label for place, label in enumerate(self.options) if code >> place & 1]
        if code >> len(self.options):
            chosen.append(NO_ANSWER)
        return " + ".join(chosen) or "none of them"


@dataclass(frozen=True)
class Ranked:
    """All options in an order, the first one first."""

    options: tuple[str, ...]
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return _with_none(self.options, self.no_answer)

    @property
    def inputs(self) -> int:
        return math.factorial(len(self.options)) + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a list of all labels."""
        if is_no_answer(answer):
            require_no_answer_allowed(self)
            return math.factorial(len(self.options))
        order = _label_places(answer, self.options)
        if len(order) != len(self.options) or isinstance(answer, AbstractSet):
            raise BadValue("the answer must be a list of all options, the first one first")
        number, left = 0, sorted(order)
        for place in order:
            number = number * len(left) + left.index(place)
            left.remove(place)
        return number

    def order(self, code: int) -> tuple[int, ...]:
        """The options in the order of a number; empty for no answer."""
        code = checked_code(self, code)
        if code == math.factorial(len(self.options)):
            return ()
        digits = []
        for size in range(1, len(self.options) + 1):
            code, digit = divmod(code, size)
            digits.append(digit)
        left = list(range(len(self.options)))
        return tuple([left.pop(digit) for digit in reversed(digits)])

    def said(self, code: int) -> str:
        return " > ".join([self.options[place] for place in self.order(code)]) or NO_ANSWER


def _label_places(answer: object, options: tuple[str, ...]) -> list[int]:
    """The places of labels, each at most once."""
    if isinstance(answer, str) or not isinstance(answer, Sequence | AbstractSet):
        raise BadValue("the answer must be a list of options")
    try:
        places = [options.index(str(label)) for label in answer]
    except ValueError:
        raise BadValue(f"every option of the answer must be {_option_list(options)}") from None
    if len(set(places)) != len(places):
        raise BadValue("an option of the answer comes twice")
    return places


QuestionKind = Literal["yes_no", "choice", "several", "rating", "ranking", "number", "date", "word"]
EstimationTarget = Literal["shares", "mean", "distribution", "words"]
AskMode = Literal["auto", "all", "one"]


@dataclass(frozen=True)
class Question:
    """One question. `coding` numbers its possible answers; `about` is what will be estimated."""

    name: str
    text: str
    kind: QuestionKind
    coding: AnswerCoding
    about: EstimationTarget
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
class Questionnaire:
    """What a survey file says. It is made by `load`, which checks it."""

    path: Path
    name: str
    title: str
    text: str
    epsilon: Fraction  # of one respondent, for all questions together
    ask: AskMode
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


@dataclass(frozen=True)
class NumberScale:
    """A number from low to high in steps."""

    low: Fraction
    high: Fraction
    step: Fraction
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def steps(self) -> int:
        return int((self.high - self.low) / self.step)

    @property
    def inputs(self) -> int:
        return self.steps + 1 + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a number, or its text. It must lie on a step."""
        if is_no_answer(answer):
            require_no_answer_allowed(self)
            return self.steps + 1
        try:
            number = exact(answer, "answer")  # type: ignore[arg-type]
        except BadParameter:
            raise BadValue("the answer must be a number") from None
        steps = (number - self.low) / self.step
        if not 0 <= steps <= self.steps:
            low, high = decimal_text(self.low), decimal_text(self.high)
            raise BadValue(f"the answer must lie between {low} and {high}")
        if steps.denominator != 1:
            raise BadValue(f"the answer must lie on a step of {decimal_text(self.step)}")
        return int(steps)

    def value(self, code: int) -> Fraction | None:
        """The number that a code stands for; None for no answer."""
        code = checked_code(self, code)
        return None if code > self.steps else self.low + code * self.step

    def said(self, code: int) -> str:
        value = self.value(code)
        return NO_ANSWER if value is None else decimal_text(value)


@dataclass(frozen=True)
class DateScale:
    """A date from low to high, in steps of days."""

    low: date
    high: date
    step: int
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def steps(self) -> int:
        return (self.high - self.low).days // self.step

    @property
    def inputs(self) -> int:
        return self.steps + 1 + self.no_answer

    def code(self, answer: object) -> int:
        """`answer` is a date, or its text such as 2026-05-01. Days between steps count to the earlier."""
        if is_no_answer(answer):
            require_no_answer_allowed(self)
            return self.steps + 1
        day = _date_of(answer)
        if not self.low <= day <= self.high:
            raise BadValue(f"the answer must lie between {self.low} and {self.high}")
        return (day - self.low).days // self.step

    def value(self, code: int) -> date | None:
        """The day that a code stands for; None for no answer."""
        code = checked_code(self, code)
        return None if code > self.steps else self.low + timedelta(days=code * self.step)

    def said(self, code: int) -> str:
        return str(self.value(code) or NO_ANSWER)


def decimal_text(value: Fraction) -> str:
    """A number as people write it, exactly if it has an end: 0.25, not 1/4."""
    places = 0
    while (value * 10**places).denominator != 1 and places < 18:
        places += 1
    digits = round(value * 10**places)
    if not places:
        return str(digits)
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    return f"{sign}{whole[:-places]}.{whole[-places:]}"


def _date_of(answer: object) -> date:
    if isinstance(answer, date) and not isinstance(answer, datetime):
        return answer
    try:
        return date.fromisoformat(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadValue("the answer must be a date such as 2026-05-01") from None


ALPHABET = "\0abcdefghijklmnopqrstuvwxyz -'"  # a letter's position is its number; 0 is the end of a word
LETTER_BITS = 5


@dataclass(frozen=True)
class WordCoding:
    """A word of at most so many letters: a-z, space, hyphen, apostrophe; capitals do not count."""

    letters: int
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def inputs(self) -> int:
        return 1 << LETTER_BITS * self.letters

    def code(self, answer: object) -> int:
        """`answer` is the word. An empty one is no answer."""
        if is_no_answer(answer) or answer == "":
            require_no_answer_allowed(self)
            return 0
        word = " ".join(answer.lower().split()) if isinstance(answer, str) else ""
        if not word or any(letter not in ALPHABET[1:] for letter in word):
            raise BadValue("the answer must be a word of the letters a-z, space, hyphen and apostrophe")
        if len(word) > self.letters:
            raise BadValue(f"the answer must have at most {self.letters} letters: write the first ones")
        return self.number(word) << LETTER_BITS * (self.letters - len(word))

    @staticmethod
    def number(prefix: str) -> int:
        """The first letters of words, as a number."""
        number = 0
        for letter in prefix:
            number = number << LETTER_BITS | ALPHABET.index(letter)
        return number

    def said(self, code: int) -> str:
        return spell(checked_code(self, code), self.letters) or NO_ANSWER


def spell(number: int, letters: int) -> str:
    """The word, or the first letters of words, that a number of so many letters stands for.

    Numbers that no word has (a letter after the end, or beyond the alphabet) show a ? there.
    """
    places = [number >> LETTER_BITS * (letters - 1 - k) & 31 for k in range(letters)]
    text = "".join([ALPHABET[place] if place < len(ALPHABET) else "?" for place in places]).rstrip("\0")
    return text.replace("\0", "?")
