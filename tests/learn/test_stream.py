"""Data arrives, new blocks open, old blocks stay as they are, and each pays at most its own budget."""

from __future__ import annotations

import os
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.losses import Approximate, Loss, Pure, Relation
from lapwing.errors import BadParameter, OverBudget
from lapwing.learn.stream import AppendResult, Stream
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Spending
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.dataset import Dataset
from support.ride_streams import ARRIVALS, COHORTS, Opens, write_rides

SQL = "SELECT minutes, day FROM rides"


def spend(
    stream: Stream, blocks: list[str], loss: Loss, pipeline: str = "one", key: str | None = None
) -> None:
    question = row_questions.row_question(stream.dataset, SQL)
    spending = Spending(
        targets=stream.targets(question, blocks, pipeline=pipeline),
        loss=loss,
        unit=policy_ledger.unit_of(stream.policy),
        relation=Relation.ADD_REMOVE,
        mechanism="test",
        parameters={},
        request=b"test",
    )
    Gate(stream.ledger, principal="ann").release(ChargedRelease(spending, lambda: b"made"), key=key)


def lefts(stream: Stream) -> dict[str, float]:
    return {block.label: float(block.left) for block in stream.status().blocks}


def test_a_file_is_taken_in_and_its_month_opens(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at()
    first = stream.append(through="2025-01")
    assert first == AppendResult(1, None, ("2025-01",))
    new = write_rides(tmp_path / "february.parquet", 2, range(150, 400))
    second = stream.append(new, through="2025-02")
    assert second.version == 2
    assert second.blocks == ("2025-02",)
    assert second.file is not None
    assert second.file.parent == tmp_path / "rides"
    assert second.file.read_bytes() == new.read_bytes()
    assert stream.blocks() == ["2025-01", "2025-02"]
    question = row_questions.row_question(stream.dataset, SQL)
    read = row_questions.read_rows(stream.dataset, question, ["2025-02"])
    assert len(read) == 500


def test_appending_in_batches_equals_appending_once(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at(blocks=COHORTS)
    stream.append()
    question = row_questions.row_question(stream.dataset, SQL)
    for month in (2, 3):
        stream.append(write_rides(tmp_path / f"{month}.parquet", month, range(100, 300)))
    after = row_questions.read_rows(stream.dataset, question)
    stream.dataset.prepare()
    once = row_questions.read_rows(stream.dataset, question)
    keys = [
        sorted(np.stack([one.ids[one.people], one.blocks, one.columns["day"].codes], axis=1).tolist())
        for one in (after, once)
    ]
    assert keys[0] == keys[1]


def test_old_blocks_keep_their_rows_and_what_they_spent(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    question = row_questions.row_question(stream.dataset, SQL)
    before = row_questions.read_rows(stream.dataset, question, ["2025-01"])
    spend(stream, ["2025-01"], Pure(Fraction(1, 4)))
    left = lefts(stream)
    stream.append(write_rides(tmp_path / "new.parquet", 2, range(50)), through="2025-02")
    after = row_questions.read_rows(stream.dataset, question, ["2025-01"])
    assert sorted(after.columns["day"].codes) == sorted(before.columns["day"].codes)
    assert lefts(stream) == left
    assert left["2025-01"] == 0.75
    assert left["2025-02"] == 1.0


def test_a_file_that_was_taken_in_must_not_change(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at()
    stream.append()
    old = tmp_path / "rides" / "january.parquet"
    os.utime(old, ns=(1, 1))
    with pytest.raises(BadParameter, match="has changed or is gone"):
        stream.append(write_rides(tmp_path / "new.parquet", 2, range(50)))
    assert sorted(path.name for path in (tmp_path / "rides").iterdir()) == ["january.parquet"]
    old.unlink()
    with pytest.raises(BadParameter, match="has changed or is gone"):
        stream.append()


def test_after_a_crash_the_same_append_goes_on(
    stream_at: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_at()
    stream.append(through="2025-01")
    new = write_rides(tmp_path / "new.parquet", 2, range(50))

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "prepare", dies)
        with pytest.raises(KeyboardInterrupt):
            stream.append(new, through="2025-02")
    with pytest.raises(BadParameter, match="changed since"):  # nobody reads what the ledger does not know
        stream.dataset.version()
    assert stream.blocks() == ["2025-01"]
    assert stream.append(new, through="2025-02").blocks == ("2025-02",)
    assert len(list((tmp_path / "rides").iterdir())) == 2


def test_people_keep_the_month_of_their_arrival(stream_at: Opens, tmp_path: Path) -> None:
    stream = stream_at(blocks=ARRIVALS)
    assert stream.append(today=date(2025, 1, 31)).blocks == ("2025-01",)
    new = write_rides(tmp_path / "new.parquet", 2, range(150, 260))
    assert stream.append(new, today=date(2025, 3, 2)).blocks == ("2025-03",)
    question = row_questions.row_question(stream.dataset, SQL)
    read = row_questions.read_rows(stream.dataset, question, ["2025-03"])
    assert set(read.ids[read.people].tolist()) == set(range(200, 260))
    assert stream.choose_blocks(2, loss=Pure(Fraction(1, 2)), pipeline="one") == ["2025-03", "2025-01"]


# Choosing


def test_the_newest_blocks_that_can_pay_are_chosen(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-05")
    half = Pure(Fraction(1, 2))
    assert stream.choose_blocks(2, loss=half, pipeline="one") == ["2025-05", "2025-04"]
    spend(stream, ["2025-04"], Pure(Fraction(3, 4)))
    assert stream.choose_blocks(2, loss=half, pipeline="one") == ["2025-05", "2025-03"]
    assert stream.choose_blocks(2, loss=Pure(Fraction(1, 4)), pipeline="one") == ["2025-05", "2025-04"]
    assert len(stream.choose_blocks(12, loss=half, pipeline="one")) == 4
    assert stream.choose_blocks(1, loss=Pure(Fraction(2)), pipeline="one") == []
    for bad in (0, -1, True, 1.5):
        with pytest.raises(BadParameter, match="whole number"):
            stream.choose_blocks(bad, loss=half, pipeline="one")  # type: ignore[arg-type]


def test_who_is_chosen_can_pay_and_who_is_not_cannot(stream_at: Opens) -> None:
    """The choice and the ledger's transaction agree, for losses of several kinds."""
    stream = stream_at()
    stream.append(through="2025-06")
    losses: list[Loss] = [
        Pure(Fraction(1, 3)),
        Approximate(Fraction(1, 5), Fraction(1, 10**8)),
        Pure(Fraction(1, 7)),
    ]
    for turn in range(12):
        loss = losses[turn % len(losses)]
        able = stream.choose_blocks(12, loss=loss, pipeline="one")
        for label in set(stream.blocks()) - set(able):
            with pytest.raises(OverBudget):
                spend(stream, [label], loss)
        if able:
            spend(stream, able[: 1 + turn % 3], loss)


def test_retired_blocks_are_listed_and_skipped(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-03")
    spend(stream, ["2025-02"], Pure(Fraction(1)))
    status = stream.status()
    assert [block.label for block in status.retired] == ["2025-02"]
    assert [block.label for block in status.usable] == ["2025-01", "2025-03"]
    assert "2025-02" not in stream.choose_blocks(12, loss=Pure(Fraction(1, 1000)), pipeline="one")


def test_each_block_of_a_long_stream_stays_within_its_budget(stream_at: Opens, tmp_path: Path) -> None:
    """Fact 16: training goes on for ever, and no block ever loses more than (ε, δ)."""
    stream = stream_at()
    loss, released = Pure(Fraction(2, 5)), 0
    for month in range(1, 7):
        new = write_rides(tmp_path / f"{month}.parquet", month, range(20)) if month > 1 else None
        stream.append(new, through=f"2025-{month:02d}")
        while len(able := stream.choose_blocks(2, loss=loss, pipeline="one")) == 2:
            spend(stream, able, loss)
            released += 1
    assert released == 6  # each block pays twice, and two pay for each: without end
    assert min(lefts(stream).values()) >= 0
    assert stream.ledger.verify().findings == ()


# What is refused, and looking


def test_a_stream_needs_blocks(tmp_path: Path, stream_at: Opens) -> None:
    stream_at().close()
    text = (tmp_path / "rides.toml").read_text().replace("person-period", "person")
    (tmp_path / "rides.toml").write_text(
        text.replace('[blocks]\nby = "row"\ncolumn = "day"\nevery = "month"', "")
    )
    with pytest.raises(BadParameter, match="a stream needs blocks"):
        Stream.open(tmp_path / "rides.toml")


def test_through_never_goes_back_and_is_for_time_only(stream_at: Opens) -> None:
    stream = stream_at()
    stream.append(through="2025-04")
    with pytest.raises(BadParameter, match="go back"):
        stream.append(through="2025-03")
    with pytest.raises(BadParameter, match="no such block"):
        stream.append(through="2026-01")


def test_cohorts_have_no_through(stream_at: Opens) -> None:
    stream = stream_at(blocks=COHORTS)
    with pytest.raises(BadParameter, match="rows by time"):
        stream.append(through="1")


def test_without_a_word_the_calendar_says_what_has_arrived(stream_at: Opens) -> None:
    stream = stream_at()
    assert stream.append(today=date(2025, 3, 15)).blocks == ("2025-01", "2025-02", "2025-03")


def test_looking_makes_no_ledger(stream_at: Opens, tmp_path: Path) -> None:
    status = stream_at().status()
    assert status.version is None
    assert len(status.blocks) == 12
    assert {float(block.left) for block in status.blocks} == {1.0}
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix not in ("", ".toml")] == []
