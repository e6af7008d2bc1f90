"""The noise of mechanisms at all sizes: the scale that reaches the primitives, and draws beside their laws.

Claim    at each size that is tried, a mechanism hands the scale that it is charged for to its primitive,
         and draws in small and in large batches follow the law of that scale.
Because  the scale is read where the primitive is called (`forced_draws.Scales`), and compared exactly.
         Samplers draw few numbers in another way than many: batches of both kinds are compared.
Test     tests/audit/registry/test_noise_laws.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.forced_draws import Scales
from lapwing.audit.stages.known_law import (
    DRAWS,
    KnownLaw,
    gaussian_events,
    laplace_events,
    with_known_laws,
)
from lapwing.core import gaussian, laplace, selection
from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.selection import NoisyMax

ONE, MILLIONTH = Fraction(1), Fraction(1, 10**6)
# Small and large, whole and not: a scale that is rounded anywhere shows in one of them.
_PARTS = ("1/3", "1", "5/2", "31/2", "67/4", "1001/3", "100001/7", f"{1 << 20}.3", f"{1 << 40}.3")
SIZES = tuple(map(Fraction, _PARTS))
_LENGTHS = (1, 3, 1000)
_LOTS = (100, DRAWS)  # numbers of a batch
_SCALES = Scales()
Drawn = tuple[
    str, Fraction, Fraction
]  # in words; the scale that is drawn with, and the one that is charged


@lru_cache(maxsize=4)
def _scaled(module: ModuleType) -> Any:
    """Return a copy of a module whose noise is 0, and its scale known."""
    return _SCALES.in_copy(module)


def with_noise_laws(case: AuditCase) -> AuditCase:
    """Return the case of a mechanism that adds noise, with its scales at all sizes, and its draws."""
    (kind,) = case.covers
    stages = dict(case.stages)
    stages[Stage.EXACT] = _with_scales(stages[Stage.EXACT], _DRAWN[kind])
    if kind in _KNOWN:
        known, claimed = _KNOWN[kind], float(case.epsilon)
        stages[Stage.SAMPLED] = with_known_laws(stages[Stage.SAMPLED], known, claimed)
    return replace(case, stages=stages)


def _with_scales(stage: RunStage, drawn: Callable[[], Iterator[Drawn]]) -> RunStage:
    """Return an exact stage that also compares the scales that reach the primitives."""

    def run(budget: StageBudget) -> StageResult:
        result = stage(budget)
        if not result.holds:
            return result
        for words, scale, charged in drawn():
            result = replace(result, checks=result.checks + 1)
            if scale < charged:
                numbers = {"scale of the noise": float(scale), "scale that is charged": float(charged)}
                event = "the noise is narrower than the noise that is charged"
                return replace(result, witness=Witness(words, event, numbers), notes=())
        return result

    return run


def _laplace() -> Iterator[Drawn]:
    for size in SIZES:
        mechanism = _scaled(laplace).Laplace(size, _distance(size))
        for length in _LENGTHS:
            least = _least(mechanism, length)
            yield f"Laplace noise of {length} numbers", least, mechanism.loss.scale


def _laplace_shares() -> Iterator[Drawn]:
    for size in SIZES:
        for of in (1, 2, 5):
            mechanism = _scaled(laplace).LaplaceShares(size, _distance(size), of)
            scales, parties, _ = _SCALES.of_vector(lambda: mechanism.sample([0, 0]))  # noqa: B023
            words = f"shares of Laplace noise, {of} a noise"
            yield words, min(scales), mechanism.loss.scale
            yield f"{words}: the part of a share", Fraction(1, parties), Fraction(1, of)


def _gaussian() -> Iterator[Drawn]:
    for size in SIZES:
        for length in _LENGTHS:
            mechanism = _scaled(gaussian).Gaussian(size, ONE, length)
            least = _least(mechanism, length)
            yield f"Gaussian noise of {length} numbers", least, mechanism.loss.sigma


def _gaussian_shares() -> Iterator[Drawn]:
    for size in SIZES[2:]:  # narrower shares are refused
        for of in (1, 2, 5):
            mechanism = _scaled(gaussian).GaussianShares(size, ONE, 2, of)
            words = f"shares of Gaussian noise, {of} a noise"
            yield words, _least(mechanism, 2), size


def _noisy_max() -> Iterator[Drawn]:
    for size in SIZES:
        moved = _distance(size)
        mechanism = _scaled(selection).NoisyMax(2 * moved / size, moved)
        used, _ = _SCALES.of(lambda: mechanism.sample([0, 1, 2]))  # noqa: B023
        words = f"noise of scores that move by {moved}"
        yield words, min(scale for scale, _ in used), 2 * moved / mechanism.loss.epsilon


def _least(mechanism: Any, length: int) -> Fraction:
    """Return the least scale with which a mechanism draws the noise of a vector."""
    scales, _, _ = _SCALES.of_vector(lambda: mechanism.sample([0] * length))
    return min(scales)


def _distance(scale: Fraction) -> int:
    """Return a distance at which a scale is neither too narrow nor too wide for a claim."""
    return max(1, round(scale))


# Draws


def _in_lots(draw: Callable[[int], NDArray[np.int64]], lot: int) -> Callable[[], NDArray[np.int64]]:
    return lambda: np.concatenate([draw(lot) for _ in range(DRAWS // lot)])


def _laplace_laws() -> list[KnownLaw]:
    """Return draws of narrow and wide noise, in small batches first: large ones make tables."""
    known = []
    for size in map(Fraction, ("1/2", "1", "29/4", "1001/3")):
        mechanism = Laplace(size, 1)
        for lot in _LOTS:
            draw = _in_lots(lambda n, of=mechanism: of.sample(np.zeros(n, dtype=np.int64)), lot)  # type: ignore[misc]
            name = f"Laplace noise at scale {float(size):g}, {lot:,} at once"
            known.append(KnownLaw(name, draw, laplace_events(size)))
    return known


def _laplace_share_laws() -> list[KnownLaw]:
    """Return sums of as many shares as make one whole noise."""

    def summed(shares: LaplaceShares) -> Callable[[int], NDArray[np.int64]]:
        def draw(size: int) -> NDArray[np.int64]:
            zeros = np.zeros(size, dtype=np.int64)
            return sum((shares.sample(zeros) for _ in range(shares.of)), zeros)

        return draw

    return [
        KnownLaw(
            f"sums of {of} shares at scale {scale}, {lot:,} at once",
            _in_lots(summed(LaplaceShares(Fraction(scale), 1, of)), lot), laplace_events(Fraction(scale)),
        )
        for scale, of in ((1, 3), (20, 2))
        for lot in _LOTS
    ]  # fmt: skip


BUDGETS: Sequence[tuple[Fraction, Fraction]] = (
    (ONE, Fraction(1, 100)), (ONE, MILLIONTH), (Fraction(4), MILLIONTH), (Fraction(1, 4), Fraction(1, 100)),
    (Fraction(8), Fraction(1, 10**12)), (Fraction(9), MILLIONTH), (Fraction(12), Fraction(1, 10**9)),
    (Fraction(20), MILLIONTH),
)  # fmt: skip


def _gaussian_laws() -> list[KnownLaw]:
    """Return draws of the noise of each budget, small and wide, beside the law that is charged."""

    def known(epsilon: Fraction, delta: Fraction, lot: int) -> KnownLaw:
        mechanism = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=lot)
        draw = _in_lots(lambda n: mechanism.sample(np.zeros(n, dtype=np.int64)), lot)
        name = f"Gaussian noise, ε = {epsilon}, δ = {float(delta):g}, {lot:,} at once"
        return KnownLaw(name, draw, gaussian_events(mechanism.loss.sigma))

    return [known(*budget, lot) for lot in _LOTS for budget in (BUDGETS if lot == DRAWS else BUDGETS[:2])]


_DRAWN: dict[Any, Callable[[], Iterator[Drawn]]] = {
    Laplace: _laplace, LaplaceShares: _laplace_shares, Gaussian: _gaussian,
    GaussianShares: _gaussian_shares, NoisyMax: _noisy_max,
}  # fmt: skip
_KNOWN: dict[Any, Callable[[], list[KnownLaw]]] = {
    Laplace: _laplace_laws,
    LaplaceShares: _laplace_share_laws,
    Gaussian: _gaussian_laws,
}
