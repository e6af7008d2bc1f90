"""Three members in three processes over TLS, by the commands of the guide; and one of them stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lapwing.sql.opening import open as open_dataset
from support.shell import Shell

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "parties.md"
LAPWING = str(Path(sys.executable).parent / "lapwing")
MEMBERS = ("north", "south", "east")
SETUP = (
    "party example",
    "party init north",
    "party init south",
    "party init east",
    "party invite joint.toml north/north.card south/south.card east/east.card --policy north/visits.toml",
    *(f"party join joint-wards.consortium --me {one} --policy {one}/visits.toml --yes" for one in MEMBERS),
)


def blocks() -> list[tuple[str, list[str]]]:
    """The commands of the guide's first section: in turn, or (sh) each in a shell of its own."""
    section = GUIDE.read_text().split("## In five minutes")[1].split("\n## ")[0]
    found = re.findall(r"^```(console|sh)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [(kind, [line.removeprefix("$ ") for line in text.splitlines()]) for kind, text in found]


def arguments(line: str, folder: Path) -> list[str]:
    """What a shell would make of a line of the guide."""
    program, *given = shlex.split(line)
    assert program == "lapwing"
    spread = [sorted(map(str, folder.glob(one))) if "*" in one else [one] for one in given]
    return [one for several in spread for one in several]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Commands that take turns are run in this process, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@contextmanager
def started(folder: Path, *given: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the test."""
    process = subprocess.Popen(
        [LAPWING, *given], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def own_port(folder: Path, **other: str) -> None:
    """Tests run side by side: another port, and other terms where a test needs them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wish = folder / "joint.toml"
    text = wish.read_text().replace("7443", str(port))
    for old, new in other.items():
        text = re.sub(rf"^{old} = \S+", f"{old} = {new}", text, flags=re.MULTILINE)
    wish.write_text(text)


def set_up(shell: Shell, folder: Path, **other: str) -> None:
    for line in SETUP:
        shell.good(*line.split())
        if line == "party example":
            own_port(folder, **other)


def part(name: str) -> tuple[str, ...]:
    return ("party", "run", "joint-wards.consortium", "--me", name, "--policy", f"{name}/visits.toml")


def test_the_guide_takes_three_processes_to_one_histogram(shell: Shell, tmp_path: Path) -> None:
    (first, setting_up), (second, running), (third, verifying) = blocks()
    assert (first, second, third) == ("console", "sh", "sh")
    for line in setting_up:
        shell.good(*arguments(line, tmp_path))
        if line == "lapwing party example":
            own_port(tmp_path)
    with ExitStack() as all_three:
        processes = [
            all_three.enter_context(started(tmp_path, *arguments(line, tmp_path), "--json"))
            for line in running
        ]
        done = [process.communicate(timeout=120) for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], done
    assert all("round 3 of 3, open: east, north, south" in error for _, error in done)
    found = [json.loads(out) for out, _ in done]
    assert [one["columns"] for one in found] == [found[0]["columns"]] * 3
    wards, visits = found[0]["columns"]
    assert wards["values"] == ["surgery", "cardiology", "maternity", "emergency"]
    assert all(
        low <= value <= high
        for low, value, high in zip(visits["low"], visits["values"], visits["high"], strict=True)
    )
    assert all(one["charged"] == "ε 1" and one["left"].startswith("ε 2 of 3") for one in found)
    [line] = verifying
    assert "is in order" in shell.good(*arguments(line, tmp_path)).out
    again = shell.good(*part("south"), "--json").json  # the run is over: the same answer, for nothing
    assert (again["columns"], again["charged"]) == (found[0]["columns"], None)
    assert again["left"].startswith("ε 2 of 3")


@pytest.mark.slow
def test_who_does_not_come_is_named_and_nothing_was_charged(shell: Shell, tmp_path: Path) -> None:
    set_up(shell, tmp_path, lobby="2")
    with started(tmp_path, *part("north")) as north, started(tmp_path, *part("east")) as east:
        for process in (north, east):
            _, error = process.communicate(timeout=60)
            assert process.returncode == 1
            assert "south" in error
            assert "is number 1: give the same command again" in error  # the lobby is no run
    with open_dataset(tmp_path / "north" / "visits.toml") as data:
        assert str(data.left()) == "ε 3 of 3"


CRASHING = """
import os
from pathlib import Path
from lapwing.parties.consortium import Consortium
from lapwing.parties.identity import MemberKeys
from lapwing.parties.joining import join_run, open_statistic

def watch(event):
    if (event.kind, event.round) == ("closed", "deal"):
        os._exit(9)

consortium, keys = Consortium.read(Path("joint-wards.consortium")), MemberKeys.open(Path("south"))
with open_statistic(consortium.statistic, Path("south/visits.toml"), tell=print) as (data, statistic):
    join_run(consortium, keys, data, statistic, confidence="0.95", watch=watch, tell=print)
"""


@pytest.mark.slow
def test_who_crashed_after_dealing_fetches_the_result(shell: Shell, tmp_path: Path) -> None:
    """The host has its answer at once, and stays: south gives its command again."""
    set_up(shell, tmp_path, round="5")
    with (
        started(tmp_path, *part("north"), "--json") as north,
        started(tmp_path, *part("east"), "--json") as east,
    ):
        crashed = subprocess.run([sys.executable, "-c", CRASHING], cwd=tmp_path, check=False, timeout=120)
        assert crashed.returncode == 9
        found = [json.loads(east.communicate(timeout=60)[0])]
        assert north.stderr is not None
        while "south may not know the sums" not in (line := north.stderr.readline()):
            assert line, "the host left"
        assert "for 300 seconds" in line
        assert north.poll() is None
        again = shell(*part("south"), "--json")
        assert again.code == 0, again.error
        found += [again.json]
        found.append(json.loads(north.communicate(timeout=60)[0]))
        assert (east.returncode, north.returncode) == (0, 0)
    assert all(one["columns"] == found[0]["columns"] for one in found)
    assert all(one["contributors"] == 3 and one["left"].startswith("ε 2 of 3") for one in found)


@pytest.mark.slow
def test_who_stops_before_sharing_is_named_and_nothing_is_opened(shell: Shell, tmp_path: Path) -> None:
    """South is ready, and is halted before it has dealt: the others abort by the round's deadline."""
    set_up(shell, tmp_path, round="5")
    with started(tmp_path, *part("south")) as south, started(tmp_path, *part("north")) as north:
        assert south.stderr is not None
        line = ""
        while not ("ready: " in line and "south" in line):  # so that the run begins when east is, too
            line = south.stderr.readline()
            assert south.poll() is None
        os.kill(south.pid, signal.SIGSTOP)
        with started(tmp_path, *part("east")) as east:
            for process in (north, east):
                out, error = process.communicate(timeout=90)
                assert (process.returncode, out) == (1, "")
                *_, why, what_now = error.splitlines()
                assert "south" in why
                assert "Nothing was opened; what was charged stays charged" in why
                assert "is number 2: give the same command again" in what_now
    [transcript] = (tmp_path / "east" / "runs").glob("*run-1.transcript")
    verified = shell.good("party", "verify", transcript, "--json").json
    assert verified["sums"] == []
    assert "south" in verified["stopped"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["A", "B", "C", "D"])
def test_every_protocol_by_a_relay_of_its_own(shell: Shell, tmp_path: Path, protocol: str) -> None:
    shell.good("party", "example")
    own_port(tmp_path, protocol=f'"{protocol}"', adversary='"bounded"', host='"hub"')
    for name in (*MEMBERS, "hub"):
        shell.good("party", "init", name)
    cards = [f"{one}/{one}.card" for one in MEMBERS]
    policy = ("--policy", "north/visits.toml")
    shell.good("party", "invite", "joint.toml", *cards, *policy, "--relay-card", "hub/hub.card")
    for line in SETUP[-3:]:
        shell.good(*line.split())
    relay = ("party", "relay", "joint-wards.consortium", "--me", "hub")
    with (
        started(tmp_path, *relay) as hub,
        started(tmp_path, *part("north"), "--json") as north,
        started(tmp_path, *part("south"), "--json") as south,
        started(tmp_path, *part("east"), "--json") as east,
    ):
        found = [json.loads(one.communicate(timeout=120)[0])["columns"] for one in (north, south, east)]
        assert found[0] == found[1] == found[2]
        hub.communicate(timeout=120)
        assert hub.returncode == 0
