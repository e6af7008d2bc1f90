"""A set of options that has the true one in it more often than not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exp_up, settle, whole
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.randomizers.coins import COINS
from lapwing.survey.randomizers.masks import (
    count_options,
    decode_masks,
    has,
    mask_size,
    put,
    random_masks,
    sizes_of,
)
from lapwing.survey.randomizers.oracle import Shares
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.subsets import MOST_TABLES, draw_subsets, insert_option, tables_needed
from lapwing.survey.randomizers.two_level import ODDS, TwoLevel, favour
from lapwing.survey.randomizers.wire import checked_answer, checked_answers, row_of

MOST_OPTIONS = 1 << 16
WORTH_TABLES = 1 << 15  # sets
BYTES_AT_ONCE = 1 << 20
WORDS = 1 << 16  # as many as there are options at most


@dataclass(frozen=True, slots=True)
class Subset(TwoLevel, Shares):
    """Subset selection: a set of d options; the true one is in it with T chances in 2^48.

    Claim    two_level: the ratio is T (k - d) / ((2^48 - T) d).
    Because  A(v) are the sets with v: C(k - 1, d - 1) out of C(k, d), a share of d / k.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    options: int
    chosen: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        settle(
            self,
            options=whole(self.options, "options", at_least=2),
            chosen=whole(self.chosen, "chosen", at_least=1),
        )
        if self.options > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 65,536 for a set: a message lists all of them")
        if self.chosen >= self.options:
            raise BadParameter("chosen", "must be below the number of options")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int, chosen: int | None = None) -> Subset:
        """The most truthful one within ε. Without `chosen`, of the size with the least variance."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        if k > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 65,536 for a set: a message lists all of them")
        if chosen is not None:
            d = whole(chosen, "chosen", at_least=1)
            if d >= k:
                raise BadParameter("chosen", "must be below the number of options")
            return cls(k, d, favour(asked, Fraction(d, k)), asked)
        below = math.floor(k / (exp_up(asked) + 1))
        sizes = {min(max(d, 1), k - 1) for d in (below, below + 1)}
        found = [cls(k, d, favour(asked, Fraction(d, k)), asked) for d in sorted(sizes)]
        return min(found, key=lambda one: one.outside * (1 - one.outside) / (one.inside - one.outside) ** 2)

    @property
    def inputs(self) -> int:
        """As many answers as options."""
        return self.options

    @property
    def share(self) -> Fraction:
        """Of all sets, those with a given option."""
        return Fraction(self.chosen, self.options)

    @property
    def size(self) -> int:
        """One bit per option."""
        return mask_size(self.options)

    @property
    def inside(self) -> Fraction:
        """P[the option that is held is in the set]."""
        return self.truth

    @property
    def outside(self) -> Fraction:
        """P[any one other option is in the set]."""
        return (self.chosen - self.truth) / (self.options - 1)

    def recipe(self) -> Recipe:
        """For devices."""
        return {
            "kind": "subset",
            "options": self.options,
            "chosen": self.chosen,
            "favoured": self.favoured,
        }

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """One set per answer, as packed bits.

        The others are a uniform set of the right size. Many small ones come from tables. Else they start
        as independent bits and are mended, each step uniform among those that can change: as no option
        is told from another, this is uniform too.
        """
        true = checked_answers(answers, self.options)
        told = noise.bernoulli(self.truth, len(true))
        others = self.options - 1, self.chosen - 1, min(self.chosen, self.options - 1)
        if len(true) >= WORTH_TABLES and tables_needed(*others) <= MOST_TABLES:
            drawn = draw_subsets(others[0], self.chosen - told, least=others[1], most=others[2])
            return insert_option(drawn, self.options, true, told)
        masks = random_masks(self._start(), len(true), self.options)
        put(masks, true, told)
        rows = max(1, BYTES_AT_ONCE // self.size)
        for start in range(0, len(true), rows):
            self._mend(masks[start : start + rows], true[start : start + rows])
        return masks

    def _start(self) -> int:
        """Odds of a bit before mending: low (or high), as adding to a sparse set is quick."""
        spread = math.sqrt(self.options * float(self.share * (1 - self.share)))
        aim = self.chosen + (4 * spread if 2 * self.chosen > self.options else -4 * spread)
        return min(max(int(aim / self.options * ODDS), 1), ODDS - 1)

    def _mend(self, masks: NDArray[np.uint8], true: NDArray[np.int64]) -> None:
        """Add or remove uniform options, never the true one, until every set has its size."""
        missing = self.chosen - sizes_of(masks)
        rows = np.flatnonzero(missing)
        flat = masks.reshape(-1)
        fair = WORDS // self.options * self.options
        while len(rows):
            words = COINS.halves(len(rows)).astype(np.int32)
            picks = words % self.options
            bits = np.uint8(1) << (picks & 7).astype(np.uint8)
            places = rows * self.size + (picks >> 3)
            there = flat[places] & bits != 0
            # Words beyond the last whole multiple of `options` would not be uniform: nothing is picked.
            good = (there == (missing[rows] < 0)) & (picks != true[rows]) & (words < fair)
            mended = rows[good]
            flat[places[good]] ^= bits[good]
            missing[mended] -= np.sign(missing[mended])
            rows = rows[missing[rows] != 0]

    def encode(self, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Messages are packed already."""
        return messages

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Sets of exactly `chosen` options."""
        masks = decode_masks(rows, self.options)
        if bool(np.any(sizes_of(masks) != self.chosen)):
            raise BadValue(f"a message is impossible: it must have {self.chosen} of {self.options} options")
        return masks

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Two levels: with the true option, and without."""
        true = checked_answer(answer, self.options)
        sent = self.decode(row_of(message, self.size))
        level = self.likely if has(sent, true)[0] else self.unlikely
        return level / math.comb(self.options, self.chosen)

    def counts(self, messages: NDArray[np.uint8]) -> NDArray[np.int64]:
        """How many sets have each option."""
        return count_options(messages, self.options)

    def membership(self, messages: NDArray[np.uint8], answer: int) -> NDArray[np.bool_]:
        """Which sets have this option."""
        return has(messages, checked_answer(answer, self.options))
