"""Randomizers: one answer in, one message of a fixed size out, with exact odds.

A file has one kind of message. For each randomizer it has the claim, why it holds, the law, its statement
in words, the draw on a device, the sampler and the estimate from messages.
"""

from __future__ import annotations

from lapwing.survey.randomizers.index_oracles import HadamardResponse, KaryResponse, ProjectiveResponse
from lapwing.survey.randomizers.mask_oracles import BitwiseResponse, SubsetSelection, UnaryEncoding
from lapwing.survey.randomizers.numbers import (
    DuchiResponse,
    HybridResponse,
    Piecewise,
    SquareWave,
    WindowResponse,
)
from lapwing.survey.randomizers.prefixes import PrefixResponse
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    FrequencyOracle,
    Messages,
    NumericRandomizer,
    Randomizer,
    Recipe,
)
from lapwing.survey.randomizers.recipes import KINDS, from_recipe

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
