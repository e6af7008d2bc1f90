from __future__ import annotations

import os
import random
import stat
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pytest

from lapwing.engines.engine import EngineFailed
from lapwing.errors import Unavailable
from lapwing.sql.policy.kinds import Kind, Text
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, UnitBy
from lapwing.sql.reading import prepare as preparing
from lapwing.sql.reading.open_sources import OpenedSources
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.prepared_copy import PreparedCopy, current_copy, files_of, prepared_folder
from lapwing.sql.reading.truncated_table import TruncatedTable
from support.private_tables import (
    KEY,
    OTHER_KEY,
    Row,
    coded_rows,
    policy_of,
    rows_of,
    store,
    table_of,
    whole,
)

COLUMNS: dict[str, Kind] = {"code": whole(0, 9), "note": Text()}
NAMES = ("code", "note")


def batch(folder: Path, name: str, rows: list[tuple[object, int, str | None]]) -> Path:
    who, code, note = (list(column) for column in zip(*rows, strict=True))
    return store(folder / name, {"who": who, "code": code, "note": note})


def some_rows(seed: int, count: int = 60) -> list[tuple[object, int, str | None]]:
    chance = random.Random(seed)
    return [
        (chance.randrange(30), chance.randrange(10), chance.choice(["x", "it's", None]))
        for _ in range(count)
    ]


def copied(made: PreparedCopy, *columns: str, table: str = "visits") -> list[Row]:
    engine = made.open()
    try:
        names = ", ".join(["lapwing_unit", "lapwing_rank", *columns])
        return rows_of(engine.run(f"SELECT {names} FROM {made.relations(engine, made.types)[table]}"))
    finally:
        engine.close()


@pytest.fixture
def policy(tmp_path: Path) -> CheckedPolicy:
    batch(tmp_path, "b0.parquet", some_rows(0))
    return policy_of(tmp_path, table_of(tmp_path / "b*.parquet", COLUMNS))


def test_the_copy_is_the_coded_table(policy: CheckedPolicy) -> None:
    made = prepare(policy, KEY)
    assert copied(made, *NAMES) == coded_rows(policy, *NAMES)


@pytest.mark.parametrize(
    ("primary_key", "blocks"),
    [
        ((), BlockRule("unit", cohorts=3)),
        (("code", "note"), None),
        pytest.param((), None, marks=pytest.mark.slow),
        pytest.param(("code", "note"), BlockRule("unit", cohorts=3), marks=pytest.mark.slow),
    ],
)
def test_ten_batches_in_any_order_give_what_preparing_once_gives(
    tmp_path: Path, primary_key: tuple[str, ...], blocks: BlockRule | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    extended = preparing._extended
    seen: list[list[str]] = []

    def counted(table: TruncatedTable, opened: OpenedSources, paths: list[str]) -> str:
        seen.append(paths)
        return extended(table, opened, paths)

    monkeypatch.setattr(preparing, "_extended", counted)
    order = list(range(10))
    random.Random(5).shuffle(order)
    table = table_of(tmp_path / "b*.parquet", COLUMNS, primary_key=primary_key)
    policy = policy_of(tmp_path, table, blocks=blocks)
    for n in order:
        batch(tmp_path, f"b{n}.parquet", some_rows(n))
        made = prepare(policy, KEY)
    assert made.version == 10
    assert [len(paths) for paths in seen] == [1] * 9  # units without new rows were not ranked again
    names = [*NAMES, *(["lapwing_block"] if blocks else [])]
    once = prepare(replace(policy, path=tmp_path / "other.toml"), KEY)
    assert copied(made, *names) == copied(once, *names) == coded_rows(policy, *names)


# Case C17.
def test_rows_that_were_left_out_count_among_equal_ones(tmp_path: Path) -> None:
    """Rows of a later file are numbered after all equal ones before, kept or not."""
    table = table_of(tmp_path / "b*.parquet", {"code": whole(0, 9)}, rows=1)
    policy, chance = policy_of(tmp_path, table), random.Random(7)
    for n in range(4):
        people = [who for who in range(300) for _ in range(chance.randrange(4))]
        codes = [chance.choice([1, 1, 1, 2, 3]) for _ in people]
        store(tmp_path / f"b{n}.parquet", {"who": people, "code": codes})
        made = prepare(policy, KEY)
    assert made.version == 4
    assert copied(made, "code") == coded_rows(policy, "code")


def test_new_people_behind_old_keys_are_found(tmp_path: Path) -> None:
    store(tmp_path / "p0.parquet", {"key": [1, 2], "who": [10, 20]})
    store(tmp_path / "b0.parquet", {"ref": [1, 2, 3], "code": [1, 2, 3]})
    policy = policy_of(
        tmp_path,
        table_of(tmp_path / "p*.parquet", {}, name="people"),
        table_of(tmp_path / "b*.parquet", {"code": whole(0, 9)}, unit=UnitBy("ref", "people", "key")),
    )
    assert len(copied(prepare(policy, KEY))) == 2
    store(tmp_path / "p1.parquet", {"key": [3, 1], "who": [30, 11]})
    made = prepare(policy, KEY)
    assert [row[0] for row in copied(made)] == [10, 11, 20, 30]
    assert copied(made, "code") == coded_rows(policy, "code")


def test_files_of_other_types_are_read_together_with_the_old_ones(
    policy: CheckedPolicy, tmp_path: Path
) -> None:
    prepare(policy, KEY)
    batch(tmp_path, "b1.parquet", [("Ann", 1, "x"), (" 3 ", 2, "y")])
    made = prepare(policy, KEY)
    assert copied(made, *NAMES) == coded_rows(policy, *NAMES)
    assert "Ann" in {row[0] for row in copied(made)}


def test_a_copy_serves_its_own_policy_key_and_files_only(policy: CheckedPolicy, tmp_path: Path) -> None:
    assert current_copy(policy, KEY) is None
    made = prepare(policy, KEY)
    assert current_copy(policy, KEY) == made
    assert current_copy(policy, OTHER_KEY) is None
    table = policy.tables["visits"]
    others = [
        replace(table, columns={"code": table.columns["code"]}),
        replace(table, unit=UnitBy("code")),
        replace(table, rows_per_unit=7),
        replace(table, primary_key=("code",)),
    ]
    for other in others:
        assert current_copy(replace(policy, tables={"visits": other}), KEY) is None
    assert current_copy(replace(policy, blocks=BlockRule("unit", cohorts=2)), KEY) is None

    file = tmp_path / "b0.parquet"
    os.utime(file, ns=(0, 0))
    assert current_copy(policy, KEY) is None
    made = prepare(policy, KEY)
    assert current_copy(policy, KEY) == made
    batch(tmp_path, "b1.parquet", some_rows(1))
    assert current_copy(policy, KEY) is None
    made = prepare(policy, KEY)
    file.unlink()
    assert current_copy(policy, KEY) is None
    made = prepare(policy, KEY)
    assert copied(made, *NAMES) == coded_rows(policy, *NAMES)
    made.file.unlink()
    assert current_copy(policy, KEY) is None


def test_only_the_curator_can_read_the_copy(policy: CheckedPolicy) -> None:
    made = prepare(policy, KEY)
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in made.folder.iterdir())


