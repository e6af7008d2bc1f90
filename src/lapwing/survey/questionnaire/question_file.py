"""One question of a survey file: which keys a kind has, and what they may say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import cast

from lapwing.survey.questionnaire.coding import Coding, OneOf, Ranked, Several
from lapwing.survey.questionnaire.options import options_of, prose, why_no_labels
from lapwing.survey.questionnaire.scales import Days, Grid, decimal_text
from lapwing.survey.questionnaire.survey import About, Kind, Question
from lapwing.survey.questionnaire.words import Word
from lapwing.toml.section import NAME, Section, either, kind_of

COMMON = ("name", "text", "kind", "no_answer", "protocol")
KEYS: dict[str, tuple[str, ...]] = {
    "yes_no": ("options",),
    "choice": ("options", "options_file"),
    "several": ("options", "as"),
    "rating": ("low", "high"),
    "ranking": ("options",),
    "number": ("low", "high", "step", "about"),
    "date": ("low", "high", "step", "about"),
    "word": ("letters",),
}
QUESTION = tuple(dict.fromkeys([*COMMON, *(key for keys in KEYS.values() for key in keys)]))
ABOUT = ("mean", "distribution")
OPTIONS_AT_MOST = 1 << 20
MASKS_AT_MOST = 1 << 16  # options of a report that has a bit for each of them
BITS_AT_MOST = 60
SET_AT_MOST = 12
RANKED_AT_MOST = 6
STEPS_AT_MOST = 1 << 16
LETTERS_AT_MOST = 12
LETTERS = 8
RATING_AT_MOST = 100
SHARES = ("choice", "subset", "hadamard", "projective", "unary")
PROTOCOLS: dict[About, tuple[str, ...]] = {
    "shares": SHARES,
    "mean": ("duchi", "piecewise", "hybrid"),
    "distribution": ("square_wave", "piecewise"),
    "words": (),
}
TWO_COINS = "two_coins"


def coins_of(question: Question) -> int:
    """How many times a respondent throws the textbook's two coins; 0 for other protocols."""
    if question.protocol != TWO_COINS:
        return 0
    return question.coding.bits if isinstance(question.coding, Several) else 1


def question_of(section: Section, path: Path) -> Question | None:
    """The question in a table. What is wrong is noted, and None stands for it."""
    name, text = _name(section), prose(section, "text")
    if not section.has("text"):
        section.missing("text", 'text = "How many hours do you sleep?": what respondents read')
    if not section.has("kind"):
        section.missing("kind", f"kind = {either(tuple(KEYS))}")
    kind = section.one_of("kind", tuple(KEYS))
    if kind is None:
        return None
    strangers = [key for key in section.values if key in QUESTION and key not in (*COMMON, *KEYS[kind])]
    for key in strangers:
        known = f"It has {', '.join(KEYS[kind])}"
        section.wrong(key, f'is not for a question of kind "{kind}". {known}')
    no_answer = section.flag("no_answer") if section.has("no_answer") else True
    coding = _CODINGS[kind](section, path, no_answer)
    about = _about(section, kind)
    if coding is None or about is None:
        return None
    protocol = _protocol(section, coding, about)
    if name is None or text is None:
        return None
    return Question(name, text, cast(Kind, kind), coding, about, protocol)


def _name(section: Section) -> str | None:
    if not section.has("name"):
        section.missing("name", 'name = "sleep": one word')
    name = section.text("name")
    if name is not None and not NAME.fullmatch(name):
        section.wrong(
            "name", "must have letters a-z, digits and _, begin with no digit, and be at most 63 long"
        )
        return None
    return name


def _about(section: Section, kind: str) -> About | None:
    if kind == "word":
        return "words"
    if kind not in ("number", "date"):
        return "shares"
    if not section.has("about"):
        return "mean" if kind == "number" else "distribution"
    return cast(About | None, section.one_of("about", ABOUT))


def _protocol(section: Section, coding: Coding, about: About) -> str | None:
    """The protocol that the owner forces, if it can be had for this question."""
    if not section.has("protocol"):
        return None
    in_bits = isinstance(coding, Several) and not coding.as_set
    known: tuple[str, ...] = () if in_bits else PROTOCOLS[about]
    if in_bits or about == "shares":
        known = (TWO_COINS, *known)
    if not known:
        section.wrong("protocol", "cannot be chosen for words: remove this line")
        return None
    protocol = section.one_of("protocol", known)
    if protocol == TWO_COINS and not in_bits and coding.inputs != 2:
        extra = ": write no_answer = false" if coding.inputs == 3 and coding.no_answer else ""
        section.wrong("protocol", f"two coins need exactly two options, here are {coding.inputs:,}{extra}")
    if protocol in ("subset", "unary") and coding.inputs > MASKS_AT_MOST:
        section.wrong("protocol", f"has a bit for each option: at most {MASKS_AT_MOST:,}. Remove this line")
    return protocol


