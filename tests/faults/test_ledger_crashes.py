"""L3: a client dies, anywhere. What left was charged and stored; nothing is charged or run twice.

Every point at which the gate and the stores can be watched is a place to die, by SIGKILL; and, since nobody
thinks of every place, random moments are, too.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lapwing.errors import InProgress, WorkEnded
from lapwing.ledger import Ledger
from lapwing.ledger.gate import ChargedRelease, Gate
from support.clients import Client, Place, nursery, within
from support.histories_check import Judge
from support.ledgers import POSTGRES, SQLITE, Home, open_account, open_sliced, release
from support.postgres import Server, fresh_url
from support.slowly import slow
from support.spenders import BLOCKS, request_of_a_crash, reservation_of_a_crash

RELEASE = [
    "planned", "charge written",
    "charge committed", "charge marked", "charged", "ran", "answer written",
    "answer committed", "answer marked", "stored", "returned",
]  # fmt: skip
CHARGED, STORED = RELEASE.index("charge committed"), RELEASE.index("answer committed")
RESERVE = [
    f"{what} {point}"
    for what in ("reserve", "step", "settle")
    for point in ("written", "committed", "marked")
]
NOT_BLOCKED = 20.0  # seconds that others may take, at most, after a crash


def is_postgres(home: Home) -> bool:
    return home.where.startswith("postgres")


def sums(ledger: Ledger, label: str = "b0") -> tuple[int, int]:
    """Held and spent, in 1e-9 of ε."""
    [block] = [block for block in ledger.blocks("visits") if block.label == label]
    return block.held[1], block.spent[1]


def entries(ledger: Ledger) -> int:
    return int(ledger.store.read(lambda tx: tx.rows("SELECT count(*) FROM entries"))[0][0])


def crashed(home: Home, **how: Any) -> dict[str, Any]:
    """What a client said until it crashed."""
    said = nursery().start("spenders:crash", Place.of(home), **how).wait()
    return {name: value for one in said for name, value in one.items()}


def settled(ask: Any) -> Any:
    """Ask until nobody is at it any more: a server takes a moment to notice that a client is gone."""
    end = time.monotonic() + NOT_BLOCKED
    while True:
        try:
            return ask()
        except InProgress:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def asked_again(ledger: Ledger, *, everyone: bool) -> bytes | type[WorkEnded]:
    """What the same request gives with the same key. It may run only if nothing was charged."""
    plan = ChargedRelease(request_of_a_crash(everyone), lambda: b"a new answer")
    try:
        return settled(lambda: Gate(ledger, principal="analyst").release(plan, key="k").answer)  # type: ignore[no-any-return]
    except WorkEnded:
        return WorkEnded


@pytest.mark.parametrize(
    ("point", "everyone"),
    [(point, False) for point in RELEASE]
    + [(f"charge {at}", True) for at in ("written", "committed", "marked")],
)
def test_L3_after_a_crash_of_a_release_at(home: Home, point: str, everyone: bool) -> None:
    if is_postgres(home) and point == "charge written" and not everyone:
        pytest.skip("there a charge is one statement")
    survivor = home.create()
    open_sliced(survivor, 3)
    before = entries(survivor)
    said = crashed(home, what="release", at=point, everyone=everyone)
    assert ("left" in said) == (point == "returned")
    at = RELEASE.index(point)
    with within(NOT_BLOCKED):
        fresh = home.open()
        assert sums(fresh) == (0, 0 if at < CHARGED else 100_000_000)
        assert entries(fresh) - before == (at >= CHARGED) + (at >= STORED)
        for ledger in (survivor, fresh):
            again = asked_again(ledger, everyone=everyone)
            if at < CHARGED:
                assert again == b"a new answer"
            elif at < STORED:
                assert again is WorkEnded
            else:
                assert again == bytes.fromhex(said["made"])
            if "left" in said:
                assert again == bytes.fromhex(said["left"])
            assert sums(ledger) == (0, 100_000_000)
        assert fresh.verify().findings == ()


@pytest.mark.parametrize("point", RESERVE)
def test_L3_after_a_crash_of_work_in_steps_at(home: Home, point: str) -> None:
    survivor = home.create()
    open_sliced(survivor, 3)
    said = crashed(home, what="reserve", at=point)
    at = RESERVE.index(point)
    stages = [RESERVE.index(f"{what} committed") for what in ("reserve", "step", "settle")]
    reached = sum(at >= stage for stage in stages)
    unit = 10_000_000
    expected = [(0, 0), (3 * unit, 0), (2 * unit, unit), (0, unit)][reached]
    with within(NOT_BLOCKED):
        fresh = home.open()
        for ledger in (survivor, fresh):
            assert sums(ledger) == expected
        # The same key finds the same work, and nothing is held twice.
        work = settled(
            lambda: Gate(survivor, principal="analyst").reserve(reservation_of_a_crash(), key="k")
        )
        assert sums(fresh) == ([(3 * unit, 0)] + [expected] * 3)[reached]
        if "reserved" in said:
            assert work.number == said["reserved"]
        assert fresh.verify().findings == ()


@pytest.mark.parametrize("point", ["charge written", "charge committed", "answer committed"])
def test_a_child_of_a_crashed_client_does_not_hold_its_locks(file_home: Home, point: str) -> None:
    """Locks on files are shared with forked children: those must let go, or all would wait for them."""
    survivor = file_home.create()
    open_sliced(survivor, 3)
    said = crashed(file_home, what="release", at=point, child=True)
    try:
        with within(NOT_BLOCKED):
            assert sums(file_home.open()) == (0, 0 if point == "charge written" else 100_000_000)
            again = asked_again(survivor, everyone=False)
            assert again == {
                "charge written": b"a new answer",
                "charge committed": WorkEnded,
                "answer committed": bytes.fromhex(said.get("made", "")),
            }[point]  # fmt: skip
    finally:
        os.kill(said["child"], signal.SIGKILL)


# Random moments


class Crowd:
    """Clients that spend from one ledger until they are killed, or told to stop."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self._numbers = count()
        self._stop = folder / "stop"
        self.clients: list[Client] = []
        self.diaries: list[Path] = []

    def add(self) -> None:
        number = next(self._numbers)
        diary = self._folder / f"diary {number}"
        self.diaries.append(diary)
        self.clients.append(
            nursery().start(
                "spenders:spend", Place.of(self._home), name=f"client {number}", diary=str(diary),
                count=1_000_000, keys=400, until=str(self._stop),
            )
        )  # fmt: skip

    def lose_the_oldest(self, draw: Random) -> None:
        """Kill a client in the midst of its requests."""
        client, diary = self.clients.pop(0), self.diaries[-len(self.clients) - 1]
        with within(NOT_BLOCKED + 30):
            lines = draw.randrange(1, 16)
            while not diary.exists() or diary.read_bytes().count(b"\n") < lines:
                time.sleep(0.001)
        time.sleep(0.01 * draw.random())
        client.kill()
        client.wait()

    def end(self) -> None:
        """Let all who are left finish, which they can only if nobody blocks them."""
        self._stop.touch()
        for client in self.clients:
            assert client.last("finished", NOT_BLOCKED + 30)

    def judge(self) -> Counter[tuple[str, str]]:
        """All diaries against the ledger. How often what was told."""
        ledger = self._home.open()
        judge = Judge(ledger, [diary for diary in self.diaries if diary.exists()])
        assert judge.judge() == []
        assert ledger.verify().findings == ()
        ledger.close()
        return Counter((ask.what, ask.outcome) for ask in judge.asks)


