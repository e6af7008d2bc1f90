"""The first question makes a prepared copy; charged reads of the source itself are padded (C14)."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter, OverBudget, Unavailable
from lapwing.ledger import DataSet
from lapwing.sql import policy_ledger
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.reading import open_sources
from lapwing.sql.reading.prepare import PREPARED_NOTE, UNPREPARED_NOTE
from lapwing.sql.releasing import SLOW_NOTE
from support.clocks import PaddingClock
from support.raised import named

from .conftest import Open, write_visits

COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT SUM(stay) AS n FROM visits"
NOTE = PREPARED_NOTE.format("visits.prepared")


def spent(dataset: Dataset) -> int:
    return dataset.ledger.blocks("visits")[0].spent[1]


def is_prepared(dataset: Dataset) -> bool:
    with dataset.curator.reading() as reader:
        return reader.is_prepared


def test_it_prepares_and_says_so_once(opened: Open, padding_clock: PaddingClock) -> None:
    dataset = opened()
    assert NOTE in dataset.ask(COUNT, epsilon=1).notes
    assert is_prepared(dataset)
    assert dataset.ask(OTHER, epsilon=1).notes == ()
    assert dataset.version() == 1
    assert not padding_clock.waits  # the policy does not say `pad`


def test_many_who_ask_first_at_once_make_one_version(opened: Open) -> None:
    sets, answers = [opened(), *(opened(rewrite=False) for _ in range(3))], []

    def ask(n: int) -> None:
        answers.append(sets[n].ask(f"{COUNT} WHERE stay > {n}", epsilon="0.1"))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(sets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(sets)
    assert sum(NOTE in answer.notes for answer in answers) == 1
    assert [one.version() for one in sets] == [1] * len(sets)


def test_a_lost_copy_is_made_again_without_a_new_version(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    dataset.close()
    for path in (dataset.policy.path.parent / "visits.prepared").glob("copy-*"):
        path.unlink()
    again = opened(rewrite=False)
    assert again.ask(COUNT, epsilon=1).is_replay
    assert NOTE in again.ask(OTHER, epsilon=1).notes
    assert again.version() == 1


def test_a_changed_policy_is_left_to_the_curator_and_padded(
    opened: Open, tmp_path: Path, padding_clock: PaddingClock
) -> None:
    """A new copy would be a new version, and take the stored answers away."""
    opened().ask(COUNT, epsilon=1)
    policy = tmp_path / "visits.toml"
    policy.write_text(policy.read_text().replace("high = 10\n", "high = 9\n"))
    changed = opened(rewrite=False)
    assert not padding_clock.waits
    assert SLOW_NOTE in changed.ask(OTHER, epsilon=1).notes
    assert padding_clock.waits
    assert changed.version() == 1


def test_where_first_beyond_and_bounds_read_the_source_and_are_always_padded(
    opened: Open, padding_clock: PaddingClock
) -> None:
    dataset = opened()
    dataset.ask(f"{COUNT} WHERE stay > 3", epsilon="0.5", where_first=True)
    assert len(padding_clock.waits) == 2  # whether it can be read, and the question
    dataset.ask(COUNT, epsilon="0.5")  # makes the copy, of the same version
    dataset.truncated("visits", epsilon="0.5")  # people beyond the bound are in the copy
    assert len(padding_clock.waits) == 2
    dataset.truncated("visits", epsilon="0.5", beyond=10)
    dataset.search_bounds("visits", "hidden", epsilon=5, step=1)
    assert len(padding_clock.waits) == 5
    assert dataset.version() == 1


def test_a_question_that_is_over_budget_reads_no_row_of_the_source(
    opened: Open, monkeypatch: pytest.MonkeyPatch, padding_clock: PaddingClock
) -> None:
    """Else reads of the source would be free, and could be repeated with other steps (C14)."""
    dataset, reads = opened(), []
    dataset.ask(COUNT, epsilon=1)
    real = open_sources.require_readable

    def counted(policy: CheckedPolicy, *, threads: int | None = None) -> None:
        reads.append(len(padding_clock.waits))
        real(policy, threads=threads)

    monkeypatch.setattr(open_sources, "require_readable", counted)
    before = spent(dataset)
    for step in (1, 2, 5):
        with pytest.raises(OverBudget):
            dataset.search_bounds("visits", "hidden", epsilon=100, step=step)
    assert not reads
    assert spent(dataset) == before
    dataset.search_bounds("visits", "hidden", epsilon=5, step=1)
    assert reads == [0]
    assert len(padding_clock.waits) == 2  # before the charge, and after it


def test_the_policy_can_pad_everything(opened: Open, padding_clock: PaddingClock) -> None:
    dataset = opened(more="[engine]\npad = true\n")
    dataset.ask(COUNT, epsilon=1)
    assert len(padding_clock.waits) == 2  # the copy, and the question
    dataset.ask(COUNT, epsilon=1)
    assert len(padding_clock.waits) == 2  # a stored answer comes at once
    dataset.ask(OTHER, epsilon=1)
    assert len(padding_clock.waits) == 3


@pytest.mark.parametrize("where_first", [False, True])
def test_the_entry_of_new_data_is_written_after_the_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch, padding_clock: PaddingClock, where_first: bool
) -> None:
    """Its position in the ledger shows when the work on all people has ended (C14)."""
    dataset, waits = opened(more="[engine]\npad = true\n"), []
    real = policy_ledger.register_version

    def noted(*args: Any, **options: Any) -> DataSet:
        waits.append(len(padding_clock.waits))
        return real(*args, **options)

    monkeypatch.setattr(policy_ledger, "register_version", noted)
    dataset.ask(f"{COUNT} WHERE stay > 3", epsilon=1, where_first=where_first)
    assert waits == [1]


def test_without_room_for_a_copy_the_source_is_read_and_padded(
    opened: Open, monkeypatch: pytest.MonkeyPatch, padding_clock: PaddingClock
) -> None:
    def full(self: DuckDbEngine, *_: object, **__: object) -> None:
        raise EngineFailed

    monkeypatch.setattr(DuckDbEngine, "execute", full)
    dataset = opened()
    answer = dataset.ask(COUNT, epsilon=1)
    assert UNPREPARED_NOTE in answer.notes
    assert padding_clock.waits
    assert not is_prepared(dataset)
    assert dataset.ask(OTHER, epsilon=1).notes == ()
    monkeypatch.undo()
    assert not dataset.prepare()
    assert dataset.ask(COUNT, epsilon=1).is_replay


def test_a_source_that_cannot_be_read_costs_nothing(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    (tmp_path / "visits.parquet").write_bytes(b"PAR1 no rows PAR1")
    with pytest.raises(Unavailable, match="Nothing was charged"):
        dataset.ask(COUNT, epsilon=1)
    assert spent(dataset) == 0


def test_blocks_by_arrival_are_prepared_by_the_curator(opened: Open) -> None:
    dataset = opened(more='[blocks]\nby = "unit"\nevery = "month"\n')
    with pytest.raises(BadParameter, check=named("blocks.every")):
        dataset.ask(COUNT, epsilon=1)


class TestFilesThatWereReplaced:
    """With other people, and with size and time put back."""

    @staticmethod
    def swap(tmp_path: Path) -> None:
        """Write other people in a file of the same size and time of change."""
        path = tmp_path / "visits.parquet"
        before = path.stat()
        write_visits(tmp_path, range(1000, 1300), "swapped")
        os.replace(tmp_path / "swapped.parquet", path)
        os.truncate(path, before.st_size)  # whether it can be read is never found out
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    @pytest.mark.parametrize("prepares", [True, False])
    def test_they_are_refused_before_a_charge(self, opened: Open, tmp_path: Path, prepares: bool) -> None:
        dataset = opened()
        dataset.curator.prepares = prepares
        dataset.ask(COUNT, epsilon=1)
        before = spent(dataset)
        self.swap(tmp_path)
        assert dataset.ask(COUNT, epsilon=1).is_replay  # stored answers are not about the file
        for again in (dataset, opened(rewrite=False)):
            with pytest.raises(BadParameter, match="lapwing prepare", check=named("source")):
                again.ask(OTHER, epsilon=1)
            with pytest.raises(BadParameter, match="lapwing prepare", check=named("source")):
                again.version()
        assert spent(dataset) == before

    def test_a_copied_folder_gives_stored_answers_and_must_be_prepared(
        self, opened: Open, tmp_path: Path
    ) -> None:
        dataset = opened()
        dataset.ask(COUNT, epsilon=1)
        path = tmp_path / "visits.parquet"
        shutil.copy2(path, tmp_path / "copy")
        os.replace(tmp_path / "copy", path)
        assert dataset.ask(COUNT, epsilon=1).is_replay
        with pytest.raises(BadParameter, check=named("source")):
            dataset.ask(OTHER, epsilon=1)
        assert dataset.prepare()
        assert dataset.version() == 2
        dataset.ask(OTHER, epsilon=1)
