"""Data is read before the run begins: on no clock, and at nobody's cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.errors import Aborted
from lapwing.parties.journals import MemberJournal
from lapwing.parties.member import take_part
from lapwing.parties.messages import PROTOCOL_VERSION, FrameKind, ReadyMessage, json_frame, read_json
from lapwing.parties.relay_server import relay_in_thread
from support.parties import Flock, Process, close_all, flock, start_all
from support.parties_raw import Raw


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    close_all(running)


def has_begun(group: Flock, member: int) -> bool:
    with MemberJournal(group.journal(member), group.table, member) as journal:
        return journal.has_begun()


# Case C10.
def test_a_slow_member_costs_nobody_a_charge(tmp_path: Path, processes: list[Process]) -> None:
    """It reads for longer than the lobby, and than several rounds, together."""
    group = flock(tmp_path, lobby=1.5, deadline=1.0)
    processes += start_all(group, {1: {"hold": "read"}})
    processes[1].wait_for("holding")
    time.sleep(4)
    for i in (0, 2):
        assert processes[i].said()[-1] == "ready"
    processes[1].go_on()
    assert [process.end()["sums"] for process in processes] == [[[6] * 4]] * 3


@pytest.mark.parametrize("crash", [False, True])
def test_who_cannot_read_its_data_costs_nobody_anything(
    tmp_path: Path, processes: list[Process], crash: bool
) -> None:
    group = flock(tmp_path, lobby=2.0)
    processes += start_all(group, {1: {"hold": "read", "unread": True}})
    processes[1].wait_for("holding")
    if crash:
        processes[1].kill()
    else:
        processes[1].go_on()
        assert processes[1].end()["error"] == "ValueError"
    for i in (0, 2):
        said = processes[i].end()
        assert said["error"] == "Aborted"
        assert said["missing"] == ("south",)
        assert "nothing was charged" in said["message"]
        assert "SECRET" not in str(said) + processes[i].stderr
    assert not any(path.name.endswith(".transcript") for path in tmp_path.rglob("*"))
    retried = Flock(group.root, replace(group.table, lobby_seconds=20.0), group.keys)
    processes += start_all(retried)  # the lobby was no run: the same number may be tried again
    assert [process.end()["sums"] for process in processes[3:]] == [[[6] * 4]] * 3


def test_killed_after_it_was_ready_a_member_reads_again(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path)
    processes += start_all(group, {2: {"hold": "read"}})
    while "south" not in processes[0].wait_for("ready")["names"]:
        pass
    processes[1].kill()
    south = Process(group, 1)
    processes.append(south)
    south.wait_for("reading")
    processes[2].go_on()
    assert [processes[i].end()["sums"] for i in (0, 2, 3)] == [[[6] * 4]] * 3


def test_a_planned_loss_is_not_waited_for_beyond_the_lobby(
    tmp_path: Path, processes: list[Process]
) -> None:
    group = flock(tmp_path, protocol="D", losses=1, lobby=3.0)
    processes += start_all(group, {2: {"hold": "read"}})
    assert [processes[i].end()["contributors"] for i in (0, 1)] == [[[0, 1]]] * 2
    processes[2].go_on()
    said = processes[2].end()
    assert said["error"] == "Aborted"
    assert "was not ready" in said["message"]
    assert "nothing was charged" in said["message"]
    assert not has_begun(group, 2)


def test_who_comes_back_and_reads_until_it_is_out_is_not_charged(
    tmp_path: Path, processes: list[Process]
) -> None:
    """It was ready, and died before its mark. It comes back, and is out before it has read."""
    group = flock(tmp_path, protocol="D", losses=1, lobby=10.0, deadline=2.0)
    processes.append(Process(group, 0, serve=True))
    processes[0].wait_for("listening")
    east = Raw(group, group.keys[2])
    processes.append(Process(group, 1))
    east.until(FrameKind.BEGIN)
    east.cut()
    processes.append(Process(group, 2, hold="read"))
    processes[2].wait_for("holding")
    assert [processes[i].end()["contributors"] for i in (0, 1)] == [[[0, 1]]] * 2
    processes[2].go_on()
    said = processes[2].end()
    assert said["error"] == "Aborted"
    assert "was not charged" in said["message"]
    assert not has_begun(group, 2)


def test_who_is_too_slow_for_later_stages_does_not_begin(tmp_path: Path) -> None:
    """They are read on the clock: better nobody is charged at all."""
    group = flock(tmp_path, stages=2, lobby=1.0, deadline=0.2)

    def contribute(*_: object) -> NDArray[np.int64]:
        raise AssertionError("never called")

    def read() -> None:
        time.sleep(0.15)

    with relay_in_thread(group.table, group.keys[0], folder=group.root):
        with pytest.raises(Aborted, match="nothing was charged") as aborted:
            take_part(
                group.table, 1, group.keys[1], folder=group.folder(1), contribute=contribute, read=read
            )
        assert "longer deadline" in str(aborted.value)
    assert not has_begun(group, 1)


class TestAtTheRelay:
    """Who has come, and who is ready."""

    @pytest.fixture
    def three(self, tmp_path: Path) -> Flock:
        return flock(tmp_path, lobby=1.0, deadline=1.0)

    def test_it_begins_when_all_are_ready(self, three: Flock) -> None:
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            raws = [Raw(three, keys, greeting=None, watch=True) for keys in three.keys]
            for raw in raws:
                assert read_json(raw.until(FrameKind.WELCOME)) == {"version": PROTOCOL_VERSION}
            for i, raw in enumerate(raws):
                greeting = ReadyMessage.fresh(three.table.run_id, i, three.keys[i]).to_json()
                raw.send(json_frame(FrameKind.READY, greeting=greeting))
            for raw in raws:
                assert len(read_json(raw.until(FrameKind.BEGIN))["greetings"]) == 3
                raw.close()

    def test_nobody_is_ready_in_anothers_name(self, three: Flock) -> None:
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            south = Raw(three, three.keys[1], greeting=None)
            theirs = ReadyMessage.fresh(three.table.run_id, 2, three.keys[2]).to_json()
            south.send(json_frame(FrameKind.READY, greeting=theirs))
            assert "not signed by its sender" in south.end()["why"]
            south.cut()

    def test_who_comes_again_and_is_not_ready_is_not(self, tmp_path: Path) -> None:
        three = flock(tmp_path, lobby=2.0, deadline=1.0)  # four handshakes must fit on a busy machine
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            raws = [Raw(three, keys) for keys in three.keys[:2]]
            for raw in raws:  # or the relay may hear the second connection of south first
                raw.until(FrameKind.WELCOME)
            again = Raw(three, three.keys[1], greeting=None)
            again.until(FrameKind.WELCOME)
            east = Raw(three, three.keys[2])
            for raw in (raws[0], east):  # beats say who is ready; the run does not begin
                assert read_json(raw.until(FrameKind.NEWS))["names"] == ["north", "east"]
            for raw in (*raws, again, east):
                raw.cut()

    @pytest.mark.parametrize(
        "said",
        [
            None,
            PROTOCOL_VERSION + 1,
            *(pytest.param(one, marks=pytest.mark.slow) for one in (1, "2", True)),
        ],
    )
    def test_another_version_is_told_so_before_anything_else(self, three: Flock, said: object) -> None:
        with relay_in_thread(three.table, three.keys[0], folder=three.root):
            north = Raw(three, three.keys[0], watch=True)
            north.until(FrameKind.WELCOME)
            south = Raw(three, three.keys[1], version=said, run="of another form")
            why = south.end()["why"]
            assert why.startswith("south was refused: it has ")
            assert f"this is version {PROTOCOL_VERSION}" in why
            assert "same version of lapwing" in why
            while (news := read_json(north.until(FrameKind.NEWS)))["what"] != "refused":
                pass
            assert news["names"] == ["south"]
            for raw in (north, south):
                raw.cut()
