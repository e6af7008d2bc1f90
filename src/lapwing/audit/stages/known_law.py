"""Draws against a law that is known: how often events happen, beside their exact probabilities.

Claim    if draws follow their law, a violation is reported with probability at most `error`.
Because  each event has a known probability, and both bounds of Clopper and Pearson on it get an equal part
         of the error. Events are fixed before the first draw.
Test     tests/audit/stages/test_known_law.py

A ratio of two laws says nothing about noise that is right by luck of its inputs, and at a large ε no event
shows it. Here noise that is too small by a tenth shows, whatever ε is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.proportions import proportion_at_least, proportion_at_most

Numbers = NDArray[Any]
DRAWS = 40_000
_LISTED_SIGMA = 40  # up to this σ probabilities are sums; beyond, those of the continuous law
_APART = (64, 1024, 4096)  # lengths of batches that a mistaken sampler may use again
_FLOATS = 1e-12  # the error of probabilities in floats
_WIDTHS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # in σ


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """An event with a known probability, up to `slack`. `happens` looks at each of independent trials."""

    words: str
    happens: Callable[[Numbers], NDArray[np.bool_]]
    probability: float
    slack: float = 1e-12


@dataclass(frozen=True, slots=True)
class KnownLaw:
    """Draws, and the events whose probabilities are known. `draw` returns independent numbers."""

    description: str
    draw: Callable[[], Numbers]
    events: tuple[KnownEvent, ...]


def law_violation(known: KnownLaw, error: float) -> Witness | None:
    """Draw once, and return the first event that does not happen as often as it should; None if all do."""
    drawn, each = known.draw(), error / (2 * len(known.events))
    for event in known.events:
        happened = event.happens(drawn)
        hits, trials = int(np.count_nonzero(happened)), len(happened)
        least = proportion_at_least(hits, trials, each)
        most = proportion_at_most(hits, trials, each)
        if not least - event.slack <= event.probability <= most + event.slack:
            return Witness(
                known.description,
                f"draws do not follow their law: {event.words}",
                {
                    "times": hits, "draws": trials, "probability": event.probability,
                    "probability at least": least, "probability at most": most,
                },
            )  # fmt: skip
    return None


def with_known_laws(
    stage: RunStage | None, known: Callable[[], Sequence[KnownLaw]], claimed: float
) -> RunStage:
    """Return a sampled stage that also compares draws with known laws. Each half gets half of the error."""

    def run(budget: StageBudget) -> StageResult:
        half = replace(budget, error=budget.error / 2)
        result = StageResult(Stage.SAMPLED, 0, claimed) if stage is None else stage(half)
        if not result.holds:
            return result
        listed = known()
        for law in listed:
            witness = law_violation(law, half.error / len(listed))
            checks = result.checks + 2 * len(law.events)
            result = replace(result, checks=checks, witness=witness)
            if witness is not None:
                return result
        told = ", ".join(law.description for law in listed)
        return replace(result, notes=(*result.notes, f"draws follow their known laws: {told}"))

    return run


def gaussian_events(sigma: Fraction) -> tuple[KnownEvent, ...]:
    """Return events of independent discrete Gaussian numbers: their size, and pairs of them."""
    if sigma <= _LISTED_SIGMA:
        reach = math.ceil(17 * sigma) + 2
        law = laws.gaussian(sigma, 0, -reach, reach)
        slack = 1e-12

        def within(width: int) -> float:
            return float(sum(law[k] for k in range(-width, width + 1)))

        equal, zero = float(sum(p * p for p in law.values())), float(law[0])
    else:
        slack = 0.05 / float(sigma) ** 2 + 1e-6

        def within(width: int) -> float:
            return math.erf((width + 0.5) / (float(sigma) * math.sqrt(2)))

        equal, zero = 1 / (2 * math.sqrt(math.pi) * float(sigma)), within(0)
    sizes = sorted({math.floor(times * float(sigma)) for times in _WIDTHS})
    return (
        *(KnownEvent(f"at most {k} from 0", _at_most(k), within(k), slack) for k in sizes),
        *_of_pairs(zero, equal, slack),
    )


def laplace_events(scale: Fraction) -> tuple[KnownEvent, ...]:
    """Return events of independent discrete Laplace numbers: their size, and pairs of them."""
    q, less = math.exp(-1 / float(scale)), -math.expm1(-1 / float(scale))
    zero = less / (1 + q)
    equal = zero * zero * (1 + q * q) / (less * (1 + q))
    sizes = sorted({math.floor(times * float(scale)) for times in _WIDTHS})
    return (
        *(
            KnownEvent(f"at most {k} from 0", _at_most(k), 1 - 2 * q ** (k + 1) / (1 + q), _FLOATS)
            for k in sizes
        ),
        *_of_pairs(zero, equal, _FLOATS),
    )


def uniform_events(below: int) -> tuple[KnownEvent, ...]:
    """Return events of independent uniform numbers 0 .. below - 1: their size, remainders, repetition."""
    return (
        *(
            KnownEvent(f"below {n} of 8 parts", _below(n * below // 8), (n * below // 8) / below)
            for n in (1, 2, 4, 7)
        ),
        *(
            KnownEvent(f"divided by {n}, {rest} is left", _leaves(n, rest), -(-(below - rest) // n) / below)
            for n in (2, 5)
            for rest in range(min(n, below))
        ),
        KnownEvent("two that follow each other are equal", _equal_next, 1 / below),
        KnownEvent("two that are far from each other are equal", _equal_far, 1 / below),
    )


def _below(end: int) -> Callable[[Numbers], NDArray[np.bool_]]:
    return lambda drawn: drawn < end


def _leaves(divisor: int, rest: int) -> Callable[[Numbers], NDArray[np.bool_]]:
    return lambda drawn: drawn % divisor == rest


def _of_pairs(zero: float, equal: float, slack: float) -> tuple[KnownEvent, ...]:
    """Return events of two numbers of a symmetric law, by the probabilities of 0 and of two equal ones."""
    return (
        KnownEvent("two that follow each other have the same sign", _same_sign, (1 - zero) ** 2 / 2, slack),
        KnownEvent("two that follow each other are equal", _equal_next, equal, slack),
        KnownEvent("two that are far from each other are equal", _equal_far, equal, slack),
        *(
            KnownEvent(f"two that are {apart:,} apart are equal", _equal_apart(apart), equal, slack)
            for apart in _APART
        ),
    )


def _equal_apart(apart: int) -> Callable[[Numbers], NDArray[np.bool_]]:
    def equal(drawn: Numbers) -> NDArray[np.bool_]:
        blocks = drawn[: len(drawn) // (2 * apart) * (2 * apart)].reshape(-1, 2, apart)
        return np.asarray(blocks[:, 0] == blocks[:, 1]).reshape(-1)

    return equal


def _at_most(width: int) -> Callable[[Numbers], NDArray[np.bool_]]:
    return lambda drawn: np.abs(drawn) < width + 0.5


def _same_sign(drawn: Numbers) -> NDArray[np.bool_]:
    pairs = np.sign(drawn[: len(drawn) // 2 * 2].reshape(-1, 2))
    return (pairs[:, 0] * pairs[:, 1]) > 0


def _equal_next(drawn: Numbers) -> NDArray[np.bool_]:
    pairs = drawn[: len(drawn) // 2 * 2].reshape(-1, 2)
    return np.asarray(pairs[:, 0] == pairs[:, 1])


def _equal_far(drawn: Numbers) -> NDArray[np.bool_]:
    half = len(drawn) // 2
    return np.asarray(drawn[:half] == drawn[half : 2 * half])
