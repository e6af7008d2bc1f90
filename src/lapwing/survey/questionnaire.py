"""A questionnaire: its questions, the ε of one respondent for all of them together, and when it ends.

A coding turns every answer into a whole number, 0 .. inputs - 1, the same in Python and in the browser.

| kind | the number of an answer |
|---|---|
| one of a few (`OneOf`) | the position of its label; "no answer" is the last label |
| several, bit by bit | the sum of 2^j over the chosen options j; "no answer" is one more option |
| several, as a set | the same sum; "no answer" is 2^options |
| an order (`Ranked`) | its place in the dictionary of all orders; "no answer" comes after them all |
| a number or a date | how many steps it lies above `low`; "no answer" is one more than `high` |
| a word | its letters as digits to the base 32, a = 1, filled up with 0 on the right; "no answer" is 0 |

An impossible answer raises `BadValue`. The error never shows the answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Literal

from lapwing.config.values import did_you_mean
from lapwing.core.exact import exact, log_up
from lapwing.errors import BadParameter, BadValue

QuestionKind = Literal["yes_no", "choice", "several", "rating", "ranking", "number", "date", "word"]
EstimationTarget = Literal["shares", "mean", "distribution", "words"]
AskMode = Literal["auto", "all", "one"]
NO_ANSWER = "no answer"
ALPHABET = "\0abcdefghijklmnopqrstuvwxyz -'"  # a letter's position is its number; 0 is the end of a word
LETTER_BITS = 5
MOST_LISTED_OPTIONS = 12  # in an error message
MOST_SET_OPTIONS = 12
TWO_COINS = "two_coins"
LN_3 = log_up(3)


class AnswerCoding(ABC):
    """The possible answers to a question, as numbers. `no_answer` says whether "no answer" is one."""

    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels to choose from, "no answer" last; empty where people write the answer themselves."""
        return ()

    @property
    def inputs(self) -> int:
        """The number of possible answers: they are 0 .. inputs - 1, and "no answer" comes last."""
        return self.no_answer_code + self.no_answer

    @property
    @abstractmethod
    def no_answer_code(self) -> int:
        """The number of "no answer", if it is possible."""

    @abstractmethod
    def _code(self, answer: object) -> int:
        """Return the number of an answer that is not "no answer"."""

    @abstractmethod
    def _text(self, code: int) -> str:
        """Return the answer of a possible number in words."""

    def code(self, answer: object) -> int:
        """Return the number of an answer; None stands for "no answer".

        Raises `BadValue` if the answer is impossible.
        """
        if not _is_no_answer(answer):
            return self._code(answer)
        if not self.no_answer:
            raise BadValue("this question has to be answered")
        return self.no_answer_code

    def text_of(self, code: int) -> str:
        """Return the answer of a number in words. Raise `BadValue` if there is no such number."""
        return self._text(self._checked(code))

    def _checked(self, code: int) -> int:
        if not 0 <= code < self.inputs:
            raise BadValue(f"the number of an answer must lie in 0 .. {self.inputs - 1}")
        return int(code)


def _is_no_answer(answer: object) -> bool:
    return answer is None or (isinstance(answer, str) and answer == NO_ANSWER)


