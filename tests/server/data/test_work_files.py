"""Releases, models and audits: each for those with a role for its data, and no other file of the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapwing.server.data import work_files
from lapwing.server.data.work_files import WorkKind
from lapwing.server.people.person import NotAllowed, NotFound, Role
from support.served import ANN, OFFICER, OWNER, STEWARD, STRANGER, Door, person, write_data, write_works

OTHER = person("eve", Role.ANALYST, data="other")


def test_what_belongs_to_other_data_is_not_there(door: Door, tmp_path: Path) -> None:
    door.release(door.ann())
    works, written = door.services.works, write_works(door)
    for kind in WorkKind:
        work_id, file = written[kind]
        for who in (ANN, STEWARD, OFFICER):
            assert works.content(who, kind, work_id, file)
        for who in (OTHER, STRANGER):
            assert works.all_of(who, kind) == []
            with pytest.raises(NotFound):
                works.content(who, kind, work_id, file)
        with pytest.raises(NotAllowed):
            works.all_of(OWNER, kind)
        with pytest.raises(NotFound):
            works.find(ANN, kind, "never")
        for other in ("../visits.toml", "visits.toml", "/etc/passwd", "lapwing.ledger", ""):
            with pytest.raises(NotFound):
                works.content(STEWARD, kind, work_id, other)


def test_a_file_of_data_that_is_not_served_is_for_those_with_a_role_everywhere(
    door: Door, tmp_path: Path
) -> None:
    door.release(door.ann())
    write_works(door)
    (tmp_path / "elsewhere.toml").write_text('[release]\nname = "e"\npolicy = "../secret.toml"\n')
    path = tmp_path / "stays-bundle" / "bundle.json"
    path.write_text(path.read_text().replace('"key": "', '"key": "0'))  # of another ledger
    works = door.services.works
    assert works.all_of(person("ann", Role.ANALYST, data="visits"), WorkKind.RELEASES) == []
    assert len(works.all_of(ANN, WorkKind.RELEASES)) == 2


def test_two_data_sets_with_one_ledger_are_told_apart_by_the_declared_release(tmp_path: Path) -> None:
    write_data(tmp_path)
    write_data(tmp_path, name="other")
    door = Door(tmp_path)
    door.release(door.ann())
    [data, *_] = [served for served in door.services.sets if served.name == "visits"]
    works = door.services.works
    (tmp_path / "stays.toml").write_text('[release]\nname = "stays"\npolicy = "visits.toml"\n')
    key = data.curator.ledger.keys.signing.public.hex()
    assert "visits" in works._of_ledger(key=key)
    assert works._of_policy("visits.toml") == {"visits"}
    assert works._of_policy("missing.toml") == works._of_policy(None) == frozenset()
    door.close()


def test_links_and_broken_files_are_left_alone(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.release(door.ann())
    written, works = write_works(door), door.services.works
    for name, text in (("a.json", "["), ("b.json", "[]"), ("c.json", '{"lapwing": "audit"}')):
        (tmp_path / name).write_text(text)
    assert [work.id for work in works.all_of(ANN, WorkKind.AUDITS)] == ["seen"]
    run, card = written["models"]
    place = tmp_path / "pipe.runs" / "run-1" / card
    assert works.content(OFFICER, WorkKind.MODELS, run, card)
    (place.parent / "model.json").symlink_to(tmp_path / "lapwing.ledger.keys")
    for who in (ANN, OFFICER):
        with pytest.raises(NotFound):
            works.content(who, WorkKind.MODELS, run, "model.json")
    (place.parent / "model.json").unlink()
    (place.parent / "model.json").write_text("{}")
    assert works.content(ANN, WorkKind.MODELS, run, "model.json") == b"{}"
    with pytest.raises(NotFound):  # a model is an answer
        works.content(OFFICER, WorkKind.MODELS, run, "model.json")
    monkeypatch.setattr(work_files, "LARGEST_GIVEN", 1)
    with pytest.raises(ValueError, match="too large"):
        works.content(ANN, WorkKind.MODELS, run, card)
    place.write_text(json.dumps({"charged": []}))
    assert [work.id for work in works.all_of(ANN, WorkKind.MODELS)] == ["pipe"]
