"""Words: each respondent tells about one prefix of the word, of a length drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, whole
from lapwing.core.losses import Pure, checked_epsilon
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomizers.hadamard import HadamardResponse
from lapwing.survey.randomizers.projective import ProjectiveResponse
from lapwing.survey.randomizers.randomizer import (
    Randomizer,
    Recipe,
    checked_answer,
    checked_answers,
    checked_rows,
    row_of,
)
from lapwing.survey.randomizers.subset import SubsetSelection

LETTER_BITS = 5
MOST_LETTERS = 12  # 60 bits
MOST_SUBSET_PREFIXES = 1 << 10  # up to so many prefixes a set of them is short enough
InnerRandomizer = SubsetSelection | HadamardResponse | ProjectiveResponse
Rows = NDArray[np.uint8]


def _best(epsilon: Fraction, options: int) -> InnerRandomizer:
    """A set where it is short; else parity checks for small ε, and points for large ε."""
    if options <= MOST_SUBSET_PREFIXES:
        return SubsetSelection.for_epsilon(epsilon, options=options)
    if epsilon <= 1:
        return HadamardResponse.for_epsilon(epsilon, options=options)
    return ProjectiveResponse.for_epsilon(epsilon, options=options)


def _sent(inner: Randomizer, prefixes: NDArray[np.int64]) -> Rows:
    return inner.encode(inner.sample(prefixes))


@dataclass(frozen=True, slots=True)
class PrefixResponse:
    """A word is a number of L letters, 5 bits each, the first one highest; 0 stands for no letter.

    One of the `levels` is drawn, all alike. The inner randomizer of that level gets the first so many
    letters as a number. The first byte says which level it was.

    Claim    the loss is the greatest of the inner ones.
    Because  the level does not depend on the word, and each inner randomizer is within its claim.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one

    Messages in memory are the rows that are sent.
    """

    letters: int
    levels: tuple[int, ...]
    inner: tuple[InnerRandomizer, ...]

    def __post_init__(self) -> None:
        if whole(self.letters, "letters", at_least=1) > MOST_LETTERS:
            raise BadParameter("letters", f"must be at most {MOST_LETTERS}")
        levels = [whole(level, "levels", at_least=1) for level in self.levels]
        if not levels or levels != sorted(set(levels)) or levels[-1] > self.letters:
            raise BadParameter("levels", "must rise, from 1 letter or more up to `letters` or fewer")
        if len(self.inner) != len(levels):
            raise BadParameter("inner", "must be as many as there are levels")
        for level, inner in zip(levels, self.inner, strict=True):
            if inner.inputs != 1 << LETTER_BITS * level:
                raise BadParameter("inner", "must take all prefixes of its level, 32 for each letter")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, letters: int, levels: Sequence[int] | None = None
    ) -> PrefixResponse:
        """The best randomizer for each level. Levels are 2, 4, .. and all letters, unless given."""
        asked, most = checked_epsilon(epsilon), whole(letters, "letters", at_least=1)
        if most > MOST_LETTERS:
            raise BadParameter("letters", f"must be at most {MOST_LETTERS}")
        wanted = sorted({*range(2, most, 2), most}) if levels is None else list(levels)
        for level in wanted:
            if whole(level, "levels", at_least=1) > most:
                raise BadParameter("levels", "must rise, from 1 letter or more up to `letters` or fewer")
        inner = tuple(_best(asked, 1 << LETTER_BITS * int(level)) for level in wanted)
        return cls(most, tuple(int(level) for level in wanted), inner)

    @property
    def inputs(self) -> int:
        """Every number of so many letters."""
        return 1 << LETTER_BITS * self.letters

    @property
    def loss(self) -> Pure:
        """The greatest one of the levels."""
        return max((inner.loss for inner in self.inner), key=lambda loss: loss.epsilon)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two words: exact."""
        return max(inner.ratio for inner in self.inner)

    @property
    def size(self) -> int:
        """The level, and the inner message."""
        return 1 + max(inner.size for inner in self.inner)

    def recipe(self) -> Recipe:
        """For devices."""
        return {
            "kind": "prefixes",
            "letters": self.letters,
            "levels": list(self.levels),
            "inner": [inner.recipe() for inner in self.inner],
        }

    def prefix(self, words: NDArray[np.int64], place: int) -> NDArray[np.int64]:
        """What the inner randomizer at this place of `levels` gets."""
        return words >> (LETTER_BITS * (self.letters - self.levels[place]))

    def sample(self, answers: NDArray[np.int64]) -> Rows:
        """One row per word."""
        words = checked_answers(answers, self.inputs)
        rows = np.zeros((len(words), self.size), dtype=np.uint8)
        rows[:, 0] = noise.uniform_int(0, len(self.levels), len(words))
        for place, inner in enumerate(self.inner):
            mine = rows[:, 0] == place
            rows[mine, 1 : 1 + inner.size] = _sent(inner, self.prefix(words[mine], place))
        return rows

    def encode(self, messages: Rows) -> Rows:
        """Messages are rows already."""
        return messages

    def decode(self, rows: Rows) -> Rows:
        """Rows that can be sent."""
        sent = checked_rows(rows, self.size)
        if bool(np.any(sent[:, 0] >= len(self.levels))):
            raise BadValue("a message is impossible: there is no such level")
        for place, inner in enumerate(self.inner):
            mine = sent[sent[:, 0] == place]
            inner.decode(mine[:, 1 : 1 + inner.size])
            if mine[:, 1 + inner.size :].any():
                raise BadValue("a message is impossible: it is longer than its level's")
        return sent

    def messages_of(self, messages: Rows, place: int) -> NDArray[np.int64] | NDArray[np.uint8]:
        """The messages of one place of `levels`, as its inner randomizer counts them."""
        inner = self.inner[place]
        return inner.decode(messages[messages[:, 0] == place, 1 : 1 + inner.size])

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The level's chance times the inner message's."""
        word = checked_answer(answer, self.inputs)
        place = int(self.decode(row_of(message, self.size))[0, 0])
        inner = self.inner[place]
        prefix = int(self.prefix(np.array([word]), place)[0])
        return inner.probability(prefix, message[1 : 1 + inner.size]) / len(self.levels)
