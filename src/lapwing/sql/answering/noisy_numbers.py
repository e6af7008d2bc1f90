"""Noisy numbers: the outputs of a question's mechanisms on exact numbers.

Claim    the result of `add_noise` is the output of the mechanisms in `BudgetShares`, each on one vector (of
         both numbers for a pair; for choices, on each group alone). Of undeclared keys it has only those
         that were selected.
Because  nothing else is returned. Keys are sorted after selection, so that neither order nor number depends
         on hidden keys. Groups by declared keys are all there, also the empty ones.
Test     tests/sql/answering/test_noisy_numbers.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.errors import BadValue
from lapwing.sql.pricing.noise_shares import (
    BudgetShares,
)
from lapwing.sql.question.bound_query import (
    WantedCode,
    code_range,
    number_of_groups,
)
from lapwing.sql.reading.exact_numbers import CodeCounts, ExactGrouping, Ints, KeyTuple


@dataclass(frozen=True, slots=True)
class NoisyGrouping:
    """Noisy numbers of one grouping, which may be shown. `keys` is None if all keys are declared.

    A pair has the first numbers of all groups, then the second numbers of all groups.
    """

    parts: tuple[Ints, ...]
    codes: dict[WantedCode, Ints]
    keys: list[KeyTuple] | None
    groups: int


def add_noise(shares: BudgetShares, exact: Sequence[ExactGrouping]) -> list[NoisyGrouping]:
    """Return all groupings with fresh noise. Charge `shares.loss` first: each call is a release."""
    if len(exact) != len(shares.question.sets):
        raise BadValue("there must be exact values for every grouping of the question")
    return [_grouping(shares, s, grouping) for s, grouping in enumerate(exact)]


def _grouping(shares: BudgetShares, grouping: int, exact: ExactGrouping) -> NoisyGrouping:
    question = shares.question
    if exact.values.ndim != 2 or exact.values.shape[1] != question.numbers:
        raise BadValue("exact values must have one column for each number of each part")
    if len(exact.spectra) != len(question.spectra):
        raise BadValue("there must be counted codes for every spectrum")
    selection = shares.selection(grouping)
    keys: list[KeyTuple] | None = None
    if selection is None:
        shown, groups = None, number_of_groups(question, grouping)
        if len(exact.values) != groups:
            raise BadValue("exact values must have one row for every declared key")
    else:
        seen, units = exact.keys, exact.units
        if seen is None or units is None or not len(seen) == len(units) == len(exact.values):
            raise BadValue("undeclared keys must come with their numbers of units")
        kept = np.flatnonzero(selection.decide(units, keys=seen)).tolist()
        order = sorted(kept, key=lambda i: [_rank(value) for value in seen[i]])
        shown, groups, keys = np.array(order, dtype=np.int64), len(order), [seen[i] for i in order]
    parts, column = [], 0
    for place, part in enumerate(question.parts):
        mine = exact.values[:, column : column + len(part.numbers)]
        column += len(part.numbers)
        values = (mine if shown is None else mine[shown]).T.reshape(-1)
        parts.append(_sample(shares.mechanism(grouping, place), values))
    codes = {}
    spectra = [_by_group(counted, len(exact.values), shown) for counted in exact.spectra]
    for chosen in shares.chosen:
        if chosen.grouping == grouping:
            first, last = code_range(question, chosen.wanted.spectrum)
            answers = np.empty(groups, dtype=np.int64)
            for group, (points, rows) in enumerate(spectra[chosen.wanted.spectrum]):
                answers[group] = chosen.mechanism.sample_counts(points, rows)
            codes[chosen.wanted] = np.clip(answers, first, last)
    return NoisyGrouping(tuple(parts), codes, keys, groups)


def _rank(value: object) -> tuple[int, str, Any]:
    """Return a sort key for values of any type: NULL last, and never an error that reveals a value."""
    kind = "" if isinstance(value, int | float) else type(value).__name__
    return (1, "", 0) if value is None else (0, kind, value)


def _sample(mechanism: Laplace | Gaussian, values: NDArray[Any]) -> Ints:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    if isinstance(mechanism, Gaussian) and mechanism.dimension != len(values):
        # Its loss does not depend on how many keys were selected.
        mechanism = replace(mechanism, dimension=len(values))
    return mechanism.sample(values)


def _by_group(counted: CodeCounts, groups: int, shown: Ints | None) -> list[tuple[Ints, Ints]]:
    """Return the codes and rows of each shown group, also of empty ones."""
    order = np.argsort(counted.cells, kind="stable")
    cells, codes, rows = counted.cells[order], counted.codes[order], counted.rows[order]
    bounds = np.searchsorted(cells, np.arange(groups + 1))
    wanted = range(groups) if shown is None else shown.tolist()
    return [(codes[a:b], rows[a:b]) for a, b in ((bounds[g], bounds[g + 1]) for g in wanted)]
