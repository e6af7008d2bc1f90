"""Above-threshold: every course of answers within e^ε, however many noes.

A course fixes which questions are asked, so comparing courses for all values within Δ covers an analyst
who chooses the next question by the answers so far.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, above_threshold, courses, dec, log_ratio, middle, total
from lapwing.core.selection import AboveThreshold
from support.cases import each
from support.exact_laws import renyi
from support.laws import follows
from support.slowly import slow
from support.streams import SeededStream

SMALL = list(product((-3, 0, 1), repeat=3))
SIGNS = list(product((-1, 0, 1), repeat=3))


@pytest.mark.parametrize("positives", [1, slow(2), slow(3)])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(Fraction(1), 1), (Fraction(5), 1), (Fraction(6), 2)])
def test_every_course_is_within_the_claimed_ratio(
    epsilon: Fraction, sensitivity: int, positives: int
) -> None:
    terms = AboveThreshold.for_epsilon(epsilon, sensitivity=sensitivity, positives=positives)
    assert terms.loss.pure == epsilon
    laws: dict[tuple[int, ...], Law] = {}

    def law_of(values: tuple[int, ...]) -> Law:
        if values not in laws:
            laws[values] = above_threshold(values, positives, terms.threshold_scale, terms.question_scale)
        return laws[values]

    claimed_at_4 = middle(terms.loss.renyi(Fraction(4)))
    for values in SMALL:
        here = law_of(values)
        assert abs(total(here) - 1) < SLACK
        for signs in SIGNS[:14]:  # the other half is the same pairs the other way round
            there = law_of(tuple(v + s * sensitivity for v, s in zip(values, signs, strict=True)))
            assert log_ratio(here, there) <= dec(epsilon) + SLACK
            assert renyi(here, there, 4) <= claimed_at_4 + SLACK


@each("positives", [1, 2])
def test_noes_before_yeses_reach_the_claimed_ratio(positives: int) -> None:
    epsilon = Fraction(2)
    terms = AboveThreshold.for_epsilon(epsilon, sensitivity=1, positives=positives)
    high, noes = 60, 14
    one = (high,) * noes + (-high,) * positives
    other = (high + 1,) * noes + (-high - 1,) * positives
    course = (False,) * noes + (True,) * positives
    laws = [
        above_threshold(values, positives, terms.threshold_scale, terms.question_scale, only=course)
        for values in (one, other)
    ]
    found = log_ratio(*laws)
    assert dec(epsilon) - Decimal("1e-9") < found <= dec(epsilon) + SLACK


def test_fifty_noes_cost_no_more_than_one() -> None:
    terms = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1)
    no = (False,) * 50
    laws = [
        above_threshold((value,) * 50, 1, terms.threshold_scale, terms.question_scale, only=no)
        for value in (0, 1)
    ]
    assert log_ratio(*laws) <= dec(terms.threshold_epsilon) + SLACK


def test_paying_for_one_yes_and_giving_two_would_break_the_claim() -> None:
    terms = AboveThreshold.for_epsilon(2, sensitivity=1, positives=1)
    course = (False,) * 14 + (True, True)
    laws = [
        above_threshold(
            (s * 60 + m,) * 14 + (-60 - m,) * 2, 2, terms.threshold_scale, terms.question_scale, only=course
        )
        for s, m in ((1, 0), (1, 1))
    ]
    assert log_ratio(*laws) > dec(2) + 1


def test_sessions_follow_the_law_that_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(66))
    terms = AboveThreshold.for_epsilon(4, sensitivity=1, positives=2)
    values = (0, -1, 1)
    possible = courses(3, 2)
    seen = []
    for _ in range(6_000):
        session, answers = terms.start(100), []
        for value in values:
            answers.append(session.ask(100 + value))
            if session.is_over:
                break
        seen.append(possible.index(tuple(answers)))
    law = above_threshold(values, 2, terms.threshold_scale, terms.question_scale)
    follows(np.array(seen), [law[course] for course in possible])