def prepare(home: Home) -> None:
    with home.create() as ledger:
        open_sliced(ledger, BLOCKS, epsilon=20)
        open_account(ledger, "staff", epsilon=20, delta=0)


@pytest.mark.parametrize("database", [SQLITE, POSTGRES])
@pytest.mark.parametrize(("ledgers", "kills"), [(1, 10), slow(8, 20)])
def test_L3_killed_at_random_moments(tmp_path: Path, database: str, ledgers: int, kills: int) -> None:
    """10 or 160 kills on each database. Few enough on each ledger that opening it stays quick."""
    seen: Counter[tuple[str, str]] = Counter()
    draw = Random(f"{database} {kills}")
    for number in range(ledgers):
        folder = tmp_path / str(number)
        folder.mkdir()
        home = Home.of(database, folder)
        prepare(home)
        crowd = Crowd(home, folder)
        for _ in range(4):
            crowd.add()
        for _ in range(kills):
            crowd.lose_the_oldest(draw)
            crowd.add()
        crowd.end()
        seen += crowd.judge()
        home.close()
    assert seen["charge", "done"] > kills
    outcomes = {outcome for _, outcome in seen}
    assert "cut" in outcomes
    assert "unknown" not in outcomes  # whoever lives on notices nothing


# The server dies


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    server = Server().start()
    yield server
    server.remove()


@pytest.mark.parametrize("times", [1, slow(10)])
def test_no_acknowledged_charge_is_lost_when_the_server_crashes(
    own_server: Server, tmp_path: Path, times: int
) -> None:
    at_first = Home.of(SQLITE, tmp_path)
    home = Home(fresh_url(own_server.url), at_first.keys, at_first.anchor, at_first.curator_path)
    prepare(home)
    crowd = Crowd(home, tmp_path)
    for _ in range(4):
        crowd.add()
    for client in crowd.clients:
        assert client.says() == {"ready": True}
    for _ in range(times):
        time.sleep(0.7)
        own_server.stop("immediate")
        time.sleep(0.2)
        own_server.start()
    time.sleep(1)
    crowd.end()
    seen = crowd.judge()
    assert seen["charge", "done"] > 0
    assert seen["charge", "unknown"] + seen["reserve", "unknown"] + seen["open", "unknown"] > 0
    with home.open() as ledger:
        release(ledger, "0.001", *request_of_a_crash().targets, key="afterwards")
