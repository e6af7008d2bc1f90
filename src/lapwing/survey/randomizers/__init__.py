"""Randomizers: one answer in, one message of a fixed size out, with exact odds.

A file has one family: the claim, why it holds, the law, the sampler and the estimate from messages.
"""

from __future__ import annotations

from lapwing.survey.randomizers.bitwise import BitwiseResponse, UnaryEncoding
from lapwing.survey.randomizers.choice import KaryResponse
from lapwing.survey.randomizers.hadamard import HadamardResponse
from lapwing.survey.randomizers.numbers import (
    DuchiResponse,
    HybridResponse,
    Piecewise,
    SquareWave,
    WindowResponse,
)
from lapwing.survey.randomizers.prefixes import PrefixResponse
from lapwing.survey.randomizers.projective import ProjectiveResponse
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    FrequencyOracle,
    Messages,
    NumericRandomizer,
    Randomizer,
    Recipe,
)
from lapwing.survey.randomizers.recipes import KINDS, from_recipe
from lapwing.survey.randomizers.subset import SubsetSelection

__all__ = [
    "KINDS",
    "ODDS",
    "BitwiseResponse",
    "DuchiResponse",
    "FrequencyOracle",
    "HadamardResponse",
    "HybridResponse",
    "KaryResponse",
    "Messages",
    "NumericRandomizer",
    "Piecewise",
    "PrefixResponse",
    "ProjectiveResponse",
    "Randomizer",
    "Recipe",
    "SquareWave",
    "SubsetSelection",
    "UnaryEncoding",
    "WindowResponse",
    "from_recipe",
]
