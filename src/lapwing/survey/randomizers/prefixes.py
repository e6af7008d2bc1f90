"""Words: each respondent reports about one prefix of the word, of a length drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.chances import percent
from lapwing.core.exact import Number, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomize import CoinSource
from lapwing.survey.randomizers.index_oracles import HadamardResponse, ProjectiveResponse
from lapwing.survey.randomizers.mask_oracles import SubsetSelection
from lapwing.survey.randomizers.randomizer import PartedRandomizer

LETTER_BITS = 5
MOST_LETTERS = 12  # 60 bits
MOST_SUBSET_PREFIXES = 1 << 10  # with more prefixes a set of them is too long a message
InnerRandomizer = SubsetSelection | HadamardResponse | ProjectiveResponse


def _best(epsilon: Fraction, options: int) -> InnerRandomizer:
    """Make a subset where it is short; else parity checks for small ε, and points for large ε."""
    if options <= MOST_SUBSET_PREFIXES:
        return SubsetSelection.for_epsilon(epsilon, options=options)
    if epsilon <= 1:
        return HadamardResponse.for_epsilon(epsilon, options=options)
    return ProjectiveResponse.for_epsilon(epsilon, options=options)


@dataclass(frozen=True, slots=True)
class PrefixResponse(PartedRandomizer):
    """A word is a number of L letters, 5 bits each, the first one highest; 0 stands for no letter.

    One of the `levels` (numbers of letters) is drawn, all with the same chance. The inner randomizer of
    that level gets the first letters as a number. The first byte is the level's place in `levels`.

    Claim    the loss is the greatest of the inner ones.
    Because  the level does not depend on the word, and each inner randomizer is within its claim.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    kind: ClassVar[str] = "prefixes"
    letters: int
    levels: tuple[int, ...]
    inner: tuple[InnerRandomizer, ...]

    def __post_init__(self) -> None:
        levels = _checked_levels(self.letters, self.levels)
        if len(self.inner) != len(levels):
            raise BadParameter("inner", "must be as many as there are levels")
        for level, inner in zip(levels, self.inner, strict=True):
            if inner.inputs != 1 << LETTER_BITS * level:
                raise BadParameter("inner", "must take all prefixes of its level, 32 for each letter")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, letters: int, levels: Sequence[int] | None = None
    ) -> PrefixResponse:
        """Make one with the best randomizer for each level. Default levels: 2, 4, .. and all letters."""
        asked, most = checked_epsilon(epsilon), whole(letters, "letters", at_least=1)
        wanted = _checked_levels(most, sorted({*range(2, most, 2), most}) if levels is None else levels)
        return cls(most, tuple(wanted), tuple(_best(asked, 1 << LETTER_BITS * level) for level in wanted))

    @property
    def inputs(self) -> int:
        """The number of words of `letters` letters."""
        return 1 << LETTER_BITS * self.letters

    @property
    def parts(self) -> dict[int, InnerRandomizer]:
        """The inner randomizers, by the place of their level."""
        return dict(enumerate(self.inner))

    def chance(self, first: int) -> Fraction:
        """Return the probability of a level: the same for all."""
        del first
        return Fraction(1, len(self.levels))

    def stated_odds(self) -> str:
        """Return the levels, and the odds of their code numbers."""
        *first, last = map(str, self.levels)
        lengths = f"{', '.join(first)} or {last}" if first else last
        inside = [inner.inside for inner in self.inner]
        least, most = percent(min(inside)), percent(max(inside))
        chance = least if least == most else f"{least} to {most}"
        return (
            f"Your device chooses by chance whether to look at the first {lengths} letters of your word, "
            "and looks at no others. Then it sends a code number, which stands for many beginnings at "
            f"once. It stands for yours with a chance of {chance}."
        )

    def _draw_part(self, source: CoinSource) -> int:
        return source.below(len(self.levels))

    def _draw_parts(self, count: int) -> NDArray[np.int64]:
        return noise.uniform_int(0, len(self.levels), count)

    def part_answers(self, answers: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Return the prefixes of words that the inner randomizer at this place of `levels` gets."""
        return answers >> (LETTER_BITS * (self.letters - self.levels[first]))


def _checked_levels(letters: int, levels: Sequence[int]) -> list[int]:
    if whole(letters, "letters", at_least=1) > MOST_LETTERS:
        raise BadParameter("letters", f"must be at most {MOST_LETTERS}")
    lengths = [whole(level, "levels", at_least=1) for level in levels]
    if not lengths or lengths != sorted(set(lengths)) or lengths[-1] > letters:
        raise BadParameter("levels", "must rise, from 1 letter or more up to `letters` or fewer")
    return lengths
