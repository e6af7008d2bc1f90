"""The tables of a bundle, as CSV and Parquet: invented rows, census tables by level, and microdata."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian
from lapwing.publish.census.census_release import ALL, NUMBERS
from lapwing.publish.census.least_squares import Query, SpineEstimate, subsets
from lapwing.publish.census.spine import Spine
from lapwing.publish.data_dictionary import ColumnCells
from lapwing.publish.measured.published_column import PublishedColumn

CONFIDENCE = 0.95
DIGITS = 3  # of estimates; intervals are rounded outwards
Wholes = NDArray[np.int64]
Floats = NDArray[np.float64]


def files_of(name: str, table: pa.Table) -> dict[str, bytes]:
    """Return a table as a CSV file and as a Parquet file."""
    text, binary = io.BytesIO(), io.BytesIO()
    pyarrow.csv.write_csv(table, text)
    pyarrow.parquet.write_table(table, binary)
    return {f"{name}.csv": text.getvalue(), f"{name}.parquet": binary.getvalue()}


def rows_table(columns: Sequence[PublishedColumn], rows: Wholes) -> pa.Table:
    """Return rows of cells as a table of values; within a bin, each value has the same chance."""
    return pa.table(
        {
            column.name: pa.array(column.values(rows[:, place]), _arrow_type(column))
            for place, column in enumerate(columns)
        }
    )


def _arrow_type(column: PublishedColumn) -> pa.DataType:
    values = [value for cell in range(column.bins) for value in column.ends(cell)]
    return pa.array(values).type


def half_width(variance: Floats, confidence: float = CONFIDENCE) -> Floats:
    """Return the half width of an interval: noise with this variance proxy is sub-Gaussian."""
    found: Floats = np.sqrt(2 * variance * math.log(2 / (1 - confidence)))
    return found


def best_interval(
    sigmas: Sequence[Fraction], summed: Sequence[int], *, is_fixed: bool, confidence: float = CONFIDENCE
) -> tuple[int, float]:
    """Return which of several measurements of a count has the narrowest interval, and its half width.

    Claim    the interval of the returned measurement covers with at least the given confidence.
    Because  which measurements follow may depend on earlier noise, so the best one is not independent of
             its own noise. The n-th interval misses with probability at most (1 − confidence) / n(n + 1),
             which sums to 1 − confidence: all of them cover at once, whichever is chosen. If nothing is
             chosen from earlier results (`is_fixed`), there is one measurement, with the whole probability.
    Test     tests/publish/bundle/test_published_bundle.py

    Args:
        sigmas: The noise of each measurement, in the order in which they were made.
        summed: The number of cells of each measurement that are added.
        is_fixed: Whether exactly one measurement was planned, whatever comes out.
        confidence: How sure the interval is.
    """
    widths = []
    for number, (sigma, cells) in enumerate(zip(sigmas, summed, strict=True), 1):
        miss = (1 - Fraction(str(confidence))) / (1 if is_fixed else number * (number + 1))
        if cells == 1:  # the exact quantile
            widths.append(float(Gaussian(sigma, Fraction(1), 1).spread(1 - miss)))
        else:
            proxy = np.array(cells * float(sigma) ** 2)
            widths.append(float(np.ceil(half_width(proxy, 1 - float(miss)))))
    best = int(np.argmin(widths))
    return best, widths[best]


def spine_table(spine: Spine) -> pa.Table:
    """Return the nodes of all levels, one row for each smallest area."""
    return pa.table(
        {
            level: pa.array([spine.nodes[number][k] for k in spine.ancestors(number)])
            for number, level in enumerate(spine.levels)
        }
    )


def shown_queries(columns: int, measured: Iterable[Query]) -> list[Query]:
    """Return the queries that tables show: totals, each column, all cells, and all that were measured."""
    places = tuple(range(columns))
    shown = {(), places, *((place,) for place in places), *measured}
    return [query for query in subsets(places) if query in shown]


def level_table(
    spine: Spine,
    level: int,
    columns: Sequence[ColumnCells],
    queries: Sequence[Query],
    *,
    estimate: SpineEstimate,
    wholes: Wholes,
) -> pa.Table:
    """Return every number of a level: the area, the cell, the estimate, its interval, the whole number."""
    nodes, sizes = np.array(spine.nodes[level], object), estimate.sizes
    whole, scale = wholes.reshape(len(nodes), *sizes), 10**DIGITS
    parts = []
    for query in queries:
        axes = tuple(k + 1 for k in range(len(sizes)) if k not in query)
        middle = estimate.tables[level].sum(axis=axes).reshape(len(nodes), -1)
        width = half_width(np.maximum(estimate.variance(level, query), 0))[:, None]
        shape = tuple(sizes[k] for k in query)
        cells = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), np.int64)
        found = {spine.levels[level]: pa.array(np.repeat(nodes, cells.shape[1]))}
        for place, column in enumerate(columns):
            own = cells[query.index(place)] if place in query else []
            labels = [column.labels[int(cell)] for cell in own] or [ALL] * cells.shape[1]
            found[column.name] = pa.array(labels * len(nodes))
        numbers = (
            np.round(middle, DIGITS),
            np.floor((middle - width) * scale) / scale,
            np.ceil((middle + width) * scale) / scale,
            whole.sum(axis=axes),
        )
        found |= {name: pa.array(values.ravel()) for name, values in zip(NUMBERS, numbers, strict=True)}
        parts.append(pa.table(found))
    return pa.concat_tables(parts)


def microdata_table(spine: Spine, columns: Sequence[PublishedColumn], wholes: Wholes) -> pa.Table:
    """Return one row for each counted row of the smallest areas' whole tables."""
    counts, sizes = wholes.ravel(), tuple(column.size for column in columns)
    found = np.repeat(np.arange(counts.size), counts)
    leaf, cell = np.divmod(found, math.prod(sizes))
    cells = np.column_stack(np.unravel_index(cell, sizes)).astype(np.int64)
    areas = pa.array(np.array(spine.leaves, object)[leaf], pa.string())
    return rows_table(columns, cells).add_column(0, spine.levels[-1], areas)
