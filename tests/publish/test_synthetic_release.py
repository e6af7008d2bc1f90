"""Synthetic tables through a real ledger: charged, resumed, replayed, refused."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import lapwing
from lapwing.errors import AllHeld, BadParameter, InProgress, KeyReused, OverBudget, WorkEnded
from lapwing.ledger.gate import Work
from lapwing.ledger.request_status import FailedCharges, find_failed_charges
from lapwing.publish import methods, synthetic_release
from lapwing.publish.bound_release import BoundRelease, bind_release
from lapwing.publish.measured.journal import held
from lapwing.publish.models import graphical_model
from lapwing.publish.release_file import ReleasePlanFile, load_release
from lapwing.publish.synthetic_release import publish_table
from lapwing.sql import row_questions
from support.published import VISITS

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
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    rows = (
        "SELECT i // 2 AS person, ['a', 'b', 'c'][1 + i % 3] AS ward, (i * 7) % 31 AS stay, "
        "i % 3 = 0 AS urgent, "
        "'x' AS note FROM range(2000) AS rows(i)"
    )
    duckdb.execute(f"COPY ({rows}) TO '{folder / 'visits.parquet'}'")
    (folder / "visits.toml").write_text(VISITS)
    (folder / "release.toml").write_text(RELEASE)
    return folder


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


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on_and_never_charges_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def killed_after(folder: Path, charges: int, monkeypatch: pytest.MonkeyPatch) -> ReleasePlanFile:
    """Run a release whose process dies right after some charge."""
    file, charged, real = declared(folder), list[object](), Work.step
    assert file.rho is not None

    def dying(work: Work, loss: object = None) -> None:
        real(work, loss)  # type: ignore[arg-type]
        charged.append(loss)
        if len(charged) == charges:
            raise Killed

    with monkeypatch.context() as broken, lapwing.open(file.policy) as dataset:
        broken.setattr(Work, "step", dying)
        with pytest.raises(Killed):
            publish_table(bound(dataset, file), file.rho, folder / "journal")
    return file


def test_a_run_that_was_killed_at_any_charge_finishes_within_its_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a real ledger, with a check. For all methods: test_methods.py."""
    monkeypatch.setattr(methods, "STEPS_AT_THE_END", 10)
    for charges in range(1, 11):  # three columns, two choices, two pairs, three checked pairs
        monkeypatch.setenv("LAPWING_STATE", str(tmp_path / f"{charges}-state"))  # each time the same people
        folder = filled(tmp_path / f"{charges}")
        file = killed_after(folder, charges, monkeypatch)
        assert file.rho is not None
        with lapwing.open(file.policy) as dataset:
            done = publish_table(bound(dataset, file), file.rho, folder / "journal")
        answer = json.loads(done.release.answer)
        steps = [*answer["steps"], *answer["check"]]
        assert (len(done.measured), len(done.checked), len(steps)) == (5, 3, 11)
        assert len({one.clique for one in done.checked}) == 3
        assert sum(Fraction(one["rho"]) for one in steps) <= file.rho


def test_a_failure_while_rows_are_read_ends_the_release_and_is_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("Could not convert string 'Alice Smith' to INT32")

    file = declared(folder)
    assert file.rho is not None
    with monkeypatch.context() as failing:
        failing.setattr(row_questions, "read_rows", broken)
        for number in range(3):
            (folder / "changed.toml").write_text(RELEASE.replace("visits-2026", f"visits {number}"))
            other = load_release(folder / "changed.toml")
            with lapwing.open(file.policy) as dataset:
                release, path = bound(dataset, other), folder / f"journal {number}"
                with pytest.raises(WorkEnded) as told:
                    publish_table(release, Fraction(1, 100), path)
                assert "Alice" not in "".join(traceback.format_exception(told.value))
                found, _ = find_failed_charges(dataset.ledger, FailedCharges())
                assert len(found) == number + 1
                if number < 2:
                    for _ in range(2):  # it is never begun again, also with rows that can be read
                        with pytest.raises(WorkEnded):
                            publish_table(release, Fraction(1, 100), path)
    with lapwing.open(file.policy) as dataset:
        before = dataset.left()
        with pytest.raises(AllHeld):
            publish_table(bound(dataset, file), file.rho, folder / "journal")
        assert dataset.left() == before
        assert dataset.ledger.verify().findings == ()


def test_data_that_changes_while_it_is_read_ends_the_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = declared(folder), row_questions.read_rows
    assert file.rho is not None

    def changing(dataset: lapwing.Dataset, question: row_questions.RowQuestion) -> object:
        found = real(dataset, question)
        monkeypatch.setattr(type(dataset), "version", lambda _: -1)
        return found

    monkeypatch.setattr(row_questions, "read_rows", changing)
    with lapwing.open(file.policy) as dataset, pytest.raises(WorkEnded):
        publish_table(bound(dataset, file), file.rho, folder / "journal")


