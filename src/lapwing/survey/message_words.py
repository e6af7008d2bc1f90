"""The messages that a device can send, and their odds, in the words that a respondent reads.

`odds_in_words` is read before coins are drawn, `sent_in_words` afterwards. Both come from the randomizer's
whole numbers, never from the owner's text. The page says the same (survey/pages/words.js);
tests/survey/vectors.json holds both to it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from fractions import Fraction
from math import ceil, floor

from lapwing.core.chances import chance_text, posterior_text
from lapwing.survey import randomizers
from lapwing.survey.offered import OfferedQuestion, OfferedSurvey
from lapwing.survey.questionnaire import (
    NO_ANSWER,
    AnswerCoding,
    DateScale,
    NumberScale,
    WordCoding,
    decimal_text,
)
from lapwing.survey.randomizers.randomizer import IndexMessages

MOST_LISTED = 12
# The lead of the promise, by the greatest ratio of a report's probabilities.
_LEADS = (
    (Fraction(3), "So nobody can be sure what you answered."),
    # Up to ε 2.
    (Fraction(7389057, 10**6), "So what is sent hints at what you answered, and does not settle it."),
    (Fraction(99), "But what is sent can show what you answered."),
)
_ON_THE_LIST = "Your own answer is on the list", "Each other one is on it"
_LEAD_ABOVE_ALL = "But what is sent can all but settle what you answered: the coins hide little."


def odds_in_words(question: OfferedQuestion) -> list[str]:
    """Return the possible messages of a question and their odds, as sentences."""
    worst = ceil(question.randomizer.ratio * 10)
    return [
        *_odds(question.coding, question.randomizer),
        f"No message is more than {worst // 10:,}.{worst % 10} times as likely with one answer as with "
        "another.",
    ]


def promise_in_words(offered: OfferedSurvey) -> str:
    """Return the privacy of all questions together, in two sentences."""
    lead = next((words for most, words in _LEADS if offered.layout.ratio <= most), _LEAD_ABOVE_ALL)
    count = len(offered.questions) if offered.asks_all else 1
    two = f"two sets of answers to all {count} questions" if count > 1 else "two answers"
    most = posterior_text(offered.layout.ratio)
    return f"{lead} If {two} seem equally likely before, one of them may be up to {most} likely afterwards."


def _odds(coding: AnswerCoding, randomizer: randomizers.Randomizer) -> list[str]:
    match randomizer:
        case randomizers.WindowResponse():
            return _window(coding, randomizer)
        case randomizers.DuchiResponse():
            return _duchi(coding, randomizer)
        case randomizers.HybridResponse():
            return _hybrid(coding, randomizer)
        case randomizers.PrefixResponse():
            return _prefixes(randomizer)
        case _:
            assert isinstance(randomizer, randomizers.FrequencyOracle)
            return _oracle(coding, randomizer)


def _quoted(label: str) -> str:
    return f"“{label}”"


def _oracle(coding: AnswerCoding, randomizer: randomizers.FrequencyOracle) -> list[str]:
    count = randomizer.options
    match randomizer:
        case randomizers.KaryResponse():
            listed = ", ".join(_quoted(coding.text_of(code)) for code in range(min(count, MOST_LISTED)))
            first = f"one of {listed if count <= MOST_LISTED else f'the {count:,} possible answers'}."
            own, other = "It is your own answer", "The other one" if count == 2 else "Each other one"
        case randomizers.SubsetSelection():
            first = f"a list of {randomizer.chosen} out of the {count:,} possible answers."
            own, other = _ON_THE_LIST
        case randomizers.UnaryEncoding():
            first = (
                f"a list. For each of the {count:,} possible answers a coin decides whether it is on it."
            )
            own, other = _ON_THE_LIST
        case randomizers.BitwiseResponse():
            first = "the list with its ticks. For every line a coin of its own is thrown."
            own, other = "A line is sent as you left it", "It is sent the other way round"
        case _:
            assert isinstance(randomizer, IndexMessages)
            first = f"a number from 0 to {randomizer.messages - 1:,}. Every number fits many answers."
            own, other = "It fits your own answer", "It fits some other given answer"
    inside, outside = chance_text(randomizer.inside), chance_text(randomizer.outside)
    return [f"The message is {first}", f"{own}: chance {inside}. {other}: chance {outside}."]


def _or_none(randomizer: randomizers.WindowResponse | randomizers.DuchiResponse) -> str:
    return f", or {_quoted(NO_ANSWER)}" if randomizer.none else ""


def _none_odds(randomizer: randomizers.WindowResponse | randomizers.DuchiResponse) -> list[str]:
    mine, other = chance_text(randomizer.truth), chance_text(randomizer.unlikely * randomizer.share)
    given = f"{_quoted(NO_ANSWER)} is sent if you give none: chance {mine}; "
    return [f"{given}if you give an answer: chance {other}."] if randomizer.none else []


def _window(coding: AnswerCoding, window: randomizers.WindowResponse) -> list[str]:
    low, high = (_window_value(coding, window, end) for end in (0, window.numbers - 1))
    away = _distance(coding, Fraction(window.width - 1, 2 * window.stride))
    return [
        f"The message is a value between {low} and {high}{_or_none(window)}.",
        f"It lies at most {away} away from your answer: chance {chance_text(window.truth)}. "
        f"It is anything else: chance {chance_text(1 - window.truth)}.",
        *_none_odds(window),
    ]


def _duchi(coding: AnswerCoding, duchi: randomizers.DuchiResponse) -> list[str]:
    low, high = coding.text_of(0), coding.text_of(duchi.steps)
    return [
        f"The message is only {low} or {high}{_or_none(duchi)}.",
        f"If your answer is {low}, it is {low}: chance {chance_text(duchi.truth)}, "
        f"and {high}: chance {chance_text(duchi.ends.outside)}. "
        f"The higher your answer, the more often it is {high}.",
        *_none_odds(duchi),
    ]


def _hybrid(coding: AnswerCoding, hybrid: randomizers.HybridResponse) -> list[str]:
    if len(hybrid.parts) == 1:  # the coin is certain, so there is one way
        [only] = hybrid.parts.values()
        return _odds(coding, only)
    wide = hybrid.chance(1)
    return [
        "First a coin chooses one of two ways. Which one is sent along.",
        f"First way, chance {chance_text(wide)}: {' '.join(_window(coding, hybrid.window))}",
        f"Second way, chance {chance_text(1 - wide)}: {' '.join(_duchi(coding, hybrid.duchi))}",
    ]


def _prefixes(words: randomizers.PrefixResponse) -> list[str]:
    levels = ", ".join(str(level) for level in words.levels)
    every = zip(words.levels, words.inner, strict=True)
    return [
        f"First it is drawn how many letters of your word count: {levels}, all equally likely. "
        "How many is sent along.",
        *(
            f"If {level} count: {' '.join(_odds(WordCoding(level, no_answer=True), inner))}"
            for level, inner in every
        ),
    ]


def _window_value(coding: AnswerCoding, window: randomizers.WindowResponse, message: int) -> str:
    """Return the value of a window's message: the middle of the answers that favour it."""
    steps = Fraction(2 * message - (window.width - 1), 2 * window.stride)
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


