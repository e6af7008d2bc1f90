"""Members and hosts that are killed, frozen or cut off, over TLS: every run ends as promised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import Unavailable
from lapwing.parties.journals import MemberJournal
from lapwing.parties.messages import PROTOCOL_VERSION, FrameKind, frame, json_frame
from lapwing.parties.posts import Delivery
from lapwing.parties.transcript import Transcript, TranscriptRound, check_transcript
from support.parties import Flock, Process, close_all, flock, start_all
from support.parties_lying import South, Talk, lying
from support.parties_raw import proxy


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    close_all(running)


SUM = [[6] * 4]


def test_killed_after_its_post_a_member_sends_the_same_bytes_again(
    tmp_path: Path, processes: list[Process]
) -> None:
    group = flock(tmp_path, protocol="C")
    processes += start_all(group, {2: {"hold": "contribute"}})
    while "south" not in processes[0].wait_for("posted")["names"]:
        pass
    processes[1].kill()
    with MemberJournal(group.journal(1), group.table, 1) as journal:
        stored = journal.parcel((0, 0))
    assert stored is not None
    south = Process(group, 1)
    processes.append(south)
    south.wait_for("round")
    processes[2].go_on()
    assert [processes[i].end()["sums"] for i in (0, 2, 3)] == [SUM] * 3
    shown = Transcript.read(group.transcript(0))
    assert shown.rounds[0].envelopes[1].to_bytes() == stored.envelope
    with MemberJournal(group.journal(1), group.table, 1) as journal:
        assert journal.parcel((0, 0)) == stored


def test_killed_between_rounds_a_member_goes_on(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="D", stages=2)
    processes += start_all(group, {1: {"hold": "closed:seeds:1"}})
    processes[1].wait_for("holding")
    processes[1].kill()
    processes.append(Process(group, 1))
    assert [processes[i].end()["sums"] for i in (0, 2, 3)] == [[[6] * 4, [12] * 4]] * 3


def test_killed_while_it_drew_noise_a_member_draws_no_second_one(
    tmp_path: Path, processes: list[Process]
) -> None:
    group = flock(tmp_path, protocol="C")
    processes += start_all(group, {1: {"hold": "contribute"}})
    processes[1].wait_for("holding")
    processes[1].kill()
    for _ in range(2):  # the second time the journal knows the end
        again = Process(group, 1)
        processes.append(again)
        said = again.end()
        assert said["error"] == "Aborted"
        assert "never drawn twice" in said["message"]
    for i in (0, 2):
        said = processes[i].end()
        assert said["error"] == "Aborted"
        assert said["missing"] == ("south",)
        assert "never drawn twice" in said["message"]


def test_the_host_restarts_and_everybody_goes_on(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="C")
    processes += start_all(group, {0: {"hold": "closed:deal:0"}})
    processes[0].wait_for("holding")
    processes[0].kill()
    processes.append(Process(group, 0, serve=True))
    assert [processes[i].end()["sums"] for i in (1, 2, 3)] == [SUM] * 3
    check_transcript(Transcript.read(group.transcript(0)), group.table, guarantee="")


def test_a_cut_line_is_mended(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="B")
    with proxy(group.table.address) as between:
        away = Flock(group.root, replace(group.table, address=between.address), group.keys)
        processes += [
            Process(group, 0, serve=True),
            Process(away, 1, hold="closed:present:0"),
            Process(away, 2, hold="closed:deal:0"),
        ]
        processes[1].wait_for("holding")
        between.cut()
        processes[1].go_on()
        processes[2].wait_for("holding")
        between.cut()
        processes[2].go_on()
        assert [process.end()["sums"] for process in processes] == [SUM] * 3
        assert between.connections >= 4


def test_a_slow_member_is_waited_for(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="D")
    processes += start_all(group, {2: {"hold": "closed:seeds:0"}})
    processes[2].wait_for("holding")
    processes[2].freeze()
    processes[0].wait_for("posted")
    processes[2].thaw()
    processes[2].go_on()
    assert [process.end()["sums"] for process in processes] == [SUM] * 3


def test_a_member_beyond_the_deadline_is_out_and_the_others_go_on(
    tmp_path: Path, processes: list[Process]
) -> None:
    """D with one planned loss: east's seeds are shared, its value is not; its masks are taken away."""
    group = flock(tmp_path, protocol="D", losses=1, deadline=2.0)
    processes += start_all(group, {2: {"hold": "closed:seeds:0"}})
    processes[2].wait_for("holding")
    for i in (0, 1):
        said = processes[i].end()
        assert said["sums"] == [[3] * 4]
        assert said["contributors"] == [[0, 1]]


