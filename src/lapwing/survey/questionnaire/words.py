"""Words, numbered by their letters: five bits each, the first letter highest."""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.errors import BadValue
from lapwing.survey.questionnaire.coding import NO_ANSWER, checked_code, refuse_none, without_answer

LETTERS = "\0abcdefghijklmnopqrstuvwxyz -'"  # a letter's position is its number; 0 is the end of a word
LETTER_BITS = 5


@dataclass(frozen=True)
class Word:
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
        if without_answer(answer) or answer == "":
            refuse_none(self)
            return 0
        word = " ".join(answer.lower().split()) if isinstance(answer, str) else ""
        if not word or any(letter not in LETTERS[1:] for letter in word):
            raise BadValue("the answer must be a word of the letters a-z, space, hyphen and apostrophe")
        if len(word) > self.letters:
            raise BadValue(f"the answer must have at most {self.letters} letters: write the first ones")
        return self.number(word) << LETTER_BITS * (self.letters - len(word))

    @staticmethod
    def number(prefix: str) -> int:
        """The first letters of words, as a number."""
        number = 0
        for letter in prefix:
            number = number << LETTER_BITS | LETTERS.index(letter)
        return number

    def said(self, code: int) -> str:
        return spelled(checked_code(self, code), self.letters) or NO_ANSWER


def spelled(number: int, letters: int) -> str:
    """The word, or the first letters of words, that a number of so many letters stands for.

    Numbers that no word has (a letter after the end, or beyond the alphabet) show a ? there.
    """
    places = [number >> LETTER_BITS * (letters - 1 - k) & 31 for k in range(letters)]
    text = "".join([LETTERS[place] if place < len(LETTERS) else "?" for place in places]).rstrip("\0")
    return text.replace("\0", "?")
