"""Read a survey file (TOML). All mistakes are reported together, each with its line.

```toml
[survey]
name = "canteen"
title = "The canteen"
epsilon = 2.0
stop_after = 5000
[[questions]]
name = "vegetarian"
text = "Did you eat a vegetarian meal this week?"
kind = "yes_no"
```
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Sequence
from datetime import date, datetime
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, cast

from lapwing.config.section import (
    NAME_PATTERN,
    TEXT_AT_MOST,
    LedgerLocations,
    Section,
    kind_of,
    quoted_choices,
    read_ledger_locations,
    read_location,
)
from lapwing.config.toml_text import dotted, quoted, read_toml
from lapwing.config.values import POSTGRES_SCHEMES
from lapwing.core.exact import log_up
from lapwing.core.losses import checked_epsilon
from lapwing.survey.questionnaire import (
    NO_ANSWER,
    AnswerCoding,
    DateScale,
    EstimationTarget,
    NumberScale,
    OneOf,
    Question,
    QuestionKind,
    Questionnaire,
    Ranked,
    Several,
    WordCoding,
    decimal_text,
)

MOST_LABEL_LETTERS = 200
MOST_FILE_BYTES = 64 << 20


def read_prose(section: Section, name: str, *, at_most: int = TEXT_AT_MOST) -> str | None:
    """Return a text for people, or None. It may have several lines, but no invisible characters."""
    value = section.values.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        section.wrong(name, f"must be a text in quotes, not {kind_of(value)}")
        return None
    text = value.strip()
    if not text:
        section.wrong(name, "must not be empty")
    elif len(text) > at_most:
        section.wrong(name, f"must have at most {at_most:,} letters")
    elif not text.replace("\n", "").isprintable():
        section.wrong(name, "must not have control characters or tabs")
    else:
        return text
    return None


def read_options(section: Section, path: Path, *, least: int, most: int) -> tuple[str, ...] | None:
    """Return the options of a question, from `options` or from the lines of `options_file`, or None."""
    if section.has("options") and section.has("options_file"):
        section.wrong("options_file", "must not stand beside options: write one of them")
        return None
    name = "options_file" if section.has("options_file") else "options"
    found = _options_from_file(section, path) if name == "options_file" else _options_listed(section)
    if found is None:
        return None
    if not least <= len(found) <= most:
        section.wrong(name, f"must be {least:,} to {most:,} options, not {len(found):,}")
        return None
    if why := label_problem(found):
        section.wrong(name, why)
        return None
    return tuple([str(label) for label in found])


def _options_listed(section: Section) -> Sequence[object] | None:
    found = section.values.get("options")
    if found is None:
        section.missing("options", 'options = ["blue", "green"]')
    elif not isinstance(found, list):
        section.wrong("options", f'must be a list such as ["blue", "green"], not {kind_of(found)}')
    else:
        return found
    return None


def label_problem(labels: Sequence[object]) -> str | None:
    """Return why these cannot be options, with the first bad one; None if they can."""
    seen: dict[str, int] = {}
    for number, label in enumerate(labels, 1):
        if not isinstance(label, str):
            return f"option {number} must be a text in quotes, not {kind_of(label)}"
        if why := _one_label_problem(label, number, seen):
            return f"option {number}, {quoted(label, at_most=40)}, {why}"
    return None


def _one_label_problem(label: str, number: int, seen: dict[str, int]) -> str | None:
    if not label or label != label.strip() or not label.isprintable() or len(label) > MOST_LABEL_LETTERS:
        most = f"of at most {MOST_LABEL_LETTERS} letters"
        return f"must be printable, on one line, without spaces around it, {most}"
    key = unicodedata.normalize("NFKC", label).casefold()
    if key == NO_ANSWER:
        return "is there already: write no_answer = false to have it not"
    if seen.setdefault(key, number) != number:
        return f"is the same as option {seen[key]}"
    return None


def _options_from_file(section: Section, path: Path) -> Sequence[object] | None:
    name = section.text("options_file")
    if name is None:
        return None
    place = path.parent / name
    if not os.path.isfile(place):
        section.wrong("options_file", f"{quoted(name, at_most=80)} is no file beside the survey")
        return None
    try:
        with place.open("rb") as file:
            raw = file.read(MOST_FILE_BYTES + 1)
        if len(raw) > MOST_FILE_BYTES:
            section.wrong("options_file", "is larger than 64 MiB")
            return None
        lines = raw.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except OSError as error:
        section.wrong("options_file", f"cannot be read ({error.strerror})")
        return None
    except UnicodeDecodeError:
        section.wrong("options_file", "is not UTF-8. Save the file as UTF-8, one option on each line")
        return None
    return lines


COMMON_KEYS = ("name", "text", "kind", "no_answer", "protocol")
KEYS_OF_KIND: dict[str, tuple[str, ...]] = {
    "yes_no": ("options",),
    "choice": ("options", "options_file"),
    "several": ("options", "as"),
    "rating": ("low", "high"),
    "ranking": ("options",),
    "number": ("low", "high", "step", "about"),
    "date": ("low", "high", "step", "about"),
    "word": ("letters",),
}
QUESTION_KEYS = tuple(
    dict.fromkeys([*COMMON_KEYS, *(key for keys in KEYS_OF_KIND.values() for key in keys)])
)
NUMBER_TARGETS = ("mean", "distribution")
MOST_OPTIONS = 1 << 20
MOST_MASK_OPTIONS = 1 << 16  # options of a report that has a bit for each of them
MOST_BITS = 60
MOST_SET_OPTIONS = 12
MOST_RANKED_OPTIONS = 6
MOST_STEPS = 1 << 16
MOST_LETTERS = 12
DEFAULT_LETTERS = 8
MOST_RATING_VALUES = 100
SHARE_PROTOCOLS = ("choice", "subset", "hadamard", "projective", "unary")
PROTOCOLS: dict[EstimationTarget, tuple[str, ...]] = {
    "shares": SHARE_PROTOCOLS,
    "mean": ("duchi", "piecewise", "hybrid"),
    "distribution": ("square_wave", "piecewise"),
    "words": (),
}
TWO_COINS = "two_coins"


def two_coins_count(question: Question) -> int:
    """Return how often a respondent draws the textbook's two coins; 0 for other protocols."""
    if question.protocol != TWO_COINS:
        return 0
    return question.coding.bits if isinstance(question.coding, Several) else 1


