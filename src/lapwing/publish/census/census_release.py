"""Census tables: one charged measurement of every level, then estimates and whole tables for free.

Claim    the release loses exactly ρ = Σ K² / 2σ² over all levels and queries of any privacy unit with K
         rows. Everything after the measurement is post-processing.
Because  the nodes of a level are but more cells of one table: K rows move one query of a level by at most K
         in L2, wherever they are. Queries are measured with independent exact Gaussian noise, and zCDP
         adds up. The stored answer is all noisy numbers, and tables are made from it and from public facts
         alone.
Test     tests/publish/census/test_census_release.py

Claim    no charge is lost to a mistake in the file: names, noise and facts are refused before the charge.
Because  `bind_census` and `require_noise` check all that measuring and making tables rely on, and neither
         reads a private row.
Test     tests/publish/census/test_census_release.py
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import sqrt_up
from lapwing.errors import BadParameter
from lapwing.ledger import ChargedRead, Gate, Release
from lapwing.publish.bound_release import BoundRelease
from lapwing.publish.census import least_squares
from lapwing.publish.census.least_squares import LevelMeasurement, Query, Sizes, Spine, Wholes
from lapwing.publish.census.whole_tables import SpineFacts, total_bounds, whole_tables
from lapwing.publish.measured.private_marginals import exact_text, measuring
from lapwing.publish.measured.published_column import dictionary_digest
from lapwing.publish.release_file import CELLS, TIMES, TOTAL, CensusSettings
from lapwing.sql import row_questions
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.question.public_tables import PublicTable, code_of

ANSWER_FORM = "lapwing census tables 1"
MOST_CELLS = 4096  # of one node
MOST_NUMBERS = 50_000_000  # of all nodes
MOST_TOTAL = 10**12  # of a node, if it is public
SIGMA_STEPS = 1 << 20
ALL = "all"  # in tables: the sum over all values of a column
NUMBERS = ("estimate", "low", "high", "whole_number")  # columns of tables
EMPTY = "empty"  # a column of the table of areas


@dataclass(frozen=True, slots=True, eq=False)
class BoundCensus:
    """A census that can be run: the release, its spine, its queries with shares of ρ, and its facts."""

    release: BoundRelease
    spine: Spine
    shares: tuple[Mapping[Query, Fraction], ...]
    facts: SpineFacts
    leaf_codes: Wholes  # the code of each leaf in the column of areas, ascending
    leaf_order: Wholes  # and its position among the leaves

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells of each column."""
        return tuple(column.size for column in self.release.columns)

    def sigmas(self, rho: Fraction) -> tuple[dict[Query, Fraction], ...]:
        """Return σ of each query of each level, rounded up."""
        rows = self.release.rows_per_unit
        return tuple(
            {query: _sigma(share * rho, rows) for query, share in level.items()} for level in self.shares
        )

    def require_noise(self, rho: Fraction) -> None:
        """Refuse a ρ that the Gaussian mechanism has no noise for. Nothing is charged."""
        for level, sigmas in zip(self.spine.levels, self.sigmas(rho), strict=True):
            for query, sigma in sigmas.items():
                try:
                    measuring(sigma, self.release.rows_per_unit, 1)
                except BadParameter:
                    raise BadParameter(
                        f"census.shares.{level}",
                        f'"{self.query_name(query)}" would get noise with σ {float(sigma):.2g}, which must '
                        "lie between 1e-6 and 2^48. Change its share, or leave it out",
                    ) from None

    def query_name(self, query: Query) -> str:
        """Return the name of a query: "total", "cells", or its columns."""
        if not query:
            return TOTAL
        if len(query) == len(self.release.columns):
            return CELLS
        return TIMES.join(self.release.columns[k].name for k in query)


def _sigma(rho: Fraction, rows_per_unit: int) -> Fraction:
    return Fraction(math.ceil(sqrt_up(Fraction(rows_per_unit**2) / (2 * rho)) * SIGMA_STEPS), SIGMA_STEPS)


