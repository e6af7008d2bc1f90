"""Synthetic tables through a real ledger: charged, resumed, replayed, refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import lapwing
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget
from lapwing.ledger.gate import Work
from lapwing.publish.bound_release import BoundRelease, bind_release
from lapwing.publish.release_file import ReleasePlanFile, load_release
from lapwing.publish.synthetic_release import publish_table

POLICY = """dataset.name = "visits"
budget = { epsilon = 5, delta = 1e-6 }
[tables.visits]
source = "visits.parquet"
unit = "person"
rows_per_unit = 2
columns.ward = { values = ["a", "b", "c"] }
columns.stay = { low = 0, high = 30 }
columns.urgent = { type = "bool" }
columns.note = { type = "text" }
"""
RELEASE = """[release]
name = "visits-2026"
policy = "visits.toml"
rows = "SELECT ward, stay, urgent FROM visits"
method = "tree"
epsilon = 2.0
delta = 1e-9
check = 0.2
[columns.stay]
bins = 6
[columns.urgent]
unknown = false
[[impossible]]
ward = "c"
urgent = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = (
        "SELECT i // 2 AS person, ['a', 'b', 'c'][1 + i % 3] AS ward, (i * 7) % 31 AS stay, "
        "i % 3 = 0 AS urgent, "
        "'x' AS note FROM range(2000) AS rows(i)"
    )
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path / 'visits.parquet'}'")
    (tmp_path / "visits.toml").write_text(POLICY)
    (tmp_path / "release.toml").write_text(RELEASE)
    return tmp_path


def declared(folder: Path, old: str = "", new: str = "") -> ReleasePlanFile:
    assert old in RELEASE
    path = folder / "changed.toml"
    path.write_text(RELEASE.replace(old, new, 1))
    return load_release(path)


def bound(dataset: lapwing.Dataset, file: ReleasePlanFile) -> BoundRelease:
    return bind_release(file, dataset)


def test_a_table_is_published_and_comes_again_for_nothing(folder: Path) -> None:
    file = load_release(folder / "release.toml")
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        release = bound(dataset, file)
        assert release.rows_per_unit == 2
        first = publish_table(release, file.rho, folder / "journal")
        left = dataset.left()
        again = publish_table(release, file.rho, folder / "elsewhere")
        assert again.release.is_replay
        assert again.release.answer == first.release.answer
        assert dataset.left() == left
    assert first.rows.shape[1] == 3
    assert 1000 < len(first.rows) < 3000
    ward, urgent = first.rows[:, 0], first.rows[:, 2]
    assert not ((ward == 2) & (urgent == 1)).any()  # impossible
    assert len(first.checked) == 3
    spent = sum(
        Fraction(one["rho"])
        for name in ("steps", "check")
        for one in json.loads(first.release.answer)[name]
    )
    assert spent <= file.rho
    assert spent > file.rho * Fraction(9, 10)


def test_a_killed_run_goes_on_and_never_charges_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    file = load_release(folder / "release.toml")
    assert file.rho is not None
    charged = []
    real = Work.step

    def dying(work: Work, loss: object = None) -> None:
        real(work, loss)  # type: ignore[arg-type]
        charged.append(loss)
        if len(charged) == 4:
            raise Killed

    monkeypatch.setattr(Work, "step", dying)
    with lapwing.open(file.policy) as dataset, pytest.raises(Killed):
        publish_table(bound(dataset, file), file.rho, folder / "journal")
    with lapwing.open(file.policy) as dataset:
        done = publish_table(bound(dataset, file), file.rho, folder / "journal")
    answer = json.loads(done.release.answer)
    steps = [*answer["steps"], *answer["check"]]
    assert [one["result"] is None for one in steps].count(True) == 1  # charged, and lost
    assert len(charged) == len(steps)
    assert sum(Fraction(one["rho"]) for one in steps) <= file.rho


def test_two_at_once_charge_once(folder: Path) -> None:
    """While one run measures, another of the same name is told so; afterwards it gets the same answer."""
    file, told = declared(folder), list[str]()
    assert file.rho is not None
    rho = file.rho
    with lapwing.open(file.policy) as dataset:
        release = bound(dataset, file)

        def meanwhile(what: str, _: float) -> None:
            if not told:
                told.append(what)
                with pytest.raises(InProgress):
                    publish_table(release, rho, folder / "other")

        first = publish_table(release, rho, folder / "journal", progress=meanwhile)
        left = dataset.left()
        again = publish_table(release, rho, folder / "other")
        assert again.release.answer == first.release.answer
        assert dataset.left() == left
    assert told
    assert not (folder / "other").exists()


def test_another_release_under_the_same_name_is_refused(folder: Path) -> None:
    file, other = declared(folder), declared(folder, "bins = 6", "bins = 5")
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        publish_table(bound(dataset, file), file.rho, folder / "journal")
        with pytest.raises(KeyReused):
            publish_table(bound(dataset, other), file.rho, folder / "other")


def test_what_does_not_fit_is_refused_uncharged_and_what_fits_is_told(folder: Path) -> None:
    file = declared(folder)
    with lapwing.open(file.policy) as dataset:
        dataset.version()
        release, left = bound(dataset, file), dataset.left()
        most = release.rho_that_fits()
        with pytest.raises(OverBudget):
            publish_table(release, most + Fraction(1, 10**6), folder / "journal")
        assert dataset.left() == left
        assert not (folder / "journal").exists()
        publish_table(release, most, folder / "journal")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ward, stay, urgent", "note", "text without declared values"),
        ("ward, stay, urgent", "COUNT(*) AS n", "aggregate"),
        ("[columns.stay]", "[columns.cost]", "not a published column"),
        ('ward = "c"', 'ward = "z"', 'is no value of "ward"'),
        ('ward = "c"', "cost = 3", "not a published column"),
    ],
)
def test_a_release_that_cannot_be_is_refused_before_data_is_read(
    folder: Path, old: str, new: str, why: str
) -> None:
    with lapwing.open(folder / "visits.toml") as dataset, pytest.raises(BadParameter, match=why):
        bound(dataset, declared(folder, old, new))
    assert not (folder / "lapwing.ledger").exists()


def test_the_same_measurements_over_other_data_give_the_same_marginals(folder: Path) -> None:
    """After measuring, all is post-processing: private rows are not looked at again."""
    file = declared(folder)
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        release = bound(dataset, file)
        first = publish_table(release, file.rho, folder / "journal")
        (folder / "visits.parquet").unlink()
        from lapwing.publish.synthetic_release import table_from_answer  # noqa: PLC0415

        again = table_from_answer(release, first.release, None)
    for one, other in zip(first.measured, again.measured, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
