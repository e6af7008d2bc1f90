"""Where policies are loaded from."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, as the working directory. Loading reads none of them."""
    for name in ("visits.parquet", "wards.csv", "clinic.duckdb", "parts/a.parquet", "mixed/a.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "mixed/b.csv").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd[1].parquet").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path
