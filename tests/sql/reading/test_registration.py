"""Questions are asked only of people whom the ledger was told of."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import Source, UnitBy
from lapwing.sql.reading import registration
from lapwing.sql.reading.prepared_copy import prepared_folder
from sql.conftest import write_visits

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"


def require_refused(dataset: Dataset) -> None:
    with pytest.raises(BadParameter, match=r"changed since the ledger last saw it|by another policy file"):
        dataset.ask(COUNT, epsilon=1)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1, "files": {}}', "null"])
def test_a_note_that_cannot_be_read_is_none(opened: Open, tmp_path: Path, text: str) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    (tmp_path / "visits.prepared" / registration.FILE).write_text(text)
    require_refused(dataset)
    dataset.prepare()
    assert dataset.version() == 2


def test_a_folder_that_is_gone_and_a_damaged_copy(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.prepare()
    (tmp_path / "visits.prepared" / "manifest.json").write_text("{")
    with pytest.raises(Unavailable, match="damaged"):
        dataset.ask(COUNT, epsilon=1)
    shutil.rmtree(tmp_path / "visits.prepared")
    require_refused(dataset)
    dataset.prepare()
    assert len(dataset.ask(COUNT, epsilon=1)) == 1


def test_a_crash_between_the_ledger_and_the_note_is_noticed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    with monkeypatch.context() as patch:
        patch.setattr(
            registration, "save_registration", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            dataset.register()
    require_refused(dataset)


def test_a_symbolic_link_to_other_rows_is_noticed(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon=1)
    (tmp_path / "elsewhere").mkdir()
    write_visits(tmp_path / "elsewhere", range(10))
    (tmp_path / "visits.parquet").unlink()
    (tmp_path / "visits.parquet").symlink_to(tmp_path / "elsewhere" / "visits.parquet")
    require_refused(dataset)


def test_other_tables_of_a_server_are_other_people(opened: Open) -> None:
    """Of a server no file tells: the policy's own words are compared, without passwords."""
    policy = opened().policy
    table = policy.tables["visits"]

    def at(url: str, name: str, unit: str = "who") -> dict[str, list[str]]:
        moved = replace(table, source=Source("postgres", url, name, "postgres"), unit=UnitBy(unit))
        return registration.unit_locations(replace(policy, tables={"visits": moved}))

    url = "postgresql://me:secret@host/db"
    assert "secret" not in str(at(url, "v"))
    assert at(url, "v") == at("postgresql://host/db", "v")
    assert at(url, "v") != at(url, "other")
    assert at(url, "v") != at(url, "v", "id")
    registration.make_folder(policy)
    registration.save_registration(policy, 3, {})
    assert registration.last_registration(policy) == registration.RegisteredVersion(
        3, {}, registration.unit_locations(policy), 0
    )


def test_receipts_that_were_looked_at_add_up(opened: Open) -> None:
    policy = opened().policy
    assert registration.cleared_holds(policy) == set()
    registration.make_folder(policy)
    for position in (4, 9, 4):
        registration.clear_holds(policy, position)
    assert registration.cleared_holds(policy) == {4, 9}
    assert {path.name for path in prepared_folder(policy).iterdir()} == {registration.LOOKED, "lock"}
