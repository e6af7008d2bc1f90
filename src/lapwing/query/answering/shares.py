"""How ε and δ of a question are divided among all that it releases.

Claim    `Shares.loss` bounds what all releases reveal together. With Laplace noise its pure part is exactly
         the ε that was asked for; with Gaussian noise the whole is (ε, δ)-private. Nothing here knows data.
Because  parts' losses add up. ε is divided in exact rationals. Gaussian parts share ρ, and (ε, δ) follows
         from their Σρ by the best Rényi order, whatever their sigmas and dimensions (zCDP). See
         docs/arguments/query-noise.md, also for the splits.
Test     tests/query/test_shares.py
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from lapwing.errors import BadParameter
from lapwing.exact import Number
from lapwing.mechanisms import (
    Extreme,
    Gaussian,
    Laplace,
    PartitionSelection,
    Quantile,
    SummedGaussian,
    SummedLaplace,
)
from lapwing.noise import LARGEST_SCALE
from lapwing.privacy import Loss, Relation, Sum
from lapwing.privacy.convert import zcdp_to_epsilon
from lapwing.privacy.loss import checked_delta, checked_epsilon
from lapwing.query.language.kinds import codes_of
from lapwing.query.language.question import Part, Question, Statistic

NOISES = ("auto", "laplace", "gaussian")
CHOSEN = ("quantile", "min", "max")
GAIN = 0.95  # Gaussian noise is taken if its expected error is below this share of Laplace's
SMALLEST_SHARE = 10**6  # a part's share is at least one in so many of the largest
MANY_KEYS = 1 << 40  # how many undeclared keys there may be, at most

# Noise of one, or of several members in one sum.
Noise = Laplace | Gaussian | SummedLaplace | SummedGaussian


class Mechanisms(Protocol):
    """What has to be known of noise to read an answer: `Shares`, or several members' together."""

    @property
    def question(self) -> Question:
        """Whose parts they are for."""

    def mechanism(self, grouping: int, part: int) -> Noise:
        """The noise of a part in a grouping."""

    def choice(self, grouping: int, wanted: Wanted) -> Quantile | Extreme:
        """The choice of a code in a grouping."""


@dataclass(frozen=True, slots=True)
class Added:
    """Noise for one part in one grouping."""

    grouping: int
    part: int
    mechanism: Laplace | Gaussian


@dataclass(frozen=True, slots=True)
class Wanted:
    """A code of a spectrum that outputs need: what they name alike is released once."""

    spectrum: int
    function: str
    fraction: Fraction | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A private choice among a spectrum's codes, for every group of one grouping."""

    grouping: int
    wanted: Wanted
    mechanism: Quantile | Extreme


@dataclass(frozen=True, slots=True)
class Selected:
    """Which undeclared keys of one grouping may be shown."""

    grouping: int
    mechanism: PartitionSelection


@dataclass(frozen=True, slots=True)
class Shares:
    """Every release of a question, with its mechanism. `noise` is "laplace" or "gaussian"."""

    question: Question
    epsilon: Fraction
    delta: Fraction
    noise: str
    reason: str
    added: tuple[Added, ...]
    chosen: tuple[Chosen, ...]
    selected: tuple[Selected, ...]

    @property
    def loss(self) -> Loss:
        """What the whole release reveals. A unit reaches all groups of a mechanism with one loss."""
        releases: list[Added | Chosen | Selected] = [*self.selected, *self.added, *self.chosen]
        losses = tuple(release.mechanism.loss for release in releases)
        return losses[0] if len(losses) == 1 else Sum(losses)

    @property
    def digest(self) -> str:
        """Of every mechanism: answers are read with those that they were made with, or not at all."""
        return hashlib.sha256(repr((self.added, self.chosen, self.selected)).encode()).hexdigest()

    def mechanism(self, grouping: int, part: int) -> Laplace | Gaussian:
        """The noise of a part in a grouping."""
        return self.added[grouping * len(self.question.parts) + part].mechanism

    def choice(self, grouping: int, wanted: Wanted) -> Quantile | Extreme:
        """The choice of a code in a grouping."""
        return next(c.mechanism for c in self.chosen if c.grouping == grouping and c.wanted == wanted)

    def selection(self, grouping: int) -> PartitionSelection | None:
        """How the keys of a grouping are selected; None if all are declared."""
        return next((s.mechanism for s in self.selected if s.grouping == grouping), None)


