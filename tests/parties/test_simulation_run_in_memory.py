from __future__ import annotations

import numpy as np
import pytest

from lapwing.audit.coalition_views import view
from lapwing.parties.protocols.protocol import OpenedSum, ProtocolStopped, Setting
from lapwing.parties.simulation import run_in_memory

SETTING = Setting(members=4, coalition=1, losses=1, length=2)
VALUES = [np.array([i, 10 * i]) for i in range(4)]


def test_each_round_has_its_posts_and_those_that_were_in_time() -> None:
    told = run_in_memory("C", SETTING, VALUES, late={3: 0}).rounds
    assert [said.name for said in told] == ["deal", "agree", "open"]
    assert [sorted(said.posts) for said in told] == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2]]
    assert [sorted(said.closed) for said in told] == [[0, 1, 2]] * 3


def test_a_view_has_late_posts_and_what_was_sent_to_the_coalition_alone() -> None:
    run = run_in_memory("C", SETTING, VALUES, late={3: 0})
    seen = view(run, [1])
    assert {(s.round, s.sender) for s in seen if s.recipient == 1} == {(0, 0), (0, 2), (0, 3)}
    assert {s.recipient for s in seen} == {None, 1}
    assert {s.recipient for s in view(run, [])} == {None}


def test_posts_of_those_who_heard_other_rounds_are_not_heard() -> None:
    """M1: a relay that shows some members other posts splits them, and no set has a quorum."""
    run = run_in_memory("C", SETTING, VALUES, shown={(0, 0): {0, 1, 2}, (0, 1): {0, 1, 2}})
    assert all(isinstance(outcome, ProtocolStopped) for outcome in run.outcomes)
    assert [len(said.posts) for said in run.rounds] == [4, 4, 0]


@pytest.mark.parametrize("letter", ["B", "C", "D"])
def test_who_opens_opens_the_same_sum_whatever_the_relay_shows_at_the_end(letter: str) -> None:
    last = {"B": 3, "C": 2, "D": 4}[letter]
    run = run_in_memory(letter, SETTING, VALUES, shown={(last, 0): {0, 1, 2}, (last, 1): {1}})
    sums = {tuple(o.values.tolist()) for o in run.outcomes if isinstance(o, OpenedSum)}
    assert sums == {(6, 60)}
    assert isinstance(run.outcomes[1], ProtocolStopped)