def bind_census(release: BoundRelease) -> BoundCensus:
    """Bind a census to its public spine. Raises BadParameter, with the key of the file that is wrong."""
    settings = release.file.census
    assert settings is not None
    public = release.dataset.curator.public.get(settings.spine)
    if public is None:
        raise BadParameter("census.spine", f'"{settings.spine}" is no public table of the policy')
    for name in (*settings.levels, *([settings.empty] if settings.empty else [])):
        if name not in public.values:
            raise BadParameter("census.spine", f'"{settings.spine}" has no column "{name[:60]}"')
    _require_names(release, settings)
    named = {level: [_node(value) for value in public.values[level]] for level in settings.levels}
    spine = least_squares.spine_of(named)
    cells = math.prod(column.size for column in release.columns)
    if cells > MOST_CELLS or cells * sum(map(len, spine.nodes)) > MOST_NUMBERS:
        raise BadParameter(
            "rows",
            f"gives {cells:,} cells for each of {len(spine.leaves):,} areas, which is too much. Use bins",
        )
    shares = tuple(_queries(release, settings.shares.get(level, {}), level) for level in settings.levels)
    codes, order = _leaf_codes(release, settings, public, spine)
    facts = _facts(release, settings, public, spine)
    census = BoundCensus(release, spine, shares, facts, codes, order)
    if release.file.rho is not None:
        census.require_noise(release.file.rho)
    return census


def _require_names(release: BoundRelease, settings: CensusSettings) -> None:
    """Refuse names that tables or queries of a census use themselves."""
    for level in settings.levels:
        if level in (*NUMBERS, EMPTY):
            raise BadParameter(
                "census.levels",
                f'"{level}" is a column that census tables have anyway. Rename it in the spine',
            )
    for column in release.columns:
        if column.name in (*settings.levels, *NUMBERS) or ALL in map(column.label, range(column.size)):
            raise BadParameter(
                "rows",
                f'column "{column.name}" has a name or a value that census tables use themselves. Rename '
                "it with AS",
            )
        if column.name in (TOTAL, CELLS) or TIMES in column.name or column.name != column.name.strip():
            raise BadParameter(
                "rows",
                f'column "{column.name[:60]}" has a name that means something else in [census.shares]: '
                f'"{TOTAL}", "{CELLS}", or with "{TIMES}" or spaces around it. Rename it with AS',
            )


def _node(value: object) -> str:
    return "" if value is None else str(value)


def _queries(release: BoundRelease, shares: Mapping[str, Fraction], level: str) -> dict[Query, Fraction]:
    names = [column.name for column in release.columns]
    queries: dict[Query, Fraction] = {}
    for name, share in shares.items():
        try:
            query = query_of(name, names)
        except KeyError:
            raise BadParameter(
                f"census.shares.{level}", f'"{name[:60]}" is neither "total", "cells" nor published columns'
            ) from None
        if share:
            queries[query] = queries.get(query, Fraction(0)) + share
    return queries


def _leaf_codes(
    release: BoundRelease, settings: CensusSettings, public: PublicTable, spine: Spine
) -> tuple[Wholes, Wholes]:
    kind = release.question.columns[settings.area]
    values = public.values[settings.levels[-1]]
    by_name = {name: k for k, name in enumerate(spine.leaves)}
    pairs = sorted(
        (code, by_name[_node(value)]) for value in values if isinstance(code := code_of(value, kind), int)
    )
    if len(pairs) != len(values):
        raise BadParameter(
            "census.area",
            f'"{settings.area}" cannot have all values of "{settings.levels[-1]}" of the spine',
        )
    if len({code for code, _ in pairs}) < len(pairs):
        raise BadParameter(
            "census.area",
            f'"{settings.area}" cannot tell all values of "{settings.levels[-1]}" of the spine apart. '
            "Declare a smaller step",
        )
    return np.array([code for code, _ in pairs], np.int64), np.array([leaf for _, leaf in pairs], np.int64)


def _facts(
    release: BoundRelease, settings: CensusSettings, public: PublicTable, spine: Spine
) -> SpineFacts:
    totals = public_totals(settings, spine)
    leaves = np.zeros(len(spine.leaves), np.bool_)
    if settings.empty is not None:
        flags = dict(
            zip(map(_node, public.values[settings.levels[-1]]), public.values[settings.empty], strict=True)
        )
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise BadParameter("census.empty", f'"{settings.empty}" must be true or false in every row')
        leaves = np.array([flags[name] for name in spine.leaves], np.bool_)
    facts = SpineFacts(empty_nodes(spine, leaves), tuple(totals), _impossible(release))
    total_bounds(spine, facts)
    return facts


def empty_nodes(spine: Spine, leaves: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], ...]:
    """Return which nodes of every level are empty, since all of their smallest areas are."""
    empty = []
    for number, nodes in enumerate(spine.nodes):
        full = np.bincount(spine.ancestors(number)[~leaves], minlength=len(nodes))
        empty.append(full == 0)
    return tuple(empty)


