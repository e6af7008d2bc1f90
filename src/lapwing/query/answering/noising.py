"""Exact numbers in, noisy ones out: each mechanism is called once for each grouping and part.

Claim    what comes out is the output of the mechanisms in `Shares`, each on one vector (of both numbers for
         a pair; for choices, on each group alone), and of undeclared keys only those that were selected.
Because  nothing else is returned: keys are sorted after selection, so that neither order nor number tells
         of those that stay hidden; groups by declared keys are all there, also the empty ones.
Test     tests/query/test_noising.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.query.answering.shares import Shares, Wanted, cells_of, ends_of

KeyTuple = tuple[Any, ...]
Ints = NDArray[np.int64]
# (what, grouping, part or wanted code, group) and the arrays that reached the mechanism
Record = Callable[[tuple[Any, ...], tuple[NDArray[Any], ...]], None]


@dataclass(frozen=True, slots=True)
class Counted:
    """A spectrum: code `codes[i]` stands in `rows[i]` rows of group `cells[i]`."""

    cells: Ints
    codes: Ints
    rows: Ints


@dataclass(frozen=True, slots=True)
class Exact:
    """What the engine found for one grouping. Private: it goes to `noise` and nowhere else.

    `values` is [groups, numbers of all parts], of int64 or of Python integers. By declared keys all groups
    are there, the last key running fastest, and `keys` is None. Otherwise `keys` are those that were seen,
    each once, and `units` says how many distinct units hold each.
    """

    values: NDArray[Any]
    spectra: tuple[Counted, ...] = ()
    keys: Sequence[KeyTuple] | None = None
    units: Ints | None = None


@dataclass(frozen=True, slots=True)
class Noisy:
    """What may be shown of one grouping. `keys` is None where all declared keys are answered.

    Of a pair there are first all groups' first numbers, then all groups' second ones.
    """

    parts: tuple[Ints, ...]
    codes: dict[Wanted, Ints]
    keys: list[KeyTuple] | None
    groups: int


def noise(shares: Shares, exact: Sequence[Exact], *, record: Record | None = None) -> list[Noisy]:
    """All groupings with fresh noise. Charge `shares.loss` first; a second call is a second release."""
    if len(exact) != len(shares.question.sets):
        raise BadValue("there must be exact values for every grouping of the question")
    return [_grouping(shares, s, found, record or _forget) for s, found in enumerate(exact)]


def _forget(_what: tuple[Any, ...], _arrays: tuple[NDArray[Any], ...]) -> None:
    """Records nothing."""


def _grouping(shares: Shares, grouping: int, found: Exact, record: Record) -> Noisy:
    question = shares.question
    if found.values.ndim != 2 or found.values.shape[1] != question.numbers:
        raise BadValue("exact values must have one column for each number of each part")
    if len(found.spectra) != len(question.spectra):
        raise BadValue("there must be counted codes for every spectrum")
    selection = shares.selection(grouping)
    keys: list[KeyTuple] | None = None
    if selection is None:
        shown, groups = None, cells_of(question, grouping)
        if len(found.values) != groups:
            raise BadValue("exact values must have one row for every declared key")
    else:
        seen, units = found.keys, found.units
        if seen is None or units is None or not len(seen) == len(units) == len(found.values):
            raise BadValue("undeclared keys must come with their numbers of units")
        record(("selection", grouping), (units,))
        kept = np.flatnonzero(selection.decide(units)).tolist()
        order = sorted(kept, key=lambda i: [_rank(value) for value in seen[i]])
        shown, groups, keys = np.array(order, dtype=np.int64), len(order), [seen[i] for i in order]
    parts, column = [], 0
    for place, part in enumerate(question.parts):
        mine = found.values[:, column : column + len(part.numbers)]
        column += len(part.numbers)
        values = (mine if shown is None else mine[shown]).T.reshape(-1)
        record(("part", grouping, place), (values,))
        parts.append(_added(shares.mechanism(grouping, place), values))
    codes = {}
    spectra = [_by_group(counted, len(found.values), shown) for counted in found.spectra]
    for chosen in shares.chosen:
        if chosen.grouping == grouping:
            first, last = ends_of(question, chosen.wanted.spectrum)
            answers = np.empty(groups, dtype=np.int64)
            for group, (points, rows) in enumerate(spectra[chosen.wanted.spectrum]):
                record(("choice", grouping, chosen.wanted, group), (points, rows))
                answers[group] = chosen.mechanism.sample_counts(points, rows)
            codes[chosen.wanted] = np.clip(answers, first, last)
    return Noisy(tuple(parts), codes, keys, groups)


def _rank(value: object) -> tuple[int, str, Any]:
    """Sorts keys of any types: NULL last, and never an error that could tell of a key."""
    kind = "" if isinstance(value, int | float) else type(value).__name__
    return (1, "", 0) if value is None else (0, kind, value)


def _added(mechanism: Laplace | Gaussian, values: NDArray[Any]) -> Ints:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    if isinstance(mechanism, Gaussian) and mechanism.dimension != len(values):
        # Its loss does not depend on how many keys were selected.
        mechanism = replace(mechanism, dimension=len(values))
    return mechanism.sample(values)


def _by_group(counted: Counted, groups: int, shown: Ints | None) -> list[tuple[Ints, Ints]]:
    """The codes and rows of each group (of each that is shown), also of those without any."""
    order = np.argsort(counted.cells, kind="stable")
    cells, codes, rows = counted.cells[order], counted.codes[order], counted.rows[order]
    bounds = np.searchsorted(cells, np.arange(groups + 1))
    wanted = range(groups) if shown is None else shown.tolist()
    return [(codes[a:b], rows[a:b]) for a, b in ((bounds[g], bounds[g + 1]) for g in wanted)]
