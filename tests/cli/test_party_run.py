"""`lapwing party run` and `relay`, one member alone: what is refused, which number is next, who is told."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from lapwing.cli import main
from lapwing.cli.console import printable, tell
from lapwing.cli.party import example, init
from lapwing.errors import Unavailable
from lapwing.parties.consortium import Consortium
from lapwing.parties.draft import found_consortium, read_draft
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joining import contribution_for, open_statistic
from lapwing.parties.journals import ClosedRound, MemberJournal, RelayJournal, RunEnding
from lapwing.parties.messages import ReadyMessage
from lapwing.parties.posts import Parcel
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.parties.run_status import members_without_result, next_relay_run, runs_folder
from support.shell import Shell

MEMBERS = ("east", "north", "south")
FILE = "joint-wards.consortium"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, keys for all and for a stranger, and the consortium, signed by all; nobody relays."""
    folder = tmp_path_factory.mktemp("made")
    example(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    wish = folder / "joint.toml"
    text = wish.read_text().replace("7443", port).replace("epsilon = 1.0", "epsilon = 2.0")
    assert "epsilon = 2.0" in text  # of 3: one run fits, and no second
    wish.write_text(text)
    for name in (*MEMBERS, "west"):
        init(name, folder=folder / name)
    keys = [MemberKeys.open(folder / name) for name in MEMBERS]
    file = read_draft(wish)
    with open_statistic(file.statistic, folder / "north" / "visits.toml", tell=tell) as (_, statistic):
        consortium = found_consortium(file, [one.card for one in keys], statistic)
    for one in keys:
        consortium = consortium.signed(one)
    (folder / FILE).write_text(consortium.to_text())
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(number: int) -> RunConfiguration:
    return Consortium.read(Path(FILE)).run_configuration(number)


def runs(name: str) -> Path:
    return runs_folder(MemberKeys.open(Path(name)))


def journal(name: str, number: int) -> MemberJournal:
    at = config(number)
    return MemberJournal(MemberJournal.path_of(runs(name), at), at, MEMBERS.index(name))


def part(name: str, *more: object) -> tuple[object, ...]:
    return ("party", "run", FILE, "--me", name, "--policy", f"{name}/visits.toml", *more)


def charge(name: str, number: int) -> None:
    """As in a run of this number, whose journal is then lost."""
    consortium, policy = Consortium.read(Path(FILE)), Path(name, "visits.toml")
    with open_statistic(consortium.statistic, policy, tell=tell) as (data, statistic):
        contribution_for(consortium, number, statistic, data)(0, ())


@pytest.fixture
def nobody_comes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the runs that a member would have waited for."""
    waited: list[int] = []

    def wait(at: RunConfiguration, *_: object, **__: object) -> object:
        waited.append(at.number)
        raise Unavailable("nobody came")

    monkeypatch.setattr("lapwing.parties.joining.take_part", wait)
    return waited


def test_a_budget_that_was_spent_since_the_lobby_is_told_before_anybody_waits(
    shell: Shell, folder: Path, nobody_comes: list[int]
) -> None:
    with journal("south", 1):
        """A lobby that nobody came to leaves a journal, in which nothing has begun."""
    charge("south", 7)
    done = shell(*part("south"))
    assert (done.code, nobody_comes) == (3, [])


def test_what_has_begun_goes_on_without_a_second_look_at_the_budget(
    shell: Shell, folder: Path, nobody_comes: list[int]
) -> None:
    charge("south", 1)
    with journal("south", 1) as mine:
        mine.drawing(0, None)
    done = shell(*part("south"))
    assert (done.code, nobody_comes) == (1, [1])
    said = " ".join(done.error.split())
    assert "run 1 has begun for south: the same command goes on with it" in said
    assert "north shows its end again with --number 1" in said
    assert "--number 2 at every member" in said


def test_a_run_whose_journal_is_gone_is_passed_over(
    shell: Shell, folder: Path, nobody_comes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    charge("south", 1)
    monkeypatch.setattr("lapwing.parties.contribution.Contribution.check", lambda _: None)
    done = shell(*part("south"))
    assert (done.code, nobody_comes) == (1, [2])
    assert "run 1 was charged before" in done.error
    assert "must say --number 2" in done.error
    asked = shell(*part("south", "--number", 1))
    assert (asked.code, nobody_comes) == (2, [2])
    assert "no journal of it" in asked.error


def test_the_number_after_an_abort_is_one_that_can_be_run(shell: Shell, folder: Path) -> None:
    charge("east", 2)
    with journal("east", 1) as mine:
        mine.drawing(0, None)
        mine.finish([], RunEnding([], "too few (south)"))
    done = shell(*part("east", "--number", 1))
    assert done.code == 1
    assert "is number 3: give the same command again" in done.error


def finish(name: str) -> None:
    with journal(name, 1) as mine:
        mine.drawing(0, None)
        mine.finish([], RunEnding([OpenedSum(np.zeros(4, np.int64), (0, 1, 2))]))


def test_a_host_that_is_through_shows_the_end_to_who_missed_it(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []
    monkeypatch.setattr(
        "lapwing.parties.joining.serve_relay", lambda at, *_, **__: served.append(at.number)
    )
    waiting = ["north", "south"]
    monkeypatch.setattr("lapwing.parties.run_status.members_without_result", lambda *_: tuple(waiting))
    for name in ("north", "east"):
        finish(name)
    done = shell(*part("north", "--json"))
    assert (done.code, served) == (0, [1])
    assert json.loads(done.out)["charged"] is None
    assert "lapwing: south may not know the sums" in done.error
    assert shell(*part("east")).code == 0  # hosts nothing
    waiting.remove("south")
    shell.good(*part("north"))
    assert served == [1]


def test_the_relay_remembers_who_may_have_missed_the_end(folder: Path) -> None:
    consortium, at, kept = Consortium.read(Path(FILE)), config(1), runs("north")
    assert (next_relay_run(consortium, kept), members_without_result(at, kept)) == (1, ())
    memory = RelayJournal(kept, at)
    memory.begin({i: ReadyMessage(at.run_id, i, b"") for i in range(3)})
    for number, there in enumerate((3, 2, 2)):  # who was lost on the way is not forgotten
        memory.close_round(ClosedRound(0, number, {i: Parcel(b"", {}) for i in range(there)}, {}))
    assert next_relay_run(consortium, folder) == 1
    memory.end({1}, [])
    memory.close()
    assert (next_relay_run(consortium, kept), members_without_result(at, kept)) == (2, ("east", "south"))


def test_of_a_run_that_stopped_nobody_missed_the_end(folder: Path) -> None:
    consortium, at, kept = Consortium.read(Path(FILE)), config(1), runs("north")
    memory = RelayJournal(kept, at)
    memory.begin({i: ReadyMessage(at.run_id, i, b"") for i in range(3)})
    memory.close_round(ClosedRound(0, 0, {}, {}))
    memory.end((), [])
    memory.close()
    assert (next_relay_run(consortium, kept), members_without_result(at, kept)) == (2, ())


def test_a_relay_is_refused_before_it_says_that_it_relays(shell: Shell, folder: Path) -> None:
    done = shell("party", "relay", FILE, "--me", "west")
    assert (done.code, done.out) == (2, "")
    assert "this is west, but north is the host" in done.error


def test_a_relay_says_which_end_it_could_show_again(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []
    monkeypatch.setattr(
        "lapwing.parties.joining.serve_relay", lambda at, *_, **__: served.append(at.number)
    )
    memory = RelayJournal(runs("north"), config(1))
    memory.end((), [])
    memory.close()
    monkeypatch.setattr(
        "lapwing.parties.run_status.members_without_result",
        lambda at, _: ("east",) if at.number == 1 else (),
    )
    done = shell("party", "relay", FILE, "--me", "north")
    assert (done.code, served) == (0, [2])
    assert "run 1 ended, and east may not know its sums: --number 1" in done.error


def test_a_file_that_is_not_there_has_no_mistakes(shell: Shell, folder: Path) -> None:
    done = shell("party", "join", "none", "--me", "north", "--policy", "north/visits.toml", "--yes")
    assert done.code == 2
    assert "mistakes" not in done.error
    assert "none cannot be read" in done.error


def test_nothing_that_others_wrote_reaches_the_terminal_as_an_order(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second layer: even if a document with such a text could be read."""
    assert printable("ε 1, für alle\x1b[2J\n") == "ε 1, für alle\\u001b[2J "
    monkeypatch.setattr("lapwing.parties.consortium._require_printable", lambda _: None)
    monkeypatch.setattr("lapwing.parties.consortium.parse_address", lambda _: None)
    monkeypatch.setattr("lapwing.parties.run_configuration.parse_address", lambda _: ("x", 1))
    whole = json.loads(Path(FILE).read_text())
    whole["consortium"]["relay"]["address"] = "\x1b[2Jevil:7443"
    Path(FILE).write_text(json.dumps({**whole, "signatures": {}}))
    done = shell("party", "join", FILE, "--me", "north", "--policy", "north/visits.toml", "--yes")
    assert "evil" in done.out
    assert "\x1b" not in done.out


@pytest.mark.parametrize("stderr", ["none", "closed", "broken"])
def test_a_member_whose_terminal_is_gone_is_told_nothing_and_nothing_breaks(
    folder: Path, nobody_comes: list[int], monkeypatch: pytest.MonkeyPatch, stderr: str
) -> None:
    monkeypatch.setattr(sys, "stderr", _gone(stderr))
    with pytest.raises(SystemExit) as caught:
        main.app([str(one) for one in part("south")], standalone_mode=True)
    assert (caught.value.code, nobody_comes) == (1, [1])


class _Broken:
    encoding = "utf-8"

    def write(self, _: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError

    def isatty(self) -> bool:
        return False


def _gone(kind: str) -> object:
    if kind == "none":
        return None
    if kind == "broken":
        return _Broken()
    closed = open("/dev/null", "w")  # noqa: SIM115
    closed.close()
    return closed
