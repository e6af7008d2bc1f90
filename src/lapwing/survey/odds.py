"""The possible messages of a randomizer and their odds, in plain words.

`stated_odds` is the text in a survey's public part; it belongs to the survey's digest. `odds_in_words` is
what respondents read before coins are drawn, and `sent_in_words` afterwards. Both come from the recipe's
whole numbers, never from the owner's text. The page says the same (survey/pages/words.js);
tests/survey/vectors.json holds both to it.

Odds in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from fractions import Fraction
from itertools import count
from math import ceil, floor, prod
from typing import Any, Protocol

from lapwing.survey.questionnaire import (
    NO_ANSWER,
    AnswerCoding,
    DateScale,
    NumberScale,
    WordCoding,
    decimal_text,
)
from lapwing.survey.randomize import ODDS, Recipe, message_count, message_size
from lapwing.survey.randomizers import (
    BitwiseResponse,
    FrequencyOracle,
    KaryResponse,
    PrefixResponse,
    Randomizer,
    SubsetSelection,
    UnaryEncoding,
)

THREE_QUARTERS = Fraction(3, 4)


def percent(chance: Fraction) -> str:
    """Return a chance as a percentage. An uncertain event is never shown as certain."""
    tenths = round(chance * 1000)
    if tenths == 0 and chance:
        return "less than 0.1 %"
    if tenths == 1000 and chance != 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %" if tenths % 10 else f"{tenths // 10} %"


def worst_ratio(randomizers: Sequence[Randomizer], *, asks_all: bool) -> Fraction:
    """Return the greatest ratio of a whole report's probabilities under two sets of answers: exact."""
    ratios = [randomizer.ratio for randomizer in randomizers]
    return prod(ratios, start=Fraction(1)) if asks_all else max(ratios)


def posterior_text(ratio: Fraction) -> str:
    """Return how likely one of two answers can become by a report, rounded up and below 100 %.

    Both are equally likely before, and the report is at most `ratio` times as likely with one of them.
    """
    for digits in count(1):
        parts = ceil(ratio / (1 + ratio) * 100 * 10**digits)
        if parts < 100 * 10**digits:
            break
    whole, rest = divmod(parts, 10**digits)
    return f"{whole}.{rest:0{digits}} %"


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
            return _stated_scale(randomizer.recipe())


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


def _stated_scale(recipe: dict[str, Any]) -> str:
    if recipe["kind"] == "hybrid":
        chance = percent(Fraction(recipe["odds"], ODDS))
        return (
            f"Your device first chooses one of two ways. With a chance of {chance}, "
            f"{_stated_window(recipe['window'])} Otherwise, {_stated_duchi(recipe['duchi'])}"
        )
    sentence = _stated_window(recipe) if recipe["kind"] == "window" else _stated_duchi(recipe)
    return f"On your device, {sentence}"


def _stated_window(recipe: dict[str, Any]) -> str:
    width = recipe["width"]
    messages = recipe["steps"] * recipe["stride"] + width * (1 + recipe["none"])
    near = percent(Fraction(recipe["favoured"], ODDS))
    return (
        f"one of {messages:,} numbers is sent; with a chance of {near} it is one of the {width:,} around "
        "your own answer, all alike, else any other."
    )


def _stated_duchi(recipe: dict[str, Any]) -> str:
    options = 2 + recipe["none"]
    truth = Fraction(recipe["favoured"], ODDS)
    other = (1 - truth) / (options - 1)
    none = f' Whoever does not answer sends "none" with {percent(truth)}.' if recipe["none"] else ""
    words = '"low", "high" or "none"' if recipe["none"] else '"low" or "high"'
    return (
        f'only {words} is sent. "High" has a chance of {percent(other)} for the lowest answer, '
        f"{percent(truth)} for the highest, and in between it rises evenly.{none}"
    )


MOST_LISTED = 12


class DescribedQuestion(Protocol):
    """A question with its coding and recipe, as `OfferedQuestion` is."""

    @property
    def coding(self) -> AnswerCoding:
        """The coding of its answers."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of its randomizer."""

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers."""


class DescribedSurvey(Protocol):
    """A survey with its questions, as `OfferedSurvey` is."""

    @property
    def asks_all(self) -> bool:
        """Whether all questions are asked, or one."""

    @property
    def questions(self) -> Sequence[object]:
        """All questions."""

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a report's probabilities under two sets of answers."""


def odds_in_words(question: DescribedQuestion) -> list[str]:
    """Return the possible messages of a question and their odds, as sentences."""
    recipe = question.recipe
    worst = ceil(question.ratio * 10)
    return [
        *_ODDS[recipe["kind"]](question.coding, recipe),
        f"No message is more than {worst // 10:,}.{worst % 10} times as likely with one answer as with "
        "another.",
    ]


def promise_in_words(offered: DescribedSurvey) -> str:
    """Return the privacy of all questions together, in two sentences."""
    lead = next((words for most, words in _LEADS if offered.ratio <= most), _LEAD_ABOVE_ALL)
    count = len(offered.questions) if offered.asks_all else 1
    two = f"two sets of answers to all {count} questions" if count > 1 else "two answers"
    most = posterior_text(offered.ratio)
    return f"{lead} If {two} seem equally likely before, one of them may be up to {most} likely afterwards."


