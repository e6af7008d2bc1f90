"""The methods of synthesis: independent columns, a tree of pairs, and adaptively chosen marginals.

Claim    a method spends at most the source's budget ρ, and the released rows depend on private data only
         through the results of `measure` and `choose`.
Because  each step's noise is sized from what is left then; the source refuses a step beyond the budget; a
         method sees nothing else of the data.
Test     tests/publish/test_methods.py

`tree` follows MST (McKenna, Miklau and Sheldon 2021), `adaptive` follows AIM (McKenna, Mullins, Sheldon and
Miklau 2022). Both are written from the papers, with whole-number scores and exact noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import sqrt_up
from lapwing.errors import BadParameter
from lapwing.publish.last_choice import LastChoice
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.fitting import NoisyMarginal, fit
from lapwing.publish.models.graphical_model import GraphicalModel
from lapwing.publish.models.junction_tree import tree_cells
from lapwing.publish.models.marginal_source import (
    GRID,
    Candidate,
    MarginalSource,
    choosing_cost,
    measuring_cost,
)

STEPS_OF_A_ROUND = 100
STEPS_AT_THE_END = 1000
STEPS_FROM_NOTHING = 4000
BYTES_OF_A_CELL = 8
MEAN_OF_NOISE = math.sqrt(2 / math.pi)  # the mean absolute value of a Gaussian with σ = 1
ROUNDS_PER_COLUMN = 16
SIGMA_STEPS = 1 << 10  # σ and ε are multiples of 1/these: long fractions would slow exact noise down
EPSILON_STEPS = 1 << 30
SHARE_OF_MEASURING = Fraction(9, 10)  # of a round's ρ; the rest is for choosing

Impossible = Mapping[Clique, NDArray[np.bool_]]
Progress = Callable[[str, float], None]  # what is done now, and the share of the budget that is spent


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Noisy marginals, potentials of the last model, from which a fit can begin, and the last choice."""

    marginals: tuple[NoisyMarginal, ...]
    start: Mapping[Clique, NDArray[np.float64]]
    last: LastChoice | None = None


def fit_measured(
    domain: Domain, measured: Measured, impossible: Impossible, progress: Progress | None = None
) -> GraphicalModel:
    """Return the model that is fitted to all measured marginals."""
    steps = STEPS_AT_THE_END if measured.start else STEPS_FROM_NOTHING

    def tell(done: int, of: int) -> None:
        if progress is not None:
            progress("fitting", done / of)

    return fit(
        domain, measured.marginals, steps=steps, start=measured.start, impossible=impossible, progress=tell
    )


@dataclass(slots=True)
class _Run:
    """The state of a method: marginals measured so far, and the model fitted to them."""

    source: MarginalSource
    impossible: Impossible
    progress: Progress | None = None
    measured: list[NoisyMarginal] = field(default_factory=list)
    model: GraphicalModel | None = None
    last: LastChoice | None = None

    @property
    def domain(self) -> Domain:
        return self.source.domain

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        found = self.source.measure(clique, sigma)
        self.measured.append(found)
        self._tell(f"measured {' × '.join(clique)}")
        return found

    def fit(self, steps: int) -> GraphicalModel:
        start = None if self.model is None else self.model.potentials
        self.model = fit(self.domain, self.measured, steps=steps, start=start, impossible=self.impossible)
        return self.model

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        found = self.source.choose(candidates, epsilon)
        self._tell(f"chose {' × '.join(found)}")
        return found

    def end(self) -> Measured:
        start = {} if self.model is None else self.model.potentials
        return Measured(tuple(self.measured), start, self.last)

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            spent = 1 - self.source.left / self.source.budget
            self.progress(what, float(spent))


def independent(
    source: MarginalSource, *, impossible: Impossible | None = None, progress: Progress | None = None
) -> Measured:
    """Measure each column by itself. Rows are invented as if columns were independent."""
    run = _Run(source, impossible or {}, progress)
    _measure_columns(run, "independent")
    return run.end()


def tree(
    source: MarginalSource, *, impossible: Impossible | None = None, progress: Progress | None = None
) -> Measured:
    """Measure each column, choose the pairs of a spanning tree, and measure these pairs."""
    run = _Run(source, impossible or {}, progress)
    _measure_columns(run, "tree")
    model, columns = run.fit(STEPS_OF_A_ROUND), run.domain.columns
    pairs = {
        pair: Candidate(pair, rounded_to_grid(model.marginal(pair)))
        for pair in itertools.combinations(columns, 2)
    }
    parts = {name: frozenset((name,)) for name in columns}
    chosen: list[Clique] = []
    epsilon = largest_epsilon(source.budget / 3 / max(1, len(columns) - 1))
    for _ in columns[1:]:
        possible = [one for (left, right), one in pairs.items() if parts[left] != parts[right]]
        pair = run.choose(possible, epsilon)
        chosen.append(pair)
        joined = parts[pair[0]] | parts[pair[1]]
        parts.update(dict.fromkeys(joined, joined))
    for number, pair in enumerate(chosen):
        run.measure(pair, smallest_sigma(source.left / (len(chosen) - number), source.rows_per_unit))
    return run.end()


