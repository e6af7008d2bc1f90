"""The price of telling the best of a random number of runs: one charge, made before the first.

Claim    the best of K runs is (ε, δ)-private with the ε of `loss`, however many runs there were, if nothing
         but the best run's output is ever seen.
Because  `runs` bounds its Rényi divergence, of which (ε, δ) follows. Where the number of runs is cut off at
         `most`, both neighbours' laws move by at most P[K > most] = t in total variation, which adds
         (1 + e^ε) t to δ.
Test     tests/learn/selection/test_repetition.py

It is charged as (ε, δ): with probability δ anything, else pure ε. An account has 6 % of its δ for such
charges, so δ here is chosen far below the account's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from flint import arb

from lapwing.errors import BadParameter
from lapwing.exact import exp_up, round_up, settle
from lapwing.learn.selection.runs import Runs
from lapwing.privacy import Approximate, Loss
from lapwing.privacy.charge import EPSILON_UNIT
from lapwing.privacy.convert import best_renyi_epsilon
from lapwing.privacy.loss import checked_delta

CUT_SHARE = Fraction(1, 16)  # of δ, for cutting off the number of runs


@dataclass(frozen=True, slots=True)
class _Best(Loss):
    """The curve of the best of K runs, to look for the best order in."""

    base: Loss
    runs: Runs

    def renyi(self, order: Fraction) -> arb | None:
        return self.runs.renyi(self.base, order)

    def for_group(self, size: int) -> Loss:
        return _Best(self.base.for_group(size), self.runs)


@dataclass(frozen=True, slots=True)
class Repetition:
    """K runs of a base, of which the best output is told.

    `padded`: do `most` runs whatever K is, and throw away those beyond it, so that the time tells nothing
    of K. Without, whoever sees how long it takes must be trusted; a ledger keeps it, so a search that is
    paid from one must be padded.
    """

    base: Loss
    runs: Runs
    delta: Fraction
    padded: bool
    loss: Approximate = field(init=False)
    most: int | None = field(init=False)

    def __post_init__(self) -> None:
        settle(self, delta=checked_delta(self.delta))
        if self.base.delta0:
            raise BadParameter(
                "base", "must have no δ₀ (no partition selection): repetition would repeat it"
            )
        if not isinstance(self.padded, bool):
            raise BadParameter("padded", "must be True or False")
        pure = self.runs.pure(self.base)
        cut = self.delta * CUT_SHARE if self.padded else Fraction(0)
        if self.padded and not self.delta:
            raise BadParameter("delta", "must be above 0 where runs are cut off")
        found: list[Approximate] = []
        if self.delta:
            units = round_up(_epsilon(self.base, self.runs, self.delta - cut), EPSILON_UNIT)
            found.append(Approximate(Fraction(units, EPSILON_UNIT), self.delta))
        if pure is not None:
            found.append(Approximate(pure, cut))
        if not found:
            raise BadParameter("delta", "must be above 0: this base is not purely private")
        loss = min(found, key=lambda one: one.epsilon)
        object.__setattr__(self, "loss", loss)
        object.__setattr__(self, "most", self.runs.most(cut / (1 + exp_up(loss.epsilon))) if cut else None)

    def draw(self) -> int:
        """A number of runs. Private: nobody may see it."""
        return self.runs.draw(most=self.most)


@lru_cache(maxsize=64)
def _epsilon(base: Loss, runs: Runs, delta: Fraction) -> Fraction:
    if runs.renyi(base, Fraction(2)) is None:
        raise BadParameter("base", "must have Rényi values, or a pure loss with δ = 0")
    return best_renyi_epsilon(_Best(base, runs), delta)
