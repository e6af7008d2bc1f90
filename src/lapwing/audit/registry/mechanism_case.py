"""The case of a mechanism: exact laws of its own code on the worst neighbours at many settings, and draws.

The laws are those of the mechanism's own code (`lapwing.audit.forced_draws`): the scales, rates, coins and
counts that reach the random primitives. The claim is the loss that is charged. So a wrong number anywhere
in a mechanism shows exactly, and a wrong primitive in the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.forced_draws import ForcedDraws, Scales
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage

NONE = Fraction(0)
ONE = Fraction(1)
DELTA = Fraction(1, 100)
QUICK = 3  # settings of an audit that is not thorough
Setting = TypeVar("Setting")
Pairs = Callable[[Setting], Iterator[ExactPair]]
FORCED, SCALES = ForcedDraws(), Scales()


@lru_cache(maxsize=8)
def forced(module: ModuleType) -> Any:
    """Return a copy of a module whose choices and coins are forced."""
    return FORCED.in_copy(module)


@lru_cache(maxsize=8)
def scaled(module: ModuleType) -> Any:
    """Return a copy of a module whose noise is 0, and its scale known."""
    return SCALES.in_copy(module)


def _varied(settings: Sequence[Setting]) -> list[Setting]:
    """Return all settings, the first one first, in an order whose first few differ in everything."""
    return [settings[7 * place % len(settings)] for place in range(len(settings))]


def mechanism_case(
    name: str,
    kind: type,
    settings: Sequence[Setting],
    pairs: Pairs[Setting],
    draws: list[SampledPair],
    *,
    epsilon: Fraction = ONE,
    delta: Fraction = NONE,
) -> AuditCase:
    """Return the case of a mechanism. The first setting is the one that the case claims."""

    def chosen(budget: StageBudget) -> Iterator[ExactPair]:
        for setting in settings if budget.is_thorough else _varied(settings)[:QUICK]:
            yield from pairs(setting)

    stages = {
        Stage.EXACT: exact_stage(chosen, epsilon=epsilon, delta=delta),
        Stage.SAMPLED: sampled_stage(draws, epsilon, delta),
    }
    return AuditCase(name, Family.MECHANISM, (kind,), epsilon, delta, stages)


def sampled_on(
    description: str, draw_on: Callable[[Any, Any], Draw], mechanism: Any, first: Any, second: Any
) -> SampledPair:
    """Return draws of one mechanism on two neighbouring inputs."""
    return SampledPair(description, draw_on(mechanism, first), draw_on(mechanism, second))


def numbers(*texts: str) -> list[Fraction]:
    """Return the rationals that texts stand for."""
    return [Fraction(text) for text in texts]