def read_question(section: Section, path: Path) -> Question | None:
    """Return the question of a table. If something is wrong, note it and return None."""
    name, text = _name(section), read_prose(section, "text")
    if not section.has("text"):
        section.missing("text", 'text = "How many hours do you sleep?": what respondents read')
    if not section.has("kind"):
        section.missing("kind", f"kind = {quoted_choices(tuple(KEYS_OF_KIND))}")
    kind = section.one_of("kind", tuple(KEYS_OF_KIND))
    if kind is None:
        return None
    strangers = [
        key
        for key in section.values
        if key in QUESTION_KEYS and key not in (*COMMON_KEYS, *KEYS_OF_KIND[kind])
    ]
    for key in strangers:
        known = f"It has {', '.join(KEYS_OF_KIND[kind])}"
        section.wrong(key, f'is not for a question of kind "{kind}". {known}')
    no_answer = section.flag("no_answer") if section.has("no_answer") else True
    coding = _coding(section, path, kind, no_answer)
    about = _about(section, kind)
    if coding is None or about is None:
        return None
    protocol = _protocol(section, coding, about)
    if name is None or text is None:
        return None
    return Question(name, text, cast(QuestionKind, kind), coding, about, protocol)


def _name(section: Section) -> str | None:
    if not section.has("name"):
        section.missing("name", 'name = "sleep": one word')
    name = section.text("name")
    if name is not None and not NAME_PATTERN.fullmatch(name):
        section.wrong(
            "name", "must have letters a-z, digits and _, begin with no digit, and be at most 63 long"
        )
        return None
    return name


def _about(section: Section, kind: str) -> EstimationTarget | None:
    if kind == "word":
        return "words"
    if kind not in ("number", "date"):
        return "shares"
    if not section.has("about"):
        return "mean" if kind == "number" else "distribution"
    return cast(EstimationTarget | None, section.one_of("about", NUMBER_TARGETS))


def _protocol(section: Section, coding: AnswerCoding, about: EstimationTarget) -> str | None:
    """Return the protocol that the owner forces, or None. Note it if the question cannot have it."""
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
    if protocol in ("subset", "unary") and coding.inputs > MOST_MASK_OPTIONS:
        section.wrong(
            "protocol", f"has a bit for each option: at most {MOST_MASK_OPTIONS:,}. Remove this line"
        )
    return protocol


def _coding(section: Section, path: Path, kind: str, no_answer: bool) -> AnswerCoding | None:
    if kind in _SCALES:
        return _SCALES[kind](section, no_answer)
    if kind == "yes_no" and not section.has("options"):
        return OneOf(("yes", "no"), no_answer)
    form: str | None = ""
    if kind == "several":
        form = section.one_of("as", ("bits", "set")) if section.has("as") else "bits"
    most = {
        "yes_no": 2,
        "choice": MOST_OPTIONS - no_answer,
        "several": MOST_SET_OPTIONS if form == "set" else MOST_BITS,
        "ranking": MOST_RANKED_OPTIONS,
    }
    options = read_options(section, path, least=2, most=most[kind])
    if options is None or form is None:
        return None
    if kind == "several":
        return Several(options, no_answer, as_set=form == "set")
    return (Ranked if kind == "ranking" else OneOf)(options, no_answer)


