"""Counts from a bundle, with intervals where the noise is known.

Claim    an interval covers the count of the truncated table with at least the given confidence, for one
         question that was chosen without looking at the numbers.
Because  a count inside a measured marginal is a sum of m cells with independent discrete Gaussian noise,
         whose quantile is known (`SummedGaussian`).
         Of several measurements, `best_interval` takes one whose interval holds whichever is taken. A
         census has the variance of every number. Other counts come from the rows: they are marked, and
         have no interval.
Test     tests/publish/bundle/test_published_bundle.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from lapwing.errors import BadParameter
from lapwing.publish.bundle.bundle_contents import BOUNDS, DICTIONARY, MEASUREMENTS, ROWS, TABLES
from lapwing.publish.bundle.manifest import read_manifest
from lapwing.publish.bundle.utility_report import best_interval
from lapwing.publish.census.census_release import ALL
from lapwing.publish.measured.published_column import ColumnCells, columns_of
from lapwing.publish.release_file import CENSUS

MEASURED, MODEL = "measured", "model"


@dataclass(frozen=True, slots=True)
class PublishedCount:
    """A count from a bundle.

    `low` and `high` are None if the count is the model's: then no interval is known. `l1_at_most` bounds
    the sum of all errors of the marginal, if the bundle has such a bound.
    """

    value: float
    low: float | None
    high: float | None
    source: str  # "measured" or "model"
    l1_at_most: float | None = None


class PublishedBundle:
    """A bundle to ask. Verify it first: this class believes its files.

    Args:
        folder: The bundle.

    Raises:
        BadParameter: If the folder is no bundle.

    Example:
        >>> from lapwing.publish import PublishedBundle
        >>> PublishedBundle("published").count({"sex": "f"}).source
        'measured'
    """

    def __init__(self, folder: str | Path) -> None:
        self._place = Path(folder)
        self.manifest = read_manifest(self._place)
        self._columns = {column.name: column for column in columns_of(self._read(DICTIONARY))}

    def _read(self, name: str) -> Any:
        return json.loads((self._place / name).read_bytes())

    @property
    def is_census(self) -> bool:
        """True if the bundle has census tables, and not invented rows."""
        return bool(self.manifest["method"] == CENSUS)

    def count(
        self, where: Mapping[str, Any] | None = None, *, level: str | None = None, area: str | None = None
    ) -> PublishedCount:
        """Return how many rows have these values.

        Args:
            where: A value or the label of a bin, by column; None or {} for all rows.
            level: The level of a census, such as "district"; None for the first.
            area: The area of that level; None if it has only one.

        Returns:
            The count, with an interval of 95 % if its noise is known.

        Raises:
            BadParameter: If a column, value, level or area is not in the bundle.
        """
        cells = {name: self._column(name).cell_of(value) for name, value in (where or {}).items()}
        if self.is_census:
            return self._census_count(cells, level, area)
        if level is not None or area is not None:
            raise BadParameter("level", "is for a census. This bundle has rows")
        return self._measured_count(cells) or self._model_count(cells)

    def _column(self, name: str) -> ColumnCells:
        if name not in self._columns:
            raise BadParameter("where", f'"{name[:60]}" is not a column of the bundle')
        return self._columns[name]

    def _measured_count(self, cells: Mapping[str, int]) -> PublishedCount | None:
        answer = self._read(MEASUREMENTS)
        able = [
            (step["step"]["measure"], Fraction(step["step"]["sigma"]), step["result"]["counts"])
            for step in answer["steps"]
            if step["result"] and "measure" in step["step"] and set(cells) <= set(step["step"]["measure"])
        ]
        if not able:
            return None
        summed = [
            math.prod(self._columns[name].size for name in names if name not in cells)
            for names, _, _ in able
        ]
        is_fixed = answer["method"] == "independent" and len(cells) == 1
        best, width = best_interval([sigma for _, sigma, _ in able], summed, is_fixed=is_fixed)
        names, _, counts = able[best]
        table = np.array(counts).reshape([self._columns[name].size for name in names])
        value = float(table[tuple(cells.get(name, slice(None)) for name in names)].sum())
        return PublishedCount(value, value - width, value + width, MEASURED)

    def _model_count(self, cells: Mapping[str, int]) -> PublishedCount:
        table = pyarrow.parquet.read_table(self._place / f"{ROWS}.parquet", columns=list(cells))
        here = np.ones(table.num_rows, np.bool_)
        for name, cell in cells.items():
            here &= self._columns[name].cells(table.column(name)) == cell
        bound = None
        if (self._place / BOUNDS).is_file():
            wanted = [
                record["l1"]
                for record in self._read(BOUNDS)["bounds"]
                if set(record["columns"]) == set(cells)
            ]
            bound = wanted[0] if wanted else None
        return PublishedCount(float(here.sum()), None, None, MODEL, bound)

    def _census_count(
        self, cells: Mapping[str, int], level: str | None, area: str | None
    ) -> PublishedCount:
        levels = [path.stem for path in sorted((self._place / TABLES).glob("*.parquet"))]
        first = next(iter(pyarrow.parquet.read_schema(self._place / "spine.parquet").names))
        chosen = first if level is None else level
        if chosen not in levels:
            raise BadParameter("level", f"must be one of {', '.join(levels)}")
        table = pyarrow.parquet.read_table(self._place / TABLES / f"{chosen}.parquet")
        names = np.array(table.column(chosen).to_pylist(), object)
        areas = sorted(set(names))
        if area is None and len(areas) > 1:
            raise BadParameter("area", f"must name one of the {len(areas):,} areas of level {chosen}")
        here = names == (areas[0] if area is None else area)
        if not here.any():
            raise BadParameter("area", f'"{str(area)[:60]}" is no area of level {chosen}')
        for name, column in self._columns.items():
            label = column.labels[cells[name]] if name in cells else ALL
            here &= np.array(table.column(name).to_pylist(), object) == label
        rows = np.flatnonzero(here)
        if not len(rows):
            raise BadParameter(
                "where", "is a table that was not published. Ask for fewer columns, or all of them"
            )
        low, high, value = (
            float(table.column(name)[int(rows[0])].as_py()) for name in ("low", "high", "estimate")
        )
        return PublishedCount(value, low, high, MEASURED)
