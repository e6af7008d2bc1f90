"""The spine of a census, and best estimates of all its tables from noisy queries, with their variances.

The spine has levels of nodes, from the whole down to the smallest areas. It is public.

Claim    estimates are the least squares over the whole spine: unbiased, of the smallest variance among
         linear unbiased estimates, and consistent: a node's table is the sum of its children's.
         `variances` are those of continuous Gaussian noise of the same σ, and at least those of discrete
         noise.
Because  queries are alike within a level. A table is the sum of its effects (the mean over all other
         attributes, minus the effects of subsets). Noise of equal variance in all cells stays independent
         between effects and has one variance within each. So each effect is a number for itself, measured
         in every node, with sums over children: one pass up the tree combines each node with its children,
         and one pass down gives every node what its siblings know. An effect that a level lacks has an
         infinite variance there.
Test     tests/publish/census/test_least_squares.py: equal to dense least squares
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter

Wholes = NDArray[np.int64]
Floats = NDArray[np.float64]
Numbers = TypeVar("Numbers", Floats, Wholes)


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """Levels of nodes. `parents[k]` are the positions, in level k − 1, of the parents of level k's nodes.

    The first level has one node or more, and `parents[0]` is empty.
    """

    levels: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    parents: tuple[Wholes, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The nodes of the last level."""
        return self.nodes[-1]

    def ancestors(self, level: int) -> Wholes:
        """Return for each leaf the position of its ancestor in a level."""
        nodes = np.arange(len(self.leaves), dtype=np.int64)
        for number in range(len(self.levels) - 1, level, -1):
            nodes = self.parents[number][nodes]
        return nodes

    def sums(self, leaves: Wholes) -> list[Wholes]:
        """Return the tables of every level, from one row of cells for each leaf."""
        return [add_by_parent(leaves, self.ancestors(k), len(nodes)) for k, nodes in enumerate(self.nodes)]


def add_by_parent(values: Numbers, parents: Wholes, count: int) -> Numbers:
    """Return the sum of the rows of each of `count` parents, from the position of each row's parent."""
    total = np.zeros((count, *values.shape[1:]), values.dtype)
    np.add.at(total, parents, values)
    return total


def spine_of(table: Mapping[str, Sequence[str]]) -> Spine:
    """Return the spine of a public table: a column for each level, from the top, a row for each leaf.

    Raises BadParameter if a node has two parents, a leaf stands in two rows, or a node has no name.
    """
    levels = tuple(table)
    if not levels:
        raise BadParameter("spine", "must have a column for each level")
    rows = list(zip(*table.values(), strict=True))
    if not rows:
        raise BadParameter("spine", "has no nodes")
    nodes: list[tuple[str, ...]] = []
    parents: list[Wholes] = []
    above: dict[str, int] = {}
    for number, level in enumerate(levels):
        seen: dict[str, str] = {}
        for row in rows:
            if not isinstance(row[number], str) or not row[number]:
                raise BadParameter("spine", f'a node of level "{level}" has no name')
            parent = row[number - 1] if number else ""
            if seen.setdefault(row[number], parent) != parent:
                raise BadParameter("spine", f'node "{row[number][:60]}" of level "{level}" has two parents')
        names = tuple(sorted(seen))
        nodes.append(names)
        parents.append(np.array([above[seen[name]] for name in names] if number else [], np.int64))
        above = {name: k for k, name in enumerate(names)}
    if len(nodes[-1]) != len(rows):
        raise BadParameter("spine", f'a node of level "{levels[-1]}" stands in two rows')
    return Spine(levels, tuple(nodes), tuple(parents))


Query = tuple[int, ...]  # positions of the attributes that are not summed; () is the total
Sizes = tuple[int, ...]  # number of values of each attribute


@dataclass(frozen=True, slots=True, eq=False)
class LevelMeasurement:
    """Noisy answers of one level: for each query, a table for every node, and σ."""

    answers: Mapping[Query, Floats]
    sigmas: Mapping[Query, float]


