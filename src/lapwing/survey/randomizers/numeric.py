"""Numbers 0 .. steps: what the randomizers of numbers share."""

from __future__ import annotations

from abc import ABC

from lapwing.errors import BadParameter
from lapwing.exact import settle, whole

MOST_STEPS = 1 << 40


class Numbers(ABC):
    """Answers are 0 .. steps, and steps + 1 for "no answer" where `none` is 1."""

    __slots__ = ()
    steps: int
    none: int

    def _settle_steps(self) -> None:
        settle(
            self,
            steps=whole(self.steps, "steps", at_least=1),
            none=whole(int(self.none) if isinstance(self.none, bool) else self.none, "none"),
        )
        if self.steps > MOST_STEPS:
            raise BadParameter("steps", "must be at most 2^40")
        if self.none > 1:
            raise BadParameter("none", "must be 0 or 1")

    @property
    def inputs(self) -> int:
        """Every number, and "no answer" where that is one."""
        return self.steps + 1 + self.none


def worst_of(square: float, slope: float, level: float, steps: int) -> float:
    """The greatest value of square t^2 + slope t + level over t = 0, 1/steps, .., 1."""
    places = [0, steps]
    if square < 0:
        peak = min(max(-slope / (2 * square), 0.0), 1.0) * steps
        places += [int(peak), min(int(peak) + 1, steps)]
    return max((square * place / steps + slope) * place / steps + level for place in places)
