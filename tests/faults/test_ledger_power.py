"""L4: the power fails, at any moment. No acknowledged charge is lost, and the ledger opens.

A real run of the store is recorded, every write and every sync of it. Then, for every moment of the record,
a ledger is opened from what a disk would have kept.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from lapwing.errors import Tampered, Unavailable
from lapwing.ledger import Ledger
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep
from lapwing.ledger.registry import KEY_FILE, REGISTRY_FILE
from lapwing.ledger.spending import Target
from support.ledgers import SQLITE, Home, open_sliced, release, spending
from support.power import (
    Change,
    Disk,
    Keep,
    KeepAll,
    KeepBegun,
    KeepSome,
    Sync,
    Told,
    Write,
    lay_out,
    recorded,
)
from support.slowly import slow

COST = 10_000_000
BLOCKS = ["b0", "b1"]
FULL = "PRAGMA synchronous = FULL"
NORMAL = {FULL: "PRAGMA synchronous = NORMAL"}


@dataclass(frozen=True)
class Run:
    """A recorded run, and how to see what was left of it."""

    disk: Disk
    folder: Path
    begin: int
    images: Path
    set_state: Callable[[Path], None]

    def moments(self) -> range:
        """From when the ledger was there."""
        return range(self.begin, len(self.disk.record) + 1)

    def left(self, keep: Keep) -> Iterator[tuple[int, Home]]:
        """What was left at each moment. Moments that leave the same files are looked at once."""
        seen: set[bytes] = set()
        for moment in self.moments():
            files = self.disk.left(moment, keep)
            told = repr(self.disk.told_by(moment))
            digest = hashlib.sha256(repr((sorted(files.items()), told)).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                yield moment, self.lay_out(files)

    def lay_out(self, files: dict[str, bytes]) -> Home:
        shutil.rmtree(self.images, ignore_errors=True)
        self.images.mkdir()
        lay_out(files, self.folder, self.images)
        shutil.copy(self.folder / "visits.ledger.keys", self.images)
        (self.images / "state").mkdir(exist_ok=True)
        sources = self.images / "state" / REGISTRY_FILE
        if sources.exists() and sources.stat().st_size:  # the key is written after their tables
            shutil.copy(self.folder / "state" / KEY_FILE, self.images / "state")
        self.set_state(self.images / "state")
        return Home.of(SQLITE, self.images)


def set_state_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Where witnesses are looked for."""
    return lambda path: monkeypatch.setenv("LAPWING_STATE", str(path))


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instead: dict[str, str] | None = None,
    *,
    charges: int = 4,
    checkpoint_after: int = 12,
) -> Run:
    """A ledger that is made and closed, opened with other settings `instead`, spent from, and closed."""

    folder = tmp_path / "run"
    folder.mkdir()
    set_state = set_state_by(monkeypatch)
    set_state(folder / "state")
    settings: dict[str, str] = {}
    with recorded(monkeypatch, instead=settings, checkpoint_after=checkpoint_after) as disk:
        home = Home.of(SQLITE, folder)
        with home.create() as ledger:
            open_sliced(ledger, len(BLOCKS))
        begin = len(disk.record)
        settings.update(instead or {})
        ledger = home.open()
        for k in range(charges):
            tell_of_a_release(ledger, disk, k)
            if k == 1:
                ledger.store.seal()
        ledger.close()
    return Run(disk, folder, begin, tmp_path / "image", set_state)


def tell_of_a_release(ledger: Ledger, disk: Disk, k: int) -> None:
    def watch(point: ReleaseStep) -> None:
        if point is ReleaseStep.CHARGED:
            disk.record.append(Told(f"charged {k}"))

    plan = ChargedRelease(
        spending("0.01", Target("visits", BLOCKS), request=b"%d" % k), lambda: b"answer %d" % k
    )
    Gate(ledger, principal="analyst", watch=watch).release(plan, key=f"k{k}")
    disk.record.append(Told(f"answered {k}"))


def is_intact(home: Home) -> bool:
    connection = sqlite3.connect(home.where)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def charged(home: Home) -> int:
    """How many charges are in the database, whatever else is wrong."""
    connection = sqlite3.connect(home.where)
    try:
        bodies = connection.execute("SELECT body FROM entries WHERE key IS NOT NULL").fetchall()
        return len(bodies)
    finally:
        connection.close()


def check(home: Home, told: list[str], moment: int) -> None:
    """Open what was left, and find all that was told."""
    assert is_intact(home), moment
    with home.open() as ledger:
        said = [int(what.split()[1]) for what in told if what.startswith("charged")]
        answered = [int(what.split()[1]) for what in told if what.startswith("answered")]
        [first, second] = [block.spent[1] for block in ledger.blocks("visits") if block.label in BLOCKS]
        assert first == second
        assert len(said) * COST <= first <= (len(said) + 1) * COST, moment
        for k in answered:
            again = release(
                ledger, "0.01", Target("visits", BLOCKS), request=b"%d" % k, key=f"k{k}", answer=b"another"
            )
            assert (again.answer, again.is_replay) == (b"answer %d" % k, True), moment
        # And it goes on.
        release(ledger, "0.01", Target("visits", ["b0"]), key="afterwards")
    home.opened.clear()