def test_asked_again_a_finished_run_gives_the_same(tmp_path: Path, processes: list[Process]) -> None:
    group = flock(tmp_path, protocol="A")
    processes += start_all(group)
    assert [process.end()["sums"] for process in processes] == [SUM] * 3
    again = start_all(group, {i: {"fail": True} for i in range(3)})
    processes += again
    assert [process.end()["sums"] for process in again] == [SUM] * 3


class TestTheResultIsFetched:
    """South has dealt, and is in the sum; it is lost before it has agreed. It paid like the others."""

    @pytest.fixture
    def group(self, tmp_path: Path) -> Flock:
        return flock(tmp_path, protocol="C", deadline=2.0)

    def lost_after_dealing(self, group: Flock, processes: list[Process]) -> None:
        processes += start_all(group, {1: {"hold": "closed:deal:0"}})
        processes[1].wait_for("holding")
        processes[1].kill()
        for i in (0, 2):
            said = processes[i].end()
            assert said["sums"] == SUM
            assert said["contributors"] == [[0, 1, 2]]

    def fetched(self, group: Flock, processes: list[Process]) -> None:
        south = Process(group, 1, fail=True)  # whatever happens, it contributes nothing again
        processes.append(south)
        assert south.end()["sums"] == SUM
        shown = Transcript.read(group.transcript(1))
        assert check_transcript(shown, group.table, guarantee="").contributors == (
            ("north", "south", "east"),
        )
        again = Process(group, 1, fail=True)  # from its journal: nobody is asked
        processes.append(again)
        assert again.end()["sums"] == SUM

    def test_from_the_host_that_is_still_there(self, group: Flock, processes: list[Process]) -> None:
        self.lost_after_dealing(group, processes)
        self.fetched(group, processes)
        processes[0]._process.join(10)  # now everybody has it, and the host need not stay
        assert processes[0]._process.exitcode == 0

    def test_from_a_host_that_was_restarted(self, group: Flock, processes: list[Process]) -> None:
        self.lost_after_dealing(group, processes)
        processes[0].kill()
        processes.append(Process(group, 0, serve=True, fail=True))
        assert processes[-1].end()["sums"] == SUM
        self.fetched(group, processes)

    def test_by_who_was_only_slow(self, group: Flock, processes: list[Process]) -> None:
        processes += start_all(group, {1: {"hold": "closed:deal:0"}})
        processes[1].wait_for("holding")
        assert [processes[i].end()["sums"] for i in (0, 2)] == [SUM] * 2
        processes[1].go_on()  # it posts, too late
        assert processes[1].end()["sums"] == SUM

    def test_who_waits_while_the_others_stop_is_told_so(
        self, tmp_path: Path, processes: list[Process]
    ) -> None:
        group = flock(tmp_path / "b", protocol="B", deadline=2.0)
        processes += start_all(group, {1: {"hold": "closed:present:0"}})
        processes[1].wait_for("holding")
        assert {processes[i].end()["error"] for i in (0, 2)} == {"Aborted"}
        processes[1].go_on()
        assert processes[1].end()["error"] in ("Aborted", "Unavailable")

    def test_a_result_that_members_have_not_signed_is_none(
        self, group: Flock, processes: list[Process]
    ) -> None:
        self.lost_after_dealing(group, processes)
        processes[0].kill()
        rounds = Transcript.read(group.transcript(0)).rounds
        other = Transcript.read(group.transcript(2)).rounds[2].envelopes[0]
        forged = replace(other, public=bytes(len(other.public)))
        wrong = [
            [*rounds[:2], replace(rounds[2], envelopes=(forged, *rounds[2].envelopes[1:]))],
            [rounds[0], replace(rounds[1], envelopes=rounds[1].envelopes[:1]), rounds[2]],
            [replace(rounds[0], envelopes=rounds[0].envelopes[:2]), *rounds[1:]],
            [rounds[1], rounds[0], rounds[2]],
        ]
        for shown in wrong:

            def lie(talk: Talk, shown: Sequence[TranscriptRound] = shown) -> None:
                talk.read()
                talk.say(json_frame(FrameKind.WELCOME, version=PROTOCOL_VERSION))
                talk.say(json_frame(FrameKind.OUT, why="too late"))
                for one in shown:
                    items = [(envelope.to_bytes(), None) for envelope in one.envelopes]
                    talk.say(frame(FrameKind.CLOSED, *Delivery(one.stage, one.round, items, {}).to_parts()))
                talk.read()

            with lying(group, lie), pytest.raises(Unavailable, match="that members have signed"):
                South(group).play()
            with MemberJournal(group.journal(1), group.table, 1) as journal:
                assert journal.outcome() is None, "an honest relay can still show it"


