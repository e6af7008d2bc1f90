"""The possible messages and their odds in plain words, and what was sent.

The words come from the recipe's whole numbers, never from what the survey's owner says. The page says the
same (server/pages/words.js); tests/survey/vectors.json holds both to it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from fractions import Fraction
from math import ceil, floor

from lapwing.survey.planning.odds import likely
from lapwing.survey.questionnaire.coding import NO_ANSWER, Coding
from lapwing.survey.questionnaire.scales import Days, Grid, decimal_text
from lapwing.survey.questionnaire.words import Word
from lapwing.survey.respondent.offered import Asked, Offered
from lapwing.survey.throwing import ODDS, Recipe, messages, size

LISTED = 12


def odds_in_words(question: Asked) -> list[str]:
    """The possible messages and their odds, as sentences."""
    recipe = question.recipe
    worst = ceil(question.ratio * 10)
    return [
        *_ODDS[recipe["kind"]](question.coding, recipe),
        f"No message is more than {worst // 10:,}.{worst % 10} times as likely with one answer as with "
        "another.",
    ]


def promise(offered: Offered) -> str:
    """What the coins of all questions together promise, in two sentences."""
    lead = next((words for most, words in _LEADS if offered.ratio <= most), _LITTLE)
    count = len(offered.questions) if offered.asks_all else 1
    two = f"two sets of answers to all {count} questions" if count > 1 else "two answers"
    most = likely(offered.ratio)
    return f"{lead} If {two} seem equally likely before, one of them may be up to {most} likely afterwards."


_LEADS = (
    (Fraction(3), "So nobody can be sure what you answered."),
    (
        Fraction(7389057, 10**6),
        "So what is sent hints at what you answered, and does not settle it.",
    ),  # ε 2
    (Fraction(99), "But what is sent can show what you answered."),
)
_LITTLE = "But what is sent can all but settle what you answered: the coins hide little."


def chance(share: Fraction) -> str:
    """73.1 %, or 1 in 512."""
    if share < Fraction(1, 100):
        return f"1 in {floor(1 / share + Fraction(1, 2)):,}" if share else "none"
    tenths = floor(share * 1000 + Fraction(1, 2))
    if tenths >= 1000 and share < 1:
        return "more than 99.9 %"
    return f"{tenths // 10}.{tenths % 10} %"


def _of(favoured: int) -> Fraction:
    return Fraction(favoured, ODDS)


def _quoted(label: str) -> str:
    return f"“{label}”"


def _choice(coding: Coding, recipe: Recipe) -> list[str]:
    count, favoured = recipe["options"], _of(recipe["favoured"])
    listed = f"the {count:,} possible answers"
    if count <= LISTED:
        listed = ", ".join(_quoted(coding.said(code)) for code in range(count))
    others = "The other one" if count == 2 else "Each other one"
    return [
        f"The message is one of {listed}.",
        f"It is your own answer: chance {chance(favoured)}. "
        f"{others}: chance {chance((1 - favoured) / (count - 1))}.",
    ]


def _on_list(first: str, mine: Fraction, other: Fraction) -> list[str]:
    odds = f"chance {chance(mine)}. Each other one is on it: chance {chance(other)}."
    return [first, f"Your own answer is on the list: {odds}"]


def _subset(coding: Coding, recipe: Recipe) -> list[str]:
    count, chosen, favoured = recipe["options"], recipe["chosen"], _of(recipe["favoured"])
    other = (favoured * (chosen - 1) + (1 - favoured) * chosen) / (count - 1)
    first = f"The message is a list of {chosen} out of the {count:,} possible answers."
    return _on_list(first, favoured, other)


def _unary(coding: Coding, recipe: Recipe) -> list[str]:
    return _on_list(
        f"The message is a list. For each of the {recipe['options']:,} possible answers a coin decides "
        "whether it is on it.",
        _of(recipe["one"]),
        _of(recipe["zero"]),
    )


def _numbered(coding: Coding, recipe: Recipe) -> list[str]:
    favoured = _of(recipe["favoured"])
    if recipe["kind"] == "hadamard":
        inside, both, every = 2, 1, 4
    else:
        q, t = recipe["prime"], recipe["dimension"]
        inside, both, every = ((q**k - 1) // (q - 1) for k in (t - 1, t - 2, t))
    other = favoured * Fraction(both, inside) + (1 - favoured) * Fraction(inside - both, every - inside)
    return [
        f"The message is a number from 0 to {messages(recipe) - 1:,}. Every number fits many answers.",
        f"It fits your own answer: chance {chance(favoured)}. "
        f"It fits some other given answer: chance {chance(other)}.",
    ]


def _bits(coding: Coding, recipe: Recipe) -> list[str]:
    favoured = _of(recipe["favoured"])
    return [
        "The message is the list with its ticks. For every line a coin of its own is thrown.",
        f"A line is sent as you left it: chance {chance(favoured)}. "
        f"It is sent the other way round: chance {chance(1 - favoured)}.",
    ]


def _or_none(recipe: Recipe) -> str:
    return f", or {_quoted(NO_ANSWER)}" if recipe["none"] else ""


def _none_odds(recipe: Recipe, favoured: Fraction, other: Fraction) -> list[str]:
    given = f"{_quoted(NO_ANSWER)} is sent if you give none: chance {chance(favoured)}; "
    return [given + f"if you give an answer: chance {chance(other)}."] if recipe["none"] else []


def _window(coding: Coding, recipe: Recipe) -> list[str]:
    favoured, width = _of(recipe["favoured"]), recipe["width"]
    low, high = (_shown(coding, recipe, end) for end in (0, recipe["steps"] * recipe["stride"] + width - 1))
    away = _distance(coding, Fraction(width - 1, 2 * recipe["stride"]))
    return [
        f"The message is a value between {low} and {high}{_or_none(recipe)}.",
        f"It lies at most {away} away from your answer: chance {chance(favoured)}. "
        f"It is anything else: chance {chance(1 - favoured)}.",
        *_none_odds(recipe, favoured, (1 - favoured) * Fraction(width, messages(recipe) - width)),
    ]


def _duchi(coding: Coding, recipe: Recipe) -> list[str]:
    favoured, others = _of(recipe["favoured"]), 1 + recipe["none"]
    low, high = coding.said(0), coding.said(recipe["steps"])
    return [
        f"The message is only {low} or {high}{_or_none(recipe)}.",
        f"If your answer is {low}, it is {low}: chance {chance(favoured)}, "
        f"and {high}: chance {chance((1 - favoured) / others)}. "
        f"The higher your answer, the more often it is {high}.",
        *_none_odds(recipe, favoured, (1 - favoured) / others),
    ]


def _hybrid(coding: Coding, recipe: Recipe) -> list[str]:
    wide = _of(recipe["odds"])
    if wide in (0, 1):  # the coin is certain, so there is one way
        return _window(coding, recipe["window"]) if wide else _duchi(coding, recipe["duchi"])
    return [
        "First a coin chooses one of two ways. Which one is sent along.",
        f"First way, chance {chance(wide)}: {' '.join(_window(coding, recipe['window']))}",
        f"Second way, chance {chance(1 - wide)}: {' '.join(_duchi(coding, recipe['duchi']))}",
    ]


def _prefixes(coding: Coding, recipe: Recipe) -> list[str]:
    levels = ", ".join(str(level) for level in recipe["levels"])
    every = zip(recipe["levels"], recipe["inner"], strict=True)
    return [
        f"First it is drawn how many letters of your word count: {levels}, all equally likely. "
        "How many is sent along.",
        *(
            f"If {level} count: {' '.join(_ODDS[inner['kind']](Word(level, no_answer=True), inner))}"
            for level, inner in every
        ),
    ]


_ODDS: dict[str, Callable[[Coding, Recipe], list[str]]] = {
    "choice": _choice, "subset": _subset, "unary": _unary, "hadamard": _numbered, "projective": _numbered,
    "bits": _bits, "window": _window, "duchi": _duchi, "hybrid": _hybrid, "prefixes": _prefixes,
}  # fmt: skip


def _shown(coding: Coding, recipe: Recipe, message: int) -> str:
    """The value that a message of a window stands for: the middle of the answers that favour it."""
    steps = Fraction(2 * message - (recipe["width"] - 1), 2 * recipe["stride"])
    if isinstance(coding, Days):
        day = coding.low.toordinal() + floor(steps * coding.step)
        return str(date.fromordinal(min(max(day, 1), date.max.toordinal())))  # a window may reach further
    assert isinstance(coding, Grid)
    return _cut(floor, coding, coding.low, steps)


def _cut(rounded: Callable[[Fraction], int], grid: Grid, low: Fraction, steps: Fraction) -> str:
    """A number with one digit more than the grid's own numbers have."""
    unit = 10 ** (1 + max(_places(grid.low), _places(grid.step)))
    text = decimal_text(Fraction(rounded((low + steps * grid.step) * unit), unit))
    whole, _, part = text.partition(".")
    return f"{whole}.{part.ljust(len(str(unit)) - 1, '0')}"


