"""Linear functions of an answer: what a rating's mean, a mean rank and a share of sets have in common.

Claim    with F the values of f, the score (Σ F(v) over supported v - outside ΣF) / (inside - outside) of a
         report has expectation f(x) if x is the answer.
Because  option v is supported with chance `inside` if x = v, else with `outside`.
Test     tests/survey/estimating/test_functions.py::test_scores_have_the_function_as_expectation
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.estimating.results import Unit
from lapwing.survey.estimating.sums import Floats, Scores
from lapwing.survey.questionnaire.coding import OneOf, Ranked, Several
from lapwing.survey.questionnaire.survey import Question
from lapwing.survey.randomizers import Bits, Choice, Hadamard, Oracle, Projective, Subset, Unary
from lapwing.survey.randomizers.randomizer import Messages

CELLS = 1 << 22  # of a table of reports by options, at once


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of the answer: `values` has one line an option, one column a function.

    All of them are 0 for no answer. `of` says over whom they are averaged: "all", or those who "answered".
    """

    title: str
    unit: Unit
    labels: tuple[str, ...]
    values: Floats
    squares: Floats
    none: int | None  # the option that stands for no answer
    of: str
    low: float
    high: float
    note: str = ""

    def scores(self, oracle: Oracle, messages: Messages) -> Scores:
        """One line a report."""
        found = apply(oracle, messages, np.hstack([self.values, self.squares]))
        width = len(self.labels)
        bottom = np.ones(len(messages))
        if self.of == "answered" and self.none is not None:
            bottom -= indicator(oracle, messages, self.none)
        return Scores(found[:, :width], bottom, found[:, width:])


def indicator(oracle: Oracle, messages: Messages, option: int) -> Floats:
    """Scores of holding an option."""
    inside, outside = float(oracle.inside), float(oracle.outside)
    supports = oracle.membership(messages, option).astype(np.float64)
    found: Floats = (supports - outside) / (inside - outside)
    return found


def apply(oracle: Oracle, messages: Messages, values: Floats) -> Floats:
    """Scores of functions of the options, in blocks of reports."""
    inside, outside = float(oracle.inside), float(oracle.outside)
    found = np.empty((len(messages), values.shape[1]))
    used = np.flatnonzero(values.any(axis=1))
    block = max(CELLS // max(len(used), 1), 64)
    for start in range(0, len(messages), block):
        part = messages[start : start + block]
        supports = np.empty((len(used), len(part)), dtype=np.float64)
        for line, option in enumerate(used.tolist()):
            supports[line] = oracle.membership(part, option)
        found[start : start + block] = supports.T @ values[used]
    found -= outside * values.sum(axis=0)
    found /= inside - outside
    return found


def extremes(oracle: Oracle, values: Floats) -> tuple[Floats, Floats]:
    """The least and greatest score that any possible message has, exactly, for each function."""
    inside, outside = float(oracle.inside), float(oracle.outside)
    match oracle:
        case Choice():
            low, high = values.min(axis=0), values.max(axis=0)
        case Subset():
            rising = np.sort(values, axis=0)
            low, high = rising[: oracle.chosen].sum(axis=0), rising[-oracle.chosen :].sum(axis=0)
        case Bits() | Unary():
            low, high = np.minimum(values, 0).sum(axis=0), np.maximum(values, 0).sum(axis=0)
        case Hadamard() | Projective():  # few enough options for functions: so all messages can be tried
            size = 1 << oracle.bits if isinstance(oracle, Hadamard) else oracle.messages
            every = apply(oracle, np.arange(size), values)
            return every.min(axis=0), every.max(axis=0)
        case _:
            raise BadParameter("randomizer", "does not count options")
    base = outside * values.sum(axis=0)
    return (low - base) / (inside - outside), (high - base) / (inside - outside)


def _functions(
    title: str,
    labels: Sequence[str],
    values: NDArray[np.float64],
    none: int | None,
    *,
    of: str,
    ends: tuple[float, float],
    unit: Unit = "share",
    note: str = "",
) -> Functions:
    return Functions(title, unit, tuple(labels), values, values**2, none, of, *ends, note)


def shares_of(question: Question, *, of: str = "all") -> Functions:
    """The share of every option, as functions: for groups, cross tables, and those who answered."""
    labels = question.labels
    none = len(labels) - 1 if question.no_answer else None
    shown = labels[:-1] if of == "answered" and none is not None else labels
    values = np.eye(len(labels))[:, : len(shown)]
    title = "share of those who answered" if of == "answered" else "share"
    return _functions(title, shown, values, none, of=of, ends=(0.0, 1.0))


def functions_of(question: Question) -> Iterator[Functions]:
    """What is estimated of a question beside the share of every option."""
    match question.coding:
        case OneOf() as coding if question.kind == "rating":
            yield _rating(coding)
        case Ranked() as coding:
            yield from _ranking(coding)
        case Several(as_set=True) as coding:
            yield _sets(coding)
        case _:
            return


def _rating(coding: OneOf) -> Functions:
    numbers = [float(label) for label in coding.options]
    none = len(numbers) if coding.no_answer else None
    values = np.array([*numbers, 0.0] if coding.no_answer else numbers)[:, None]
    ends = (min(numbers), max(numbers))
    return _functions("mean", ["mean"], values, none, of="answered", ends=ends, unit="number")


def _ranking(coding: Ranked) -> Iterator[Functions]:
    size = len(coding.options)
    orders = [coding.order(code) for code in range(coding.inputs)]
    ranks = np.array([[order.index(item) + 1 if order else 0 for item in range(size)] for order in orders])
    none = coding.inputs - 1 if coding.no_answer else None
    yield _functions(
        "mean rank",
        coding.options,
        ranks.astype(np.float64),
        none,
        of="answered",
        ends=(1.0, float(size)),
        unit="rank",
        note="1 is first.",
    )
    pairs = list(combinations(range(size), 2))
    before = np.array([[0 < row[a] < row[b] for a, b in pairs] for row in ranks]).astype(np.float64)
    names = [f"{coding.options[a]} before {coding.options[b]}" for a, b in pairs]
    yield _functions("preferred", names, before, none, of="answered", ends=(0.0, 1.0))


def _sets(coding: Several) -> Functions:
    codes = np.arange(coding.inputs)
    size = len(coding.options)
    bits = ((codes[:, None] >> np.arange(size + coding.no_answer)) & 1).astype(np.float64)
    none = coding.inputs - 1 if coding.no_answer else None
    return _functions("share", coding.labels, bits, none, of="all", ends=(0.0, 1.0))
