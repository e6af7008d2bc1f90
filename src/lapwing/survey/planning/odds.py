"""The possible messages and their odds in plain words: what respondents read before coins are thrown."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import count
from math import ceil, prod
from typing import Any, Protocol, runtime_checkable

from lapwing.survey.randomizers import Bits, Choice, Oracle, Prefixes, Randomizer, Subset, Unary
from lapwing.survey.randomizers.two_level import ODDS

THREE_QUARTERS = Fraction(3, 4)


@runtime_checkable
class Measured(Protocol):
    """A randomizer that knows its worst ratio exactly, as all do that come from a recipe."""

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers."""


def percent(chance: Fraction) -> str:
    """A chance as a percentage. What is not certain is never shown as certain."""
    tenths = round(chance * 1000)
    if tenths == 0 and chance:
        return "less than 0.1 %"
    if tenths == 1000 and chance != 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %" if tenths % 10 else f"{tenths // 10} %"


def worst_ratio(randomizers: Sequence[Randomizer], *, asks_all: bool) -> Fraction:
    """The largest ratio of the probabilities of a whole report under two sets of answers: exact."""
    ratios = []
    for randomizer in randomizers:
        assert isinstance(randomizer, Measured)
        ratios.append(randomizer.ratio)
    return prod(ratios, start=Fraction(1)) if asks_all else max(ratios)


def likely(ratio: Fraction) -> str:
    """How likely one of two answers can become by a report: rounded up, and below 100 %.

    Both seem equally likely before, and the report is at most `ratio` times as likely with one of them.
    """
    for digits in count(1):
        parts = ceil(ratio / (1 + ratio) * 100 * 10**digits)
        if parts < 100 * 10**digits:
            break
    whole, rest = divmod(parts, 10**digits)
    return f"{whole}.{rest:0{digits}} %"


def odds_of(randomizer: Randomizer) -> str:
    """Sentences about what a device sends, and how likely."""
    match randomizer:
        case Choice():
            return _choice(randomizer)
        case Subset() | Unary():
            size = f"{randomizer.chosen:,} of" if isinstance(randomizer, Subset) else "some of"
            return (
                f"Your device sends a list with {size} the {randomizer.options:,} options. Your own answer "
                f"is on it with a chance of {percent(randomizer.inside)}, each other one with "
                f"{percent(randomizer.outside)}."
            )
        case Bits():
            return (
                f"For each of the {randomizer.options:,} options by itself, your device sends the truth "
                f"with a chance of {percent(randomizer.inside)}, and the opposite with "
                f"{percent(randomizer.outside)}."
            )
        case Prefixes():
            return _prefixes(randomizer)
        case Oracle():
            return (
                "Your device sends a code number, which stands for many options at once. It stands for "
                f"your own answer with a chance of {percent(randomizer.inside)}, for any other one with "
                f"{percent(randomizer.outside)}."
            )
        case _:
            return _scale(randomizer.recipe())


def _choice(randomizer: Choice) -> str:
    others = "the other one" if randomizer.options == 2 else f"each of the other {randomizer.options - 1:,}"
    text = (
        f"Your device sends your own answer with a chance of {percent(randomizer.inside)}, and {others} "
        f"with {percent(randomizer.outside)}."
    )
    if randomizer.options == 2 and randomizer.inside == THREE_QUARTERS:
        text += " It is as if you threw a coin: heads, the truth; tails, a second coin answers for you."
    return text


def _prefixes(randomizer: Prefixes) -> str:
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


def _scale(recipe: dict[str, Any]) -> str:
    if recipe["kind"] == "hybrid":
        chance = percent(Fraction(recipe["odds"], ODDS))
        return (
            f"Your device first chooses one of two ways. With a chance of {chance}, "
            f"{_window(recipe['window'])} Otherwise, {_duchi(recipe['duchi'])}"
        )
    sentence = _window(recipe) if recipe["kind"] == "window" else _duchi(recipe)
    return f"On your device, {sentence}"


def _window(recipe: dict[str, Any]) -> str:
    width = recipe["width"]
    messages = recipe["steps"] * recipe["stride"] + width * (1 + recipe["none"])
    near = percent(Fraction(recipe["favoured"], ODDS))
    return (
        f"one of {messages:,} numbers is sent; with a chance of {near} it is one of the {width:,} around "
        "your own answer, all alike, else any other."
    )


def _duchi(recipe: dict[str, Any]) -> str:
    options = 2 + recipe["none"]
    truth = Fraction(recipe["favoured"], ODDS)
    other = (1 - truth) / (options - 1)
    none = f' Whoever does not answer sends "none" with {percent(truth)}.' if recipe["none"] else ""
    words = '"low", "high" or "none"' if recipe["none"] else '"low" or "high"'
    return (
        f'only {words} is sent. "High" has a chance of {percent(other)} for the lowest answer, '
        f"{percent(truth)} for the highest, and in between it rises evenly.{none}"
    )
