"""Marginals of private rows: each is charged, then measured or chosen with exact noise, then written down.

Methods learn of private data through `MarginalSource` alone.

Claim    one privacy unit, with its K rows, moves a marginal by at most K in L1 and in L2, and a score by at
         most GRID · K · weight. So measuring costs K² / 2σ², and a choice ε² / 8. The sum of all steps is
         at most the reserved ρ, although later steps depend on earlier results. A failure while rows are
         read or noise is drawn tells nothing but that the release has ended, and the ledger counts it.
Because  all K rows may be in one cell. The model's counts are rounded to a public grid, never the score: a
         score is a whole number, summed without overflow, and the L1 distance to a fixed table moves by no
         more than the counts do. Scores are not monotone, so the choice has its full ε² / 8. zCDP adds up
         also for steps that are chosen from earlier results (Feldman and Zrnic 2021; Whitehouse et al.
         2023), and the ledger refuses a step beyond the reservation. Every error after the charge of a step
         and before its result becomes the same error.
Test     tests/publish/measured/test_private_marginals.py, tests/claims/test_publish.py
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Loss
from lapwing.core.selection import Exponential
from lapwing.errors import BadParameter, WorkEnded
from lapwing.publish.measured.journal import Journal, JournalStep
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import NoisyMarginal

GRID = 16  # steps of a count to which the model's numbers are rounded before private counts are compared


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A marginal that may be chosen.

    Its score is weight · (L1 distance of the private counts to `expected` − `penalty`). `expected` and
    `penalty` are in steps of 1/GRID of a count: whole numbers, so that scores are exact.
    """

    clique: Clique
    expected: NDArray[np.int64]
    weight: int = 1
    penalty: int = 0


class MarginalSource(Protocol):
    """A table of private rows, of which marginals are measured and chosen within a budget ρ (zCDP)."""

    @property
    def domain(self) -> Domain:
        """The columns and their sizes."""

    @property
    def rows_per_unit(self) -> int:
        """The contribution bound: how many rows of a privacy unit count."""

    @property
    def budget(self) -> Fraction:
        """The ρ for all steps."""

    @property
    def left(self) -> Fraction:
        """The ρ that is left."""

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        """Return counts of a marginal with Gaussian noise. An earlier result keeps its own σ."""

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        """Return a marginal of large score, by the exponential mechanism."""


def measuring_cost(sigma: Fraction, rows_per_unit: int) -> Fraction:
    """Return the ρ of measuring one marginal: K² / 2σ², since K rows may all be in one cell."""
    return rows_per_unit**2 / (2 * sigma**2)


def choosing_cost(epsilon: Fraction) -> Fraction:
    """Return the ρ of one choice: ε² / 8 (bounded range)."""
    return epsilon**2 / 8


Wholes = NDArray[np.int64]
Charge = Callable[[Loss], None]


def measuring(sigma: Fraction, rows_per_unit: int, cells: int) -> Gaussian:
    """Return the mechanism that measures a marginal: K rows of a unit move it by at most K in L2."""
    return Gaussian(sigma, Fraction(rows_per_unit**2), cells)


def choosing(epsilon: Fraction, rows_per_unit: int, candidates: Sequence[Candidate]) -> Exponential:
    """Return the mechanism that chooses a marginal: a unit moves a score by at most GRID · K · weight."""
    heaviest = max(candidate.weight for candidate in candidates)
    return Exponential(epsilon, Fraction(GRID * rows_per_unit * heaviest))


def score(counts: Wholes, candidate: Candidate) -> int:
    """Return the score of a candidate: a whole number, computed without overflow. Private."""
    distance = _exact_sum(np.abs(counts.reshape(candidate.expected.shape) * GRID - candidate.expected))
    return candidate.weight * (distance - candidate.penalty)


