"""A small stream of rides: files by month, blocks of people or of months."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from lapwing.learn.stream import Stream

POLICY = """
[dataset]
name = "rides"
protects = "{protects}"
[budget]
epsilon = {epsilon}
delta = 1e-6
[blocks]
{blocks}
[tables.rides]
source = "rides/*.parquet"
unit = "rider"
rows_per_unit = 3
[tables.rides.columns.minutes]
low = 0
high = 60
[tables.rides.columns.day]
low = 2025-01-01
high = 2025-12-31
"""
COHORTS = 'by = "unit"\ncohorts = 4'
MONTHS = 'by = "row"\ncolumn = "day"\nevery = "month"'
ARRIVALS = 'by = "unit"\nevery = "month"'
Opens = Callable[..., Stream]


def write_rides(path: Path, month: int, riders: range, *, minutes: str = "rider % 61") -> Path:
    """Two rides of each rider in one month."""
    duckdb.execute(
        f"COPY (SELECT rider, {minutes} AS minutes, make_date(2025, {month}, 1 + (rider % 28)::INT) AS day "
        f"FROM range({riders.start}, {riders.stop}) AS t(rider), range(2)) TO '{path}'"
    )
    return path


@pytest.fixture
def stream_at(tmp_path: Path) -> Iterator[Opens]:
    """Opens the stream; its policy and one month of rides are written at the first call."""
    opened: list[Stream] = []

    def open_stream(*, blocks: str = MONTHS, epsilon: str = "1.0", sharing: str = "") -> Stream:
        if not (tmp_path / "rides").exists():
            (tmp_path / "rides").mkdir()
            write_rides(tmp_path / "rides" / "january.parquet", 1, range(200))
        protects = "person-period" if blocks == MONTHS else "person"
        text = POLICY.format(protects=protects, epsilon=epsilon, blocks=blocks)
        (tmp_path / "rides.toml").write_text(text)
        if sharing:
            (tmp_path / "rides.stream.toml").write_text(sharing)
        opened.append(Stream.open(tmp_path / "rides.toml", analyst="ann"))
        return opened[-1]

    yield open_stream
    for one in opened:
        one.close()
