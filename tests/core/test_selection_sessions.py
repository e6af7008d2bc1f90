"""Sessions of above-threshold: they end with the last yes paid for, and cannot be doubled."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lapwing.core.selection import AboveThreshold, AboveThresholdSession
from lapwing.errors import BadValue, NoEntropy, SessionOver
from support.cases import each
from support.streams import RefusingStream

CERTAIN = 10**9


def started(positives: int = 1) -> AboveThresholdSession:
    return AboveThreshold.for_epsilon(1, sensitivity=1, positives=positives).start(0)


@each("positives", [1, 3])
def test_a_session_ends_with_its_last_yes(positives: int) -> None:
    session = started(positives)
    for left in range(positives, 0, -1):
        assert not session.is_over
        assert not session.ask(-CERTAIN), "noes are free"
        assert session.ask(CERTAIN), left
    assert session.is_over
    for value in (CERTAIN, -CERTAIN):
        with pytest.raises(SessionOver):
            session.ask(value)


def test_an_ended_session_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()
    assert session.ask(CERTAIN)
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", RefusingStream())
    with pytest.raises(SessionOver):
        session.ask(CERTAIN)


def test_answers_are_plain_booleans() -> None:
    session = started()
    assert session.ask(-CERTAIN) is False
    assert session.ask(CERTAIN) is True


def test_noes_never_end_a_session() -> None:
    session = started()
    assert not any(session.ask(-CERTAIN) for _ in range(1000))
    assert not session.is_over


@each("double", [copy.copy, copy.deepcopy, pickle.dumps, lambda s: pickle.dumps([s], 0)])
def test_a_session_cannot_be_copied_or_saved(double: object) -> None:
    session = started()
    assert callable(double)
    with pytest.raises(SessionOver):
        double(session)
    assert session.ask(CERTAIN), "and the attempt leaves it as it was"


def test_a_forked_session_is_over_in_the_child_and_goes_on_in_the_parent() -> None:
    session = started()
    parent, child = os.pipe()
    pid = os.fork()
    if not pid:
        verdict = b"answered"
        try:
            session.ask(CERTAIN)
        except SessionOver:
            verdict = b"over" if session.is_over else b"?"
        os.write(child, verdict)
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(parent, 100) == b"over"
    os.close(parent)
    os.close(child)
    assert not session.is_over
    assert session.ask(CERTAIN)


def test_a_session_cannot_be_sent_to_a_worker() -> None:
    session = started()
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(SessionOver):
        pool.apply(session.ask, (CERTAIN,))


def test_threads_share_the_yeses_that_were_paid_for() -> None:
    for _ in range(20):
        session, gate = started(positives=3), threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(ask_at, gate, session) for _ in range(8)]
        answers = [each.result() for each in asked]
        assert answers.count(True) == 3
        assert answers.count(None) == 5


def ask_at(gate: threading.Barrier, session: AboveThresholdSession) -> bool | None:
    """The answer, or None if the session is over; all threads ask at once."""
    gate.wait()
    try:
        return session.ask(CERTAIN)
    except SessionOver:
        return None


def test_a_lost_session_is_over_there_is_no_way_to_restore_one() -> None:
    session = started()
    with pytest.raises(SessionOver):
        session.__reduce_ex__(4)
    with pytest.raises(SessionOver):
        session.__reduce__()
    assert not hasattr(session, "__setstate__")


def test_nothing_that_a_session_prints_shows_its_noise() -> None:
    session = started()
    for text in (repr(session), str(session)):
        assert str(session._noisy_threshold) not in text or len(str(session._noisy_threshold)) < 4


@pytest.mark.parametrize("value", [0.5, "1", None, True, [1, 2], [], float("nan")])
def test_a_bad_value_is_refused_and_costs_nothing(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()
    with monkeypatch.context() as patched:
        patched.setattr("lapwing.core.noise.SYSTEM", RefusingStream())
        with pytest.raises(BadValue):
            session.ask(value)  # type: ignore[arg-type]
    assert session.ask(CERTAIN)


def test_a_draw_that_fails_gives_no_answer_and_takes_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()

    def no_entropy(*_: object) -> None:
        raise NoEntropy("nothing")

    with monkeypatch.context() as patched:
        patched.setattr("lapwing.core.selection.discrete_laplace", no_entropy)
        with pytest.raises(NoEntropy):
            session.ask(CERTAIN)
    assert session.ask(CERTAIN)
    assert session.is_over
