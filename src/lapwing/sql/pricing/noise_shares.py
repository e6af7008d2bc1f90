"""The mechanisms of a question, and how ε and δ are divided among them.

Claim    `BudgetShares.loss` bounds the privacy loss of all releases together. With Laplace noise its pure
         part is exactly the ε that was asked for; with Gaussian noise the whole is (ε, δ)-private. Dividing
         the budget uses no data.
Because  the losses of the parts add up. ε is divided in exact rationals. Gaussian parts share ρ, and (ε, δ)
         follows from their Σρ by the best Rényi order, for all sigmas and dimensions (zCDP). See
         docs/arguments/query-noise.md, also for the splits.
Test     tests/sql/pricing/test_noise_shares.py
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import Number
from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.core.laplace_sampler import LARGEST_SCALE
from lapwing.core.losses import Loss, Relation, SequentialComposition, checked_delta, checked_epsilon
from lapwing.core.order_statistics import STEEPNESS, Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import StoredWord
from lapwing.sql.question.bound_query import (
    BoundQuery,
    NoisySum,
    WantedCode,
    code_range,
    has_declared_keys,
    number_of_groups,
    wanted_codes,
)

NOISE_NAMES = ("auto", "laplace", "gaussian")
GAUSSIAN_GAIN = 0.95  # Gaussian noise is taken if its expected error is below this share of Laplace's
SMALLEST_SHARE = 10**6  # the largest share is at most this many times the smallest
MANY_KEYS = 1 << 40  # an upper bound on the number of undeclared keys
# Noise of one data set, or the summed noise of several members.
PartNoise = Laplace | Gaussian | SummedLaplace | SummedGaussian


class PartMechanisms(Protocol):
    """The mechanisms that an answer is read with: `BudgetShares`, or several members' together."""

    @property
    def question(self) -> BoundQuery:
        """The question of these mechanisms."""

    def mechanism(self, grouping: int, part: int) -> PartNoise:
        """Return the noise of a part in a grouping."""

    def choice(self, grouping: int, wanted: WantedCode) -> Quantile | Extreme:
        """Return the choice of a code in a grouping."""


@dataclass(frozen=True, slots=True, repr=False)
class AddedNoise(StoredWord, word="Added"):
    """Noise for one part in one grouping."""

    grouping: int
    part: int
    mechanism: Laplace | Gaussian


@dataclass(frozen=True, slots=True, repr=False)
class ChosenCode(StoredWord, word="Chosen"):
    """A private choice among a spectrum's codes, for every group of one grouping."""

    grouping: int
    wanted: WantedCode
    mechanism: Quantile | Extreme


@dataclass(frozen=True, slots=True, repr=False)
class SelectedKeys(StoredWord, word="Selected"):
    """The private selection of undeclared keys of one grouping."""

    grouping: int
    mechanism: PartitionSelection


@dataclass(frozen=True, slots=True)
class BudgetShares:
    """The mechanisms of a question, with their shares of ε and δ. `noise` is "laplace" or "gaussian"."""

    question: BoundQuery
    epsilon: Fraction
    delta: Fraction
    noise: str
    reason: str
    added: tuple[AddedNoise, ...]
    chosen: tuple[ChosenCode, ...]
    selected: tuple[SelectedKeys, ...]

    @property
    def loss(self) -> Loss:
        """The privacy loss of all mechanisms together. One loss covers all groups of a mechanism."""
        releases: list[AddedNoise | ChosenCode | SelectedKeys] = [*self.selected, *self.added, *self.chosen]
        losses = tuple(release.mechanism.loss for release in releases)
        return losses[0] if len(losses) == 1 else SequentialComposition(losses)

    @property
    def digest(self) -> str:
        """A digest of the mechanisms: a stored answer is read with the same ones, or not at all."""
        return hashlib.sha256(repr((self.added, self.chosen, self.selected)).encode()).hexdigest()

    def mechanism(self, grouping: int, part: int) -> Laplace | Gaussian:
        """Return the noise of a part in a grouping."""
        return self.added[grouping * len(self.question.parts) + part].mechanism

    def choice(self, grouping: int, wanted: WantedCode) -> Quantile | Extreme:
        """Return the choice of a code in a grouping."""
        return next(c.mechanism for c in self.chosen if c.grouping == grouping and c.wanted == wanted)

    def selection(self, grouping: int) -> PartitionSelection | None:
        """Return the selection of a grouping's keys; None if all are declared."""
        return next((s.mechanism for s in self.selected if s.grouping == grouping), None)


