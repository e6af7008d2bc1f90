"""Blocks arrive by appends alone. A lost note offers fewer blocks, never more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.core.losses import Pure
from lapwing.errors import BadParameter, Unavailable
from lapwing.learn import arrivals
from lapwing.learn.stream import Stream
from lapwing.sql.reading import prepared_copy, registration
from support.ride_streams import ARRIVALS, COHORTS, Opens, write_rides

UNLOCK = '[sharing]\nrule = "unlock"\nversions = 4\n'
TENTH = Pure(Fraction(1, 10))


def note(stream: Stream) -> Path:
    return arrivals.stream_folder(stream.policy) / arrivals.ARRIVALS_FILE


def test_before_the_first_append_nothing_has_come_in(stream_at: Opens) -> None:
    for blocks in ("", COHORTS, ARRIVALS):
        stream = stream_at(blocks=blocks) if blocks else stream_at()
        assert stream.blocks() == []
        stream.close()


def test_a_block_comes_in_by_an_append_and_not_by_the_calendar(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(today=date(2025, 2, 3))
    assert stream.blocks() == ["2025-01", "2025-02"]
    stream.dataset.prepare(today=date(2025, 7, 1))
    assert stream.blocks() == ["2025-01", "2025-02"]
    assert [one.label for one in stream.status().usable] == ["2025-01", "2025-02"]


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda path: path.write_text("{}"),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text(path.read_text().replace("2025-01", "1999-01")),
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_a_lost_note_offers_nothing_until_the_curator_says_what_has_come_in(
    stream_at: Opens, harm: Callable[[Path], object]
) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    harm(note(stream))
    assert stream.blocks() == []
    assert stream.status().usable == ()
    assert stream.choose_blocks(1, loss=TENTH, pipeline="one") == []
    with pytest.raises(BadParameter, match="through: must be given"):
        stream.append()
    stream.append(through="2025-01")
    assert stream.blocks() == ["2025-01"]


def test_a_lost_note_unlocks_less(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at(sharing=UNLOCK)
    stream.append(through="2025-02")
    older = note(stream).read_text()
    for month in (2, 3):
        stream.append(write_rides(tmp_path / f"{month}.parquet", month, range(9)), through="2025-03")
    unlocked = {one.label: float(one.unlocked) for one in stream.status().blocks if one.has_arrived}
    assert unlocked == {"2025-01": 0.75, "2025-02": 0.75, "2025-03": 0.5}
    note(stream).write_text(older)
    unlocked = {one.label: float(one.unlocked) for one in stream.status().blocks if one.has_arrived}
    assert unlocked == {"2025-01": 0.25, "2025-02": 0.25}
    note(stream).unlink()
    assert {float(block.unlocked) for block in stream.status().blocks} == {0.25}
    stream.append(through="2025-03")
    assert {float(block.unlocked) for block in stream.status().blocks} == {0.25}


def test_blocks_of_people_are_known_to_the_ledger(stream_at: Opens) -> None:
    stream = stream_at(blocks=ARRIVALS)
    stream.append(today=date(2025, 1, 31))
    note(stream).unlink()
    assert stream.blocks() == ["2025-01"]


def test_through_does_not_go_back_before_what_the_calendar_let_in(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(today=date(2025, 4, 2))
    with pytest.raises(BadParameter, match="must not go back before 2025-04"):
        stream.append(through="2025-02")


def test_what_has_not_come_in_is_told_apart_from_what_cannot_pay(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-02")
    assert stream.blocks() == ["2025-01", "2025-02"]
    assert stream.choose_blocks(12, loss=Pure(Fraction(2)), pipeline="one") == []
    has_arrived = {block.label: block.has_arrived for block in stream.status().blocks}
    assert has_arrived["2025-02"]
    assert not has_arrived["2025-03"]


def test_a_lost_folder_of_files_stops_appends_until_all_is_read_anew(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    stream.append(through="2025-01")
    (prepared_copy.prepared_folder(stream.policy) / registration.FILE).unlink()
    with pytest.raises(BadParameter, match="reads all anew"):
        stream.append(through="2025-01")
    stream.dataset.prepare()
    stream.append(through="2025-01")


def test_after_the_prepared_folder_is_lost_people_do_not_begin_anew(stream_at: Opens) -> None:
    """The worst of what a lost folder did: 300 people who were charged for life 8 lost 32."""
    stream = stream_at(blocks=ARRIVALS)
    stream.append(today=date(2025, 1, 5))
    stream.close()
    shutil.rmtree(prepared_copy.prepared_folder(stream.policy))
    again = stream_at(blocks=ARRIVALS)
    with pytest.raises(Unavailable, match="Restore it from a backup"):
        again.append(today=date(2025, 2, 5))