def test_a_failed_preparation_keeps_the_last_copy(
    policy: CheckedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepare(policy, KEY)
    before = copied(made, *NAMES)
    (tmp_path / "b1.parquet").write_bytes(b"no Parquet")
    with pytest.raises(EngineFailed):
        prepare(policy, KEY)
    (tmp_path / "b1.parquet").unlink()
    assert current_copy(policy, KEY) == made
    assert copied(made, *NAMES) == before

    changing = iter([{"visits": ()}, files_of(policy)])
    monkeypatch.setattr(preparing, "files_of", lambda _: next(changing))
    with pytest.raises(Unavailable, match="changed while it was read"):
        prepare(policy, KEY)
    monkeypatch.undo()
    assert current_copy(policy, KEY) == made
    again = prepare(policy, KEY)  # over what the failure left
    assert copied(again, *NAMES) == before
    assert [path.name for path in made.folder.glob("copy-*")] == [again.place]


def test_the_manifest_tells_no_counts_and_no_values(policy: CheckedPolicy, tmp_path: Path) -> None:
    made = prepare(policy, KEY)
    one = (made.folder / "manifest.json").read_text()
    assert "it's" not in one
    assert KEY.hex() not in one
    batch(tmp_path, "b0.parquet", [(1, 2, "x")])
    other = prepare(policy, KEY)
    assert replace(other, version=1, place=made.place, files=made.files, seen=made.seen) == made


def test_people_keep_the_month_of_their_arrival(policy: CheckedPolicy, tmp_path: Path) -> None:
    arrivals = replace(policy, blocks=BlockRule("unit", every="month"))
    prepare(arrivals, KEY, today=date(1970, 3, 5))
    batch(tmp_path, "b1.parquet", [(100, 1, "x"), (1, 1, "x")])
    prepare(arrivals, KEY, today=date(1970, 4, 5))
    batch(tmp_path, "b2.parquet", [("new", 1, "x")])  # units are texts from now on
    prepare(arrivals, KEY, today=date(1970, 1, 1))  # a clock that goes wrong
    os.utime(tmp_path / "b0.parquet", ns=(0, 0))  # all is read again
    made = prepare(arrivals, KEY, today=date(1971, 1, 1))
    blocks = {row[0]: row[2] for row in copied(made, "lapwing_block")}
    old = {str(row[0]) for row in some_rows(0)}
    assert blocks == {**dict.fromkeys(old, 2), "1": 2, "100": 3, "new": 0}
    assert {row[0]: row[1] for row in copied(made, "lapwing_block") if row[0] == "100"} == {"100": 1}


def test_duckdb_files_and_csv_are_prepared(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "source.duckdb"))
    connection.execute("CREATE TABLE v AS SELECT range % 7 AS who, range % 10 AS code FROM range(50)")
    connection.close()
    columns: dict[str, Kind] = {"code": whole(0, 9)}
    (tmp_path / "v.csv").write_text(
        "who,code\n" + "".join(f"{n % 7},{n % 10}\n" for n in range(50)), encoding="utf-8"
    )
    database = policy_of(tmp_path, table_of(tmp_path / "source.duckdb", columns, form="duckdb", inside="v"))
    source = (tmp_path / "source.duckdb").read_bytes()
    found = copied(prepare(database, KEY), "code")
    assert found == coded_rows(database, "code")
    assert (tmp_path / "source.duckdb").read_bytes() == source
    csv = replace(
        policy_of(tmp_path, table_of(tmp_path / "v.csv", columns, form="csv")), path=tmp_path / "csv.toml"
    )
    assert len(copied(prepare(csv, KEY), "code")) == len(found)


def test_progress_goes_from_nothing_to_all(policy: CheckedPolicy) -> None:
    shares: list[float] = []
    prepare(policy, KEY, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert prepared_folder(policy).name == "clinic.prepared"
