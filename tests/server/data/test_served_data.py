"""Data sets of a folder: who reaches them, and what is public about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.people.person import NotAllowed, NotFound, Role
from support.served import ANN, OFFICER, STRANGER, Served, person, served, write_data


def test_a_data_set_without_a_role_is_one_that_never_was(visits: Served) -> None:
    for who, name in (
        (STRANGER, "visits"),
        (ANN, "other"),
        (person("eve", Role.STEWARD, data="x"), "visits"),
    ):
        with pytest.raises(NotFound):
            visits.sets.require(who, name, Role.ANALYST)
        assert visits.sets.visible_to(who) == ([] if name == "visits" else list(visits.sets))
    with pytest.raises(NotAllowed):
        visits.sets.require(OFFICER, "visits", Role.ANALYST)
    assert visits.sets.require(OFFICER, "visits").name == "visits"


def test_the_schema_is_public_and_its_budget_is_decimal_text(visits: Served, tmp_path: Path) -> None:
    found = visits.sets.require(ANN, "visits").schema()
    assert found["budget"] == {
        "epsilon": "10", "delta": "1e-6", "delta_per_query": "1e-9", "least_epsilon": "0.01",
    }  # fmt: skip
    assert str(tmp_path) not in json.dumps(found)
    assert not (tmp_path / "lapwing.ledger").exists()


def test_warming_reads_no_row_and_makes_no_ledger(visits: Served, tmp_path: Path) -> None:
    (tmp_path / "visits.parquet").unlink()
    visits.sets.require(ANN, "visits").warm()
    assert not (tmp_path / "lapwing.ledger").exists()


def test_only_policies_are_opened(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="no policy"):
        ServedDataSets.open(tmp_path)
    write_data(tmp_path)
    (tmp_path / "survey.toml").write_text('[survey]\nname = "x"\n')
    (tmp_path / "noise.toml").write_bytes(b"\xff\xfe[")
    with served(tmp_path) as found:
        assert found.sets.names() == ["visits"]
    (tmp_path / "wrong.toml").write_text('[dataset]\nname = "wrong"\n')
    with pytest.raises(BadFile):
        ServedDataSets.open(tmp_path)


def test_names_are_told_apart_and_fit_an_address(tmp_path: Path) -> None:
    write_data(tmp_path, name="a")
    write_data(tmp_path, name="b")
    (tmp_path / "b.toml").write_text((tmp_path / "a.toml").read_text())
    with pytest.raises(BadParameter, match="two policies"):
        ServedDataSets.open(tmp_path)
    (tmp_path / "b.toml").write_text((tmp_path / "a.toml").read_text().replace('"a"', '"a/b"'))
    with pytest.raises(BadParameter, match="cannot be served"):
        ServedDataSets.open(tmp_path)