def adaptive(
    source: MarginalSource,
    *,
    workload: Iterable[Clique] | None = None,
    model_bytes: int = 4 << 20,
    impossible: Impossible | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure in rounds the marginal that the model knows worst, for as long as the budget lasts.

    Args:
        source: The private table.
        workload: The marginals that the rows are for. None: all of up to three columns.
        model_bytes: The largest size of the model's tables.
        impossible: Cells that no row may have.
        progress: Called after each step.
    """
    run, domain = _Run(source, impossible or {}, progress), source.domain
    weights = workload_weights(domain, workload)
    per_round = source.budget / (ROUNDS_PER_COLUMN * len(domain.columns))
    _measure_columns(run, "adaptive")
    model = run.fit(STEPS_OF_A_ROUND)
    is_last = False
    while not is_last:
        is_last = source.left < 2 * per_round
        per_round = source.left if is_last else per_round
        sigma = smallest_sigma(per_round * SHARE_OF_MEASURING, source.rows_per_unit)
        spent = 1 - source.left / source.budget
        small = _small_enough(domain, model, run, weights, int(spent * model_bytes) // BYTES_OF_A_CELL)
        candidates = [
            Candidate(
                clique, rounded_to_grid(model.marginal(clique)), weights[clique],
                round(GRID * MEAN_OF_NOISE * float(sigma) * domain.cells(clique)),
            )
            for clique in small
        ]  # fmt: skip
        epsilon = largest_epsilon(per_round * (1 - SHARE_OF_MEASURING))
        clique = run.choose(candidates, epsilon)
        before = model.marginal(clique)
        noisy = run.measure(clique, sigma)
        if is_last:
            run.last = LastChoice(tuple(candidates), noisy, epsilon, source.rows_per_unit)
        model = run.fit(STEPS_OF_A_ROUND)
        moved = float(np.abs(model.marginal(clique) - before).sum())
        if moved <= MEAN_OF_NOISE * noisy.sigma * before.size:
            per_round *= 4  # this noise hides what is still to be learnt: half of it from now on
    return run.end()


def _measure_columns(run: _Run, method: str) -> None:
    source = run.source
    sigma = first_sigma(method, source.budget, len(run.domain.columns), source.rows_per_unit)
    for name in run.domain.columns:
        run.measure((name,), sigma)


def first_sigma(method: str, budget: Fraction, columns: int, rows_per_unit: int) -> Fraction:
    """Return the σ with which a method measures single columns first."""
    shares = {
        "independent": Fraction(1),
        "tree": Fraction(1, 3),
        "adaptive": SHARE_OF_MEASURING / ROUNDS_PER_COLUMN,
    }
    return smallest_sigma(budget * shares[method] / columns, rows_per_unit)


def workload_weights(domain: Domain, workload: Iterable[Clique] | None) -> dict[Clique, int]:
    """Return every marginal inside the workload with its weight: the columns that they share."""
    if workload is None:
        most = min(3, len(domain.columns))
        wanted = list(itertools.combinations(domain.columns, most))
    else:
        wanted = list(dict.fromkeys(domain.clique(clique) for clique in workload))
    if not wanted:
        raise BadParameter("workload", "must have at least one marginal")
    inside = {
        part: 0 for clique in wanted for size in range(1, len(clique) + 1)
        for part in itertools.combinations(clique, size)
    }  # fmt: skip
    return {part: sum(len(set(part) & set(clique)) for clique in wanted) for part in inside}


def _small_enough(
    domain: Domain, model: GraphicalModel, run: _Run, weights: Mapping[Clique, int], cells: int
) -> list[Clique]:
    """Return the marginals with which the model stays small. Those that it has already cost nothing."""
    known = [one.clique for one in run.measured] + list(run.impossible)
    sizes: dict[frozenset[Clique], int] = {}  # by the pairs that a marginal joins anew
    joined = {pair for clique in known for pair in itertools.combinations(clique, 2)}

    def grown(clique: Clique) -> int:
        new = frozenset(pair for pair in itertools.combinations(clique, 2) if pair not in joined)
        if new not in sizes:
            sizes[new] = tree_cells(domain, [*known, clique])
        return sizes[new]

    return [
        clique for clique in weights
        if model.tree.holder(clique) is not None
        or (domain.cells(clique) <= cells and grown(clique) <= cells)
    ]  # fmt: skip


def rounded_to_grid(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the model's counts in whole steps of 1/GRID."""
    return np.rint(counts * GRID).astype(np.int64)


def smallest_sigma(rho: Fraction, rows_per_unit: int) -> Fraction:
    """Return a σ with few digits, rounded up, with which measuring one marginal costs at most ρ."""
    sigma = Fraction(math.ceil(sqrt_up(Fraction(rows_per_unit**2) / (2 * rho)) * SIGMA_STEPS), SIGMA_STEPS)
    assert measuring_cost(sigma, rows_per_unit) <= rho
    return sigma


def largest_epsilon(rho: Fraction) -> Fraction:
    """Return an ε with few digits, rounded down, with which one choice costs at most ρ."""
    epsilon = Fraction(math.floor(EPSILON_STEPS / sqrt_up(1 / (8 * rho))), EPSILON_STEPS)
    assert choosing_cost(epsilon) <= rho
    return epsilon