def share_out(
    question: Question, *, epsilon: Number, delta: Number, noise: str, miss: Fraction = Fraction(1, 20)
) -> Shares:
    """ε and δ divided so that squared errors relative to each column's range are least in sum.

    `noise` is "auto", "laplace" or "gaussian". `miss` is how seldom an extreme may be beyond all rows.
    """
    asked, allowed = checked_epsilon(epsilon), checked_delta(delta)
    if noise not in NOISES:
        raise BadParameter("noise", f"must be one of {', '.join(NOISES)}")
    hidden = [s for s in range(len(question.sets)) if not is_declared(question, s)]
    wanted = wanted_codes(question)
    if hidden and not allowed:
        raise BadParameter(
            "delta", "must be above 0: some keys are not declared, and selecting them needs δ"
        )
    if noise == "gaussian" and question.parts and not allowed:
        raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
    each, choice, selection = _split(question, asked, len(wanted), len(hidden))

    def selections(part: Fraction) -> tuple[Selected, ...]:
        return tuple(
            Selected(s, PartitionSelection(selection, part / len(hidden), question.rows)) for s in hidden
        )

    added: tuple[Added, ...] = _laplace(question, each)
    kind, reason, left = "laplace", "", allowed
    if question.parts and allowed and noise != "laplace":
        gaussian_delta = allowed / 2 if hidden else allowed
        other = _gaussian(question, len(question.sets) * sum(each, Fraction(0)), gaussian_delta)
        errors = _error(question, added), _error(question, other)
        if noise == "gaussian" or errors[1] <= GAIN * errors[0]:
            added, kind, left = other, "gaussian", allowed - gaussian_delta
        names, found = ("Laplace", "Gaussian"), (errors if kind == "laplace" else errors[::-1])
        mine, its = names if kind == "laplace" else names[::-1]
        reason = f"{mine}: expected error {found[0]:.3g} against {found[1]:.3g} with {its} noise"
        reason += ", relative to the columns' ranges"
        if kind == "laplace" and errors[1] < errors[0]:
            reason += "; less than 5 % would be gained"
    elif question.parts:
        reason = "Laplace: " + ("as asked" if noise == "laplace" else "Gaussian noise needs δ")
    chosen = tuple(
        Chosen(s, want, _choice(question, want, choice, miss))
        for s in range(len(question.sets))
        for want in wanted
    )
    return Shares(question, asked, allowed, kind, reason, added, chosen, selections(left) if hidden else ())


def is_declared(question: Question, grouping: int) -> bool:
    """Whether all keys of a grouping are known beforehand."""
    return all(question.keys[key].codes is not None for key in question.sets[grouping])


def cells_of(question: Question, grouping: int) -> int:
    """How many groups a grouping by declared keys has."""
    return math.prod(len(question.keys[key].codes or ()) for key in question.sets[grouping])


def wanted_of(statistic: Statistic) -> Wanted:
    """The choice that a quantile or an extreme shows."""
    assert statistic.spectrum is not None
    fraction = statistic.fraction if statistic.function == "quantile" else None
    return Wanted(statistic.spectrum, statistic.function, fraction)


def wanted_codes(question: Question) -> tuple[Wanted, ...]:
    """Every distinct quantile, MIN and MAX of the question, in the order of its text."""
    found = (statistic for statistic in question.statistics if statistic.function in CHOSEN)
    return tuple(dict.fromkeys(wanted_of(statistic) for statistic in found))


def proportions(weights: list[float]) -> list[int]:
    """Whole numbers in proportion to the weights, to 1e-6 of the largest, and at least 1."""
    most = max(weights, default=0.0)
    return [max(1, round(weight / most * SMALLEST_SHARE)) if most > 0 else 1 for weight in weights]


def _split(
    question: Question, epsilon: Fraction, wanted: int, hidden: int
) -> tuple[list[Fraction], Fraction, Fraction]:
    """ε of each part, of each choice, and of each selection; the same in every grouping.

    A part's error is weight / ε_i, so Σ error² is least for ε_i ∝ weight^(2/3). A choice weighs 1. A
    selection takes as much as a number that is released for its groups takes on average: one more number.
    """
    powers = proportions([float(part.weight) ** (2 / 3) for part in question.parts] + [1.0] * wanted)
    average = Fraction(sum(powers), question.numbers + wanted) if powers else Fraction(1)
    whole = len(question.sets) * sum(powers) + hidden * average
    unit = epsilon / whole if whole else Fraction(0)
    each = [power * unit for power in powers[: len(question.parts)]]
    return each, powers[-1] * unit if wanted else Fraction(0), average * unit