def _rating(section: Section, no_answer: bool) -> AnswerCoding | None:
    ends = [section.whole(key, least=-1000, most=1000) if section.has(key) else default
            for key, default in (("low", 1), ("high", 5))]  # fmt: skip
    low, high = ends
    if low is None or high is None:
        return None
    if not low < high < low + MOST_RATING_VALUES:
        section.wrong("high", f"must be above low, {low}, and below {low + MOST_RATING_VALUES}")
        return None
    labels = tuple([str(number) for number in range(low, high + 1)])
    assert label_problem(labels) is None
    return OneOf(labels, no_answer)


def _number(section: Section, no_answer: bool) -> AnswerCoding | None:
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
    elif (high - low) / step > MOST_STEPS:
        least = Fraction(high - low) / MOST_STEPS
        section.wrong(
            "step", f"is too small: {MOST_STEPS:,} steps at most. Write {float(least):.3g} or more"
        )
    else:
        return NumberScale(low, high, step, no_answer)
    return None


def _date(section: Section, no_answer: bool) -> AnswerCoding | None:
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
    elif (high - low).days // step > MOST_STEPS:
        section.wrong("step", f"is too small: {MOST_STEPS:,} steps at most")
    else:
        return DateScale(low, high, step, no_answer)
    return None


def _word(section: Section, no_answer: bool) -> AnswerCoding | None:
    letters = (
        section.whole("letters", least=1, most=MOST_LETTERS) if section.has("letters") else DEFAULT_LETTERS
    )
    return None if letters is None else WordCoding(letters, no_answer)


_SCALES: dict[str, Callable[[Section, bool], AnswerCoding | None]] = {
    "rating": _rating,
    "number": _number,
    "date": _date,
    "word": _word,
}


ROOT_KEYS = ("survey", "ledger", "store", "questions")
SURVEY_KEYS = (
    "name", "title", "text", "epsilon", "ask", "stop_after", "until", "honest", "shuffled", "lifetime",
)  # fmt: skip
ASK_MODES = ("auto", "all", "one")
WRITE_QUESTION = "[[questions]] with name, text and kind"
MOST_QUESTIONS = 100
MOST_REPORTS = 1 << 40
MOST_TITLE_LETTERS = 200
DEFAULT_LEDGER = (
    "respondents.ledger"  # one for all surveys of a folder: a copied survey gives nobody a new life
)
DEFAULT_LIFETIME = Fraction(8)  # the ε of a device over all surveys, unless the file says another
LN_3 = log_up(3)


def load(path: str | Path) -> Questionnaire:
    r"""Read and check the questionnaire of a survey file.

    Args:
        path: The TOML file.

    Returns:
        The questionnaire. `design` and `Survey` take it from there.

    Raises:
        BadFile: The file cannot be read, or something in it is wrong. All mistakes are listed.

    Example:
        >>> from pathlib import Path
        >>> lines = ['[survey]', 'name = "tea"', 'epsilon = 1.0', 'stop_after = 100', '[[questions]]',
        ...          'name = "tea"', 'text = "Tea?"', 'kind = "yes_no"']
        >>> written = Path("tea.toml").write_text("\n".join(lines))
        >>> load("tea.toml").questions[0].labels
        ('yes', 'no', 'no answer')
    """
    path = Path(path)
    values, mistakes = read_toml(
        path, what="survey", example="wellbeing.toml", draft="lapwing survey example"
    )
    root = Section.of(mistakes, (), values, ROOT_KEYS)
    assert root is not None
    path = path.absolute()
    head = _head(root)
    ledger = _ledger(root, path)
    reports = _reports(root, path, ledger)
    questions = _questions(root, path)
    if head is not None:
        _check_coins(root, head["epsilon"], head["ask"], questions)
    mistakes.complain()
    assert head is not None
    return Questionnaire(
        path=path,
        questions=questions,
        ledger=ledger.url,
        ledger_keys=ledger.keys,
        ledger_anchor=ledger.anchor,
        reports=reports,
        **head,
    )