_LEADS = (
    (Fraction(3), "So nobody can be sure what you answered."),
    (
        Fraction(7389057, 10**6),
        "So what is sent hints at what you answered, and does not settle it.",
    ),  # ε 2
    (Fraction(99), "But what is sent can show what you answered."),
)
_LEAD_ABOVE_ALL = "But what is sent can all but settle what you answered: the coins hide little."


def chance_text(share: Fraction) -> str:
    """Return a chance as 73.1 %, or 1 in 512."""
    if share < Fraction(1, 100):
        return f"1 in {floor(1 / share + Fraction(1, 2)):,}" if share else "none"
    tenths = floor(share * 1000 + Fraction(1, 2))
    if tenths >= 1000 and share < 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %"


def _probability(favoured: int) -> Fraction:
    return Fraction(favoured, ODDS)


def _quoted(label: str) -> str:
    return f"“{label}”"


def _choice(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    count, favoured = recipe["options"], _probability(recipe["favoured"])
    listed = f"the {count:,} possible answers"
    if count <= MOST_LISTED:
        listed = ", ".join(_quoted(coding.text_of(code)) for code in range(count))
    others = "The other one" if count == 2 else "Each other one"
    return [
        f"The message is one of {listed}.",
        f"It is your own answer: chance {chance_text(favoured)}. "
        f"{others}: chance {chance_text((1 - favoured) / (count - 1))}.",
    ]


def _on_list(first: str, mine: Fraction, other: Fraction) -> list[str]:
    odds = f"chance {chance_text(mine)}. Each other one is on it: chance {chance_text(other)}."
    return [first, f"Your own answer is on the list: {odds}"]


def _subset(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    count, chosen, favoured = recipe["options"], recipe["chosen"], _probability(recipe["favoured"])
    other = (favoured * (chosen - 1) + (1 - favoured) * chosen) / (count - 1)
    first = f"The message is a list of {chosen} out of the {count:,} possible answers."
    return _on_list(first, favoured, other)


def _unary(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    return _on_list(
        f"The message is a list. For each of the {recipe['options']:,} possible answers a coin decides "
        "whether it is on it.",
        _probability(recipe["one"]),
        _probability(recipe["zero"]),
    )


def _numbered(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    favoured = _probability(recipe["favoured"])
    if recipe["kind"] == "hadamard":
        inside, both, every = 2, 1, 4
    else:
        q, t = recipe["prime"], recipe["dimension"]
        inside, both, every = ((q**k - 1) // (q - 1) for k in (t - 1, t - 2, t))
    other = favoured * Fraction(both, inside) + (1 - favoured) * Fraction(inside - both, every - inside)
    return [
        f"The message is a number from 0 to {message_count(recipe) - 1:,}. Every number fits many answers.",
        f"It fits your own answer: chance {chance_text(favoured)}. "
        f"It fits some other given answer: chance {chance_text(other)}.",
    ]


def _bits(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    favoured = _probability(recipe["favoured"])
    return [
        "The message is the list with its ticks. For every line a coin of its own is thrown.",
        f"A line is sent as you left it: chance {chance_text(favoured)}. "
        f"It is sent the other way round: chance {chance_text(1 - favoured)}.",
    ]


def _or_none(recipe: Recipe) -> str:
    return f", or {_quoted(NO_ANSWER)}" if recipe["none"] else ""


def _none_odds(recipe: Recipe, favoured: Fraction, other: Fraction) -> list[str]:
    given = f"{_quoted(NO_ANSWER)} is sent if you give none: chance {chance_text(favoured)}; "
    return [given + f"if you give an answer: chance {chance_text(other)}."] if recipe["none"] else []


def _window(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    favoured, width = _probability(recipe["favoured"]), recipe["width"]
    low, high = (
        _window_value(coding, recipe, end) for end in (0, recipe["steps"] * recipe["stride"] + width - 1)
    )
    away = _distance(coding, Fraction(width - 1, 2 * recipe["stride"]))
    return [
        f"The message is a value between {low} and {high}{_or_none(recipe)}.",
        f"It lies at most {away} away from your answer: chance {chance_text(favoured)}. "
        f"It is anything else: chance {chance_text(1 - favoured)}.",
        *_none_odds(recipe, favoured, (1 - favoured) * Fraction(width, message_count(recipe) - width)),
    ]


def _duchi(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    favoured, others = _probability(recipe["favoured"]), 1 + recipe["none"]
    low, high = coding.text_of(0), coding.text_of(recipe["steps"])
    return [
        f"The message is only {low} or {high}{_or_none(recipe)}.",
        f"If your answer is {low}, it is {low}: chance {chance_text(favoured)}, "
        f"and {high}: chance {chance_text((1 - favoured) / others)}. "
        f"The higher your answer, the more often it is {high}.",
        *_none_odds(recipe, favoured, (1 - favoured) / others),
    ]


def _hybrid(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    wide = _probability(recipe["odds"])
    if wide in (0, 1):  # the coin is certain, so there is one way
        return _window(coding, recipe["window"]) if wide else _duchi(coding, recipe["duchi"])
    return [
        "First a coin chooses one of two ways. Which one is sent along.",
        f"First way, chance {chance_text(wide)}: {' '.join(_window(coding, recipe['window']))}",
        f"Second way, chance {chance_text(1 - wide)}: {' '.join(_duchi(coding, recipe['duchi']))}",
    ]


def _prefixes(coding: AnswerCoding, recipe: Recipe) -> list[str]:
    levels = ", ".join(str(level) for level in recipe["levels"])
    every = zip(recipe["levels"], recipe["inner"], strict=True)
    return [
        f"First it is drawn how many letters of your word count: {levels}, all equally likely. "
        "How many is sent along.",
        *(
            f"If {level} count: {' '.join(_ODDS[inner['kind']](WordCoding(level, no_answer=True), inner))}"
            for level, inner in every
        ),
    ]


_ODDS: dict[str, Callable[[AnswerCoding, Recipe], list[str]]] = {
    "choice": _choice, "subset": _subset, "unary": _unary, "hadamard": _numbered, "projective": _numbered,
    "bits": _bits, "window": _window, "duchi": _duchi, "hybrid": _hybrid, "prefixes": _prefixes,
}  # fmt: skip


def _window_value(coding: AnswerCoding, recipe: Recipe, message: int) -> str:
    """Return the value of a window's message: the middle of the answers that favour it."""
    steps = Fraction(2 * message - (recipe["width"] - 1), 2 * recipe["stride"])
    if isinstance(coding, DateScale):
        day = coding.low.toordinal() + floor(steps * coding.step)
        return str(date.fromordinal(min(max(day, 1), date.max.toordinal())))  # a window may reach further
    assert isinstance(coding, NumberScale)
    return _scale_text(floor, coding, coding.low, steps)


def _scale_text(
    rounded: Callable[[Fraction], int], grid: NumberScale, low: Fraction, steps: Fraction
) -> str:
    """Return a number with one digit more than the scale's own numbers have."""
    unit = 10 ** (1 + max(_places(grid.low), _places(grid.step)))
    text = decimal_text(Fraction(rounded((low + steps * grid.step) * unit), unit))
    whole, _, part = text.partition(".")
    return f"{whole}.{part.ljust(len(str(unit)) - 1, '0')}"


def _places(value: Fraction) -> int:
    return len(decimal_text(value).partition(".")[2])


def _distance(coding: AnswerCoding, steps: Fraction) -> str:
    if isinstance(coding, DateScale):
        return f"{ceil(steps * coding.step)} days"
    assert isinstance(coding, NumberScale)
    return _scale_text(ceil, coding, Fraction(0), steps)


def sent_in_words(question: DescribedQuestion, message: bytes) -> str:
    """Return the content of a message in words."""
    return _message_text(question.coding, question.recipe, message)


def _message_text(coding: AnswerCoding, recipe: Recipe, message: bytes) -> str:
    match recipe["kind"]:
        case "choice":
            said = _quoted(coding.text_of(int.from_bytes(message, "big")))
        case "subset" | "unary":
            said = _list_text(message, recipe, coding.text_of)
        case "bits":
            ticked = [coding.labels[place] for place in _mask_options(message, recipe["options"])]
            said = f"the list with ticks at {_quoted_list(ticked)}" if ticked else "the list without ticks"
        case "window" | "duchi":
            said = _value_text(coding, recipe, int.from_bytes(message, "big"))
        case "hybrid":
            way, inner = ("first", recipe["window"]) if message[0] else ("second", recipe["duchi"])
            said = _message_text(coding, inner, message[1 : 1 + message_size(inner)])
            if recipe["odds"] not in (0, ODDS):
                said = f"the {way} way, and {said}"
        case "prefixes":
            level, inner = recipe["levels"][message[0]], recipe["inner"][message[0]]
            prefix = _message_text(
                WordCoding(level, no_answer=True), inner, message[1 : 1 + message_size(inner)]
            )
            said = f"{level} letters count, and {prefix}"
        case _:
            said = f"the number {int.from_bytes(message, 'big'):,}"
    return said


def _list_text(mask: bytes, recipe: Recipe, said: Callable[[int], str]) -> str:
    codes = _mask_options(mask, recipe["options"])
    return f"the list {_quoted_list([said(code) for code in codes])}" if codes else "an empty list"


def _value_text(coding: AnswerCoding, recipe: Recipe, number: int) -> str:
    steps = recipe["steps"]
    if recipe["kind"] == "duchi":
        return _quoted(NO_ANSWER) if number == 2 else f"the value {coding.text_of(steps if number else 0)}"
    values = steps * recipe["stride"] + recipe["width"]
    return f"the value {_window_value(coding, recipe, number)}" if number < values else _quoted(NO_ANSWER)


def _mask_options(mask: bytes, options: int) -> list[int]:
    return [option for option in range(options) if mask[option // 8] >> option % 8 & 1]


def _quoted_list(names: list[str]) -> str:
    first = ", ".join(map(_quoted, names[:MOST_LISTED]))
    return f"{first} and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else first