def sent_in_words(question: OfferedQuestion, message: bytes) -> str:
    """Return the content of a message in words."""
    return _message_text(question.coding, question.randomizer, message)


def _message_text(coding: AnswerCoding, randomizer: randomizers.Randomizer, message: bytes) -> str:
    match randomizer:
        case randomizers.KaryResponse():
            said = _quoted(coding.text_of(int.from_bytes(message, "big")))
        case randomizers.SubsetSelection() | randomizers.UnaryEncoding():
            listed = [coding.text_of(code) for code in _mask_options(message, randomizer.options)]
            said = f"the list {_quoted_list(listed)}" if listed else "an empty list"
        case randomizers.BitwiseResponse():
            ticked = [coding.labels[place] for place in _mask_options(message, randomizer.options)]
            said = f"the list with ticks at {_quoted_list(ticked)}" if ticked else "the list without ticks"
        case randomizers.WindowResponse() | randomizers.DuchiResponse():
            said = _value_text(coding, randomizer, int.from_bytes(message, "big"))
        case randomizers.HybridResponse():
            part = randomizer.parts[message[0]]
            said = _message_text(coding, part, message[1 : 1 + part.size])
            if len(randomizer.parts) > 1:
                said = f"the {'first' if message[0] else 'second'} way, and {said}"
        case randomizers.PrefixResponse():
            level, inner = randomizer.levels[message[0]], randomizer.inner[message[0]]
            prefix = _message_text(WordCoding(level, no_answer=True), inner, message[1 : 1 + inner.size])
            said = f"{level} letters count, and {prefix}"
        case _:
            said = f"the number {int.from_bytes(message, 'big'):,}"
    return said


def _value_text(
    coding: AnswerCoding, randomizer: randomizers.WindowResponse | randomizers.DuchiResponse, number: int
) -> str:
    if isinstance(randomizer, randomizers.DuchiResponse):
        values, value = 2, coding.text_of(randomizer.steps if number else 0)
    else:
        values, value = randomizer.numbers, _window_value(coding, randomizer, number)
    return f"the value {value}" if number < values else _quoted(NO_ANSWER)


def _mask_options(mask: bytes, options: int) -> list[int]:
    return [option for option in range(options) if mask[option // 8] >> option % 8 & 1]


def _quoted_list(names: list[str]) -> str:
    first = ", ".join(map(_quoted, names[:MOST_LISTED]))
    return f"{first} and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else first
