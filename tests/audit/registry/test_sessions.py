"""Sessions end after their last yes, and a session that does not is found."""

from __future__ import annotations

from typing import Any

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.registry.sessions import ends_of_sessions, session_cases
from lapwing.core.process_bound import ProcessBound
from lapwing.core.selection import AboveThresholdSession

QUICK = StageBudget(is_thorough=False)


def test_sessions_hold_their_claim() -> None:
    [case] = session_cases()
    for stage in (Stage.REPLAY, Stage.EXACT):
        result = case.stages[stage](QUICK)
        assert result.holds, result
        assert result.checks >= 10


def _never_ends(session: Any, value: int) -> bool:
    left = session._yeses_left
    answer = bool(ASK(session, value))
    session._yeses_left = left
    return answer


def _ends_late(session: Any, value: int) -> bool:
    if not session._yeses_left and not getattr(session, "is_late", False):
        session.is_late, session._yeses_left = True, 1
    return bool(ASK(session, value))


def _says_the_opposite(session: Any, value: int) -> bool:
    return not ASK(session, value)


def _doubles(session: Any, value: int) -> bool:
    return bool(ASK(session, 2 * value))


ASK = AboveThresholdSession.ask
BROKEN = [
    (_never_ends, "it gave more yeses than were paid for"),
    (_ends_late, "it gave more yeses than were paid for"),
    (_says_the_opposite, "an answer is not that of its noisy value"),
    (_doubles, "a value reached the noise changed"),
]


@pytest.mark.parametrize(("ask", "event"), BROKEN)
def test_a_session_that_is_broken_is_a_violation(
    ask: Any, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AboveThresholdSession, "ask", ask)
    found = ends_of_sessions(QUICK).witness
    assert found is not None
    assert found.event == event


def test_a_session_that_can_be_copied_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessBound, "__reduce__", lambda session: (str, ("a copy",)))
    monkeypatch.setattr(ProcessBound, "__reduce_ex__", lambda session, _: (str, ("a copy",)), raising=False)
    found = ends_of_sessions(QUICK).witness
    assert found is not None
    assert found.event.startswith("a session can be copied")


@pytest.mark.slow
def test_draws_of_whole_sessions_hold() -> None:
    [case] = session_cases()
    assert case.stages[Stage.SAMPLED](StageBudget(seconds=5)).witness is None
