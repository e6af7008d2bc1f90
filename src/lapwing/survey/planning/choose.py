"""Which randomizer a question gets at an ε: the best variance known, unless one is forced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from lapwing.survey.questionnaire.coding import Several
from lapwing.survey.questionnaire.question_file import TWO_COINS, coins_of
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.questionnaire.survey import Question
from lapwing.survey.questionnaire.words import Word
from lapwing.survey.randomizers import (
    Bits,
    Choice,
    Duchi,
    Hadamard,
    Hybrid,
    Piecewise,
    Prefixes,
    Projective,
    Randomizer,
    SquareWave,
    Subset,
    Unary,
)
from lapwing.survey.randomizers.two_level import ODDS

SUBSET_AT_MOST = 4097  # options: all sets of 12, and no answer
HADAMARD_UP_TO = Fraction(1)
DUCHI_UP_TO = Fraction(61, 100)


@dataclass(frozen=True)
class Chosen:
    """A randomizer, what it is called, and why it was taken."""

    randomizer: Randomizer
    protocol: str
    why: str


def choose(question: Question, epsilon: Fraction) -> Chosen:
    """The randomizer of a question within ε. Two coins cost ln 3 each, whatever ε is."""
    if coins := coins_of(question):
        return _two_coins(question, coins)
    coding = question.coding
    if isinstance(coding, Several) and not coding.as_set:
        made = Bits.for_epsilon(epsilon, options=coding.bits)
        return Chosen(made, f"randomized response for each of {coding.bits} bits", _BITS)
    if isinstance(coding, Word):
        return Chosen(
            Prefixes.for_epsilon(epsilon, letters=coding.letters), "heavy hitters by prefixes", _WORDS
        )
    if isinstance(coding, Grid | Days):
        return _scale(question, coding, epsilon)
    return _shares(question, epsilon)


_BITS = "every option is a yes or no of its own"
_WORDS = "words are too many to count: frequent beginnings are found first, then what follows them"


def _two_coins(question: Question, coins: int) -> Chosen:
    coding = question.coding
    made: Randomizer = Choice.two_coins()
    if isinstance(coding, Several):
        made = Bits(coding.bits, 3 * ODDS // 4)
    cost = "ln 3" if coins == 1 else f"{coins} ln 3, ln 3 for each option"
    return Chosen(made, "two coins", f"forced: the textbook's coins, which cost exactly {cost}")


_ShareMaker = Callable[[Fraction, int], Randomizer]
_SHARES: dict[str, _ShareMaker] = {
    "choice": lambda epsilon, k: Choice.for_epsilon(epsilon, options=k),
    "subset": lambda epsilon, k: Subset.for_epsilon(epsilon, options=k),
    "hadamard": lambda epsilon, k: Hadamard.for_epsilon(epsilon, options=k),
    "projective": lambda epsilon, k: Projective.for_epsilon(epsilon, options=k),
    "unary": lambda epsilon, k: Unary.for_epsilon(epsilon, options=k),
}


def _shares(question: Question, epsilon: Fraction) -> Chosen:
    k = question.inputs
    if question.protocol is not None:
        assert question.protocol != TWO_COINS
        made = _SHARES[question.protocol](epsilon, k)
        return Chosen(made, called(made), "forced by the survey")
    if k == 2:
        made = Choice.for_epsilon(epsilon, options=2)
        return Chosen(made, called(made), "for two options nothing has a smaller error")
    if k <= SUBSET_AT_MOST:
        subset = Subset.for_epsilon(epsilon, options=k)
        if subset.chosen == 1:
            made = Choice.for_epsilon(epsilon, options=k)
            return Chosen(made, called(made), f"the smallest error known for {k:,} options at this ε")
        return Chosen(subset, called(subset), f"the smallest error known for {k:,} options at this ε")
    if epsilon <= HADAMARD_UP_TO:
        made = Hadamard.for_epsilon(epsilon, options=k)
        return Chosen(
            made, called(made), f"short messages for {k:,} options; near the best error up to ε 1"
        )
    made = Projective.for_epsilon(epsilon, options=k)
    return Chosen(made, called(made), f"short messages for {k:,} options; near the best error above ε 1")


def _scale(question: Question, coding: Grid | Days, epsilon: Fraction) -> Chosen:
    steps, none = coding.steps, coding.no_answer
    makers: dict[str, Callable[[], Randomizer]] = {
        "duchi": lambda: Duchi.for_epsilon(epsilon, steps=steps, none=none),
        "piecewise": lambda: Piecewise.for_epsilon(epsilon, steps=steps, none=none),
        "hybrid": lambda: Hybrid.for_epsilon(epsilon, steps=steps, none=none),
        "square_wave": lambda: SquareWave.for_epsilon(epsilon, steps=steps, none=none),
    }
    protocol, why = question.protocol, "forced by the survey"
    if protocol is None and question.about == "distribution":
        protocol, why = "square_wave", "the smallest error known for whole distributions"
    elif protocol is None and epsilon <= DUCHI_UP_TO:
        protocol, why = "duchi", "the smallest error known for means up to ε 0.61"
    elif protocol is None:
        protocol, why = "hybrid", "the smallest error known for means above ε 0.61"
    return Chosen(makers[protocol](), _SCALES[protocol], why)


_SCALES = {
    "duchi": "Duchi's method",
    "piecewise": "the piecewise method",
    "hybrid": "hybrid of Duchi and piecewise",
    "square_wave": "square wave",
}


def called(randomizer: Randomizer) -> str:
    """The name of a randomizer of shares."""
    match randomizer:
        case Choice(options=2):
            return "randomized response"
        case Choice():
            return f"randomized response over {randomizer.options:,} options"
        case Subset():
            return f"subset selection, {randomizer.chosen:,} of {randomizer.options:,}"
        case Hadamard():
            return "Hadamard response"
        case Projective():
            return "projective-geometry response"
        case _:
            return "unary encoding"
