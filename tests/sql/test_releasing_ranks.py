"""Copies and answers from before equal rows of a unit were numbered: readable, never mixed with new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lapwing.engines.dialect import TEXT_BYTES
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedTable
from lapwing.sql.reading import prepare as preparing
from lapwing.sql.reading.prepare import EARLIER_RANKS
from lapwing.sql.reading.prepared_copy import last_copy
from sql.conftest import Open, write_visits

COUNT = "SELECT COUNT(*) AS n FROM visits"
WHERE = "SELECT COUNT(*) AS n FROM visits WHERE ward = 'A'"


@contextmanager
def earlier_version() -> Iterator[None]:
    """Rank, code and digest as before: equal rows had no numbers, and texts a million bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckedTable, "numbers_equal_rows", property(lambda _: False))
        patch.setattr(CheckedTable, "coded_bytes", property(lambda _: TEXT_BYTES))
        yield


@pytest.fixture
def dataset(opened: Open) -> Dataset:
    """A data set that an earlier version prepared and asked."""
    with earlier_version():
        found = opened()
        found.prepare()
        found.ask(COUNT, epsilon="0.5")
    return found


def test_an_old_copy_is_read_and_its_answers_come_back_and_combine(dataset: Dataset) -> None:
    with dataset.curator.reading() as reader:
        assert reader.is_prepared
    assert dataset.ask(COUNT, epsilon="0.5").is_replay
    both = dataset.ask(COUNT, epsilon="0.25")  # from the same copy, and the same rows
    assert not both.is_replay
    assert both.of == 2


def test_an_old_copy_stays_until_a_new_version_is_wanted(dataset: Dataset) -> None:
    before = last_copy(dataset.policy)
    assert not dataset.prepare()
    assert last_copy(dataset.policy) == before
    assert EARLIER_RANKS in dataset.curator.take_notices()
    assert dataset.prepare(again=True)
    assert not dataset.prepare()
    assert EARLIER_RANKS not in dataset.curator.take_notices()


def test_an_old_copy_is_not_extended(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_extended", None)  # calling it would fail
    write_visits(tmp_path, range(300, 310), "visits2")
    assert dataset.prepare()
    first = dataset.ask(COUNT, epsilon="0.5")
    assert (first.is_replay, first.of) == (False, 1)


def test_answers_from_the_source_come_back_and_do_not_combine(opened: Open) -> None:
    with earlier_version():
        dataset = opened()
        dataset.curator.prepares = False
        old = dataset.ask(COUNT, epsilon="0.5")
    again = dataset.ask(COUNT, epsilon="0.5")
    assert again.is_replay
    assert again.receipt == old.receipt
    new = dataset.ask(COUNT, epsilon="0.25")  # of rows that were chosen in another way
    assert (new.is_replay, new.of) == (False, 1)
    assert dataset.ask(COUNT, epsilon="0.125").of == 2
    assert dataset.prepare() is False  # the same ranks, now stored
    assert dataset.ask(COUNT, epsilon="0.25").is_replay
    assert dataset.ask(COUNT, epsilon="0.5").receipt == old.receipt


def test_a_where_before_truncation_ranks_anew_even_beside_an_old_copy(opened: Open) -> None:
    with earlier_version():
        dataset = opened()
        dataset.prepare()
        dataset.plan(WHERE, epsilon="0.5", where_first=True).release()
    new = dataset.plan(WHERE, epsilon="0.25", where_first=True).release()
    assert (new.is_replay, new.of) == (False, 1)


def test_with_a_primary_key_nothing_changed(opened: Open, tmp_path: Path) -> None:
    opened()
    policy = tmp_path / "visits.toml"
    policy.write_text(policy.read_text().replace("rows_per", 'primary_key = ["stay"]\nrows_per'))
    with earlier_version():
        dataset = opened(rewrite=False)
        dataset.prepare()
        dataset.ask(COUNT, epsilon="0.5")
    assert dataset.prepare() is False
    assert EARLIER_RANKS not in dataset.curator.take_notices()
    assert dataset.ask(COUNT, epsilon="0.25").of == 2
