"""Joining a run: the next number, a whole run of two members, its end again, and lost journals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import Aborted, BadParameter
from lapwing.parties.consortium import Consortium
from lapwing.parties.draft import found_consortium, read_draft
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joining import RunResult, advice_after_abort, contribution_for, join_run
from lapwing.parties.run_status import (
    charges_of,
    find_run,
    members_without_result,
    next_relay_run,
    runs_folder,
)
from lapwing.parties.statistics import statistic_of
from lapwing.parties.transcript import verify_transcript
from lapwing.sql.dataset import Dataset
from support.joint import member
from support.parties import free_port

MEMBERS = ("north", "south")
DRAFT = """
[consortium]
name = "joint-wards"
question = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
epsilon = 4.0
coalition = 1
losses = 0
people_at = 1
adversary = "unbounded"
[relay]
host = "north"
address = "127.0.0.1:{port}"
[deadlines]
lobby = 20
round = 20
"""
Group = tuple[Consortium, list[MemberKeys], list[Dataset]]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    keys = [MemberKeys.create(name, tmp_path / name / "keys") for name in MEMBERS]
    data = [member(tmp_path / name, range(i * 50, i * 50 + 50)) for i, name in enumerate(MEMBERS)]
    path = tmp_path / "joint.toml"
    path.write_text(DRAFT.format(port=free_port()))
    draft = read_draft(path)
    consortium = found_consortium(draft, [one.card for one in keys], statistic_of(draft.statistic, data[0]))
    for one in keys:
        consortium = consortium.signed(one)
    return consortium, keys, data


def join(group: Group, number: int | None = None) -> list[RunResult]:
    consortium, keys, data = group

    def part(i: int) -> RunResult:
        statistic = statistic_of(consortium.statistic, data[i])
        return join_run(
            consortium, keys[i], data[i], statistic, number=number, confidence=Fraction(95, 100)
        )

    with ThreadPoolExecutor(len(keys)) as pool:
        return list(pool.map(part, range(len(keys))))


def test_members_get_the_same_answer_once_charged_and_again_for_nothing(group: Group) -> None:
    consortium, keys, data = group
    first = join(group)
    assert first[0].answer.to_json() == first[1].answer.to_json()
    assert [result.number for result in first] == [1, 1]
    assert not any(result.is_replay for result in first)
    assert verify_transcript(first[0].transcript).contributors == (MEMBERS,)
    again = join(group)
    assert all(result.is_replay for result in again)
    assert again[0].answer.to_json() == first[0].answer.to_json()
    assert again[0].left == first[0].left
    assert all(charges_of(one)(consortium.run_configuration(1).run_id) for one in data)
    assert next_relay_run(consortium, runs_folder(keys[0])) == 2
    assert members_without_result(consortium.run_configuration(1), runs_folder(keys[0])) == ()


def test_a_run_that_was_charged_and_has_no_journal_is_passed_over(group: Group) -> None:
    consortium, keys, data = group
    statistic = statistic_of(consortium.statistic, data[0])
    contribution_for(consortium, 1, statistic, data[0])(0, ())
    status = find_run(consortium, keys[0], None, was_charged=charges_of(data[0]))
    assert (status.config.number, status.lost) == (2, (1,))
    with pytest.raises(BadParameter, match="has no journal of it"):
        join_run(consortium, keys[0], data[0], statistic, number=1, confidence="0.95")


def test_after_an_abort_the_next_run_is_told(group: Group) -> None:
    """A run that goes on without a member is not the next one for it, though its journal is empty."""
    consortium, keys, data = group
    ended, missed = Aborted("why", was_charged=False), Aborted("why", goes_on=True)
    assert not missed.was_charged
    assert "is number 1: give the same command" in advice_after_abort(consortium, keys[1], data[1], ended)
    assert "--number 2, at every member" in advice_after_abort(consortium, keys[1], data[1], missed)
    assert "--number 8, at every member" in advice_after_abort(consortium, keys[1], data[1], missed, 7)


def test_a_stranger_cannot_join(group: Group, tmp_path: Path) -> None:
    consortium, _, _ = group
    stranger = MemberKeys.create("north", tmp_path / "stranger")
    with pytest.raises(BadParameter, match=r"north .with this key. is none of north, south"):
        find_run(consortium, stranger, None, was_charged=lambda _: False)