class PrivateMarginals:
    """A source of noisy marginals, within a budget ρ.

    Args:
        domain: The columns and their sizes.
        read: Reads the private rows, one column of cells for each column of the domain. It is called once,
            after the first charge.
        rows_per_unit: The contribution bound K.
        budget: The ρ for all steps.
        charge: Charges the loss of a step, durably, before it begins.
        fail: Ends the release in the ledger after a failure that private rows may have caused.
        journal: Earlier steps of the same run, and the place for the next ones.
    """

    def __init__(
        self,
        domain: Domain,
        read: Callable[[], Wholes],
        *,
        rows_per_unit: int,
        budget: Fraction,
        charge: Charge,
        fail: Callable[[], None],
        journal: Journal,
    ) -> None:
        self.domain, self.rows_per_unit, self._budget = domain, rows_per_unit, budget
        self._read_rows, self._charge, self._fail, self._journal = read, charge, fail, journal
        self._table: Wholes | None = None
        self._counted: dict[Clique, Wholes] = {}
        self._next, self._spent = 0, Fraction(0)
        self.agrees = True  # whether choices of the journal were made from the candidates of this run
        self._pass_lost()

    @property
    def budget(self) -> Fraction:
        """The ρ of the whole release."""
        return self._budget

    @property
    def left(self) -> Fraction:
        """The ρ that is left."""
        return self._budget - self._spent

    @property
    def steps(self) -> tuple[JournalStep, ...]:
        """All steps so far, with those that were lost."""
        return tuple(self._journal.steps)

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        """Return counts of a marginal with Gaussian noise; those of the journal, if this step is in it."""
        mechanism = measuring(sigma, self.rows_per_unit, self.domain.cells(clique))
        step = {"measure": list(clique), "sigma": str(sigma)}

        def draw() -> dict[str, Any]:
            return {"counts": mechanism.sample(self._counts(clique)).tolist()}

        done = self._step(step, measuring_cost(sigma, self.rows_per_unit), mechanism.loss, draw)
        return noisy_marginal(self.domain, done)

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        """Return a marginal of large score; that of the journal, if this step is in it."""
        mechanism = choosing(epsilon, self.rows_per_unit, candidates)
        step = {"choose": len(candidates), "epsilon": str(epsilon), "candidates": _digest(candidates)}

        def draw() -> dict[str, Any]:
            scores = [score(self._counts(candidate.clique), candidate) for candidate in candidates]
            return {"chosen": list(candidates[mechanism.sample(scores)].clique)}

        done = self._step(step, choosing_cost(epsilon), mechanism.loss, draw)
        assert done.result is not None
        self.agrees &= done.step == step
        return self.domain.clique(done.result["chosen"])

    def _step(
        self, step: dict[str, Any], rho: Fraction, loss: Loss, draw: Callable[[], dict[str, Any]]
    ) -> JournalStep:
        if self._next < len(self._journal.steps):
            done = self._journal.steps[self._next]
            if step.keys() != done.step.keys():
                raise BadParameter("journal", "is of another method. Name an empty folder")
        else:
            if rho > self.left:
                raise BadParameter("budget", "is spent: this step would go beyond it")
            self._journal.begin(step, rho)
            self._charge(loss)
            self._journal.end(self._drawn(draw))
            done = self._journal.steps[-1]
        self._next += 1
        self._spent += done.rho
        self._pass_lost()
        return done

    def _drawn(self, draw: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Draw a result. An error may tell of private rows: it ends the release, and is not shown.

        An interruption (KeyboardInterrupt, SystemExit) only loses this step: rows do not cause it.
        """
        try:
            return draw()
        except Exception:
            with suppress(Exception):  # its text could tell of the first error
                self._fail()
            raise WorkEnded from None

    def _pass_lost(self) -> None:
        """Count steps as spent that were begun and have no result: noise is never drawn again."""
        steps = self._journal.steps
        while self._next < len(steps) and steps[self._next].result is None:
            self._spent += steps[self._next].rho
            self._next += 1

    def _counts(self, clique: Clique) -> Wholes:
        if clique not in self._counted:
            if self._table is None:
                self._table = self._read_rows()
            shape = self.domain.shape(clique)
            columns = [self._table[:, self.domain.place(name)] for name in clique]
            cells = np.ravel_multi_index(columns, shape) if len(self._table) else np.zeros(0, np.int64)
            self._counted[clique] = np.bincount(cells, minlength=self.domain.cells(clique)).astype(np.int64)
        return self._counted[clique]


def _exact_sum(values: Wholes) -> int:
    """Return the sum of whole numbers that are not negative, without overflow."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _digest(candidates: Sequence[Candidate]) -> str:
    """Return a digest of all that a choice is made from, except the private counts."""
    digest = hashlib.sha256()
    for candidate in candidates:
        digest.update(f"{candidate.clique} {candidate.weight} {candidate.penalty}\n".encode())
        digest.update(np.ascontiguousarray(candidate.expected, "<i8").tobytes())
    return digest.hexdigest()


def noisy_marginal(domain: Domain, done: JournalStep) -> NoisyMarginal:
    """Return the noisy counts of a measured step."""
    assert done.result is not None
    clique = domain.clique(done.step["measure"])
    counts = np.array(done.result["counts"], float).reshape(domain.shape(clique))
    return NoisyMarginal(clique, counts, float(Fraction(done.step["sigma"])))


def step_loss(domain: Domain, rows_per_unit: int, done: JournalStep) -> Loss:
    """Return the loss of a step of a journal. Raises ValueError if it is not a step of this release."""
    step, result = done.step, done.result
    try:
        if "measure" in step:
            clique, sigma = domain.clique(step["measure"]), Fraction(step["sigma"])
            loss: Loss = Gaussian(sigma, Fraction(rows_per_unit**2), domain.cells(clique)).loss
            rho = measuring_cost(sigma, rows_per_unit)
            is_sound = list(clique) == step["measure"] and (
                result is None or _are_counts(result["counts"], domain.cells(clique))
            )
        else:
            epsilon = Fraction(step["epsilon"])
            loss, rho = Exponential(epsilon, Fraction(1)).loss, choosing_cost(epsilon)
            is_sound = result is None or list(domain.clique(result["chosen"])) == result["chosen"]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        is_sound = False
    if not is_sound or rho != done.rho:
        raise ValueError("is no step of this release")
    return loss


def _are_counts(counts: object, cells: int) -> bool:
    return (
        isinstance(counts, list)
        and len(counts) == cells
        and all(isinstance(count, int) and abs(count) < 1 << 62 for count in counts)
    )


_EXACT = re.compile(r"0*[1-9][0-9]{0,400}(/0*[1-9][0-9]{0,400})?")


def exact_text(text: object) -> Fraction:
    """Return a positive number that stands as a short fraction in a file. Raises ValueError for others."""
    if not isinstance(text, str) or not _EXACT.fullmatch(text):
        raise ValueError("is not a short positive fraction")
    return Fraction(text)