@dataclass(frozen=True, slots=True, eq=False)
class SpineEstimate:
    """Estimated tables of every level, and the variance of each effect in every node.

    `least_sigma` is the least σ of all measurements.
    """

    sizes: Sizes
    tables: tuple[Floats, ...]
    effects: tuple[Mapping[Query, Floats], ...]
    least_sigma: float

    def variance(self, level: int, query: Query) -> Floats:
        """Return the variance of a cell of a query's answer, for each node of a level."""
        return answer_variance(self.sizes, self.effects[level], query)


def subsets(query: Query) -> list[Query]:
    """Return all subsets of a query's attributes, the smallest first."""
    return [part for size in range(len(query) + 1) for part in combinations(query, size)]


def cells_of(sizes: Sizes, query: Query) -> int:
    """Return the number of cells of a query's answer."""
    return math.prod(sizes[k] for k in query)


def own_variances(sizes: Sizes, sigmas: Mapping[Query, float]) -> dict[Query, float]:
    """Return the variance of each effect in one node's own answers; infinity if they lack it."""
    everything = tuple(range(len(sizes)))
    precision = dict.fromkeys(subsets(everything), 0.0)
    for query, sigma in sigmas.items():
        summed = cells_of(sizes, everything) / cells_of(sizes, query)
        for effect in subsets(query):
            noise = (sigma / summed) ** 2 * cells_of(sizes, effect) / cells_of(sizes, query)
            precision[effect] += 1 / noise
    return {effect: 1 / value if value else math.inf for effect, value in precision.items()}


def answer_variance(sizes: Sizes, effects: Mapping[Query, Floats], query: Query) -> Floats:
    """Return the variance of a cell of a query's answer, from the variances of effects."""
    summed = cells_of(sizes, tuple(range(len(sizes)))) / cells_of(sizes, query)
    parts = [
        effects[effect] * math.prod(sizes[k] - 1 for k in effect) / cells_of(sizes, effect)
        for effect in subsets(query)
    ]
    total: Floats = np.sum(parts, axis=0) * summed**2
    return total