def _yes_no(section: Section, path: Path, no_answer: bool) -> Coding | None:
    if not section.has("options"):
        return OneOf(("yes", "no"), no_answer)
    options = options_of(section, path, least=2, most=2)
    return None if options is None else OneOf(options, no_answer)


def _choice(section: Section, path: Path, no_answer: bool) -> Coding | None:
    options = options_of(section, path, least=2, most=OPTIONS_AT_MOST - no_answer)
    return None if options is None else OneOf(options, no_answer)


def _several(section: Section, path: Path, no_answer: bool) -> Coding | None:
    form = section.one_of("as", ("bits", "set")) if section.has("as") else "bits"
    options = options_of(section, path, least=2, most=SET_AT_MOST if form == "set" else BITS_AT_MOST)
    return None if options is None or form is None else Several(options, no_answer, as_set=form == "set")


def _ranking(section: Section, path: Path, no_answer: bool) -> Coding | None:
    options = options_of(section, path, least=2, most=RANKED_AT_MOST)
    return None if options is None else Ranked(options, no_answer)


def _rating(section: Section, path: Path, no_answer: bool) -> Coding | None:
    ends = [section.whole(key, least=-1000, most=1000) if section.has(key) else default
            for key, default in (("low", 1), ("high", 5))]  # fmt: skip
    low, high = ends
    if low is None or high is None:
        return None
    if not low < high < low + RATING_AT_MOST:
        section.wrong("high", f"must be above low, {low}, and below {low + RATING_AT_MOST}")
        return None
    labels = tuple([str(number) for number in range(low, high + 1)])
    assert why_no_labels(labels) is None
    return OneOf(labels, no_answer)


def _number(section: Section, path: Path, no_answer: bool) -> Coding | None:
    for key, write in (("low", "low = 0"), ("high", "high = 24"), ("step", "step = 0.5")):
        if not section.has(key):
            section.missing(key, f"{write}, or what fits: bounds are public")
    low, high, step = (section.number(key) for key in ("low", "high", "step"))
    if low is None or high is None or step is None:
        return None
    if not low < high:
        section.wrong("high", "must be above low")
    elif step <= 0:
        section.wrong("step", "must be above 0")
    elif any(abs(value) > 10**15 or value.denominator > 10**15 for value in (low, high, step)):
        section.wrong("low", "and high and step must have at most 15 digits on either side of the point")
    elif (high - low) % step:
        section.wrong("step", f"must divide high - low, {decimal_text(high - low)}, without a rest")
    elif (high - low) / step > STEPS_AT_MOST:
        least = Fraction(high - low) / STEPS_AT_MOST
        section.wrong(
            "step", f"is too small: {STEPS_AT_MOST:,} steps at most. Write {float(least):.3g} or more"
        )
    else:
        return Grid(low, high, step, no_answer)
    return None


def _date(section: Section, path: Path, no_answer: bool) -> Coding | None:
    ends: list[date] = []
    for key, write in (("low", "low = 2020-01-01"), ("high", "high = 2026-12-31")):
        value = section.values.get(key)
        if value is None:
            section.missing(key, f"{write}, or what fits: bounds are public")
        elif not isinstance(value, date) or isinstance(value, datetime):
            section.wrong(
                key, f"must be a date without quotes and time, such as 2020-01-01, not {kind_of(value)}"
            )
        else:
            ends.append(value)
    step = section.whole("step", least=1, most=36_525) if section.has("step") else 1
    if len(ends) < 2 or step is None:
        return None
    low, high = ends
    if not low < high:
        section.wrong("high", "must be after low")
    elif (high - low).days < step:
        section.wrong("step", "must be a number of days that fits between low and high")
    elif (high - low).days // step > STEPS_AT_MOST:
        section.wrong("step", f"is too small: {STEPS_AT_MOST:,} steps at most")
    else:
        return Days(low, high, step, no_answer)
    return None


def _word(section: Section, path: Path, no_answer: bool) -> Coding | None:
    letters = section.whole("letters", least=1, most=LETTERS_AT_MOST) if section.has("letters") else LETTERS
    return None if letters is None else Word(letters, no_answer)


_CODINGS: dict[str, Callable[[Section, Path, bool], Coding | None]] = {
    "yes_no": _yes_no,
    "choice": _choice,
    "several": _several,
    "rating": _rating,
    "ranking": _ranking,
    "number": _number,
    "date": _date,
    "word": _word,
}