def test_an_interrupted_run_goes_on_in_the_same_session(folder: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = declared(folder)
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        release = bound(dataset, file)
        with pytest.raises(KeyboardInterrupt):
            publish_table(release, file.rho, folder / "journal", progress=interrupt)
        assert len(publish_table(release, file.rho, folder / "journal").measured) == 5


def test_two_that_go_on_at_once_charge_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the ledger cannot tell that somebody continues: the journal can."""
    file, told = killed_after(folder, 3, monkeypatch), list[str]()
    assert file.rho is not None
    rho = file.rho
    with lapwing.open(file.policy) as first, lapwing.open(file.policy) as second:

        def meanwhile(what: str, _: float) -> None:
            if what == "fitting":  # all is measured, and stored
                return
            charged = len(list(second.ledger.store.rows("SELECT 1 FROM entries")))
            with pytest.raises(InProgress):
                publish_table(bound(second, file), rho, folder / "journal")
            assert len(list(second.ledger.store.rows("SELECT 1 FROM entries"))) == charged
            told.append(what)

        done = publish_table(bound(first, file), rho, folder / "journal", progress=meanwhile)
        again = publish_table(bound(second, file), rho, folder / "journal")
    assert told
    assert again.release.answer == done.release.answer


def test_a_run_that_finished_between_reserving_and_locking_is_given_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = killed_after(folder, 3, monkeypatch)
    assert file.rho is not None
    rho, answers = file.rho, list[bytes]()
    with lapwing.open(file.policy) as first, lapwing.open(file.policy) as second:

        @contextmanager
        def late(path: Path) -> Iterator[None]:
            monkeypatch.setattr(synthetic_release, "held", held)
            answers.append(publish_table(bound(second, file), rho, path).release.answer)
            with held(path):
                yield

        monkeypatch.setattr(synthetic_release, "held", late)
        done = publish_table(bound(first, file), rho, folder / "journal")
    assert [done.release.answer] == answers
    assert done.release.is_replay


def test_without_its_journal_a_release_is_not_continued(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = killed_after(folder, 4, monkeypatch)
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        release, before = bound(dataset, file), dataset.left()
        for empty in (False, True):
            if empty:
                (folder / "elsewhere").touch()
            with pytest.raises(BadParameter, match=r"elsewhere .*under another name"):
                publish_table(release, file.rho, folder / "elsewhere")
            assert (folder / "elsewhere").exists() is empty
        assert dataset.left() == before
        assert len(publish_table(release, file.rho, folder / "journal").measured) == 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r'"sigma":"[^"]*"', '"sigma":"1"'),
        (r'"rho":"[^"]*"', '"rho":"0"'),
        (r'\{"result".*\n', ""),
        (r'(\{"result".*\n)(\{"rho".*\n)', r"\1\2\1\2"),
        (r'\{"rho"[^\n]*\n\{"result"[^\n]*\n', ""),
    ],
)
def test_a_journal_whose_steps_were_changed_is_refused(
    folder: Path, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = killed_after(folder, 4, monkeypatch)
    assert file.rho is not None
    text = (folder / "journal").read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    with lapwing.open(file.policy) as dataset:
        release, before = bound(dataset, file), dataset.left()
        (folder / "journal").write_text(changed)
        if "result" in old and new == "" and "rho" not in old:
            done = publish_table(release, file.rho, folder / "journal")  # a result that was lost
            assert [one["result"] for one in json.loads(done.release.answer)["steps"]].count(None) == 2
            return
        with pytest.raises(BadParameter, match="does not agree with the ledger"):
            publish_table(release, file.rho, folder / "journal")
        assert dataset.left() == before
        (folder / "journal").write_text(text)
        assert len(publish_table(release, file.rho, folder / "journal").measured) == 5


def test_a_step_that_was_written_and_not_charged_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object) -> None:
        raise Killed

    file = declared(folder)
    assert file.rho is not None
    for _ in range(3):
        with monkeypatch.context() as broken, lapwing.open(file.policy) as dataset:
            broken.setattr(Work, "step", dying)
            with pytest.raises(Killed):
                publish_table(bound(dataset, file), file.rho, folder / "journal")
    with lapwing.open(file.policy) as dataset:
        done = publish_table(bound(dataset, file), file.rho, folder / "journal")
    answer = json.loads(done.release.answer)
    assert all(one["result"] is not None for one in [*answer["steps"], *answer["check"]])


def test_the_rest_lapses_also_if_the_process_died_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: object, **__: object) -> None:
        raise Killed

    file = declared(folder)
    assert file.rho is not None
    with monkeypatch.context() as broken, lapwing.open(file.policy) as dataset:
        broken.setattr(Work, "settle", dying)
        with pytest.raises(Killed):
            publish_table(bound(dataset, file), file.rho, folder / "journal")
    with lapwing.open(file.policy) as dataset:
        left = [dataset.left()]
        for _ in range(2):
            assert publish_table(bound(dataset, file), file.rho, folder / "journal").release.is_replay
            left.append(dataset.left())
    assert left[1] == left[2]
    assert left[0].epsilon < left[1].epsilon


def test_a_table_has_a_limit_of_rows_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = declared(folder)
    assert file.rho is not None
    with lapwing.open(file.policy) as dataset:
        release = bound(dataset, file)
        whole = publish_table(release, file.rho, folder / "journal")
        assert whole.note == ""
        monkeypatch.setattr(graphical_model, "MOST_VALUES", 302)
        cut = publish_table(release, file.rho, folder / "journal")
    assert cut.rows.shape == (100, 3)
    assert cut.note.startswith(f"There are 100 rows for an estimated {len(whole.rows):,}")
