"""The methods of synthesis: independent columns, a tree of pairs, and adaptively chosen marginals.

Claim    a method spends at most the source's budget ρ, and the released rows depend on private data only
         through the results of `measure` and `choose`.
Because  each step's noise is sized from what is left then; the source refuses a step beyond the budget; a
         method sees nothing else of the data.
Test     tests/publish/test_methods.py

Claim    a run that lost any step in a crash still measures everything that its method measures, within the
         budget.
Because  a step takes its share of what is left (`affordable`), never all of it: a part is kept aside, and
         from that part each step takes at most half.
Test     tests/publish/test_methods.py::test_a_run_that_was_killed_at_any_step_finishes

`tree` follows MST (McKenna, Miklau and Sheldon 2021), `adaptive` follows AIM (McKenna, Mullins, Sheldon and
Miklau 2022). Both are written from the papers, with whole-number scores and exact noise.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import sqrt_up
from lapwing.core.losses import LARGEST_EPSILON
from lapwing.errors import BadParameter
from lapwing.publish.measured.private_marginals import (
    GRID,
    Candidate,
    MarginalSource,
    choosing_cost,
    measuring_cost,
)
from lapwing.publish.models.domain import Clique, Domain, tree_cells
from lapwing.publish.models.graphical_model import Floats, GraphicalModel, NoisyMarginal, fit

Marginals = Callable[[Clique], Floats]  # the published counts of some columns


@dataclass(frozen=True, slots=True, eq=False)
class LastChoice:
    """The candidates of the last round, the marginal that was chosen and measured, and the choice's ε.

    Claim    with the given confidence, every candidate of the last round is within its bound: the L1
             distance between its private counts and the published counts is at most that number.
    Because  the exponential mechanism with ε and sensitivity Δ chooses among n candidates one whose score
             is within (2Δ/ε)(ln n + ln(1/β)) of the best, except with probability β. The chosen marginal
             was then measured: its distance to the model is at most the distance of the noisy counts plus
             a sum of noises with fixed signs, which is sub-Gaussian and at most σ √(2 m ln(1/β)) for m
             cells, except with probability β. Solving the score for the distance gives a bound for the
             model of that round; what is published differs from it by a known distance (triangle
             inequality). McKenna et al. 2022, theorem 4.
    Test     tests/publish/test_methods_last_choice.py
    """

    candidates: tuple[Candidate, ...]
    measured: NoisyMarginal
    epsilon: Fraction
    rows_per_unit: int

    def bounds(self, published: Marginals, confidence: float = 0.95) -> dict[Clique, float]:
        """Return for each candidate that was not chosen the greatest L1 error of its published counts."""
        miss = (1 - confidence) / 2  # half for the choice, half for the measurement
        heaviest = max(candidate.weight for candidate in self.candidates)
        sensitivity = GRID * self.rows_per_unit * heaviest
        slack = 2 * sensitivity / float(self.epsilon) * math.log(len(self.candidates) / miss)
        chosen = next(
            candidate for candidate in self.candidates if candidate.clique == self.measured.clique
        )
        seen = float(np.abs(GRID * self.measured.counts.ravel() - chosen.expected.ravel()).sum())
        noise = GRID * self.measured.sigma * math.sqrt(2 * self.measured.counts.size * math.log(1 / miss))
        best = chosen.weight * (seen + noise - chosen.penalty) + slack
        bounds = {}
        for candidate in self.candidates:
            if candidate.clique != chosen.clique:
                then = max(0.0, (candidate.penalty + best / candidate.weight) / GRID)
                moved = np.abs(
                    published(candidate.clique).ravel() - candidate.expected.ravel() / GRID
                ).sum()
                bounds[candidate.clique] = then + float(moved)
        return bounds


STEPS_OF_A_ROUND = 100
STEPS_AT_THE_END = 1000
STEPS_FROM_NOTHING = 4000
BYTES_OF_A_CELL = 8
MEAN_OF_NOISE = math.sqrt(2 / math.pi)  # the mean absolute value of a Gaussian with σ = 1
ROUNDS_PER_COLUMN = 16
SIGMA_STEPS = 1 << 10  # σ and ε are multiples of 1/these: long fractions would slow exact noise down
EPSILON_STEPS = 1 << 30
SHARE_OF_MEASURING = Fraction(9, 10)  # of a round's ρ; the rest is for choosing
SPARE = Fraction(1, 256)  # of the budget, for the steps that follow a crash
MOST_SIGMA = 1 << 32  # noise of billions of rows in each count says nothing
MOST_COLUMNS_OF_A_MARGINAL = 6
MOST_CANDIDATES = 10_000  # marginals that are scored in a round
MOST_CANDIDATE_CELLS = 1 << 26  # of all of them together, and of a model
MOST_LINKED = 32  # columns that impossible cells connect, up to which a tree's circles are tried
LARGEST_COUNT = 1 << 40  # of the model; larger ones are cut

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

    def measure(self, clique: Clique, rho: Fraction) -> NoisyMarginal:
        marginal = self.source.measure(clique, smallest_sigma(rho, self.source.rows_per_unit))
        self.measured.append(marginal)
        self._tell(f"measured {' × '.join(clique)}")
        return marginal

    def fit(self, steps: int) -> GraphicalModel:
        start = None if self.model is None else self.model.potentials
        self.model = fit(self.domain, self.measured, steps=steps, start=start, impossible=self.impossible)
        return self.model

    def choose(self, candidates: Sequence[Candidate], rho: Fraction) -> Clique:
        clique = self.source.choose(candidates, largest_epsilon(rho))
        self._tell(f"chose {' × '.join(clique)}")
        return clique

    def end(self) -> Measured:
        start = {} if self.model is None else self.model.potentials
        return Measured(tuple(self.measured), start, self.last)

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            spent = 1 - self.source.left / self.source.budget
            self.progress(what, float(spent))


def affordable(source: MarginalSource) -> Fraction:
    """Return the ρ that all steps to go may spend together: what is left, without a part for after a crash.

    After a crash near the end, only that part is left. Then it is half of it, so that it never ends.
    """
    return max(source.left - source.budget * SPARE, source.left / 2)


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
    """Measure each column, choose the pairs of a spanning tree, and measure these pairs.

    Where impossible cells join columns already, a pair is left out if the model would become too large.
    """
    run = _Run(source, impossible or {}, progress)
    _measure_columns(run, "tree")
    model, domain = run.fit(STEPS_OF_A_ROUND), run.domain
    pairs = {
        pair: Candidate(pair, rounded_to_grid(model.marginal(pair)))
        for pair in itertools.combinations(domain.columns, 2)
    }
    chosen: list[Clique] = []
    most = len(domain.columns) - 1
    for to_choose in range(most, 0, -1):
        parts = _connected(domain, chosen)
        linked = _connected(domain, [*chosen, *run.impossible])
        possible = [
            candidate for (left, right), candidate in pairs.items()
            if parts[left] != parts[right]
            and (linked[left] != linked[right] or _stays_small(run, chosen, candidate.clique, linked[left]))
        ]  # fmt: skip
        if not possible:
            break
        chosen.append(run.choose(possible, affordable(source) / (to_choose + most)))
    for number, pair in enumerate(chosen):
        run.measure(pair, affordable(source) / (len(chosen) - number))
    return run.end()


def _connected(domain: Domain, cliques: Iterable[Clique]) -> dict[str, frozenset[str]]:
    """Return for each column the columns that a chain of cliques connects with it."""
    parts = {name: frozenset((name,)) for name in domain.columns}
    for clique in cliques:
        joined = frozenset().union(*(parts[name] for name in clique))
        parts.update(dict.fromkeys(joined, joined))
    return parts


def _stays_small(run: _Run, chosen: list[Clique], pair: Clique, linked: frozenset[str]) -> bool:
    """Return whether the model stays small with a pair that closes a circle through impossible cells."""
    if any(set(pair) <= set(clique) for clique in run.impossible):
        return True  # the model has it already
    if len(linked) > MOST_LINKED:
        return False
    names = run.domain.clique(linked)
    known = [clique for clique in (*run.impossible, *chosen, pair) if set(clique) <= linked]
    return tree_cells(Domain(names, run.domain.shape(names)), known) <= MOST_CANDIDATE_CELLS


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
    per_round = source.budget * (1 - SPARE) / (ROUNDS_PER_COLUMN * len(domain.columns))
    _measure_columns(run, "adaptive")
    model = run.fit(STEPS_OF_A_ROUND)
    is_last = False
    while not is_last:
        left = affordable(source)
        is_last = left < 2 * per_round
        per_round = left if is_last else per_round
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
        rho = per_round * (1 - SHARE_OF_MEASURING)
        clique = run.choose(candidates, rho)
        before = model.marginal(clique)
        noisy = run.measure(clique, min(per_round * SHARE_OF_MEASURING, affordable(source)))
        if is_last:
            run.last = LastChoice(tuple(candidates), noisy, largest_epsilon(rho), source.rows_per_unit)
        model = run.fit(STEPS_OF_A_ROUND)
        moved = float(np.abs(model.marginal(clique) - before).sum())
        if moved <= MEAN_OF_NOISE * noisy.sigma * before.size:
            per_round *= 4  # this noise hides what is still to be learnt: half of it from now on
    return run.end()


def _measure_columns(run: _Run, method: str) -> None:
    names = run.domain.columns
    share = _share_of_columns(method, len(names)) / len(names)
    for number, name in enumerate(names):
        run.measure((name,), affordable(run.source) * share / (1 - number * share))


def _share_of_columns(method: str, columns: int) -> Fraction:
    """Return the share of the budget with which a method measures single columns."""
    if method == "adaptive":
        return SHARE_OF_MEASURING / ROUNDS_PER_COLUMN
    return Fraction(1, 3) if method == "tree" and columns > 1 else Fraction(1)


def first_sigma(method: str, budget: Fraction, columns: int, rows_per_unit: int) -> Fraction:
    """Return the σ with which a method measures single columns first: its largest, if no step is lost."""
    share = (1 - SPARE) * _share_of_columns(method, columns) / columns
    return smallest_sigma(budget * share, rows_per_unit)


def require_small_candidates(
    domain: Domain, method: str, workload: Iterable[Clique] | None, model_bytes: int
) -> None:
    """Refuse a workload that is too large to be scored. It depends on declarations alone."""
    names = domain.columns
    if method == "adaptive":
        if workload is None and math.comb(len(names), min(3, len(names))) > MOST_CANDIDATES:
            raise BadParameter(
                "synthetic.workload",
                f"is needed: {len(names)} columns have {math.comb(len(names), 3):,} marginals of three, "
                f"and at most {MOST_CANDIDATES:,} can be scored. Name the marginals that the rows are for",
            )
        cells = model_bytes // BYTES_OF_A_CELL
        sizes = [domain.cells(clique) for clique in workload_weights(domain, workload)]
        if len(sizes) > MOST_CANDIDATES:
            raise BadParameter(
                "synthetic.workload",
                f"has {len(sizes):,} marginals inside it, and at most {MOST_CANDIDATES:,} can be scored. "
                "Name fewer",
            )
        total = sum(size for size in sizes if size <= cells)
    else:
        total = sum(map(domain.cells, itertools.combinations(names, 2))) if method == "tree" else 0
    if total > MOST_CANDIDATE_CELLS:
        raise BadParameter(
            "columns",
            f"have {total:,} cells in all marginals that would be scored, and at most "
            f"{MOST_CANDIDATE_CELLS:,} are possible. Use fewer columns or bins, or a smaller workload",
        )


def workload_weights(domain: Domain, workload: Iterable[Clique] | None) -> dict[Clique, int]:
    """Return every marginal inside the workload with its weight: the columns that they share."""
    if workload is None:
        most = min(3, len(domain.columns))
        wanted = list(itertools.combinations(domain.columns, most))
    else:
        wanted = list(dict.fromkeys(_workload_clique(domain, clique) for clique in workload))
    if not wanted:
        raise BadParameter("workload", "must have at least one marginal")
    inside = {
        part: 0 for clique in wanted for size in range(1, len(clique) + 1)
        for part in itertools.combinations(clique, size)
    }  # fmt: skip
    times = Counter(name for clique in wanted for name in clique)
    return {part: sum(times[name] for name in part) for part in inside}


def _workload_clique(domain: Domain, columns: Iterable[str]) -> Clique:
    names = tuple(columns)
    for name in names:
        if name not in domain.columns:
            raise BadParameter("synthetic.workload", f'"{name}" is not a published column')
    if len(set(names)) > MOST_COLUMNS_OF_A_MARGINAL:
        raise BadParameter(
            "synthetic.workload",
            f"has a marginal of {len(set(names))} columns, and at most {MOST_COLUMNS_OF_A_MARGINAL} are "
            "possible",
        )
    return domain.clique(names)


def _small_enough(
    domain: Domain, model: GraphicalModel, run: _Run, weights: Mapping[Clique, int], cells: int
) -> list[Clique]:
    """Return the marginals with which the model stays small. Those that it has already cost nothing."""
    known = [marginal.clique for marginal in run.measured] + list(run.impossible)
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
    """Return the model's counts in whole steps of 1/GRID, cut to ±LARGEST_COUNT.

    A model is made of released numbers, so this error tells nothing of private rows.
    """
    if not np.isfinite(counts).all():
        raise ArithmeticError("the fitted model has counts that are no numbers. Please report it as a bug")
    return np.rint(np.clip(counts, -LARGEST_COUNT, LARGEST_COUNT) * GRID).astype(np.int64)


def smallest_sigma(rho: Fraction, rows_per_unit: int) -> Fraction:
    """Return a σ with few digits, rounded up, with which measuring one marginal costs at most ρ."""
    sigma = Fraction(math.ceil(sqrt_up(Fraction(rows_per_unit**2) / (2 * rho)) * SIGMA_STEPS), SIGMA_STEPS)
    assert measuring_cost(sigma, rows_per_unit) <= rho
    return sigma


def largest_epsilon(rho: Fraction) -> Fraction:
    """Return an ε with few digits, rounded down, with which one choice costs at most ρ."""
    epsilon = Fraction(math.floor(EPSILON_STEPS / sqrt_up(1 / (8 * rho))), EPSILON_STEPS)
    epsilon = min(epsilon, LARGEST_EPSILON)
    assert choosing_cost(epsilon) <= rho
    return epsilon
