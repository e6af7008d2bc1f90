"""Which randomizer a question gets at an ε: the best variance known, unless one is forced.

How far estimates stray, before anybody has answered.

A `WorstVariance` is n times a variance, the greatest over all true answers: `respondents` for the share or mean
of the n people who take part, `population` for that of all people, of whom they are a random sample. Shares
are in 0 .. 1; numbers and dates count from `low` as 0 to `high` as 1. Of sets it is an option's share, over
all sets that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from lapwing.survey.questionnaire import AnswerCoding, DateScale, NumberScale, Question, Several, WordCoding
from lapwing.survey.randomizers import (
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
from lapwing.survey.randomizers.randomizer import ODDS
from lapwing.survey.survey_file import TWO_COINS, two_coins_count

MOST_SUBSET_OPTIONS = 4097  # options: all sets of 12, and no answer
MOST_HADAMARD_EPSILON = Fraction(1)
MOST_DUCHI_EPSILON = Fraction(61, 100)


@dataclass(frozen=True)
class ChosenProtocol:
    """A randomizer, what it is called, and why it was taken."""

    randomizer: Randomizer
    protocol: str
    why: str


def choose_protocol(question: Question, epsilon: Fraction) -> ChosenProtocol:
    """The randomizer of a question within ε. Two coins cost ln 3 each, whatever ε is."""
    if coins := two_coins_count(question):
        return _two_coins(question, coins)
    coding = question.coding
    if isinstance(coding, Several) and not coding.as_set:
        made = BitwiseResponse.for_epsilon(epsilon, options=coding.bits)
        return ChosenProtocol(made, f"randomized response for each of {coding.bits} bits", _BITS)
    if isinstance(coding, WordCoding):
        return ChosenProtocol(
            PrefixResponse.for_epsilon(epsilon, letters=coding.letters), "heavy hitters by prefixes", _WORDS
        )
    if isinstance(coding, NumberScale | DateScale):
        return _scale(question, coding, epsilon)
    return _shares(question, epsilon)


_BITS = "every option is a yes or no of its own"
_WORDS = "words are too many to count: frequent beginnings are found first, then what follows them"


def _two_coins(question: Question, coins: int) -> ChosenProtocol:
    coding = question.coding
    made: Randomizer = KaryResponse.two_coins()
    if isinstance(coding, Several):
        made = BitwiseResponse(coding.bits, 3 * ODDS // 4)
    cost = "ln 3" if coins == 1 else f"{coins} ln 3, ln 3 for each option"
    return ChosenProtocol(made, "two coins", f"forced: the textbook's coins, which cost exactly {cost}")


_ShareMaker = Callable[[Fraction, int], Randomizer]
_SHARES: dict[str, _ShareMaker] = {
    "choice": lambda epsilon, k: KaryResponse.for_epsilon(epsilon, options=k),
    "subset": lambda epsilon, k: SubsetSelection.for_epsilon(epsilon, options=k),
    "hadamard": lambda epsilon, k: HadamardResponse.for_epsilon(epsilon, options=k),
    "projective": lambda epsilon, k: ProjectiveResponse.for_epsilon(epsilon, options=k),
    "unary": lambda epsilon, k: UnaryEncoding.for_epsilon(epsilon, options=k),
}


def _shares(question: Question, epsilon: Fraction) -> ChosenProtocol:
    k = question.inputs
    if question.protocol is not None:
        assert question.protocol != TWO_COINS
        made = _SHARES[question.protocol](epsilon, k)
        return ChosenProtocol(made, protocol_name(made), "forced by the survey")
    if k == 2:
        made = KaryResponse.for_epsilon(epsilon, options=2)
        return ChosenProtocol(made, protocol_name(made), "for two options nothing has a smaller error")
    if k <= MOST_SUBSET_OPTIONS:
        subset = SubsetSelection.for_epsilon(epsilon, options=k)
        if subset.chosen == 1:
            made = KaryResponse.for_epsilon(epsilon, options=k)
            return ChosenProtocol(
                made, protocol_name(made), f"the smallest error known for {k:,} options at this ε"
            )
        return ChosenProtocol(
            subset, protocol_name(subset), f"the smallest error known for {k:,} options at this ε"
        )
    if epsilon <= MOST_HADAMARD_EPSILON:
        made = HadamardResponse.for_epsilon(epsilon, options=k)
        return ChosenProtocol(
            made, protocol_name(made), f"short messages for {k:,} options; near the best error up to ε 1"
        )
    made = ProjectiveResponse.for_epsilon(epsilon, options=k)
    return ChosenProtocol(
        made, protocol_name(made), f"short messages for {k:,} options; near the best error above ε 1"
    )


def _scale(question: Question, coding: NumberScale | DateScale, epsilon: Fraction) -> ChosenProtocol:
    steps, none = coding.steps, coding.no_answer
    makers: dict[str, Callable[[], Randomizer]] = {
        "duchi": lambda: DuchiResponse.for_epsilon(epsilon, steps=steps, none=none),
        "piecewise": lambda: Piecewise.for_epsilon(epsilon, steps=steps, none=none),
        "hybrid": lambda: HybridResponse.for_epsilon(epsilon, steps=steps, none=none),
        "square_wave": lambda: SquareWave.for_epsilon(epsilon, steps=steps, none=none),
    }
    protocol, why = question.protocol, "forced by the survey"
    if protocol is None and question.about == "distribution":
        protocol, why = "square_wave", "the smallest error known for whole distributions"
    elif protocol is None and epsilon <= MOST_DUCHI_EPSILON:
        protocol, why = "duchi", "the smallest error known for means up to ε 0.61"
    elif protocol is None:
        protocol, why = "hybrid", "the smallest error known for means above ε 0.61"
    return ChosenProtocol(makers[protocol](), _SCALES[protocol], why)


_SCALES = {
    "duchi": "Duchi's method",
    "piecewise": "the piecewise method",
    "hybrid": "hybrid of Duchi and piecewise",
    "square_wave": "square wave",
}


def protocol_name(randomizer: Randomizer) -> str:
    """The name of a randomizer of shares."""
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
    """n times the greatest variance."""

    population: float
    respondents: float

    def when_asked(self, share: Fraction) -> WorstVariance:
        """Where a random share of n is asked: `respondents`, all n, then have the drawing in it."""
        part = float(share)
        drawn = part * self.respondents + (1 - part) * self.population
        return WorstVariance(self.population / part, drawn / part)


def worst_variance_of(randomizer: Randomizer, coding: AnswerCoding | None = None) -> WorstVariance:
    """Of the worst share for shares and words, of the worst mean for numbers and dates.

    `coding` says what the answers are: sets are told apart by it.
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
    """A report speaks for an option with chance s = outside + share (inside - outside): a coin."""
    gap = (inside - outside) ** 2
    seen = min(max(HALF, outside), inside)
    noise = max(inside * (1 - inside), outside * (1 - outside))
    return WorstVariance(float(seen * (1 - seen) / gap), float(noise / gap))


