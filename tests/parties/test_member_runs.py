"""Whole runs: separate processes, mutual TLS on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lapwing.parties.transcript import Transcript, check_transcript
from support.parties import Flock, Process, close_all, flock, start_all


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    close_all(running)


def ends(running: list[Process], *members: int) -> list[dict[str, Any]]:
    return [running[i].end() for i in members or range(len(running))]


def verified(group: Flock, member: int) -> Any:
    return check_transcript(Transcript.read(group.transcript(member)), group.table, guarantee="")


def test_three_processes_come_to_the_same_sum(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="C", stages=2)
    processes += start_all(group)
    for said in ends(processes):
        assert said["sums"] == [[6] * 4, [12] * 4]
        assert said["contributors"] == [[0, 1, 2]] * 2
    shown = verified(group, 1)
    assert shown.contributors == (("north", "south", "east"),) * 2
    relay = Transcript.read(group.folder(0) / f"{group.table.label}.relay.transcript")
    assert relay.rounds == Transcript.read(group.transcript(2)).rounds
    assert check_transcript(relay, group.table, guarantee="").stopped is None


def test_M2_too_many_losses_open_nothing_and_are_named(tmp_path: Path, processes: list[Process]) -> None:
    """B needs all who were present: east is killed after it was, and nobody can know the sum."""
    group = flock(tmp_path, protocol="B", deadline=2.0)
    processes += start_all(group, {2: {"hold": "closed:present:0"}})
    processes[2].wait_for("holding")
    processes[2].kill()
    for said in ends(processes, 0, 1):
        assert said["error"] == "Aborted"
        assert said["missing"] == ("east",)
        assert "Nothing was opened" in said["message"]
        assert "before its deadline" in said["message"]
    shown = verified(group, 1)
    assert shown.opened == []
    assert "east" in shown.stopped


def test_after_agreeing_Shamir_shares_survive_a_loss(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="C", deadline=2.0)
    processes += start_all(group, {2: {"hold": "closed:agree:0"}})
    processes[2].wait_for("holding")
    processes[2].kill()
    for said in ends(processes, 0, 1):
        assert said["sums"] == [[6] * 4]
        assert said["contributors"] == [[0, 1, 2]]


def test_a_member_that_fails_is_named_and_its_reason_is_not_told(
    tmp_path: Path, processes: list[Process]
) -> None:
    group = flock(tmp_path, protocol="C")
    processes += start_all(group, {2: {"fail": True}})
    north, south, east = ends(processes)
    assert east["error"] == "ValueError"
    for said in (north, south):
        assert said["error"] == "Aborted"
        assert said["missing"] == ("east",)
        assert "could not contribute" in said["message"]
    public = b"".join(path.read_bytes() for path in tmp_path.rglob("*.transcript"))
    assert b"SECRET" not in public
    assert "SECRET" not in processes[0].stderr + processes[1].stderr + str((north, south))


def test_the_lobby_says_who_did_not_come_and_nothing_is_drawn(
    tmp_path: Path, processes: list[Process]
) -> None:
    group = flock(tmp_path, lobby=1.5)
    processes += [Process(group, 0, serve=True), Process(group, 1)]
    for said in ends(processes):
        assert said["error"] == "Aborted"
        assert said["missing"] == ("east",)
        assert "nothing was charged" in said["message"]
    retried = Flock(group.root, replace(group.table, lobby_seconds=20.0), group.keys)
    processes += start_all(retried)
    assert all(said["sums"] == [[6] * 4] for said in ends(processes[2:]))


def test_planned_losses_in_the_lobby_are_survived(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="D", losses=1, lobby=2.0)
    processes += [Process(group, 0, serve=True), Process(group, 1)]
    for said in ends(processes):
        assert said["sums"] == [[3] * 4]
        assert said["contributors"] == [[0, 1]]


def test_whoever_is_not_the_host_is_not_talked_to(tmp_path: Path, processes: list[Process]) -> None:
    """South answers at the relay's address: a member, with a good certificate, but not the host."""
    group = flock(tmp_path)
    as_host = Flock(group.root, replace(group.table, host=group.keys[1].card), group.keys)
    processes += [Process(as_host, 1, relay_only=True)]
    processes[0].wait_for("listening")
    processes += [Process(group, 2)]
    said = processes[1].end()
    assert said["error"] == "Unavailable"
    assert "does not show north's certificate" in said["message"]


def test_nobody_listens(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, lobby=0.1)
    processes.append(Process(group, 1))
    said = processes[0].end()
    assert said["error"] == "Unavailable"
    assert "cannot be reached" in said["message"]