def tree_variances(
    spine: Spine, own: Sequence[Floats | float]
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """Return the variances of one effect: from each node's subtree, of its children's sum, and in the end.

    `own` has the variance of each node's own measurement, by level. It does not depend on any answer, so
    errors are known before anything is measured.
    """
    counts = [len(names) for names in spine.nodes]
    below: list[Floats] = [np.zeros(0)] * len(counts)
    sums: list[Floats] = [np.zeros(0)] * len(counts)
    for level in reversed(range(len(counts))):
        mine = np.broadcast_to(np.asarray(own[level], float), (counts[level],))
        if level == len(counts) - 1:
            below[level], sums[level] = mine.copy(), np.full(counts[level], math.inf)
            continue
        sums[level] = np.bincount(spine.parents[level + 1], below[level + 1], counts[level]).astype(float)
        below[level] = _parallel(mine, sums[level])
    final = [below[0]]
    for level in range(1, len(counts)):
        parents = spine.parents[level]
        above, together = final[level - 1][parents], sums[level - 1][parents]
        gain = _share(below[level], together)
        final.append(below[level] - gain * below[level] + gain**2 * above)
    return below, sums, final


def _parallel(first: Floats, second: Floats) -> Floats:
    """Return the variance of the best mean of two measurements."""
    with np.errstate(divide="ignore", invalid="ignore"):
        variance: Floats = 1 / (1 / first + 1 / second)
    return variance


def _share(part: Floats, whole: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        share: Floats = np.where(whole > 0, part / whole, 0.0)
    return share


def estimate_spine(
    spine: Spine,
    sizes: Sizes,
    measured: Sequence[LevelMeasurement],
    known_totals: Mapping[int, Mapping[int, int]] | None = None,
) -> SpineEstimate:
    """Return the best estimates of all tables.

    The last level must measure all cells. Any other level may have few queries, or none: it is then
    estimated from the other levels. `known_totals` has public totals of nodes, by level and position:
    measurements without noise.
    """
    everything = tuple(range(len(sizes)))
    tables = [np.zeros((len(names), *sizes)) for names in spine.nodes]
    final: list[dict[Query, Floats]] = [{} for _ in spine.nodes]
    own = [own_variances(sizes, measurement.sigmas) for measurement in measured]
    values = [
        _own_effects(sizes, len(names), measurement, variances)
        for names, measurement, variances in zip(spine.nodes, measured, own, strict=True)
    ]
    for effect in subsets(everything):
        noise: list[Floats] = [
            np.full(len(names), own[level][effect]) for level, names in enumerate(spine.nodes)
        ]
        for level, totals in (known_totals or {}).items() if effect == () else ():
            for node, total in totals.items():
                noise[level][node] = 0.0
                values[level][effect][node] = total / cells_of(sizes, everything)
        solved, spread = _solve(spine, [of_node[effect] for of_node in values], noise)
        for level, part in enumerate(solved):
            tables[level] += part
            final[level][effect] = spread[level]
    least = min(sigma for measurement in measured for sigma in measurement.sigmas.values())
    return SpineEstimate(sizes, tuple(tables), tuple(final), least)


def _own_effects(
    sizes: Sizes, nodes: int, measured: LevelMeasurement, variances: Mapping[Query, float]
) -> dict[Query, Floats]:
    """Return each effect as one level's own answers measure it, in every node; 0 if they lack it."""
    everything = tuple(range(len(sizes)))
    effects = {
        effect: np.zeros((nodes, *(sizes[k] if k in effect else 1 for k in everything)))
        for effect in variances
    }
    for query, answers in measured.answers.items():
        summed = cells_of(sizes, everything) / cells_of(sizes, query)
        table = answers.reshape(nodes, *(sizes[k] if k in query else 1 for k in everything)) / summed
        for effect, part in _split(table, query).items():
            noise = (
                (measured.sigmas[query] / summed) ** 2 * cells_of(sizes, effect) / cells_of(sizes, query)
            )
            effects[effect] += part * (variances[effect] / noise)
    return effects


def _split(table: Floats, query: Query) -> dict[Query, Floats]:
    """Return the effects of a table of means."""
    effects: dict[Query, Floats] = {(): table}
    for attribute in query:
        parts: dict[Query, Floats] = {}
        for effect, part in effects.items():
            mean = part.mean(axis=attribute + 1, keepdims=True)
            parts[effect], parts[(*effect, attribute)] = mean, part - mean
        effects = parts
    return effects


def _solve(spine: Spine, own: list[Floats], noise: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Return the best estimates of one effect in all nodes, and their variances."""
    below, sums, final = tree_variances(spine, noise)
    last = len(own) - 1
    up: list[Floats] = [np.zeros(0)] * len(own)
    added: list[Floats] = [np.zeros(0)] * len(own)
    up[last] = own[last]
    for level in range(last - 1, -1, -1):
        added[level] = add_by_parent(up[level + 1], spine.parents[level + 1], len(own[level]))
        weight = _wide(np.where(noise[level] > 0, _share(below[level], noise[level]), 1.0), own[level])
        up[level] = np.where(weight > 0, weight * own[level], 0.0) + (1 - weight) * added[level]
    solved = [up[0]]
    for level in range(1, len(own)):
        parents = spine.parents[level]
        gain = _wide(_share(below[level], sums[level - 1][parents]), up[level])
        solved.append(up[level] + gain * (solved[level - 1] - added[level - 1])[parents])
    return solved, final


def _wide(values: Floats, like: Floats) -> Floats:
    return values.reshape(len(values), *(1 for _ in like.shape[1:]))
