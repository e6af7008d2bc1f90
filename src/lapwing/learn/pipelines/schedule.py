"""Which data and which ε each attempt of a run gets: fixed by public facts, before the first.

Claim    what attempt i gets is a function of the pipeline's file, of the blocks that had come in when the
         run began, of the order in which others come in, and of i. Attempts 1 to i use at most about twice
         what attempt i uses; so at most about 4 times what would have been enough.
Because  blocks times ε doubles from attempt to attempt, and nothing else is looked at: neither verdicts nor
         budgets. A block that cannot pay ends the run, and is not replaced. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_schedule.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import settle, whole
from lapwing.privacy.loss import checked_epsilon


class Strategy(Enum):
    """CONSERVE: little ε; more data first, then more ε. AGGRESSIVE: all of ε at once, then more data."""

    CONSERVE = "conserve"
    AGGRESSIVE = "aggressive"


@dataclass(frozen=True, slots=True)
class Try:
    """What one attempt gets."""

    attempt: int
    blocks: int
    epsilon: Fraction

    @property
    def use(self) -> Fraction:
        """What it takes from all blocks together."""
        return self.blocks * self.epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """From `least` to `most` ε a block, and from `first_blocks` to `most_blocks` blocks (None: all)."""

    strategy: Strategy
    least: Fraction
    most: Fraction
    first_blocks: int
    most_blocks: int | None

    def __post_init__(self) -> None:
        settle(self, least=checked_epsilon(self.least), most=checked_epsilon(self.most))
        settle(self, first_blocks=whole(self.first_blocks, "first_blocks", at_least=1))
        if self.least > self.most:
            raise BadParameter("epsilon", "must not begin above where it ends")
        if self.most_blocks is not None and self.first_blocks > whole(self.most_blocks, "most_blocks"):
            raise BadParameter("blocks", "must not begin above where they end")

    def at(self, attempt: int, start: int) -> Try | None:
        """The i-th attempt of a run that began with `start` blocks. None: the schedule has ended."""
        doubled = 1 << (whole(attempt, "attempt", at_least=1) - 1)
        if self.strategy is Strategy.AGGRESSIVE:
            blocks, epsilon = self.first_blocks * doubled, self.most
        else:
            use = self.first_blocks * self.least * doubled
            blocks = min(self.first_blocks * doubled, self._there(start))
            if use > self.most * blocks:  # neither data nor ε is left: wait for data
                blocks = math.ceil(use / self.most)
            epsilon = min(use / blocks, self.most)
        if self.most_blocks is not None and blocks > self.most_blocks:
            return None
        return Try(attempt, blocks, epsilon)

    def _there(self, start: int) -> int:
        most = start if self.most_blocks is None else min(start, self.most_blocks)
        return max(most, self.first_blocks)


def window(order: Sequence[str], start: int, blocks: int) -> list[str] | None:
    """The blocks of an attempt: the newest of those there were when the run began, or more recent ones.

    `order` are all blocks in the order in which they came in. None: too few have come in yet.
    """
    end = max(start, blocks)
    return list(order[end - blocks : end]) if end <= len(order) else None