def public_totals(settings: CensusSettings, spine: Spine) -> list[Wholes]:
    """Return the totals that are public, by level; −1 where a total is not."""
    totals = [np.full(len(names), -1, np.int64) for names in spine.nodes]
    for level, known in (settings.totals or {}).items():
        number = settings.levels.index(level)
        places = {name: k for k, name in enumerate(spine.nodes[number])}
        for node, total in known.items():
            if node not in places:
                raise BadParameter(f"census.totals.{level}", f'there is no node "{node[:60]}"')
            if total > MOST_TOTAL:
                raise BadParameter(
                    f"census.totals.{level}", f'"{node[:60]}" has more rows than {MOST_TOTAL:,}. Correct it'
                )
            totals[number][places[node]] = total
    return totals


def _impossible(release: BoundRelease) -> NDArray[np.bool_]:
    names, sizes = [column.name for column in release.columns], [column.size for column in release.columns]
    mask = np.zeros(sizes, np.bool_)
    for clique, cells in release.impossible.items():
        mask |= cells.reshape(
            [size if name in clique else 1 for name, size in zip(names, sizes, strict=True)]
        )
    if mask.all():
        raise BadParameter("impossible", "leaves no cell: there could be no rows")
    return mask.ravel()


# Planning


def expected_errors(census: BoundCensus, rho: Fraction) -> list[dict[str, float]]:
    """Return for each level the expected absolute error of a cell of each query, before rounding."""
    own = [
        least_squares.own_variances(census.sizes, {query: float(sigma) for query, sigma in level.items()})
        for level in census.sigmas(rho)
    ]
    everything = tuple(range(len(census.sizes)))
    final = {
        effect: least_squares.tree_variances(census.spine, [level[effect] for level in own])[2]
        for effect in least_squares.subsets(everything)
    }
    by_level = []
    for number in range(len(census.spine.levels)):
        effects, errors = {effect: variances[number] for effect, variances in final.items()}, {}
        for query in least_squares.subsets(everything):
            variance = least_squares.answer_variance(census.sizes, effects, query)
            errors[census.query_name(query)] = float(np.mean(np.sqrt(2 / math.pi * variance)))
        by_level.append(errors)
    return by_level


def least_rho(census: BoundCensus, wanted: Mapping[str, Fraction]) -> Fraction:
    """Return the least ρ, rounded up, at which the expected error of totals is as wanted at each level.

    With fixed shares, every error falls like 1/√ρ.
    """
    errors = expected_errors(census, Fraction(1))
    ratios = [
        (Fraction(errors[census.spine.levels.index(level)][TOTAL]) / most) ** 2
        for level, most in wanted.items()
    ]
    return Fraction(math.ceil(max(ratios) * 10**6 * Fraction(1001, 1000)), 10**6)


# Measuring


def measure_census(census: BoundCensus, rho: Fraction) -> Release:
    """Charge ρ, measure every level, and store all noisy numbers; or return those of this name."""
    census.require_noise(rho)
    bound, dataset = census.release, census.release.dataset
    with dataset.curator.keeping_open():
        version = row_questions.version_under(dataset, bound.question, bound.key)
        charged = ChargedRead(
            gate=Gate(dataset.ledger, principal=dataset.analyst, pads=True),
            spending=bound.spending(rho, version),
            key=bound.key,
            version=version,
            current_version=dataset.version,
        )

        def read() -> row_questions.PrivateRows:
            return row_questions.read_rows(dataset, bound.question)

        return charged.release(read, lambda rows: census_answer(census, rho, rows))


def census_answer(census: BoundCensus, rho: Fraction, rows: row_questions.PrivateRows) -> bytes:
    """Measure every level, and return the answer to be stored. Charge ρ first: each call is a release."""
    levels = []
    for table, sigmas in zip(level_tables(census, rows), census.sigmas(rho), strict=True):
        queries = []
        for query, sigma in sigmas.items():
            counts = table.sum(
                axis=tuple(k + 1 for k in range(len(census.sizes)) if k not in query)
            ).ravel()
            mechanism = measuring(sigma, census.release.rows_per_unit, len(counts))
            noisy = mechanism.sample(counts)
            queries.append(
                {"query": census.query_name(query), "sigma": str(sigma), "values": noisy.tolist()}
            )
        levels.append({"queries": queries})
    said = {
        "form": ANSWER_FORM,
        "name": census.release.file.name,
        "rows_per_unit": census.release.rows_per_unit,
        "rho": str(rho),
        "columns": {column.name: column.size for column in census.release.columns},
        "dictionary": dictionary_digest(census.release.columns, census.release.rows_per_unit),
        "spine": spine_digest(census.spine, census.facts.empty[-1]),
        "levels": [
            {"level": name, "nodes": len(nodes), **level}
            for name, nodes, level in zip(census.spine.levels, census.spine.nodes, levels, strict=True)
        ],
    }
    return canonical_json(said).encode()