def divide_budget(
    question: BoundQuery, *, epsilon: Number, delta: Number, noise: str, steepness: int = STEEPNESS
) -> BudgetShares:
    """Divide ε and δ so that the sum of squared errors, relative to each column's range, is smallest.

    `noise` is "auto", "laplace" or "gaussian". `steepness` is that of MIN and MAX (see `Extreme`).
    """
    asked, allowed = checked_epsilon(epsilon), checked_delta(delta)
    if noise not in NOISE_NAMES:
        raise BadParameter("noise", f"must be one of {', '.join(NOISE_NAMES)}")
    hidden = [s for s in range(len(question.sets)) if not has_declared_keys(question, s)]
    wanted = wanted_codes(question)
    if hidden and not allowed:
        raise BadParameter(
            "delta", "must be above 0: some keys are not declared, and selecting them needs δ"
        )
    if noise == "gaussian" and question.parts and not allowed:
        raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
    each, choice, selection = _split(question, asked, len(wanted), len(hidden))
    added: tuple[AddedNoise, ...] = _laplace(question, each)
    kind, reason, left = "laplace", "", allowed
    if question.parts and allowed and noise != "laplace":
        gaussian_delta = allowed / 2 if hidden else allowed
        other = _gaussian(question, len(question.sets) * sum(each, Fraction(0)), gaussian_delta)
        errors = _error(question, added), _error(question, other)
        if noise == "gaussian" or errors[1] <= GAUSSIAN_GAIN * errors[0]:
            added, kind, left = other, "gaussian", allowed - gaussian_delta
        names, compared = ("Laplace", "Gaussian"), (errors if kind == "laplace" else errors[::-1])
        mine, its = names if kind == "laplace" else names[::-1]
        reason = f"{mine}: expected error {compared[0]:.3g} against {compared[1]:.3g} with {its} noise"
        reason += ", relative to the columns' ranges"
        if kind == "laplace" and errors[1] < errors[0]:
            reason += "; less than 5 % would be gained"
    elif question.parts:
        reason = "Laplace: " + ("as asked" if noise == "laplace" else "Gaussian noise needs δ")
    chosen = tuple(
        ChosenCode(s, want, _choice(question, want, choice, steepness))
        for s in range(len(question.sets))
        for want in wanted
    )
    selected = tuple(
        SelectedKeys(s, PartitionSelection(selection, left / len(hidden), question.rows)) for s in hidden
    )
    return BudgetShares(question, asked, allowed, kind, reason, added, chosen, selected)


def proportions(weights: list[float]) -> list[int]:
    """Return whole numbers in proportion to the weights, to 1e-6 of the largest, and at least 1."""
    most = max(weights, default=0.0)
    return [max(1, round(weight / most * SMALLEST_SHARE)) if most > 0 else 1 for weight in weights]


def _split(
    question: BoundQuery, epsilon: Fraction, wanted: int, hidden: int
) -> tuple[list[Fraction], Fraction, Fraction]:
    """Return ε of each part, of each choice, and of each selection; the same in every grouping.

    A part's error is weight / ε_i, so Σ error² is least for ε_i ∝ weight^(2/3). A choice weighs 1. A
    selection takes as much as a number that is released for its groups takes on average: one more number.
    """
    powers = proportions([float(part.weight) ** (2 / 3) for part in question.parts] + [1.0] * wanted)
    average = Fraction(sum(powers), question.numbers + wanted) if powers else Fraction(1)
    whole = len(question.sets) * sum(powers) + hidden * average
    unit = epsilon / whole if whole else Fraction(0)
    each = [power * unit for power in powers[: len(question.parts)]]
    return each, powers[-1] * unit if wanted else Fraction(0), average * unit


