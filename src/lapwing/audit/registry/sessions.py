"""The case of sessions of the sparse vector technique: they end after the last yes, and cannot be copied.

Claim    in each session that was tried, no more than `positives` yeses were given, every value reached the
         noise as it was, and neither a copy nor a stored session could go on.
Because  an observer decides the answers, so that every course of yeses and noes can be tried, and one that
         is all yes needs no luck. One more session has values so far above the threshold that noise does
         not matter: there the mechanism answers by itself.
Test     tests/audit/registry/test_sessions.py

Laws and draws are for many equal values: each no and each yes tells a little, and these must not add up.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.core.observed import observing
from lapwing.core.selection import AboveThresholdSession
from lapwing.errors import SessionOver
from lapwing.mechanisms import AboveThreshold

EPSILON = Fraction(1)
_POSITIVES = (1, 2, 3, 7)
_ASKED_AFTER = 5  # questions after the last yes
_FAR = 1 << 40  # so far above a threshold of 0 that no noise turns a yes into a no
_QUESTIONS = 12
_NO_ANSWER = 2
_COURSES: dict[str, Callable[[int], bool]] = {
    "all answers are yes": lambda _: True,
    "yes and no in turn": lambda place: place % 2 == 0,
    "two noes before each yes": lambda place: place % 3 == 2,
}


def session_cases() -> list[AuditCase]:
    """Return the case of sessions."""
    equal = SampledPair(f"{_QUESTIONS} questions of 0, and of 1", _equal(0), _equal(1))
    return [
        AuditCase(
            "above threshold: whole sessions", Family.MECHANISM, (AboveThreshold,), EPSILON, Fraction(0),
            {
                Stage.REPLAY: ends_of_sessions,
                Stage.EXACT: exact_stage(_equal_pairs, epsilon=EPSILON),
                Stage.SAMPLED: sampled_stage([equal], EPSILON),
            },
        )
    ]  # fmt: skip


def ends_of_sessions(_budget: StageBudget) -> StageResult:
    """Try many courses of answers, and look for a yes after the last, or a copy that goes on."""
    checks = 0
    for positives in _POSITIVES:
        terms = AboveThreshold.for_epsilon(EPSILON, sensitivity=1, positives=positives)
        for words, answer in _COURSES.items():
            event = _forced(terms, answer)
            checks += 1
            if event is not None:
                return _violated(checks, terms, words, event)
        for words, check in (("values far above the threshold", _drawn), ("a copy", _copied)):
            event = check(terms)
            checks += 1
            if event is not None:
                return _violated(checks, terms, words, event)
    return StageResult(Stage.REPLAY, checks, float(EPSILON), could_show=float(EPSILON))


def _violated(checks: int, terms: AboveThreshold, words: str, event: str) -> StageResult:
    witness = Witness(f"a session of {terms.positives} yeses: {words}", event, {"yeses": terms.positives})
    return StageResult(Stage.REPLAY, checks, float(EPSILON), witness=witness)


def _forced(terms: AboveThreshold, answer: Callable[[int], bool]) -> str | None:
    """Decide the answers of a session. Return what is wrong with it, if anything is."""
    seen: list[int] = []

    def observer(_mechanism: Any, inputs: dict[str, Any], _draw: Callable[[], Any]) -> bool:
        seen.append(int(inputs["value"]))
        return answer(len(seen) - 1)

    values = list(range(len(_COURSES) * (terms.positives + _ASKED_AFTER)))
    with observing(observer):
        given = _asked(terms.start(0), values)
    if sum(given) > terms.positives:
        return "it gave more yeses than were paid for"
    if given != [answer(place) for place in range(len(given))]:
        return "an answer is not that of its noisy value"
    return None if seen == values[: len(seen)] else "a value reached the noise changed"


def _drawn(terms: AboveThreshold) -> str | None:
    given = _asked(terms.start(0), [_FAR] * (terms.positives + _ASKED_AFTER))
    return "it gave more yeses than were paid for" if sum(given) > terms.positives else None


def _asked(session: AboveThresholdSession, values: Sequence[int]) -> list[bool]:
    """Return the answers. All values are asked, also after the session said that it is over."""
    given: list[bool] = []
    for value in values:
        try:
            given.append(session.ask(value))
        except SessionOver:
            continue
    return given


def _copied(terms: AboveThreshold) -> str | None:
    """Return what is wrong if a session can be copied or stored: a copy has yeses of its own."""
    session = terms.start(0)
    ways: dict[str, Callable[[Any], object]] = {
        "copied": copy.copy,
        "copied with all its parts": copy.deepcopy,
        "stored": pickle.dumps,
    }
    for words, way in ways.items():
        if _succeeds(way, session):
            return f"a session can be {words}, with the same noisy threshold"
    return None


def _succeeds(way: Callable[[Any], object], session: AboveThresholdSession) -> bool:
    try:
        way(session)
    except Exception:  # any error will do
        return False
    return True


# Many equal values


def _equal_pairs(budget: StageBudget) -> Iterator[ExactPair]:
    """Yield the laws of the answers to equal values. One unit moves all up, or all up and the last down."""
    for positives in (1, 2) if budget.is_thorough else (1,):
        terms = AboveThreshold.for_epsilon(EPSILON, sensitivity=1, positives=positives)
        scales = terms.threshold_scale, terms.question_scale
        for value in (0, -5) if budget.is_thorough else (0,):
            equal = [value] * _QUESTIONS
            first = laws.above_threshold(equal, positives, *scales)
            for last in (1, -1):
                moved = [*(asked + 1 for asked in equal[1:]), value + last]
                second = laws.above_threshold(moved, positives, *scales)
                words = f"above threshold, {positives} yeses: values {equal}, and {moved}"
                yield ExactPair(words, first, second, terms.loss, EPSILON)


def _equal(value: int) -> Draw:
    """Return draws of whole sessions: a column for each question, with 0, 1, or 2 if there is no answer."""
    terms = AboveThreshold.for_epsilon(EPSILON, sensitivity=1, positives=1)

    def draw(size: int) -> NDArray[np.int64]:
        drawn = np.full((size, _QUESTIONS), _NO_ANSWER, dtype=np.int64)
        for row in drawn:
            given = _asked(terms.start(0), [value] * _QUESTIONS)
            row[: len(given)] = given
        return drawn

    return draw