@dataclass(frozen=True)
class _OptionCoding(AnswerCoding):
    """A coding of answers that are chosen from a list of options."""

    options: tuple[str, ...]
    no_answer: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The options, and "no answer" last where it is possible."""
        return (*self.options, NO_ANSWER) if self.no_answer else self.options

    def _option_list(self) -> str:
        if len(self.options) > MOST_LISTED_OPTIONS:
            return f"one of the {len(self.options):,} options"
        return f"one of: {', '.join(self.options)}"

    def _places(self, answer: object) -> list[int]:
        """Return the places of labels, each at most once."""
        if isinstance(answer, str) or not isinstance(answer, Sequence | AbstractSet):
            raise BadValue("the answer must be a list of options")
        try:
            places = [self.options.index(str(label)) for label in answer]
        except ValueError:
            raise BadValue(f"every option of the answer must be {self._option_list()}") from None
        if len(set(places)) != len(places):
            raise BadValue("an option of the answer comes twice")
        return places


class OneOf(_OptionCoding):
    """One of a list of options. A number stands for its digits, true for "yes" and false for "no"."""

    @property
    def no_answer_code(self) -> int:
        """The number of "no answer"."""
        return len(self.options)

    def _code(self, answer: object) -> int:
        if isinstance(answer, bool):
            answer = "yes" if answer else "no"
        try:
            return self.options.index(str(answer))
        except ValueError:
            raise BadValue(f"the answer must be {self._option_list()}") from None

    def _text(self, code: int) -> str:
        return self.labels[code]


@dataclass(frozen=True)
class Several(_OptionCoding):
    """Any number of options: each one a bit of its own, or the whole set as one answer.

    An answer is a list or set of labels. An empty one says that none of the options holds.
    """

    as_set: bool

    @property
    def bits(self) -> int:
        """The number of bits that are randomized one by one."""
        return len(self.options) + self.no_answer

    @property
    def inputs(self) -> int:
        """The number of possible answers. Bit by bit, "no answer" may be ticked beside options."""
        return super().inputs if self.as_set else 1 << self.bits

    @property
    def no_answer_code(self) -> int:
        """The number of "no answer"."""
        return 1 << len(self.options)

    def _code(self, answer: object) -> int:
        return sum(1 << place for place in self._places(answer))

    def _text(self, code: int) -> str:
        chosen = [label for place, label in enumerate(self.options) if code >> place & 1]
        if code >> len(self.options):
            chosen.append(NO_ANSWER)
        return " + ".join(chosen) or "none of them"


class Ranked(_OptionCoding):
    """All options in an order, the first one first. An answer is a list of all labels."""

    @property
    def no_answer_code(self) -> int:
        """The number of "no answer"."""
        return math.factorial(len(self.options))

    def _code(self, answer: object) -> int:
        order = self._places(answer)
        if len(order) != len(self.options) or isinstance(answer, AbstractSet):
            raise BadValue("the answer must be a list of all options, the first one first")
        number, left = 0, sorted(order)
        for place in order:
            number = number * len(left) + left.index(place)
            left.remove(place)
        return number

    def order(self, code: int) -> tuple[int, ...]:
        """Return the options in the order of a number; empty for "no answer"."""
        code = self._checked(code)
        if code == self.no_answer_code:
            return ()
        digits = []
        for size in range(1, len(self.options) + 1):
            code, digit = divmod(code, size)
            digits.append(digit)
        left = list(range(len(self.options)))
        return tuple([left.pop(digit) for digit in reversed(digits)])

    def _text(self, code: int) -> str:
        return " > ".join([self.options[place] for place in self.order(code)]) or NO_ANSWER


class _SteppedCoding(AnswerCoding):
    """A coding of answers that lie on steps from the lowest one."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps from the lowest to the highest answer."""

    @property
    def no_answer_code(self) -> int:
        """The number of "no answer"."""
        return self.steps + 1


@dataclass(frozen=True)
class NumberScale(_SteppedCoding):
    """A number from low to high in steps. An answer is a number or its text, and lies on a step."""

    low: Fraction
    high: Fraction
    step: Fraction
    no_answer: bool

    @property
    def steps(self) -> int:
        """The number of steps from the lowest to the highest answer."""
        return int((self.high - self.low) / self.step)

    def _code(self, answer: object) -> int:
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

    def _text(self, code: int) -> str:
        return NO_ANSWER if code > self.steps else decimal_text(self.low + code * self.step)


@dataclass(frozen=True)
class DateScale(_SteppedCoding):
    """A date from low to high, in steps of days. A day between two steps counts to the earlier one.

    An answer is a date or its text, such as 2026-05-01.
    """

    low: date
    high: date
    step: int
    no_answer: bool

    @property
    def steps(self) -> int:
        """The number of steps from the lowest to the highest answer."""
        return (self.high - self.low).days // self.step

    def _code(self, answer: object) -> int:
        if not isinstance(answer, date) or isinstance(answer, datetime):
            try:
                answer = date.fromisoformat(answer)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise BadValue("the answer must be a date such as 2026-05-01") from None
        if not self.low <= answer <= self.high:
            raise BadValue(f"the answer must lie between {self.low} and {self.high}")
        return (answer - self.low).days // self.step

    def _text(self, code: int) -> str:
        return NO_ANSWER if code > self.steps else str(self.low + timedelta(days=code * self.step))


def decimal_text(value: Fraction) -> str:
    """Return a number as a decimal, exactly if it has at most 18 places: 0.25, not 1/4."""
    places = 0
    while (value * 10**places).denominator != 1 and places < 18:
        places += 1
    digits = round(value * 10**places)
    if not places:
        return str(digits)
    sign, whole = ("-" if digits < 0 else ""), str(abs(digits)).rjust(places + 1, "0")
    return f"{sign}{whole[:-places]}.{whole[-places:]}"


