"""How an answer becomes a whole number, 0 .. inputs - 1: the same in Python and in the browser.

| kind | the number of an answer |
|---|---|
| one of a few (`OneOf`) | the position of its label; "no answer" is the last label |
| several, bit by bit | the sum of 2^j over the chosen options j; "no answer" is one more option |
| several, as a set | the same sum; "no answer" is 2^options |
| an order (`Ranked`) | its place in the dictionary of all orders; "no answer" comes after them all |
| a number or a date | how many steps it lies above `low`; "no answer" is one more than `high` |
| a word | its letters as digits to the base 32, a = 1, filled up with 0 on the right; "no answer" is 0 |

What is no possible answer raises `BadValue`, which never shows the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from lapwing.errors import BadValue

NO_ANSWER = "no answer"


class Coding(Protocol):
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


def without_answer(answer: object) -> bool:
    """Whether an answer is none."""
    return answer is None or (isinstance(answer, str) and answer == NO_ANSWER)


def refuse_none(coding: Coding) -> None:
    """Raise where a question must be answered."""
    if not coding.no_answer:
        raise BadValue("this question has to be answered")


def checked_code(coding: Coding, code: int) -> int:
    """The number of a possible answer."""
    if not 0 <= code < coding.inputs:
        raise BadValue(f"the number of an answer must lie in 0 .. {coding.inputs - 1}")
    return int(code)


def _with_none(options: tuple[str, ...], no_answer: bool) -> tuple[str, ...]:
    return (*options, NO_ANSWER) if no_answer else options


def _listed(options: Sequence[str]) -> str:
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
        if without_answer(answer):
            refuse_none(self)
            return len(self.options)
        if isinstance(answer, bool):
            answer = "yes" if answer else "no"
        try:
            return self.options.index(str(answer))
        except ValueError:
            raise BadValue(f"the answer must be {_listed(self.options)}") from None

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
        if without_answer(answer):
            refuse_none(self)
            return 1 << len(self.options)
        chosen = _labels(answer, self.options)
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
        if without_answer(answer):
            refuse_none(self)
            return math.factorial(len(self.options))
        order = _labels(answer, self.options)
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


def _labels(answer: object, options: tuple[str, ...]) -> list[int]:
    """The places of labels, each at most once."""
    if isinstance(answer, str) or not isinstance(answer, Sequence | AbstractSet):
        raise BadValue("the answer must be a list of options")
    try:
        places = [options.index(str(label)) for label in answer]
    except ValueError:
        raise BadValue(f"every option of the answer must be {_listed(options)}") from None
    if len(set(places)) != len(places):
        raise BadValue("an option of the answer comes twice")
    return places
