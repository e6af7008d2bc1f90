"""How far estimates stray, before anybody has answered.

A `Spread` is n times a variance, the greatest over all true answers: `respondents` for the share or mean
of the n people who take part, `population` for that of all people, of whom they are a random sample. Shares
are in 0 .. 1; numbers and dates count from `low` as 0 to `high` as 1. Of sets it is an option's share, over
all sets that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lapwing.survey.questionnaire.coding import Coding, Several
from lapwing.survey.randomizers import Choice, Numeric, Oracle, Prefixes, Randomizer, Subset

HALF = Fraction(1, 2)
QUARTER = 0.25


@dataclass(frozen=True)
class Spread:
    """n times the greatest variance."""

    population: float
    respondents: float

    def when_asked(self, share: Fraction) -> Spread:
        """Where a random share of n is asked: `respondents`, all n, then have the drawing in it."""
        part = float(share)
        drawn = part * self.respondents + (1 - part) * self.population
        return Spread(self.population / part, drawn / part)


def spread_of(randomizer: Randomizer, coding: Coding | None = None) -> Spread:
    """Of the worst share for shares and words, of the worst mean for numbers and dates.

    `coding` says what the answers are: sets are told apart by it.
    """
    if isinstance(coding, Several) and coding.as_set and isinstance(randomizer, Choice | Subset):
        return _of_options(randomizer, len(coding.options))
    if isinstance(randomizer, Prefixes):
        inner = [spread_of(one) for one in randomizer.inner]
        worst = max(inner, key=lambda spread: spread.population)
        return worst.when_asked(Fraction(1, len(inner)))
    if isinstance(randomizer, Oracle):
        return _of_shares(randomizer.inside, randomizer.outside)
    assert isinstance(randomizer, Numeric)
    noise = randomizer.worst_variance()
    # Numbers in 0 .. 1 have a variance of at most 1/4 themselves.
    return Spread(noise + QUARTER, noise)


def _of_shares(inside: Fraction, outside: Fraction) -> Spread:
    """A report speaks for an option with chance s = outside + share (inside - outside): a coin."""
    gap = (inside - outside) ** 2
    seen = min(max(HALF, outside), inside)
    noise = max(inside * (1 - inside), outside * (1 - outside))
    return Spread(float(seen * (1 - seen) / gap), float(noise / gap))


def _of_options(randomizer: Choice | Subset, options: int) -> Spread:
    """An option's share among sets: the score of a report counts those of its sets that have the option.

    A report lists d of k sets, of which s have the option. It lists the true set with chance p; the rest of
    the list is drawn from the other k - 1 sets without putting back.
    """
    k, s, p = randomizer.inputs, 1 << (options - 1), randomizer.inside
    d = randomizer.chosen if isinstance(randomizer, Subset) else 1
    held = _variance(p, _drawn(k - 1, s - 1, d - 1, 1), _drawn(k - 1, s - 1, d, 0))
    other = _variance(p, _drawn(k - 1, s, d - 1, 0), _drawn(k - 1, s, d, 0))
    gap = (p - randomizer.outside) ** 2
    inner, outer = held / gap, other / gap
    share = min(
        max((1 + inner - outer) / 2, Fraction(0)), Fraction(1)
    )  # where the whole variance is greatest
    whole = share * inner + (1 - share) * outer + share * (1 - share)
    return Spread(float(whole), float(max(inner, outer)))


def _drawn(population: int, good: int, draws: int, plus: int) -> tuple[Fraction, Fraction]:
    """Mean and variance of how many good ones are drawn without putting back."""
    part = Fraction(good, population)
    left = Fraction(population - draws, max(population - 1, 1))
    return draws * part + plus, draws * part * (1 - part) * left


def _variance(chance: Fraction, one: tuple[Fraction, Fraction], two: tuple[Fraction, Fraction]) -> Fraction:
    """Of a mixture of two laws, given by mean and variance."""
    inside = chance * one[1] + (1 - chance) * two[1]
    return inside + chance * (1 - chance) * (one[0] - two[0]) ** 2