def _of_options(randomizer: KaryResponse | SubsetSelection, options: int) -> WorstVariance:
    """An option's share among sets: the score of a report counts those of its sets that have the option.

    A report lists d of k sets, of which s have the option. It lists the true set with chance p; the rest of
    the list is drawn from the other k - 1 sets without putting back.
    """
    k, s, p = randomizer.inputs, 1 << (options - 1), randomizer.inside
    d = randomizer.chosen if isinstance(randomizer, SubsetSelection) else 1
    held = _variance(p, _drawn(k - 1, s - 1, d - 1, 1), _drawn(k - 1, s - 1, d, 0))
    other = _variance(p, _drawn(k - 1, s, d - 1, 0), _drawn(k - 1, s, d, 0))
    gap = (p - randomizer.outside) ** 2
    inner, outer = held / gap, other / gap
    share = min(
        max((1 + inner - outer) / 2, Fraction(0)), Fraction(1)
    )  # where the whole variance is greatest
    whole = share * inner + (1 - share) * outer + share * (1 - share)
    return WorstVariance(float(whole), float(max(inner, outer)))


def _drawn(population: int, good: int, draws: int, plus: int) -> tuple[Fraction, Fraction]:
    """Mean and variance of how many good ones are drawn without putting back."""
    part = Fraction(good, population)
    left = Fraction(population - draws, max(population - 1, 1))
    return draws * part + plus, draws * part * (1 - part) * left


def _variance(chance: Fraction, one: tuple[Fraction, Fraction], two: tuple[Fraction, Fraction]) -> Fraction:
    """Of a mixture of two laws, given by mean and variance."""
    inside = chance * one[1] + (1 - chance) * two[1]
    return inside + chance * (1 - chance) * (one[0] - two[0]) ** 2