def spine_digest(spine: Spine, empty: NDArray[np.bool_]) -> str:
    """Return a digest of all nodes, their parents, and which smallest areas are empty by a public fact."""
    said = [spine.levels, spine.nodes, [parents.tolist() for parents in spine.parents], empty.tolist()]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def area_notes(question: row_questions.RowQuestion, area: str) -> list[str]:
    """Return what a reader must know about the areas that rows are counted in."""
    if not isinstance(question.columns[area], Numeric):
        return []
    counted = "rows with a number beyond its declared bounds are counted in the area at the bound"
    return [f"{area} is a number: {counted}, if there is one"]


def level_tables(census: BoundCensus, rows: row_questions.PrivateRows) -> list[Wholes]:
    """Return the exact counts of every node of every level. Private.

    Rows whose area is unknown or not in the spine are left out. A number beyond its declared bounds is
    clamped when it is read: such rows are counted in the area at the bound, if there is one.
    """
    settings = census.release.file.census
    assert settings is not None
    area = rows.columns[settings.area]
    places = np.searchsorted(census.leaf_codes, area.codes)
    places = np.minimum(places, len(census.leaf_codes) - 1)
    known = area.known & (census.leaf_codes[places] == area.codes)
    kept = rows.where(known)
    leaves = census.leaf_order[places[known]]
    for column in census.release.columns:
        if not column.has_unknown:
            keep = kept.columns[column.name].known
            kept, leaves = kept.where(keep), leaves[keep]
    cells = census.release.cells(kept)
    size = least_squares.cells_of(census.sizes, tuple(range(len(census.sizes))))
    flat = np.ravel_multi_index(tuple(cells.T), census.sizes) if len(cells) else np.zeros(0, np.int64)
    count = len(census.spine.leaves)
    counted = (
        np.bincount(leaves * size + flat, minlength=count * size).reshape(count, size).astype(np.int64)
    )
    return [table.reshape(len(table), *census.sizes) for table in census.spine.sums(counted)]


# Tables from a stored answer


@dataclass(frozen=True, slots=True, eq=False)
class CensusTables:
    """Estimates with variances, whole tables of all levels, and the release that they come from."""

    estimate: least_squares.SpineEstimate
    wholes: Sequence[Wholes]
    release: Release


def query_of(name: str, columns: Sequence[str]) -> Query:
    """Return the query of a name: "total", "cells", or columns joined by *. Raises KeyError for others."""
    if name == TOTAL:
        return ()
    if name == CELLS:
        return tuple(range(len(columns)))
    places = {column: place for place, column in enumerate(columns)}
    return tuple(sorted({places[part.strip()] for part in name.split(TIMES)}))


def read_levels(answer: Mapping[str, Any], columns: Sequence[str], sizes: Sizes) -> list[LevelMeasurement]:
    """Return the noisy numbers of a stored answer."""
    measured = []
    for level in answer["levels"]:
        answers, sigmas = {}, {}
        for record in level["queries"]:
            query = query_of(record["query"], columns)
            shape = (level["nodes"], *(sizes[k] for k in query))
            answers[query] = np.array(record["values"], float).reshape(shape)
            sigmas[query] = float(exact_text(record["sigma"]))
        measured.append(LevelMeasurement(answers, sigmas))
    return measured


def known_totals(totals: Sequence[Wholes]) -> dict[int, dict[int, int]]:
    """Return public totals by level and position, from arrays with −1 where a total is not public."""
    return {
        number: {int(node): int(of_level[node]) for node in np.flatnonzero(of_level >= 0)}
        for number, of_level in enumerate(totals)
        if (of_level >= 0).any()
    }


def tables_from_answer(census: BoundCensus, release: Release) -> CensusTables:
    """Return estimates and whole tables from a stored answer. No private data is read."""
    answer = json.loads(release.answer)
    if answer.get("form") != ANSWER_FORM or answer["spine"] != spine_digest(
        census.spine, census.facts.empty[-1]
    ):
        raise BadParameter("census.spine", "is not the one that was measured. Change it back")
    names, known = [column.name for column in census.release.columns], known_totals(census.facts.totals)
    measured = read_levels(answer, names, census.sizes)
    estimate = least_squares.estimate_spine(census.spine, census.sizes, measured, known)
    flat = [table.reshape(len(table), -1) for table in estimate.tables]
    return CensusTables(estimate, whole_tables(census.spine, flat, census.facts), release)
