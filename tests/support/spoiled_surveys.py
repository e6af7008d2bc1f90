"""Surveys that a hostile owner made. Python and the page must refuse each, with a digest that is right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Public = dict[str, Any]
Spoil = Callable[[Public], Any]
HALF = 1 << 47
DUCHI: dict[str, Any] = {"kind": "duchi", "steps": 1, "none": 0, "favoured": HALF + 1}


def _recipe(**more: Any) -> Spoil:
    return lambda public: public["questions"][0]["recipe"].update(more)


def _question(**more: Any) -> Spoil:
    return lambda public: public["questions"][0].update(more)


def _survey(**more: Any) -> Spoil:
    return lambda public: public.update(more)


def _number(low: Any, high: Any, step: Any, steps: int = 1) -> Spoil:
    return _question(
        kind="number", low=low, high=high, step=step, labels=[], no_answer=False, inputs=steps + 1, size=1,
        recipe={**DUCHI, "steps": steps},
    )  # fmt: skip


def _date(low: Any, high: Any, step: Any) -> Spoil:
    return _question(
        kind="date", low=low, high=high, step=step, labels=[], no_answer=False, inputs=2, size=1,
        recipe=DUCHI,
    )  # fmt: skip


def _listed_kind(public: Public) -> None:
    recipe = {"kind": ["window"], "steps": 1, "stride": 7, "width": 1, "none": 0, "favoured": HALF}
    _number("0", "1", "1")(public)
    public["questions"][0]["recipe"] = {**recipe, "options": 2}


# Each is a change of a survey of one yes or no question with "no answer": 3 options, 1 byte.
SPOILED: dict[str, Spoil] = {
    "a certain coin": _recipe(favoured=1 << 48),
    "a coin by chance": _recipe(favoured=(1 << 48) // 3),
    "an unknown recipe": _recipe(kind="trust_me"),
    "a kind in a list": _recipe(kind=["choice"]),
    "another kind in a list": _listed_kind,
    "too many options": _recipe(options=9),
    "one more number": _recipe(seed=17),
    "no recipe": _question(recipe=None),
    "a list for a recipe": _question(recipe=[]),
    "an unknown kind": _question(kind="essay"),
    "a question's kind in a list": _question(kind=["yes_no"]),
    "a kind from the language": _question(kind="constructor"),
    "a field more in a question": _question(person=17),
    "a field less in a question": lambda public: public["questions"][0].pop("odds"),
    "a wrong size": _question(size=2),
    "wrong inputs": _question(inputs=4),
    "true for a size": _question(size=True),
    "a label twice": _question(labels=["yes", "yes", "no answer"]),
    "a label that is none": _question(labels=["yes", 1, "no answer"]),
    "an empty label": _question(labels=["yes", "", "no answer"]),
    "labels in a text": _question(labels="abc"),
    "no answer in the middle": _question(labels=["yes", "no answer", "no"]),
    "no answer unsaid": _question(no_answer=False),
    "no answer is 1": _question(no_answer=1),
    "an impossible name": _question(name="a b"),
    "a question that is none": _survey(questions=[None]),
    "no questions": _survey(questions=[]),
    "questions that are none": _survey(questions=7),
    "questions in a table": _survey(questions={}),
    "one name for two": lambda public: public["questions"].append(public["questions"][0]),
    "too many questions": lambda public: public["questions"].extend(public["questions"] * 100),
    "asks nobody": _survey(ask="some"),
    "asks in a list": _survey(ask=["all"]),
    "too small": _survey(report_size=1),
    "a little larger": _survey(report_size=3),
    "a tag in the size": _survey(report_size=5017),
    "a size beyond all memory": _survey(report_size=1 << 52),
    "a negative size": _survey(report_size=-1),
    "no lifetime": lambda public: public.pop("lifetime"),
    "a negative lifetime": _survey(lifetime="-1"),
    "a lifetime that is none": _survey(lifetime="NaN"),
    "a lifetime of many digits": _survey(lifetime="1e99"),
    "a field more": _survey(person="17"),
    "a newer format": _survey(format=2),
    "a title that is none": _survey(title=7),
    "nothing for a text": _survey(text=None),
    "a large number": _recipe(favoured=(1 << 53) + 1),
    "a step of 0": _number("0", "1", "0"),
    "a step below 0": _number("1", "0", "-1"),
    "steps that do not fit": _number("0", "1.5", "1"),
    "a number in other words": _number("0", "1e0", "1"),
    "a number as a share": _number("0", "2/2", "1"),
    "numbers that are no texts": _number(0, 1, 1),
    "a hundred thousand digits": _number("0", "1" * 100_000, "1" * 100_000),
    "too many steps": _number("0", "65537", "1", steps=65537),
    "a day's step of 0": _date("2026-01-01", "2026-01-02", "0"),
    "a day's step with spaces": _date("2026-01-01", "2026-01-02", " 1"),
    "a day that is none": _date("2026-02-29", "2026-03-02", "1"),
    "the year 0": _date("0000-01-01", "0000-01-02", "1"),
    "a day in other words": _date("20260101", "20260102", "1"),
    "days that are none": _date(1, 2, "1"),
    "days backwards": _date("2026-01-02", "2026-01-01", "1"),
    "a word of many letters": _question(
        kind="word", letters=10**8, labels=[], no_answer=True, inputs=3, size=1
    ),
    "a word of a text": _question(kind="word", letters="3", labels=[], no_answer=True),
    "too many to rank": _question(kind="ranking", labels=[str(k) for k in range(2000)], no_answer=False),
    "too many to tick": _question(
        kind="several", labels=[str(k) for k in range(2000)], no_answer=False, **{"as": "set"}
    ),
}


def spoiled(public: Public, spoil: Spoil) -> Public:
    """A copy of the survey, changed."""
    found = copy.deepcopy(public)
    spoil(found)
    return found