KEEPS = [KeepBegun(), KeepSome(1)]
MORE = [Keep(), KeepAll(), *(KeepSome(seed) for seed in range(2, 12))]


@pytest.mark.parametrize(
    "keep",
    KEEPS + [slow(keep) for keep in MORE],
    ids=lambda keep: keep.name,
)
def test_L4_at_every_moment_all_that_was_told_is_left_and_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    found = run(tmp_path, monkeypatch)
    checked = 0
    for moment, home in found.left(keep):
        check(home, found.disk.told_by(moment), moment)
        checked += 1
    assert checked > 20


def test_the_record_has_all_that_can_go_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit waits for the disk, and the log is copied into the database in the midst of the run."""
    found = run(tmp_path, monkeypatch)
    steps = found.disk.record[found.begin :]
    ends = [k for k, step in enumerate(steps) if isinstance(step, Told)]
    assert len(ends) == 8
    syncs = [k for k, step in enumerate(steps) if isinstance(step, Sync) and step.path.endswith("-wal")]
    for begin, end in pairwise([0, *ends]):
        assert any(begin <= k < end for k in syncs)
    database = str(found.folder / "visits.ledger")
    copied = [k for k, step in enumerate(steps) if isinstance(step, Write) and step.path == database]
    assert ends[0] < copied[0] < ends[-1]


@pytest.mark.parametrize("keep", [Keep(), KeepBegun(), KeepSome(1)], ids=lambda keep: keep.name)
def test_a_ledger_that_was_made_is_there_and_one_in_the_making_is_never_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with recorded(monkeypatch, instead={}, checkpoint_after=12) as disk:
        set_state_by(monkeypatch)(folder / "state")
        with Home.of(SQLITE, folder).create():
            made = len(disk.record)
    found = Run(disk, folder, 0, tmp_path / "image", set_state_by(monkeypatch))
    opened = 0
    for moment, home in found.left(keep):
        try:
            with home.open() as ledger:
                assert ledger.verify().findings == ()
            opened += 1
        except (Tampered, Unavailable):
            assert moment < made
    assert opened > 0


class TestTheVulnerableSystem:
    """The same store with `synchronous = NORMAL`, as many programs have it for speed."""

    def test_L4_loses_acknowledged_charges(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = run(tmp_path, monkeypatch, NORMAL, checkpoint_after=1000)
        lost = 0
        for moment, home in found.left(Keep()):
            told = [what for what in found.disk.told_by(moment) if what.startswith("charged")]
            lost += len(told) > charged(home)
        assert lost >= 8

    def test_L4_which_the_anchor_notices_if_it_was_luckier(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class KeepAnchors(Keep):
            def __call__(self, pending: Sequence[Change]) -> Iterable[tuple[Change, float]]:
                return [(change, 1.0) for change in pending if change.path.endswith(".anchor")]

        found = run(tmp_path, monkeypatch, NORMAL, checkpoint_after=1000)
        noticed = 0
        for moment, home in found.left(KeepAnchors()):
            told = [what for what in found.disk.told_by(moment) if what.startswith("charged")]
            if len(told) > charged(home):
                with pytest.raises(Tampered, match="older copy"):
                    home.open()
                noticed += 1
        assert noticed >= 8


class TestTheAnchor:
    """Marks are not synced: whatever beginning of them is left, the ledger opens, and goes on."""

    @pytest.mark.parametrize("zeros", [0, 300], ids=["cut short", "filled up with zeros"])
    def test_may_end_anywhere_after_its_last_head(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zeros: int
    ) -> None:
        found = run(tmp_path, monkeypatch)
        last = max(k for k, step in enumerate(found.disk.record) if isinstance(step, Told))
        files = found.disk.left(last + 1, KeepAll())
        anchor = str(found.folder / "visits.ledger.anchor")
        whole, certain = files[anchor], found.disk.left(last + 1, Keep())[anchor]
        assert len(whole) - len(certain) > 200
        for end in range(len(certain), len(whole) + 1, 11):
            home = found.lay_out({**files, anchor: whole[:end] + bytes(zeros)})
            check(home, found.disk.told_by(last + 1), end)
            with home.open() as ledger:  # after marks were written behind what was left
                assert ledger.verify().findings == ()
            home.opened.clear()

    def test_must_not_have_lost_a_head_that_was_synced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a power loss cannot do is not forgiven: an anchor that is gone altogether."""
        found = run(tmp_path, monkeypatch)
        files = found.disk.left(len(found.disk.record), KeepAll())
        del files[str(found.folder / "visits.ledger.anchor")]
        with pytest.raises(Tampered, match="missing"):
            found.lay_out(files).open()