def _places(value: Fraction) -> int:
    return len(decimal_text(value).partition(".")[2])


def _distance(coding: Coding, steps: Fraction) -> str:
    if isinstance(coding, Days):
        return f"{ceil(steps * coding.step)} days"
    assert isinstance(coding, Grid)
    return _cut(ceil, coding, Fraction(0), steps)


def sent_in_words(question: Asked, message: bytes) -> str:
    """What a message says."""
    return _sent(question.coding, question.recipe, message)


def _sent(coding: Coding, recipe: Recipe, message: bytes) -> str:
    match recipe["kind"]:
        case "choice":
            said = _quoted(coding.said(int.from_bytes(message, "big")))
        case "subset" | "unary":
            said = _list(message, recipe, coding.said)
        case "bits":
            ticked = [coding.labels[place] for place in _set(message, recipe["options"])]
            said = f"the list with ticks at {_several(ticked)}" if ticked else "the list without ticks"
        case "window" | "duchi":
            said = _value(coding, recipe, int.from_bytes(message, "big"))
        case "hybrid":
            way, inner = ("first", recipe["window"]) if message[0] else ("second", recipe["duchi"])
            said = _sent(coding, inner, message[1 : 1 + size(inner)])
            if recipe["odds"] not in (0, ODDS):
                said = f"the {way} way, and {said}"
        case "prefixes":
            level, inner = recipe["levels"][message[0]], recipe["inner"][message[0]]
            prefix = _sent(Word(level, no_answer=True), inner, message[1 : 1 + size(inner)])
            said = f"{level} letters count, and {prefix}"
        case _:
            said = f"the number {int.from_bytes(message, 'big'):,}"
    return said


def _list(mask: bytes, recipe: Recipe, said: Callable[[int], str]) -> str:
    codes = _set(mask, recipe["options"])
    return f"the list {_several([said(code) for code in codes])}" if codes else "an empty list"


def _value(coding: Coding, recipe: Recipe, number: int) -> str:
    steps = recipe["steps"]
    if recipe["kind"] == "duchi":
        return _quoted(NO_ANSWER) if number == 2 else f"the value {coding.said(steps if number else 0)}"
    values = steps * recipe["stride"] + recipe["width"]
    return f"the value {_shown(coding, recipe, number)}" if number < values else _quoted(NO_ANSWER)


def _set(mask: bytes, options: int) -> list[int]:
    return [option for option in range(options) if mask[option // 8] >> option % 8 & 1]


def _several(names: list[str]) -> str:
    first = ", ".join(map(_quoted, names[:LISTED]))
    return f"{first} and {len(names) - LISTED:,} more" if len(names) > LISTED else first
