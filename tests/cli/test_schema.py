"""`lapwing schema`: from the policy alone, as text and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import LapwingError
from lapwing.sql.reading.reader import Reader
from support.shell import Shell


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    shell.good("example", tmp_path)
    return tmp_path / "visits.toml"


def test_it_shows_tables_columns_bounds_and_keys(shell: Shell, policy: Path) -> None:
    shown = shell.good("schema", policy).out
    for words in (
        "ε 3, δ 1e-6", "8 cohorts of units; in SQL: cohort", "visits, a private table", "Unit: patient_id",
        "At most 5 rows of each unit are used", "At most 1 row of each unit is used",
        "wards, a public table",
        "surgery, cardiology, maternity, emergency", "2025-01-01 to 2026-12-31", "0 to 20000, step 0.01",
        "counts as 0", "4 declared", "selected", "SUM, AVG, VARIANCE",
    ):  # fmt: skip
        assert words in shown, words
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_neither_data_nor_ledger_is_touched(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_data = shell.good("schema", policy).out, shell.good("schema", policy, "--json").out
    for path in (*policy.parent.glob("*.parquet"), *policy.parent.glob("*.csv")):
        path.write_text("no rows at all")
    before = {path.name for path in policy.parent.iterdir()}

    def refuse(*_: object, **__: object) -> None:
        raise LapwingError("the data was opened")

    monkeypatch.setattr(Reader, "__init__", refuse)
    assert (shell.good("schema", policy).out, shell.good("schema", policy, "--json").out) == with_data
    assert {path.name for path in policy.parent.iterdir()} == before


def test_one_table_can_be_named(shell: Shell, policy: Path) -> None:
    assert "ward" not in shell.good("schema", policy, "--table", "patients").out.partition("What")[0]
    assert [
        one["table"] for one in shell.good("schema", policy, "--table", "wards", "--json").json["tables"]
    ] == ["wards"]
    done = shell("schema", policy, "--table", "vists")
    assert done.code == 2
    assert "visits" in done.error


def test_long_lists_are_shortened_in_text_alone(shell: Shell, policy: Path) -> None:
    values = [f"w{k}" for k in range(40)]
    policy.write_text(policy.read_text().replace(
        '["surgery", "cardiology", "maternity", "emergency"]', str(values).replace("'", '"')))  # fmt: skip
    assert "and 28 more" in shell.good("schema", policy).out
    found = shell.good("schema", policy, "--json").json["tables"][0]["columns"][0]
    assert found["values"] == values
