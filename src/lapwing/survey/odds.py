"""The possible messages of a randomizer and their odds, as the public part of a survey states them.

The text comes from the randomizer's whole numbers. It belongs to the survey's digest, so it never changes.
"""

from __future__ import annotations

from fractions import Fraction

from lapwing.core.chances import percent
from lapwing.errors import BadParameter
from lapwing.survey.randomizers import (
    BitwiseResponse,
    DuchiResponse,
    FrequencyOracle,
    HybridResponse,
    KaryResponse,
    PrefixResponse,
    Randomizer,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)

THREE_QUARTERS = Fraction(3, 4)


def stated_odds(randomizer: Randomizer) -> str:
    """Return the possible messages and their odds, as the public part of a survey states them."""
    match randomizer:
        case KaryResponse():
            return _stated_choice(randomizer)
        case SubsetSelection() | UnaryEncoding():
            size = f"{randomizer.chosen:,} of" if isinstance(randomizer, SubsetSelection) else "some of"
            return (
                f"Your device sends a list with {size} the {randomizer.options:,} options. Your own answer "
                f"is on it with a chance of {percent(randomizer.inside)}, each other one with "
                f"{percent(randomizer.outside)}."
            )
        case BitwiseResponse():
            return (
                f"For each of the {randomizer.options:,} options by itself, your device sends the truth "
                f"with a chance of {percent(randomizer.inside)}, and the opposite with "
                f"{percent(randomizer.outside)}."
            )
        case PrefixResponse():
            return _stated_prefixes(randomizer)
        case FrequencyOracle():
            return (
                "Your device sends a code number, which stands for many options at once. It stands for "
                f"your own answer with a chance of {percent(randomizer.inside)}, for any other one with "
                f"{percent(randomizer.outside)}."
            )
        case _:
            return _stated_scale(randomizer)


def _stated_choice(randomizer: KaryResponse) -> str:
    others = "the other one" if randomizer.options == 2 else f"each of the other {randomizer.options - 1:,}"
    text = (
        f"Your device sends your own answer with a chance of {percent(randomizer.inside)}, and {others} "
        f"with {percent(randomizer.outside)}."
    )
    if randomizer.options == 2 and randomizer.inside == THREE_QUARTERS:
        text += " It is as if you threw a coin: heads, the truth; tails, a second coin answers for you."
    return text


def _stated_prefixes(randomizer: PrefixResponse) -> str:
    levels = list(randomizer.levels)
    lengths = " or ".join([", ".join([str(level) for level in levels[:-1]]), str(levels[-1])]).removeprefix(
        " or "
    )
    inside = [inner.inside for inner in randomizer.inner]
    least, most = percent(min(inside)), percent(max(inside))
    chance = least if least == most else f"{least} to {most}"
    return (
        f"Your device chooses by chance whether to look at the first {lengths} letters of your word, and "
        "looks at no others. Then it sends a code number, which stands for many beginnings at once. It "
        f"stands for yours with a chance of {chance}."
    )


def _stated_scale(randomizer: Randomizer) -> str:
    match randomizer:
        case WindowResponse():
            return f"On your device, {_stated_window(randomizer)}"
        case DuchiResponse():
            return f"On your device, {_stated_duchi(randomizer)}"
        case HybridResponse(window=window, duchi=duchi):
            wide = f"With a chance of {percent(randomizer.chance(1))}, {_stated_window(window)}"
            first = "Your device first chooses one of two ways."
            return f"{first} {wide} Otherwise, {_stated_duchi(duchi)}"
        case _:
            raise BadParameter("randomizer", "has no words for its odds")


def _stated_window(window: WindowResponse) -> str:
    return (
        f"one of {window.messages:,} numbers is sent; with a chance of {percent(window.truth)} it is one "
        f"of the {window.width:,} around your own answer, all alike, else any other."
    )


def _stated_duchi(duchi: DuchiResponse) -> str:
    truth, other = percent(duchi.ends.inside), percent(duchi.ends.outside)
    none = f' Whoever does not answer sends "none" with {truth}.' if duchi.none else ""
    words = '"low", "high" or "none"' if duchi.none else '"low" or "high"'
    return (
        f'only {words} is sent. "High" has a chance of {other} for the lowest answer, '
        f"{truth} for the highest, and in between it rises evenly.{none}"
    )
