"""Texts without `longest` are read up to 1,000 bytes, also from copies that hold longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.engines.dialect import TEXT_BYTES
from lapwing.sql.policy.kinds import Text
from lapwing.sql.policy.policy import READ_BYTES, CheckedPolicy, CheckedTable
from lapwing.sql.question.bind import bind
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.prepared_copy import copy_digest, current_copy, last_copy
from lapwing.sql.reading.reader import Reader
from support.private_tables import KEY, policy_of, store, table_of

LONG, SHORT = "é" * READ_BYTES, "x" * READ_BYTES
SQL = "SELECT note, COUNT(*) FROM visits GROUP BY note"


def policy_in(folder: Path, unit: str = "who") -> CheckedPolicy:
    store(folder / "visits-1.parquet", {"who": ["a", "b"], "note": [LONG, SHORT]})
    table = table_of(folder / "visits-*.parquet", {"note": Text()}, unit=unit)
    return policy_of(folder, table, protects="person" if unit else "row")


def notes_of(policy: CheckedPolicy, *, is_prepared: bool) -> set[object]:
    reader = Reader.open(policy, KEY, {})
    try:
        assert reader.is_prepared is is_prepared
        (found,) = reader.exact(bind(SQL, Catalog(policy, {})))
    finally:
        reader.close()
    assert found.keys is not None
    return {key for (key,) in found.keys}


READ = {LONG[: READ_BYTES // 4], SHORT}


@pytest.mark.parametrize("unit", ["who", ""])
def test_a_source_and_its_copy_are_read_alike(tmp_path: Path, unit: str) -> None:
    policy = policy_in(tmp_path, unit)
    assert notes_of(policy, is_prepared=False) == READ
    prepare(policy, KEY)
    assert notes_of(policy, is_prepared=True) == READ


def test_a_copy_of_an_earlier_version_is_read_with_short_texts_and_not_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_in(tmp_path)
    with monkeypatch.context() as earlier:  # when texts were coded up to a million bytes
        earlier.setattr(CheckedTable, "coded_bytes", property(lambda _: TEXT_BYTES))
        earlier.setattr(CheckedTable, "numbers_equal_rows", property(lambda _: False))
        prepare(policy, KEY)
    old = current_copy(policy, KEY)
    assert old is not None
    assert old.digest == copy_digest(policy, KEY, earlier=True) != copy_digest(policy, KEY)
    assert notes_of(policy, is_prepared=True) == READ
    store(tmp_path / "visits-2.parquet", {"who": ["a"], "note": ["new"]})
    prepare(policy, KEY)
    new = last_copy(policy)
    assert new is not None
    assert new.digest == copy_digest(policy, KEY)
    assert notes_of(policy, is_prepared=True) == READ | {"new"}