def _head(root: Section) -> dict[str, Any] | None:
    """Return the fields of a `Questionnaire` that stand in [survey], or None. A wrong one is None."""
    section = root.below("survey", SURVEY_KEYS)
    if section is None:
        if not root.has("survey"):
            root.missing("survey", "[survey] with name, epsilon and stop_after")
        return None
    if not section.has("name"):
        section.missing("name", 'name = "wellbeing": how the ledger calls this survey')
    if not section.has("epsilon"):
        section.missing("epsilon", "epsilon = 2.0: what a respondent loses at most, by all questions")
    if not (section.has("stop_after") or section.has("until")):
        section.missing("stop_after", "stop_after = 5000 or until = 2027-01-31: when the survey ends")
    epsilon, lifetime = _epsilon(section, "epsilon"), DEFAULT_LIFETIME
    if section.has("lifetime"):
        lifetime = _epsilon(section, "lifetime") or DEFAULT_LIFETIME
    if epsilon is not None and epsilon > lifetime:
        section.wrong("epsilon", f"must be at most the lifetime of a respondent, ε {float(lifetime):g}")
    ask = section.one_of("ask", ASK_MODES) if section.has("ask") else "auto"
    stop_after = section.whole("stop_after", least=1, most=MOST_REPORTS)
    shuffled = section.flag("shuffled")
    name = section.label("name")
    return {
        "name": name,
        "title": read_prose(section, "title", at_most=MOST_TITLE_LETTERS) or name,
        "text": read_prose(section, "text") or "",
        "epsilon": epsilon,
        "ask": ask,
        "stop_after": stop_after,
        "until": _until(section),
        "honest": _honest(section, stop_after, shuffled=shuffled),
        "shuffled": shuffled,
        "lifetime": lifetime,
    }


def _epsilon(section: Section, name: str) -> Fraction | None:
    number = section.number(name)
    return None if number is None else section.checked(name, checked_epsilon, number)


def _until(section: Section) -> date | None:
    value = section.values.get("until")
    if value is None or (isinstance(value, date) and not isinstance(value, datetime)):
        return value
    section.wrong("until", "must be a date without quotes and time, such as 2027-01-31")
    return None


def _honest(section: Section, stop_after: int | None, *, shuffled: bool) -> int | None:
    if not section.has("honest"):
        if shuffled:
            section.missing("honest", "honest = 1000: so many reports will be honest, you believe")
        return None
    if not shuffled:
        section.wrong("honest", "is used with shuffled = true alone: add that, or remove this")
    honest = section.whole("honest", least=1, most=MOST_REPORTS)
    if honest is not None and stop_after is not None and honest > stop_after:
        section.wrong("honest", f"must be at most stop_after, {stop_after:,}")
    return honest


def _ledger(root: Section, path: Path) -> LedgerLocations:
    name = (
        DEFAULT_LEDGER if path.name != DEFAULT_LEDGER else f"{DEFAULT_LEDGER}.ledger"
    )  # unless that is the survey itself
    return read_ledger_locations(root, path, default=str(path.with_name(name)), example=DEFAULT_LEDGER)


def _reports(root: Section, path: Path, ledger: LedgerLocations) -> str:
    usual = str(path.with_name(f"{_stem(path)}.reports"))
    if (section := root.below("store", ("url",))) is None:
        return usual
    reports = read_location(section, "url", path, example="wellbeing.reports") or usual
    if reports == ledger.url and not reports.startswith(POSTGRES_SCHEMES):
        section.wrong("url", "must be another file than the ledger")
    return reports


def _stem(path: Path) -> str:
    """Return the name of the report file without its ending, so that it is not the survey itself."""
    return path.stem if path.suffix != ".reports" else path.name


def _questions(root: Section, path: Path) -> tuple[Question, ...]:
    if not root.has("questions") or root.values["questions"] == []:
        root.missing("questions", WRITE_QUESTION)
        return ()
    sections = root.items("questions", QUESTION_KEYS, write=WRITE_QUESTION)
    if len(sections) > MOST_QUESTIONS:
        root.wrong("questions", f"must be at most {MOST_QUESTIONS}")
        return ()
    made = [read_question(section, path) for section in sections]
    seen: dict[str, str] = {}
    for section in sections:
        name = section.values.get("name")
        if not isinstance(name, str):
            continue
        if name.lower() in seen:
            section.wrong("name", f"must differ from that of {seen[name.lower()]}; capitals do not count")
        seen.setdefault(name.lower(), dotted(section.key))
    return tuple([question for question in made if question is not None])


def _check_coins(
    root: Section, epsilon: Fraction | None, ask: str | None, questions: tuple[Question, ...]
) -> None:
    """Note it if the two coins, which cost ln 3 each, do not fit the survey's ε."""
    coins = [two_coins_count(question) for question in questions]
    if epsilon is None or not any(coins):
        return
    most = sum(coins) if ask == "all" else max(coins)
    free = any(not count for count in coins) and ask == "all"  # others need a share too
    if most * LN_3 > epsilon or (free and most * LN_3 >= epsilon):
        need = Fraction(ceil(most * LN_3 * 1000) + free, 1000)
        root.mistakes.add(
            ("survey", "epsilon"),
            f"the two coins cost {two_coins_cost_text(most)}. Write epsilon = {float(need):g} or more",
        )


def two_coins_cost_text(coins: int) -> str:
    """Return the ε of `coins` draws of the two coins: "3 ln 3 = 3.2959"."""
    times = f"{coins} " if coins > 1 else ""
    return f"{times}ln 3 = {coins * float(LN_3):.4f}"
