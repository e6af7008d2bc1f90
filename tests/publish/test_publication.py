"""A release from its file to its bundle: planned for free, charged once, refused with what would pass."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from lapwing.core.conversions import largest_rho
from lapwing.errors import BadFile, BadParameter, KeyReused, OverBudget, WorkEnded
from lapwing.examples.town import TOWN_CENSUS, TOWN_ROWS, write_town
from lapwing.publish import Publication
from lapwing.publish.publication import epsilon_within


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_town(tmp_path)
    return tmp_path


def opened(path: Path) -> Publication:
    found = Publication.open(path, analyst="office")
    found.dataset.curator.notify = lambda _: None
    return found


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize("name", [TOWN_ROWS, TOWN_CENSUS])
def test_a_plan_makes_no_ledger_and_reads_no_row(name: str, folder: Path) -> None:
    (folder / "people.parquet").write_bytes(b"")  # nobody looks into it
    with opened(folder / name) as release:
        plan = release.plan()
    assert plan.fits
    assert plan.rows_per_unit == 1
    assert plan.errors
    assert plan.to_json()["epsilon_that_fits"] < 6
    assert not list(folder.glob("*.ledger*"))


def test_the_plan_knows_what_fits_before_and_after(folder: Path) -> None:
    with opened(folder / TOWN_CENSUS) as release:
        before = release.plan()
        release.run(folder / "census")
        after = release.plan()
    assert after.state == "answered"
    assert after.rho == before.rho
    assert after.rho_that_fits < before.rho_that_fits
    with opened(folder / TOWN_ROWS) as release:
        left = release.plan().rho_that_fits
        assert left == after.rho_that_fits


def test_a_refusal_names_what_would_pass_and_that_passes(folder: Path) -> None:
    path = changed(folder / TOWN_CENSUS, "epsilon = 3.0", "epsilon = 6.0")
    with opened(path) as release:
        assert not release.plan().fits
        with pytest.raises(OverBudget, match="would pass: epsilon = ") as refused:
            release.run(folder / "census")
    assert not (folder / "census").exists()
    epsilon = refused.value.what_now.split("epsilon = ")[1].split()[0]
    changed(path, "epsilon = 6.0", f"epsilon = {epsilon}")
    with opened(path) as release:
        release.run(folder / "census")


def test_everything_takes_what_is_left_and_can_be_run_again(folder: Path) -> None:
    path = changed(folder / TOWN_CENSUS, "epsilon = 3.0", "epsilon = 6.0")
    with opened(path) as release:
        planned = release.plan(everything=True)
        first = release.run(folder / "one", everything=True)
        again = release.run(folder / "two", everything=True)
    assert Fraction(first["privacy"]["rho"]) == planned.rho
    assert first["charge"] == again["charge"]
    with opened(folder / TOWN_ROWS) as release, pytest.raises(OverBudget, match="used up"):
        release.run(folder / "rows", everything=True)


def test_run_twice_gives_the_same_folder_and_charges_nothing(folder: Path) -> None:
    with opened(folder / TOWN_ROWS) as release:
        first = release.run(folder / "rows")
        left = release.dataset.left()
        assert release.run(folder / "rows") == first
        again = release.run(folder / "elsewhere")
        assert release.dataset.left() == left
    assert again["charge"] == first["charge"]
    assert (folder / "elsewhere" / "measurements.json").read_bytes() == (
        folder / "rows" / "measurements.json"
    ).read_bytes()
    assert not list(folder.glob("*.journal*"))
    (folder / "rows" / "rows.csv").write_text("changed")
    with opened(folder / TOWN_ROWS) as release, pytest.raises(BadParameter, match=r"rows\.csv was changed"):
        release.run(folder / "rows")


def test_a_folder_with_other_files_is_refused_before_anything_is_charged(folder: Path) -> None:
    (folder / "rows").mkdir()
    (folder / "rows" / "mine.txt").write_text("x")
    with opened(folder / TOWN_ROWS) as release:
        with pytest.raises(BadParameter, match="nothing is written over"):
            release.run(folder / "rows")
        with pytest.raises(BadParameter, match="not a folder"):
            release.run(folder / "people.parquet")
    assert not list(folder.glob("*.ledger"))


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_charged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "here").mkdir()
    (folder / "link").symlink_to(folder / "here")
    monkeypatch.chdir(folder / "here")
    with opened(folder / TOWN_ROWS) as release:
        for out in (".", folder / "link", folder / ("x" * 300), folder / "people.parquet" / "in"):
            with pytest.raises(BadParameter):
                release.run(out)
    assert not list(folder.glob("*.ledger"))


def test_each_analyst_and_each_file_has_a_journal_of_its_own(folder: Path) -> None:
    shutil.copy(folder / TOWN_ROWS, folder / "town-rows.other")
    names = set()
    for file, analyst in ((TOWN_ROWS, "ann"), (TOWN_ROWS, "bob"), ("town-rows.other", "ann")):
        with Publication.open(folder / file, analyst=analyst) as release:
            names.add(release.journal)
    assert len(names) == 2  # one file under two names is one release


def test_a_census_that_failed_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise RuntimeError("a secret")

    monkeypatch.setattr("lapwing.publish.census.census_release.census_answer", failing)
    with opened(folder / TOWN_CENSUS) as release:
        with pytest.raises(WorkEnded, match="another name"):
            release.run(folder / "census")
        plan = release.plan()
        assert (plan.state, plan.fits) == ("ended", False)


def test_changed_data_is_told_by_the_plan(folder: Path) -> None:
    with opened(folder / TOWN_CENSUS) as release:
        release.run(folder / "census")
    duckdb.execute(f"COPY (FROM '{folder / 'people.parquet'}' LIMIT 5000) TO '{folder / 'people.parquet'}'")
    with opened(folder / TOWN_CENSUS) as release:
        assert (release.plan().state, release.plan().fits) == ("stale", False)


def test_another_file_under_an_old_name_is_refused(folder: Path) -> None:
    with opened(folder / TOWN_ROWS) as release:
        release.run(folder / "rows")
    path = changed(folder / TOWN_ROWS, "bins = 20", "bins = 10")
    with opened(path) as release:
        for act in (release.plan, lambda: release.run(folder / "other")):
            with pytest.raises(KeyReused, match="another name"):
                act()


def test_mistakes_of_binding_name_the_file(folder: Path) -> None:
    for old, new in (("sex, age", "sex, wage"), ("SELECT sex", "SELECT person")):
        path = Path(shutil.copy(folder / TOWN_ROWS, folder / "wrong.toml"))
        with opened(changed(path, old, new)) as release, pytest.raises(BadFile, match=r"wrong\.toml"):
            release.plan()


def test_the_epsilon_that_fits_is_within_its_rho() -> None:
    for rho in (Fraction(1, 10**5), Fraction(1, 100), Fraction(7, 10), Fraction(40)):
        epsilon = epsilon_within(rho, Fraction(1, 10**6))
        assert epsilon > 0
        assert largest_rho(epsilon, Fraction(1, 10**6)) <= rho
    assert epsilon_within(Fraction(0), Fraction(1, 10**6)) == 0