@pytest.mark.slow
class TestTenMembers:
    """Ten processes: one is killed before, during and after sharing."""

    SHARING = {"B": "deal", "C": "deal", "D": "masked"}  # noqa: RUF012

    def start(self, group: Flock, processes: list[Process], hold: str) -> None:
        processes += start_all(group, {9: {"hold": hold}})
        processes[9].wait_for("holding")
        processes[9].kill()

    @pytest.mark.parametrize("letter", "ABCD")
    def test_all_come_to_the_sum(self, tmp_path: Path, processes: list[Process], letter: str) -> None:
        group = flock(tmp_path, 10, protocol=letter, coalition=4, length=1000)
        processes += start_all(group)
        assert [process.end()["sums"] for process in processes] == [[[55] * 1000]] * 10

    @pytest.mark.parametrize("letter", "BCD")
    def test_killed_before_sharing(self, tmp_path: Path, processes: list[Process], letter: str) -> None:
        group = flock(tmp_path, 10, protocol=letter, coalition=4, losses=1, deadline=4.0)
        self.start(group, processes, "contribute")
        for process in processes[:9]:
            said = process.end()
            assert said["sums"] == [[45] * 4]
            assert said["contributors"] == [list(range(9))]

    @pytest.mark.parametrize("letter", "BCD")
    def test_killed_before_sharing_when_no_loss_was_planned(
        self, tmp_path: Path, processes: list[Process], letter: str
    ) -> None:
        group = flock(tmp_path, 10, protocol=letter, coalition=4, losses=0, deadline=4.0)
        self.start(group, processes, "contribute")
        for process in processes[:9]:
            said = process.end()
            assert said["error"] == "Aborted"
            assert said["missing"] == ("ward-10",)

    @pytest.mark.parametrize(
        ("letter", "hold", "survives"),
        [
            ("B", "closed:present:0", False),
            ("C", "closed:deal:0", True),
            ("D", "closed:keys:0", True),
            ("D", "closed:seeds:0", True),
            ("D", "closed:masked:0", True),
        ],
    )
    def test_killed_during_sharing(
        self, tmp_path: Path, processes: list[Process], letter: str, hold: str, survives: bool
    ) -> None:
        group = flock(tmp_path, 10, protocol=letter, coalition=4, losses=1, deadline=4.0)
        self.start(group, processes, hold)
        in_sum = 55 if hold in ("closed:deal:0", "closed:masked:0") else 45
        for process in processes[:9]:
            said = process.end()
            if survives:
                assert said["sums"] == [[in_sum] * 4]
            else:
                assert said["missing"] == ("ward-10",)

    @pytest.mark.parametrize("letter", "CD")
    def test_killed_after_sharing(self, tmp_path: Path, processes: list[Process], letter: str) -> None:
        group = flock(tmp_path, 10, protocol=letter, coalition=4, losses=0, deadline=4.0)
        self.start(group, processes, "closed:agree:0")
        assert [process.end()["sums"] for process in processes[:9]] == [[[55] * 4]] * 9