@dataclass(frozen=True)
class WordCoding(AnswerCoding):
    """A word of at most `letters` letters: a-z, space, hyphen, apostrophe; capitals do not count.

    Its number has five bits for each letter, the first letter highest. An empty word is "no answer".
    """

    letters: int
    no_answer: bool

    @property
    def inputs(self) -> int:
        """The number of possible answers."""
        return 1 << LETTER_BITS * self.letters

    @property
    def no_answer_code(self) -> int:
        """The number of "no answer"."""
        return 0

    def code(self, answer: object) -> int:
        """Return the number of a word. Raise `BadValue` if it is not a possible word."""
        return super().code(answer or None if isinstance(answer, str) else answer)

    def _code(self, answer: object) -> int:
        word = " ".join(answer.lower().split()) if isinstance(answer, str) else ""
        if not word or any(letter not in ALPHABET[1:] for letter in word):
            raise BadValue("the answer must be a word of the letters a-z, space, hyphen and apostrophe")
        if len(word) > self.letters:
            raise BadValue(f"the answer must have at most {self.letters} letters: write the first ones")
        return self.number(word) << LETTER_BITS * (self.letters - len(word))

    @staticmethod
    def number(prefix: str) -> int:
        """Return the first letters of words as a number."""
        number = 0
        for letter in prefix:
            number = number << LETTER_BITS | ALPHABET.index(letter)
        return number

    def _text(self, code: int) -> str:
        return spell(code, self.letters) or NO_ANSWER


def spell(number: int, letters: int) -> str:
    """Return the word, or the first letters of words, of a number with `letters` letters.

    A number that no word has (a letter after the end, or beyond the alphabet) shows a ? there.
    """
    places = [number >> LETTER_BITS * (letters - 1 - k) & 31 for k in range(letters)]
    text = "".join([ALPHABET[place] if place < len(ALPHABET) else "?" for place in places]).rstrip("\0")
    return text.replace("\0", "?")


@dataclass(frozen=True)
class Question:
    """One question. `coding` numbers its possible answers; `about` is the quantity to estimate."""

    name: str
    text: str
    kind: QuestionKind
    coding: AnswerCoding
    about: EstimationTarget
    protocol: str | None = None  # forced by the owner; None: the best one known

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels to choose from, "no answer" last; empty for numbers, dates and words."""
        return self.coding.labels

    @property
    def inputs(self) -> int:
        """The number of possible answers: they are 0 .. inputs - 1."""
        return self.coding.inputs

    @property
    def no_answer(self) -> bool:
        """True if "no answer" is one of the answers."""
        return self.coding.no_answer

    @property
    def counts_options(self) -> bool:
        """True if each label has a share of its own: one of a list, or several bit by bit."""
        coding = self.coding
        return isinstance(coding, OneOf) or (isinstance(coding, Several) and not coding.as_set)

    def code(self, answer: object) -> int:
        """Return the number of an answer; None is "no answer". Raise `BadValue` if it is impossible."""
        return self.coding.code(answer)


def two_coins_count(question: Question) -> int:
    """Return how often a respondent draws the textbook's two coins; 0 for other protocols."""
    if question.protocol != TWO_COINS:
        return 0
    return question.coding.bits if isinstance(question.coding, Several) else 1


def two_coins_cost_text(coins: int) -> str:
    """Return the ε of `coins` draws of the two coins: "3 ln 3 = 3.2959"."""
    times = f"{coins} " if coins > 1 else ""
    return f"{times}ln 3 = {coins * float(LN_3):.4f}"


@dataclass(frozen=True)
class Questionnaire:
    """The content of a survey file. `load` makes and checks it."""

    path: Path
    name: str
    title: str
    text: str
    epsilon: Fraction  # of one respondent, for all questions together
    ask: AskMode
    questions: tuple[Question, ...]
    stop_after: int | None  # reports
    until: date | None  # the last day, UTC
    honest: int | None  # reports that are believed to be honest, for the shuffled ε
    shuffled: bool
    lifetime: Fraction  # the ε that a device may send over all surveys
    ledger: str
    ledger_keys: str
    ledger_anchor: str
    ledger_registry: str
    reports: str  # where they are stored: a path, or postgresql://

    def question(self, name: str) -> Question:
        """Return the question of a name."""
        return self.questions[self.place(name)]

    def place(self, name: str) -> int:
        """Return the place of the question of a name, from 0. Raise `BadParameter` if there is none."""
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