def _laplace(question: BoundQuery, each: list[Fraction]) -> tuple[AddedNoise, ...]:
    for part, epsilon in zip(question.parts, each, strict=True):
        if part.l1 / checked_epsilon(epsilon) > LARGEST_SCALE:
            raise _too_much_noise(part)
    mechanisms = [Laplace.for_epsilon(e, l1=p.l1) for p, e in zip(question.parts, each, strict=True)]
    return tuple(AddedNoise(s, i, m) for s in range(len(question.sets)) for i, m in enumerate(mechanisms))


def _gaussian(question: BoundQuery, epsilon: Fraction, delta: Fraction) -> tuple[AddedNoise, ...]:
    """Divide ρ among the parts: Σ (weight σ_i / l1)² is least for ρ_i ∝ weight · l2 / l1."""
    rho = largest_rho(epsilon, delta)
    ratios = [float(p.weight) * math.sqrt(p.l2_squared) / p.l1 for p in question.parts]
    shares = proportions(ratios)
    unit = rho / (len(question.sets) * sum(shares))
    added = []
    for s in range(len(question.sets)):
        dimension = number_of_groups(question, s) if has_declared_keys(question, s) else MANY_KEYS
        for i, part in enumerate(question.parts):
            if part.l2_squared > 2 * shares[i] * unit * (LARGEST_SCALE - 1) ** 2:
                raise _too_much_noise(part)
            size = dimension * len(part.numbers)
            noise = Gaussian.for_rho(shares[i] * unit, l2_squared=part.l2_squared, dimension=size)
            added.append(AddedNoise(s, i, noise))
    return tuple(added)


def _too_much_noise(part: NoisySum) -> BadParameter:
    why = f'is so small that the noise of "{part.label}" would not fit 64-bit integers; ask for more, or '
    return BadParameter("epsilon", why + "declare narrower bounds or a coarser step")


def _choice(
    question: BoundQuery, want: WantedCode, epsilon: Fraction, steepness: int
) -> Quantile | Extreme:
    spectrum = question.spectra[want.spectrum]
    first, last = code_range(question, want.spectrum)
    last = max(last, first + 1)  # if there is one code only, `add_noise` clips to it
    if want.function != "quantile":
        is_max = want.function == "max"
        return Extreme(epsilon, is_max, first, last, spectrum.rows, steepness=steepness)
    assert want.fraction is not None
    return Quantile(epsilon, want.fraction, first, last, spectrum.rows, Relation.ADD_REMOVE)


def _error(question: BoundQuery, added: tuple[AddedNoise, ...]) -> float:
    """Return the root mean square of all parts' expected errors, relative to their ranges."""
    squares = [
        (float(question.parts[a.part].weight) * deviation(a.mechanism) / question.parts[a.part].l1) ** 2
        for a in added
    ]
    return math.sqrt(sum(squares) / len(squares))


def deviation(mechanism: PartNoise) -> float:
    """Return the standard deviation of the noise: √2q / (1 - q) for Laplace, at most σ for Gaussian."""
    if isinstance(mechanism, SummedLaplace | SummedGaussian):
        return mechanism.deviation
    if isinstance(mechanism, Gaussian):
        return float(mechanism.sigma)
    return math.sqrt(2) / (2 * math.sinh(min(1 / (2 * float(mechanism.scale)), 300.0)))


@lru_cache(maxsize=256)
def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return about the greatest ρ (six digits, rounded down) that is (ε, δ)-private."""
    log = math.log(delta.denominator) - math.log(delta.numerator)
    tried = _short((math.sqrt(log + float(epsilon)) - math.sqrt(log)) ** 2)  # from ε = ρ + 2 √(ρ ln 1/δ)
    largest, left = Fraction(0), 6
    while left or not largest:
        reached = zcdp_to_epsilon(tried, delta)
        if reached <= epsilon:
            largest = max(largest, tried)
        # ε grows about like √ρ: the next guess is a little below the solution.
        growth = min(float(epsilon) / max(float(reached), 1e-300), 2.0)
        tried, left = _short(float(tried) * growth**2 * (1 - 1e-7)), max(left - 1, 0)
    return largest


def _short(value: float) -> Fraction:
    digits = 7 - math.ceil(math.log10(value))
    return Fraction(math.floor(value * 10.0**digits)) / Fraction(10) ** digits
