"""Blocks of people by their arrival: whoever lost track of who arrived when gives nobody a new budget."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.unit_ids import LARGEST_SKETCH, Sketch
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.reading import prepared_copy

POLICY = """
[dataset]
name = "{name}"
[budget]
epsilon = 1.0
delta = 1e-6
[ledger]
url = "all.ledger"
[blocks]
by = "unit"
every = "month"
[tables.rides]
source = "rides/*.parquet"
unit = "rider"
rows_per_unit = 2
[tables.rides.columns.minutes]
low = 0
high = 60
"""
Opens = Callable[..., Dataset]


def rides(folder: Path, name: str, riders: range) -> None:
    (folder / "rides").mkdir(exist_ok=True)
    duckdb.execute(
        f"COPY (SELECT r AS rider, 5 AS minutes FROM range({riders.start}, {riders.stop}) AS t(r)) "
        f"TO '{folder / 'rides' / name}'"
    )


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Opens]:
    """The data set, with 50 people."""
    opened: list[Dataset] = []

    def open_it(name: str = "rides", policy: str = POLICY) -> Dataset:
        if not (tmp_path / "rides").exists():
            rides(tmp_path, "a.parquet", range(50))
        path = tmp_path / f"{name}.toml"
        path.write_text(policy.format(name=name))
        opened.append(open_dataset(path, analyst="ann"))
        return opened[-1]

    yield open_it
    for one in opened:
        one.close()


def blocks(dataset: Dataset) -> dict[str, int]:
    """How many rows each block has."""
    question = row_questions.row_question(dataset, "SELECT minutes FROM rides")
    return {
        label: len(row_questions.read_rows(dataset, question, [label]))
        for label in dataset.curator.all_blocks()
    }


def lose_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_manifest(folder: Path) -> None:
    (folder / prepared_copy.MANIFEST).unlink()


def lose_copy(folder: Path) -> None:
    (folder / "copy-1.duckdb").unlink()


def damage_copy(folder: Path) -> None:
    (folder / "copy-1.duckdb").write_bytes(b"not a database" * 1000)


def change_engine(folder: Path) -> None:
    manifest = folder / prepared_copy.MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "engine": "spark"}))


def forget_arrivals(folder: Path) -> None:
    with duckdb.connect(str(folder / "copy-1.duckdb")) as copy:
        copy.execute("DELETE FROM lapwing_arrivals WHERE lapwing_unit = 7")


@pytest.mark.parametrize(
    "harm", [lose_folder, lose_manifest, lose_copy, damage_copy, change_engine, forget_arrivals]
)
def test_a_lost_copy_gives_nobody_another_block(opens: Opens, harm: Callable[[Path], None]) -> None:
    dataset = opens()
    dataset.prepare(today=date(2026, 1, 5))
    assert blocks(dataset) == {"2026-01": 50}
    dataset.close()
    harm(prepared_copy.prepared_folder(dataset.policy))
    again = opens()
    with pytest.raises(Unavailable, match="Restore it from a backup"):
        again.prepare(today=date(2026, 3, 5), again=True)
    data = policy_ledger.find_data_set(again.ledger, again.policy)
    assert data is not None
    assert data.version == 1


def test_an_older_copy_is_not_taken_for_the_last(opens: Opens, tmp_path: Path) -> None:
    dataset = opens()
    dataset.prepare(today=date(2026, 1, 5))
    folder = prepared_copy.prepared_folder(dataset.policy)
    shutil.copytree(folder, tmp_path / "older")
    rides(tmp_path, "b.parquet", range(50, 60))
    dataset.prepare(today=date(2026, 2, 5))
    shutil.copytree(folder, tmp_path / "newest")
    dataset.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "older", folder)
    again = opens()
    with pytest.raises(Unavailable, match="older than the ledger"):
        again.prepare(today=date(2026, 3, 5))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "newest", folder)
    again.prepare(today=date(2026, 3, 5))
    assert blocks(again) == {"2026-01": 50, "2026-02": 10, "2026-03": 0}


@pytest.mark.parametrize("noted", [True, False])
def test_a_copy_of_a_preparation_that_was_cut_off_is_not_taken_for_the_last(
    opens: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """Both follow the same version of the ledger: here the people tell. Older copies note no version."""
    dataset = opens()
    dataset.prepare(today=date(2026, 1, 5))
    folder = prepared_copy.prepared_folder(dataset.policy)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Curator, "_register_version", dies)
        with pytest.raises(KeyboardInterrupt):
            dataset.prepare(today=date(2026, 2, 5), again=True)
    shutil.copytree(folder, tmp_path / "cut off")
    rides(tmp_path, "b.parquet", range(50, 60))
    dataset.prepare(today=date(2026, 2, 5))
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "cut off", folder)
    if not noted:
        manifest = json.loads((folder / prepared_copy.MANIFEST).read_text())
        del manifest["follows"]
        (folder / prepared_copy.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Unavailable, match="older than the ledger"):
        dataset.prepare(today=date(2026, 3, 5))


def test_after_a_preparation_was_cut_off_the_next_goes_on(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opens()
    for month in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(
                Curator, "_register_version", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                dataset.prepare(today=date(2026, month, 5), again=True)
        dataset.prepare(today=date(2026, month, 6))
    assert blocks(dataset) == {"2026-01": 50, "2026-02": 0}


def test_asking_before_preparing_tells_the_ledger_nothing(opens: Opens) -> None:
    dataset = opens()
    with pytest.raises(BadParameter, match="needs a prepared copy"):
        dataset.ask("SELECT COUNT(*) FROM rides", epsilon="0.5")
    dataset.prepare(today=date(2026, 1, 5))
    assert blocks(dataset) == {"2026-01": 50}


def test_under_a_new_name_everybody_of_the_old_account_pays_too(opens: Opens) -> None:
    """The way out after a loss. Otherwise the same people would begin anew in the block of today."""
    dataset = opens()
    dataset.prepare(today=date(2026, 1, 5))
    dataset.close()
    lose_folder(prepared_copy.prepared_folder(dataset.policy))
    other = opens("again")
    other.prepare(today=date(2026, 3, 5))
    other.ask("SELECT COUNT(*) FROM rides", epsilon="0.25")
    has_paid = {block.label: any(block.spent) for block in other.ledger.blocks("rides")}
    assert has_paid == {"*": True, "2026-01": True}


def test_data_by_arrival_share_no_account(opens: Opens) -> None:
    shared = POLICY.replace('name = "{name}"', 'name = "{name}"\npopulation = "riders"')
    opens("one", shared).prepare(today=date(2026, 1, 5))
    with pytest.raises(BadParameter, match="those of one data set"):
        opens("two", shared).prepare(today=date(2026, 2, 5))


def test_a_sketch_holds_another_as_far_as_it_can_tell() -> None:
    key = bytes(32)
    few, more = Sketch.of(range(10), key), Sketch.of(range(12), key)
    assert more.holds(few)
    assert not few.holds(more)
    many = Sketch.of(range(LARGEST_SKETCH + 1000), key)
    assert many.holds(Sketch.of(range(LARGEST_SKETCH), key))
    assert not many.holds(Sketch.of(range(-1000, 0), key))
