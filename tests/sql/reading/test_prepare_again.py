"""Preparing data that nobody has written to: the version stays, and stored answers with it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lapwing.sql.dataset import Dataset
from lapwing.sql.reading import prepare as preparing
from lapwing.sql.releasing import SLOW_NOTE
from sql.conftest import Open, write_visits

COUNT = "SELECT COUNT(*) AS n FROM visits"
ARRIVALS = '[blocks]\nby = "unit"\nevery = "month"\n'


def entries(dataset: Dataset) -> int:
    return int(dataset.ledger.store.read(lambda tx: tx.rows("SELECT count(*) FROM entries"))[0][0])


@pytest.fixture
def dataset(opened: Open) -> Dataset:
    found = opened()
    assert found.prepare()
    return found


def copy_of(folder: Path) -> Path:
    (found,) = (folder / "visits.prepared").glob("copy-*.duckdb")
    return found


# Case C7.
def test_untouched_files_keep_their_version_and_answers(dataset: Dataset, opened: Open) -> None:
    first = dataset.ask(COUNT, epsilon=1)
    before = entries(dataset)
    for one in (dataset, opened(rewrite=False, analyst="curator")):  # this process, and as another would
        assert not one.prepare()
        assert one.version() == 1
    again = dataset.ask(COUNT, epsilon=1)
    assert again.is_replay
    assert again.receipt == first.receipt
    assert entries(dataset) == before


def test_a_new_version_can_be_had_all_the_same(dataset: Dataset) -> None:
    assert dataset.prepare(again=True)
    assert dataset.version() == 2
    assert not dataset.prepare()


@pytest.mark.parametrize("how", ["rewritten", "in place", "replaced", "grown", "added"])
def test_whoever_writes_makes_a_new_version(dataset: Dataset, tmp_path: Path, how: str) -> None:
    """Also the same bytes at the same size and time: what was done counts, not what the rows say."""
    file = tmp_path / "visits.parquet"
    about, content = file.stat(), file.read_bytes()
    if how == "rewritten":
        file.write_bytes(content)
    elif how == "in place":
        with open(file, "r+b") as same:
            same.write(content)
        os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    elif how == "replaced":
        new = tmp_path / "new"
        new.write_bytes(content)
        os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))
        os.replace(new, file)
    elif how == "grown":
        write_visits(tmp_path, range(400))
    else:
        write_visits(tmp_path, range(300, 310), "visits_new")
    assert dataset.prepare()
    assert dataset.version() == 2
    assert not dataset.prepare()


def test_who_writes_at_once_is_seen(dataset: Dataset, tmp_path: Path) -> None:
    """File systems count time in steps: the note waits for the next one."""
    for version in range(2, 12):
        write_visits(tmp_path, range(300))
        assert dataset.prepare()
        (tmp_path / "visits.parquet").write_bytes((tmp_path / "visits.parquet").read_bytes())
        assert dataset.prepare()
        assert dataset.version() == 2 * version - 1


@pytest.mark.parametrize("what", ["missing", "cut off", "spoiled"])
def test_a_copy_that_is_lost_is_made_anew_at_the_same_version(
    dataset: Dataset, opened: Open, tmp_path: Path, what: str
) -> None:
    dataset.ask(COUNT, epsilon=1)
    dataset.close()
    copy = copy_of(tmp_path)
    size = copy.stat().st_size
    if what == "missing":
        copy.unlink()
    else:
        with open(copy, "r+b") as file:
            if what == "cut off":
                file.truncate(size // 2)
            else:
                file.seek(12_288)
                file.write(os.urandom(size - 12_288))
    curator = opened(rewrite=False, analyst="curator")
    assert not curator.prepare()
    assert curator.version() == 1
    with curator.curator.reading() as reader:
        assert reader.is_prepared
        exact = reader.exact(curator.plan(COUNT, epsilon=1).question)
    assert exact[0].values[0, 0] == 600
    assert opened(rewrite=False).ask(COUNT, epsilon=1).is_replay


def test_other_bounds_are_a_new_version(dataset: Dataset, opened: Open, tmp_path: Path) -> None:
    dataset.close()
    policy = tmp_path / "visits.toml"
    policy.write_text(policy.read_text().replace("high = 10", "high = 9"))
    curator = opened(rewrite=False)
    assert curator.prepare()
    assert curator.version() == 2


def test_a_first_copy_of_data_that_was_asked_keeps_answers(opened: Open) -> None:
    """The first question may read the source, or there was no room: nobody pays again later."""
    dataset = opened()
    dataset.curator.prepares = False
    dataset.ask(COUNT, epsilon=1)
    assert not dataset.prepare()
    assert dataset.ask(COUNT, epsilon=1).is_replay
    other = dataset.ask(COUNT, epsilon=2)
    assert not other.is_replay
    assert SLOW_NOTE not in other.notes


def test_months_of_arrival_stay_and_open_as_before(opened: Open) -> None:
    dataset = opened(more=ARRIVALS)
    assert dataset.prepare()
    dataset.ask(COUNT, epsilon=1)
    assert not dataset.prepare()
    assert dataset.ask(COUNT, epsilon=1).is_replay


def test_many_at_once_make_one_version(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    work = preparing._prepare_duckdb

    def counted(*arguments: object) -> object:
        made.append(1)
        return work(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(preparing, "_prepare_duckdb", counted)
    sets = [opened() for _ in range(4)]
    threads = [threading.Thread(target=one.prepare) for one in sets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert {one.version() for one in sets} == {1}
