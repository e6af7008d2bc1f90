"""Randomizers: one answer in, one message of a fixed size out, with exact odds.

One file each: the claim, why it holds, the law, the sample and what is estimated from messages.
"""

from __future__ import annotations

from lapwing.survey.randomizers.bits import Bits
from lapwing.survey.randomizers.choice import Choice
from lapwing.survey.randomizers.duchi import Duchi
from lapwing.survey.randomizers.hadamard import Hadamard
from lapwing.survey.randomizers.hybrid import Hybrid
from lapwing.survey.randomizers.prefixes import Prefixes
from lapwing.survey.randomizers.projective import Projective
from lapwing.survey.randomizers.randomizer import Messages, Numeric, Oracle, Randomizer, Recipe
from lapwing.survey.randomizers.recipes import KINDS, from_recipe
from lapwing.survey.randomizers.subset import Subset
from lapwing.survey.randomizers.two_level import ODDS
from lapwing.survey.randomizers.unary import Unary
from lapwing.survey.randomizers.window import Piecewise, SquareWave, Window

__all__ = [
    "KINDS",
    "ODDS",
    "Bits",
    "Choice",
    "Duchi",
    "Hadamard",
    "Hybrid",
    "Messages",
    "Numeric",
    "Oracle",
    "Piecewise",
    "Prefixes",
    "Projective",
    "Randomizer",
    "Recipe",
    "SquareWave",
    "Subset",
    "Unary",
    "Window",
    "from_recipe",
]
