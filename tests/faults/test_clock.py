"""Case C14: times and places of entries do not tell that one person has very many rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lapwing.ledger import Ledger, entry, padding
from lapwing.publish import Publication
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.reading import prepare
from support.clocks import Clock, PaddingClock

PEOPLE, MANY = 300, 20_000
POLICY = """
[dataset]
name = "d{rows}"
[budget]
epsilon = 5.0
delta = 1e-6
{more}
[tables.t]
source = "d.parquet"
unit = "pid"
rows_per_unit = 1
[tables.t.columns.v]
low = 0
high = 4
"""
RELEASE = """
[release]
name = "x"
policy = "p.toml"
rows = "SELECT v FROM t"
method = "independent"
epsilon = 1.0
delta = 1e-6
"""


def written(folder: Path, rows: int, more: str = "") -> Path:
    """A table in which one person has this many rows, and all others have one."""
    folder.mkdir()
    people = [f"p{n}" for n in range(PEOPLE)] + ["many"] * rows
    values = np.arange(len(people)) % 5
    parquet.write_table(pa.table({"pid": people, "v": values}), folder / "d.parquet")
    (folder / "p.toml").write_text(POLICY.format(rows=rows, more=more))
    (folder / "r.toml").write_text(RELEASE)
    return folder


def test_C14_a_bundle_does_not_tell_who_has_many_rows(
    tmp_path: Path, padding_clock: PaddingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (0, MANY):
        monkeypatch.setenv("LAPWING_STATE", str(tmp_path / f"state{rows}"))  # neighbours, not other data
        folder = written(tmp_path / str(rows), rows)
        with Publication.open(folder / "r.toml", analyst="ann") as publication:
            publication.run(folder / "out")
        files = [folder / "out" / f"{name}.proof.json" for name in ("charge", "answer")]
        charge, answer = (json.loads(json.loads(file.read_text())["body"])["at"] for file in files)
        assert answer == charge
        assert (
            "Time: both proofs have the time of the charge" in (folder / "out" / "privacy.md").read_text()
        )
        assert len(padding_clock.waits) == 3  # the copy, the rows, and the answer
        padding_clock.waits.clear()


def test_all_entries_of_a_first_question_have_times_from_before_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "one", MANY)
    monkeypatch.setattr(entry, "time_ns", Clock.time_ns)
    monkeypatch.setattr(Clock, "told", datetime(2026, 11, 15, 12, tzinfo=UTC))
    read = prepare.prepare

    def slowly(*arguments: Any, **options: Any) -> Any:
        """Take a minute, as if somebody had very many rows."""
        Clock.told += timedelta(minutes=1)
        return read(*arguments, **options)

    monkeypatch.setattr(prepare, "prepare", slowly)
    with open_dataset(folder / "p.toml", analyst="ann") as dataset:
        dataset.ask("SELECT COUNT(*) AS n FROM t", epsilon="0.5")
        rows = dataset.ledger.store.rows("SELECT body FROM entries ORDER BY seq")
        records = [json.loads(bytes(body)) for (body,) in rows]
    kinds = [one["kind"] for one in records]
    assert kinds[-3:] == ["data", "charge", "answer"]
    assert [one["at"][14:16] for one in records] == ["00"] * (len(records) - 2) + ["01"] * 2


@pytest.mark.parametrize("rows", [0, MANY])
def test_a_second_session_counts_the_same_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding_clock: PaddingClock, rows: int
) -> None:
    """It asks once in each eighth of a second until the answer is stored."""
    folder = written(tmp_path / "one", rows, "[engine]\npad = true")
    padding_clock.stop()
    monkeypatch.setattr(padding, "random_start", lambda: 1.5)
    with open_dataset(folder / "p.toml", analyst="ann") as ann:
        ann.prepare()
        other = Ledger.open(folder / "lapwing.ledger")
        seen: list[int] = []

        def meanwhile(seconds: float) -> None:
            for _ in range(round(8 * seconds)):
                padding_clock.work(1 / 8)
                seen.append(other.store.rows("SELECT max(seq) FROM entries")[0][0])

        monkeypatch.setattr(padding, "sleep", meanwhile)
        answer = ann.ask("SELECT COUNT(*) AS n FROM t", epsilon="0.5")
        other.close()
    assert seen == [answer.receipt.position] * 12  # 1.5 seconds with the charge as the last entry
