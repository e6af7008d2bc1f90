"""The utility report of a bundle: one HTML page without scripts, made of released numbers alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from itertools import combinations

import numpy as np

from lapwing.core.gaussian import SummedGaussian
from lapwing.html_views import grid, note
from lapwing.plots.html_page import bar, page, section
from lapwing.publish.census.census_release import BoundCensus, CensusTables, expected_errors
from lapwing.publish.census.estimate_widths import CONFIDENCE, half_widths
from lapwing.publish.measured.published_column import PublishedColumn
from lapwing.publish.methods import MEAN_OF_NOISE
from lapwing.publish.models.domain import Clique
from lapwing.publish.models.graphical_model import Floats, NoisyMarginal
from lapwing.publish.synthetic_release import SyntheticTable

MOST_CELLS_DRAWN = 40
MOST_LISTED = 30
SIZE_CLASSES = ((0, 0), (1, 10), (11, 100), (101, 1000), (1001, 10_000), (10_001, None))


def names_of(clique: Clique) -> str:
    """Return the columns of a marginal in words."""
    return " × ".join(clique)


# Intervals


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
        widths.append(float(SummedGaussian(sigma, contributors=cells).spread(1 - miss)))
    best = int(np.argmin(widths))
    return best, widths[best]


# Synthetic tables


def synthetic_report(name: str, columns: Sequence[PublishedColumn], table: SyntheticTable) -> bytes:
    """Return the report of a synthetic table."""
    parts = [
        f"<p>{len(table.rows):,} invented rows, from {len(table.measured):,} noisy marginals. All "
        f"numbers here are noisy or follow from noisy ones. {escape(table.note)}</p>",
        _checked(table),
        _measured(table),
        _bounds(table.bounds, table.model.total),
        _known_bad(columns, table),
        *(_column(place, column, table) for place, column in enumerate(columns)),
    ]
    return page(f"Utility of {name}", parts)


def _differences(table: SyntheticTable, marginals: Sequence[NoisyMarginal]) -> str:
    rows = []
    for marginal in marginals:
        off = table.marginal(marginal.clique) - marginal.counts
        share = _error_at_most(off, marginal.sigma) * marginal.counts.size / 2 / max(table.model.total, 1.0)
        seen, noise = float(np.abs(off).mean()), MEAN_OF_NOISE * marginal.sigma
        cells = (names_of(marginal.clique), f"{marginal.counts.size:,}", f"{seen:,.1f}", f"{noise:,.1f}")
        rows.append((*cells, f"{min(share, 1.0):.3f}"))
    heads = ("marginal", "cells", "rows differ by", "noise alone", "total variation at most, roughly")
    return grid(heads, rows)


def _error_at_most(off: Floats, sigma: float) -> float:
    """Return the greatest mean error of a cell that these differences leave possible, roughly at 95 %.

    The mean square of differences is the mean square of errors, and σ² give or take its own chance.
    """
    squared = float((off**2).mean())
    chance = 1.64 * sigma * math.sqrt((2 * sigma**2 + 4 * max(squared - sigma**2, 0.0)) / off.size)
    return math.sqrt(max(squared - sigma**2, 0.0) + chance)


def _checked(table: SyntheticTable) -> str:
    if not table.checked:
        text = "No share of the budget was set aside for a check (check = 0.1 in the release file)."
        return section("The honest error", note(text))
    text = (
        "These marginals were drawn at random and measured for this page only: the rows were made "
        "without them. Rows and measurements differ by the third column in a cell, of which the fourth is "
        "noise. The last column is the largest error of the rows that this leaves possible, at some 95 %."
    )
    return section("The honest error", note(text), _differences(table, table.checked))


def _measured(table: SyntheticTable) -> str:
    text = "Rows were made to fit these. They should differ by little more than the noise."
    shown = sorted(table.measured, key=lambda marginal: (len(marginal.clique), marginal.clique))
    more = len(shown) - MOST_LISTED
    rest = note(f"And {more} more, in measurements.json.") if more > 0 else ""
    return section("Measured marginals", note(text), _differences(table, shown[:MOST_LISTED]), rest)


def _bounds(bounds: Mapping[Clique, float], total: float) -> str:
    if not bounds:
        return ""
    text = (
        "With 95 % confidence, all marginals that were not chosen in the last round are within these "
        "bounds at once. A bound is on total variation: half the sum of all differences, as a share of "
        "the rows."
    )
    ordered = sorted(bounds.items(), key=lambda item: -item[1])
    rows = [
        (names_of(clique), f"{min(bound / 2 / max(total, 1.0), 1.0):.3f}")
        for clique, bound in ordered[:MOST_LISTED]
    ]
    parts = [note(text), grid(("the largest bounds", "total variation at most"), rows)]
    return section("Marginals that were not chosen in the last round", *parts)


def _known_bad(columns: Sequence[PublishedColumn], table: SyntheticTable) -> str:
    cliques = [set(marginal.clique) for marginal in table.measured]
    apart = [
        names_of(pair)
        for pair in combinations(table.model.domain.columns, 2)
        if not any(set(pair) <= clique for clique in cliques)
    ]
    lines = []
    if apart:
        more = len(apart) - MOST_LISTED
        listed = ", ".join(apart[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
        lines.append(
            f"Pairs that the rows were not fitted to: {listed}. In the rows they are related only "
            "through other columns."
        )
    single = {marginal.clique: marginal for marginal in table.measured if len(marginal.clique) == 1}
    for column in columns:
        marginal = single.get((column.name,))
        if marginal is None:
            continue
        weak = [
            column.label(cell) for cell in range(column.size) if marginal.counts[cell] < 2 * marginal.sigma
        ]
        if weak:
            shown = ", ".join(weak[:10]) + (" …" if len(weak) > 10 else "")
            lines.append(
                f"{column.name}: the counts of {shown} are below twice their noise. Trust no detail there."
            )
    lines.append("Several rows of one person are invented independently of each other.")
    return section(
        "Do not use the rows for", "<ul>", *(f"<li>{escape(line)}</li>" for line in lines), "</ul>"
    )


def _column(place: int, column: PublishedColumn, table: SyntheticTable) -> str:
    counts = np.bincount(table.rows[:, place], minlength=column.size)
    noisy = [marginal for marginal in table.measured if marginal.clique == (column.name,)]
    best, width = None, 0.0
    if noisy:
        sigmas = [Fraction(marginal.sigma) for marginal in noisy]
        place_of_best, width = best_interval(sigmas, [1] * len(noisy), is_fixed=False)
        best = noisy[place_of_best]
    most = max(float(counts.max()), 0.0 if best is None else float(best.counts.max()), 1.0)
    rows = []
    for cell in range(min(column.size, MOST_CELLS_DRAWN)):
        drawn = bar(counts[cell] / most)
        texts = [column.label(cell), f"{counts[cell]:,}", ""]
        if best is not None:
            drawn += bar(best.counts[cell] / most, "bar other")
            texts[2] = f"{best.counts[cell]:,.0f} ± {width:,.0f}"
        rows.append((*texts, drawn))
    rest = range(MOST_CELLS_DRAWN, column.size)
    if rest:
        noisy_sum = "" if best is None else f"{best.counts[rest.start :].sum():,.0f}"
        rows.append((f"all {len(rest):,} other values", f"{counts[rest.start :].sum():,}", noisy_sum, ""))
    heads = ("value", "rows (blue)", "measured (orange)", "")
    told = note(
        f"The first {MOST_CELLS_DRAWN} of {column.size:,} values. The others stand in the last line, added "
        "up. Each one is in the rows and, if it was measured, in measurements.json."
    )
    return section(column.name, *([told] if rest else []), grid(heads, rows, bars=3))


# Census tables


def census_report(name: str, census: BoundCensus, tables: CensusTables, rho: Fraction) -> bytes:
    """Return the report of a census."""
    people = int(tables.wholes[0].sum())
    parts = [
        f"<p>{people:,} rows in {len(census.spine.leaves):,} smallest areas. Estimates are unbiased, "
        "with intervals of 95 %. Whole numbers add up exactly, and are a little too large in small "
        "areas, since nothing is negative.</p>",
        _expected(census, rho),
        _by_size(census, tables),
        _census_bad(census, tables),
    ]
    return page(f"Utility of {name}", parts)


def _expected(census: BoundCensus, rho: Fraction) -> str:
    errors = expected_errors(census, rho)
    most = max(max(level.values()) for level in errors)
    rows = [
        (f"{level}: {query}", f"{len(nodes):,}", f"{error:,.2f}", bar(error / most))
        for level, nodes, by_query in zip(census.spine.levels, census.spine.nodes, errors, strict=True)
        for query, error in by_query.items()
    ]
    text = "The mean absolute error of one number, known before anything was measured."
    return section("Expected error", note(text), grid(("table", "areas", "error", ""), rows, bars=3))


def _by_size(census: BoundCensus, tables: CensusTables) -> str:
    rows = []
    for level, name in enumerate(census.spine.levels):
        totals = tables.wholes[level].sum(axis=1)
        widths = half_widths(tables.estimate, level, ())
        for low, high in SIZE_CLASSES:
            here = (totals >= low) & (totals <= (math.inf if high is None else high))
            if not here.any():
                continue
            span = (
                f"{low:,}"
                if low == high
                else f"{low:,} or more"
                if high is None
                else f"{low:,} to {high:,}"
            )
            relative = float(np.mean(widths[here] / np.maximum(totals[here], 1)))
            shown = f"± {float(widths[here].mean()):,.1f}"
            rows.append(
                (f"{name}, {span} rows", f"{int(here.sum()):,}", shown, f"{relative:.1%}", bar(relative))
            )
    text = (
        "The interval of an area's total beside its size (as published). A full bar: the interval is as "
        "wide as the total."
    )
    heads = ("areas", "number", "interval", "of the total", "")
    return section("Error against size", note(text), grid(heads, rows, bars=4))


def _census_bad(census: BoundCensus, tables: CensusTables) -> str:
    lines = []
    everything = tuple(range(len(census.sizes)))
    for level, name in enumerate(census.spine.levels):
        estimate = tables.estimate.tables[level].reshape(len(census.spine.nodes[level]), -1)
        width = half_widths(tables.estimate, level, everything)[:, None]
        weak = float((estimate < width).mean())
        if weak:
            lines.append(
                f"{name}: {weak:.0%} of the single cells are smaller than their interval. Add cells up "
                "first."
            )
    lines.append("Differences of whole numbers: use the estimates, which are unbiased and have intervals.")
    return section(
        "Do not use the tables for", "<ul>", *(f"<li>{escape(line)}</li>" for line in lines), "</ul>"
    )
