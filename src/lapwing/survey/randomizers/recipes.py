"""Recipes from outside: a randomizer from what the owner of a survey sent, or `BadParameter`.

A recipe is public, but nobody has to trust it. Every whole number is checked, and what a message reveals
is computed from these numbers, whatever ε the owner states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lapwing.errors import BadParameter
from lapwing.survey.randomizers.bitwise import BitwiseResponse, UnaryEncoding
from lapwing.survey.randomizers.choice import KaryResponse
from lapwing.survey.randomizers.hadamard import HadamardResponse
from lapwing.survey.randomizers.numbers import DuchiResponse, HybridResponse, WindowResponse
from lapwing.survey.randomizers.prefixes import MOST_LETTERS, PrefixResponse
from lapwing.survey.randomizers.projective import ProjectiveResponse
from lapwing.survey.randomizers.randomizer import Randomizer
from lapwing.survey.randomizers.subset import SubsetSelection

PlainRandomizer = (
    KaryResponse
    | SubsetSelection
    | HadamardResponse
    | ProjectiveResponse
    | BitwiseResponse
    | UnaryEncoding
    | WindowResponse
    | DuchiResponse
)

_PLAIN: dict[str, tuple[Callable[..., PlainRandomizer], tuple[str, ...]]] = {
    "choice": (KaryResponse, ("options", "favoured")),
    "subset": (SubsetSelection, ("options", "chosen", "favoured")),
    "hadamard": (HadamardResponse, ("bits", "options", "favoured")),
    "projective": (ProjectiveResponse, ("prime", "dimension", "options", "favoured")),
    "bits": (BitwiseResponse, ("options", "favoured")),
    "unary": (UnaryEncoding, ("options", "one", "zero")),
    "window": (WindowResponse, ("steps", "stride", "width", "none", "favoured")),
    "duchi": (DuchiResponse, ("steps", "none", "favoured")),
}
_NESTED = {"hybrid": ("odds", "window", "duchi"), "prefixes": ("letters", "levels", "inner")}
KINDS = (*_PLAIN, *_NESTED)
MOST_RECIPE_NUMBER = 1 << 62


def from_recipe(recipe: object) -> Randomizer:
    """The randomizer that a recipe describes. Its loss follows from the recipe's numbers alone."""
    kind, parts = _parts(recipe)
    if kind in _PLAIN:
        return _plain(recipe, kind)
    if kind == "hybrid":
        window, duchi = _plain(parts["window"], "window"), _plain(parts["duchi"], "duchi")
        assert isinstance(window, WindowResponse)
        assert isinstance(duchi, DuchiResponse)
        return HybridResponse(_number(parts["odds"], "odds"), window, duchi)
    levels, inner = parts["levels"], parts["inner"]
    for name, several in (("levels", levels), ("inner", inner)):
        if not isinstance(several, list) or not 1 <= len(several) <= MOST_LETTERS:
            raise BadParameter(name, "must be a list, one for each level")
    made = []
    for one in inner:
        found = _plain(one)
        if not isinstance(found, SubsetSelection | HadamardResponse | ProjectiveResponse):
            raise BadParameter("inner", "must be of kind subset, hadamard or projective")
        made.append(found)
    return PrefixResponse(
        _number(parts["letters"], "letters"),
        tuple(_number(level, "levels") for level in levels),
        tuple(made),
    )


def _parts(recipe: object) -> tuple[str, Mapping[str, Any]]:
    """The kind, and the rest: exactly what that kind has."""
    if not isinstance(recipe, Mapping):
        raise BadParameter("recipe", "must be a table of names and values")
    kind = recipe.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadParameter("kind", f"must be one of {', '.join(KINDS)}")
    names = _PLAIN[kind][1] if kind in _PLAIN else _NESTED[kind]
    if set(recipe) != {"kind", *names}:
        raise BadParameter("recipe", f"of kind {kind} must have exactly kind, {', '.join(names)}")
    return kind, recipe


def _number(value: object, name: str) -> int:
    """A plain whole number that fits 64 bits: JSON's true and 1.0 are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadParameter(name, "must be a whole number")
    if not 0 <= value <= MOST_RECIPE_NUMBER:
        raise BadParameter(name, "must lie in 0 .. 2^62")
    return value


def _plain(recipe: object, wanted: str = "") -> PlainRandomizer:
    """A randomizer without others inside."""
    kind, parts = _parts(recipe)
    if kind not in _PLAIN or (wanted and kind != wanted):
        raise BadParameter("kind", f"must be {wanted or 'one without others inside'} here")
    make, names = _PLAIN[kind]
    return make(*(_number(parts[name], name) for name in names))
