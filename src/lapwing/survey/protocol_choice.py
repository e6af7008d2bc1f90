"""Choose the randomizer of a question within an ε: the best variance known, unless the owner forces one.

`WorstVariance` predicts the error before anybody has answered. Shares are in 0 .. 1; numbers and dates
count from `low` as 0 to `high` as 1. For sets it is the share of an option, over all sets that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.survey.questionnaire import (
    AnswerCoding,
    DateScale,
    NumberScale,
    Question,
    Several,
    WordCoding,
    two_coins_count,
)
from lapwing.survey.randomizers import (
    ODDS,
    BitwiseResponse,
    DuchiResponse,
    FrequencyOracle,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    NumericRandomizer,
    Piecewise,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
)

MOST_SUBSET_OPTIONS = 4097  # options: all sets of 12, and no answer
MOST_HADAMARD_EPSILON = Fraction(1)
MOST_DUCHI_EPSILON = Fraction(61, 100)


@dataclass(frozen=True)
class ChosenProtocol:
    """A randomizer, the name of its protocol, and the reason for it."""

    randomizer: Randomizer
    protocol: str
    why: str


def choose_protocol(question: Question, epsilon: Fraction) -> ChosenProtocol:
    """Return the randomizer of a question within ε. Two coins cost ln 3 each, whatever ε is."""
    coding = question.coding
    if coins := two_coins_count(question):
        return _two_coins(coding, coins)
    if isinstance(coding, Several) and not coding.as_set:
        made = BitwiseResponse.for_epsilon(epsilon, options=coding.bits)
        name = f"randomized response for each of {coding.bits} bits"
        return ChosenProtocol(made, name, "every option is a yes or no of its own")
    if isinstance(coding, WordCoding):
        words = PrefixResponse.for_epsilon(epsilon, letters=coding.letters)
        return ChosenProtocol(words, "heavy hitters by prefixes", _WORDS)
    if isinstance(coding, NumberScale | DateScale):
        return _scale(question, coding, epsilon)
    return _shares(question, epsilon)


_WORDS = "words are too many to count: frequent beginnings are found first, then what follows them"


def _two_coins(coding: AnswerCoding, coins: int) -> ChosenProtocol:
    made: Randomizer = KaryResponse.two_coins()
    if isinstance(coding, Several):
        made = BitwiseResponse(coding.bits, 3 * ODDS // 4)
    cost = "ln 3" if coins == 1 else f"{coins} ln 3, ln 3 for each option"
    return ChosenProtocol(made, "two coins", f"forced: the textbook's coins, which cost exactly {cost}")


_SHARES = {
    made.kind: made
    for made in (KaryResponse, SubsetSelection, HadamardResponse, ProjectiveResponse, UnaryEncoding)
}


def _shares(question: Question, epsilon: Fraction) -> ChosenProtocol:
    k, protocol, why = question.inputs, question.protocol, "forced by the survey"
    if protocol is None and k == 2:
        protocol, why = "choice", "for two options nothing has a smaller error"
    elif protocol is None and k <= MOST_SUBSET_OPTIONS:
        chosen = SubsetSelection.for_epsilon(epsilon, options=k).chosen
        protocol = "choice" if chosen == 1 else "subset"
        why = f"the smallest error known for {k:,} options at this ε"
    elif protocol is None and epsilon <= MOST_HADAMARD_EPSILON:
        protocol, why = "hadamard", f"short messages for {k:,} options; near the best error up to ε 1"
    elif protocol is None:
        protocol, why = "projective", f"short messages for {k:,} options; near the best error above ε 1"
    made = _SHARES[protocol].for_epsilon(epsilon, options=k)
    return ChosenProtocol(made, protocol_name(made), why)


_SCALES: dict[str, tuple[Any, str]] = {
    "duchi": (DuchiResponse, "Duchi's method"),
    "piecewise": (Piecewise, "the piecewise method"),
    "hybrid": (HybridResponse, "hybrid of Duchi and piecewise"),
    "square_wave": (SquareWave, "square wave"),
}


def _scale(question: Question, coding: NumberScale | DateScale, epsilon: Fraction) -> ChosenProtocol:
    protocol, why = question.protocol, "forced by the survey"
    if protocol is None and question.about == "distribution":
        protocol, why = "square_wave", "the smallest error known for whole distributions"
    elif protocol is None and epsilon <= MOST_DUCHI_EPSILON:
        protocol, why = "duchi", "the smallest error known for means up to ε 0.61"
    elif protocol is None:
        protocol, why = "hybrid", "the smallest error known for means above ε 0.61"
    maker, name = _SCALES[protocol]
    made: Randomizer = maker.for_epsilon(epsilon, steps=coding.steps, none=coding.no_answer)
    return ChosenProtocol(made, name, why)


def protocol_name(randomizer: Randomizer) -> str:
    """Return the name of a frequency oracle."""
    match randomizer:
        case KaryResponse(options=2):
            return "randomized response"
        case KaryResponse():
            return f"randomized response over {randomizer.options:,} options"
        case SubsetSelection():
            return f"subset selection, {randomizer.chosen:,} of {randomizer.options:,}"
        case HadamardResponse():
            return "Hadamard response"
        case ProjectiveResponse():
            return "projective-geometry response"
        case _:
            return "unary encoding"


HALF = Fraction(1, 2)
QUARTER = 0.25


@dataclass(frozen=True)
class WorstVariance:
    """n times the greatest variance of an estimate over all true answers.

    `respondents` is for the share or mean of the n people who take part, `population` for that of all
    people, of whom they are a random sample.
    """

    population: float
    respondents: float

    def when_asked(self, share: Fraction) -> WorstVariance:
        """Return the variance where a random share of n is asked. `respondents` are still all n."""
        part = float(share)
        drawn = part * self.respondents + (1 - part) * self.population
        return WorstVariance(self.population / part, drawn / part)


def worst_variance_of(randomizer: Randomizer, coding: AnswerCoding | None = None) -> WorstVariance:
    """Return the variance of the worst share, or of the worst mean for numbers and dates.

    `coding` says whether the answers are sets.
    """
    if (
        isinstance(coding, Several)
        and coding.as_set
        and isinstance(randomizer, KaryResponse | SubsetSelection)
    ):
        return _of_options(randomizer, len(coding.options))
    if isinstance(randomizer, PrefixResponse):
        inner = [worst_variance_of(one) for one in randomizer.inner]
        worst = max(inner, key=lambda spread: spread.population)
        return worst.when_asked(Fraction(1, len(inner)))
    if isinstance(randomizer, FrequencyOracle):
        return _of_shares(randomizer.inside, randomizer.outside)
    assert isinstance(randomizer, NumericRandomizer)
    noise = randomizer.worst_variance()
    # Numbers in 0 .. 1 have a variance of at most 1/4 themselves.
    return WorstVariance(noise + QUARTER, noise)


def _of_shares(inside: Fraction, outside: Fraction) -> WorstVariance:
    """Return the variance of a coin with chance outside + share (inside - outside)."""
    gap = (inside - outside) ** 2
    seen = min(max(HALF, outside), inside)
    noise = max(inside * (1 - inside), outside * (1 - outside))
    return WorstVariance(float(seen * (1 - seen) / gap), float(noise / gap))


def _of_options(randomizer: KaryResponse | SubsetSelection, options: int) -> WorstVariance:
    """Return the variance of an option's share among sets. A score counts the sets with the option.

    A report lists d of k sets, of which s have the option. It lists the true set with chance p; the rest of
    the list is drawn from the other k - 1 sets without replacement.
    """
    k, s, p = randomizer.inputs, 1 << (options - 1), randomizer.inside
    d = randomizer.chosen if isinstance(randomizer, SubsetSelection) else 1
    held = _variance(p, _drawn(k - 1, s - 1, d - 1, 1), _drawn(k - 1, s - 1, d, 0))
    other = _variance(p, _drawn(k - 1, s, d - 1, 0), _drawn(k - 1, s, d, 0))
    gap = (p - randomizer.outside) ** 2
    inner, outer = held / gap, other / gap
    # The whole variance is greatest at this share.
    share = min(max((1 + inner - outer) / 2, Fraction(0)), Fraction(1))
    whole = share * inner + (1 - share) * outer + share * (1 - share)
    return WorstVariance(float(whole), float(max(inner, outer)))


def _drawn(population: int, good: int, draws: int, plus: int) -> tuple[Fraction, Fraction]:
    """Return mean and variance of `plus` + the good ones among `draws` without replacement."""
    part = Fraction(good, population)
    left = Fraction(population - draws, max(population - 1, 1))
    return draws * part + plus, draws * part * (1 - part) * left


def _variance(chance: Fraction, one: tuple[Fraction, Fraction], two: tuple[Fraction, Fraction]) -> Fraction:
    """Return the variance of a mixture of two laws, given by mean and variance."""
    inside = chance * one[1] + (1 - chance) * two[1]
    return inside + chance * (1 - chance) * (one[0] - two[0]) ** 2
