"""A survey from its file (TOML). All mistakes are found and told together, each with its line.

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

from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import cast

from lapwing.exact import log_up
from lapwing.ledger.places import POSTGRES_SCHEMES
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.questionnaire.options import prose
from lapwing.survey.questionnaire.question_file import QUESTION, coins_of, question_of
from lapwing.survey.questionnaire.survey import Ask, Question, Survey
from lapwing.toml.places import LedgerPlaces, ledger_places, place
from lapwing.toml.section import Section
from lapwing.toml.text import dotted, read

ROOT = ("survey", "ledger", "store", "questions")
SURVEY = (
    "name", "title", "text", "epsilon", "ask", "stop_after", "until", "honest", "shuffled", "lifetime",
)  # fmt: skip
ASK = ("auto", "all", "one")
WRITE_QUESTION = "[[questions]] with name, text and kind"
QUESTIONS_AT_MOST = 100
REPORTS_AT_MOST = 1 << 40
TITLE_AT_MOST = 200
LEDGER = "respondents.ledger"  # one for all surveys of a folder: a copied survey gives nobody a new life
LIFETIME = Fraction(8)  # what a device sends over all surveys, unless another is said
LN_3 = log_up(3)


def load(path: str | Path) -> Survey:
    """The survey in a file, checked; or `BadFile` with every mistake in it."""
    path = Path(path)
    values, mistakes = read(path, what="survey", example="wellbeing.toml", draft="lapwing survey example")
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    path = path.absolute()
    head = _head(root)
    ledger = _ledger(root, path)
    reports = _reports(root, path, ledger)
    questions = _questions(root, path)
    if head is not None:
        _check_coins(root, head, questions)
    mistakes.complain()
    assert head is not None
    assert head.name is not None
    assert head.epsilon is not None
    assert head.ask is not None
    assert head.lifetime is not None
    return Survey(
        path=path,
        name=head.name,
        title=head.title or head.name,
        text=head.text,
        epsilon=head.epsilon,
        ask=head.ask,
        questions=questions,
        stop_after=head.stop_after,
        until=head.until,
        honest=head.honest,
        shuffled=head.shuffled,
        lifetime=head.lifetime,
        ledger=ledger.url,
        ledger_keys=ledger.keys,
        ledger_anchor=ledger.anchor,
        reports=reports,
    )


@dataclass(frozen=True, slots=True)
class _Head:
    name: str | None
    title: str | None
    text: str
    epsilon: Fraction | None
    ask: Ask | None
    stop_after: int | None
    until: date | None
    honest: int | None
    shuffled: bool
    lifetime: Fraction | None


def _head(root: Section) -> _Head | None:
    section = root.below("survey", SURVEY)
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
    epsilon, lifetime = _epsilon(section, "epsilon"), LIFETIME
    if section.has("lifetime"):
        lifetime = _epsilon(section, "lifetime") or LIFETIME
    if epsilon is not None and epsilon > lifetime:
        section.wrong("epsilon", f"must be at most the lifetime of a respondent, {_short(lifetime)}")
    ask = section.one_of("ask", ASK) if section.has("ask") else "auto"
    stop_after = section.whole("stop_after", least=1, most=REPORTS_AT_MOST)
    shuffled = section.flag("shuffled")
    return _Head(
        name=section.label("name"),
        title=prose(section, "title", at_most=TITLE_AT_MOST),
        text=prose(section, "text") or "",
        epsilon=epsilon,
        ask=cast(Ask | None, ask),
        stop_after=stop_after,
        until=_until(section),
        honest=_honest(section, stop_after, shuffled=shuffled),
        shuffled=shuffled,
        lifetime=lifetime,
    )


def _epsilon(section: Section, name: str) -> Fraction | None:
    number = section.number(name)
    return None if number is None else section.checked(name, checked_epsilon, number)


def _short(epsilon: Fraction) -> str:
    return f"ε {float(epsilon):g}"


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
    honest = section.whole("honest", least=1, most=REPORTS_AT_MOST)
    if honest is not None and stop_after is not None and honest > stop_after:
        section.wrong("honest", f"must be at most stop_after, {stop_after:,}")
    return honest


def _ledger(root: Section, path: Path) -> LedgerPlaces:
    name = LEDGER if path.name != LEDGER else f"{LEDGER}.ledger"  # unless that is the survey itself
    return ledger_places(root, path, default=str(path.with_name(name)), example=LEDGER)


def _reports(root: Section, path: Path, ledger: LedgerPlaces) -> str:
    usual = str(path.with_name(f"{_stem(path)}.reports"))
    if (section := root.below("store", ("url",))) is None:
        return usual
    reports = place(section, "url", path, example="wellbeing.reports") or usual
    if reports == ledger.url and not reports.startswith(POSTGRES_SCHEMES):
        section.wrong("url", "must be another file than the ledger")
    return reports


def _stem(path: Path) -> str:
    """What the file of reports is called, so that it is not the survey itself."""
    return path.stem if path.suffix != ".reports" else path.name


def _questions(root: Section, path: Path) -> tuple[Question, ...]:
    if not root.has("questions") or root.values["questions"] == []:
        root.missing("questions", WRITE_QUESTION)
        return ()
    sections = root.items("questions", QUESTION, write=WRITE_QUESTION)
    if len(sections) > QUESTIONS_AT_MOST:
        root.wrong("questions", f"must be at most {QUESTIONS_AT_MOST}")
        return ()
    made = [question_of(section, path) for section in sections]
    seen: dict[str, str] = {}
    for section in sections:
        name = section.values.get("name")
        if not isinstance(name, str):
            continue
        if name.lower() in seen:
            section.wrong("name", f"must differ from that of {seen[name.lower()]}; capitals do not count")
        seen.setdefault(name.lower(), dotted(section.key))
    return tuple([question for question in made if question is not None])


def _check_coins(root: Section, head: _Head, questions: tuple[Question, ...]) -> None:
    """Coins cost what they cost: ln 3 each. They must fit what the survey may cost a respondent."""
    coins = [coins_of(question) for question in questions]
    if head.epsilon is None or not any(coins):
        return
    most = sum(coins) if head.ask == "all" else max(coins)
    free = any(not count for count in coins) and head.ask == "all"  # others need a share too
    if most * LN_3 > head.epsilon or (free and most * LN_3 >= head.epsilon):
        need = Fraction(ceil(most * LN_3 * 1000) + free, 1000)
        root.mistakes.add(
            ("survey", "epsilon"),
            f"the two coins cost {cost_of_coins(most)}. Write epsilon = {float(need):g} or more",
        )


def cost_of_coins(coins: int) -> str:
    """ε of so many throws of two coins: "3 ln 3 = 3.2959"."""
    times = f"{coins} " if coins > 1 else ""
    return f"{times}ln 3 = {coins * float(LN_3):.4f}"