def _laplace(question: Question, each: list[Fraction]) -> tuple[Added, ...]:
    for part, epsilon in zip(question.parts, each, strict=True):
        if part.l1 / checked_epsilon(epsilon) > LARGEST_SCALE:
            raise _too_much_noise(part)
    mechanisms = [Laplace.for_epsilon(e, l1=p.l1) for p, e in zip(question.parts, each, strict=True)]
    return tuple(Added(s, i, m) for s in range(len(question.sets)) for i, m in enumerate(mechanisms))


def _gaussian(question: Question, epsilon: Fraction, delta: Fraction) -> tuple[Added, ...]:
    """All parts share ρ; Σ (weight σ_i / l1)² is least for ρ_i ∝ weight · l2 / l1."""
    rho = most_rho(epsilon, delta)
    ratios = [float(p.weight) * math.sqrt(p.l2_squared) / p.l1 for p in question.parts]
    shares = proportions(ratios)
    unit = rho / (len(question.sets) * sum(shares))
    added = []
    for s in range(len(question.sets)):
        dimension = cells_of(question, s) if is_declared(question, s) else MANY_KEYS
        for i, part in enumerate(question.parts):
            if part.l2_squared > 2 * shares[i] * unit * (LARGEST_SCALE - 1) ** 2:
                raise _too_much_noise(part)
            size = dimension * len(part.numbers)
            noise = Gaussian.for_rho(shares[i] * unit, l2_squared=part.l2_squared, dimension=size)
            added.append(Added(s, i, noise))
    return tuple(added)


def _too_much_noise(part: Part) -> BadParameter:
    why = f'is so small that the noise of "{part.label}" would not fit 64-bit integers; ask for more, or '
    return BadParameter("epsilon", why + "declare narrower bounds or a coarser step")


def _choice(question: Question, want: Wanted, epsilon: Fraction, miss: Fraction) -> Quantile | Extreme:
    spectrum = question.spectra[want.spectrum]
    first, last = ends_of(question, want.spectrum)
    last = max(last, first + 1)  # a single code is chosen for certain; see noising
    if want.function != "quantile":
        return Extreme(epsilon, want.function == "max", first, last, spectrum.rows, miss)
    assert want.fraction is not None
    return Quantile(epsilon, want.fraction, first, last, spectrum.rows, Relation.ADD_REMOVE)


def ends_of(question: Question, spectrum: int) -> tuple[int, int]:
    """The least and greatest code of a spectrum."""
    codes = codes_of(question.spectra[spectrum].number)
    if codes is None or not codes:
        raise BadParameter("bounds", "quantiles, MIN and MAX need a column with declared bounds")
    return codes[0], codes[-1]


def _error(question: Question, added: tuple[Added, ...]) -> float:
    """The root of the mean square of all parts' expected errors, relative to their ranges."""
    squares = [
        (float(question.parts[a.part].weight) * deviation(a.mechanism) / question.parts[a.part].l1) ** 2
        for a in added
    ]
    return math.sqrt(sum(squares) / len(squares))


def deviation(mechanism: Noise) -> float:
    """The standard deviation of the noise: √2q / (1 - q) for Laplace, σ (at most) for Gaussian."""
    if isinstance(mechanism, SummedLaplace | SummedGaussian):
        return mechanism.deviation
    if isinstance(mechanism, Gaussian):
        return float(mechanism.sigma)
    return math.sqrt(2) / (2 * math.sinh(min(1 / (2 * float(mechanism.scale)), 300.0)))


@lru_cache(maxsize=256)
def most_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """About the greatest ρ (six digits, rounded down) that is (ε, δ)-private by the best Rényi order."""
    log = math.log(delta.denominator) - math.log(delta.numerator)
    tried = _short((math.sqrt(log + float(epsilon)) - math.sqrt(log)) ** 2)  # from ε = ρ + 2 √(ρ ln 1/δ)
    found, left = Fraction(0), 6
    while left or not found:
        reached = zcdp_to_epsilon(tried, delta)
        if reached <= epsilon:
            found = max(found, tried)
        # ε grows about like √ρ: the next guess is a little below where it would be reached.
        growth = min(float(epsilon) / max(float(reached), 1e-300), 2.0)
        tried, left = _short(float(tried) * growth**2 * (1 - 1e-7)), max(left - 1, 0)
    return found


def _short(value: float) -> Fraction:
    digits = 7 - math.ceil(math.log10(value))
    return Fraction(math.floor(value * 10.0**digits)) / Fraction(10) ** digits
