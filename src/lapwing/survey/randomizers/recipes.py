"""Read recipes that the owner of a survey sent, and make their randomizers.

A recipe is public, but nobody has to trust it. Every whole number is checked. The loss of a message is
computed from these numbers, whatever ε the owner states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapwing.errors import BadParameter
from lapwing.survey.randomizers.index_oracles import HadamardResponse, KaryResponse, ProjectiveResponse
from lapwing.survey.randomizers.mask_oracles import BitwiseResponse, SubsetSelection, UnaryEncoding
from lapwing.survey.randomizers.numbers import DuchiResponse, HybridResponse, WindowResponse
from lapwing.survey.randomizers.prefixes import MOST_LETTERS, PrefixResponse
from lapwing.survey.randomizers.randomizer import Randomizer

_PLAIN: dict[str, type[Randomizer]] = {
    made.kind: made
    for made in (
        KaryResponse, SubsetSelection, HadamardResponse, ProjectiveResponse, BitwiseResponse, UnaryEncoding,
        WindowResponse, DuchiResponse,
    )
}  # fmt: skip
_NESTED: dict[str, type[Randomizer]] = {made.kind: made for made in (HybridResponse, PrefixResponse)}
KINDS = (*_PLAIN, *_NESTED)
MOST_RECIPE_NUMBER = 1 << 62


def from_recipe(recipe: object) -> Randomizer:
    """Make the randomizer of a recipe. Its loss follows from the recipe's numbers alone.

    Raises `BadParameter` if the recipe is not sound.
    """
    kind, parts = _parts(recipe)
    if kind in _PLAIN:
        return _plain(recipe)
    if kind == "hybrid":
        window, duchi = _plain(parts["window"]), _plain(parts["duchi"])
        if not isinstance(window, WindowResponse) or not isinstance(duchi, DuchiResponse):
            raise BadParameter("kind", "must be window and duchi inside a hybrid")
        return HybridResponse(_number(parts["odds"], "odds"), window, duchi)
    levels, inner = parts["levels"], parts["inner"]
    for name, several in (("levels", levels), ("inner", inner)):
        if not isinstance(several, list) or not 1 <= len(several) <= MOST_LETTERS:
            raise BadParameter(name, "must be a list, one for each level")
    made = []
    for nested in inner:
        randomizer = _plain(nested)
        if not isinstance(randomizer, SubsetSelection | HadamardResponse | ProjectiveResponse):
            raise BadParameter("inner", "must be of kind subset, hadamard or projective")
        made.append(randomizer)
    return PrefixResponse(
        _number(parts["letters"], "letters"),
        tuple(_number(level, "levels") for level in levels),
        tuple(made),
    )


def _parts(recipe: object) -> tuple[str, Mapping[str, Any]]:
    """Return the kind and the recipe. Raise `BadParameter` unless it has exactly the names of its kind."""
    if not isinstance(recipe, Mapping):
        raise BadParameter("recipe", "must be a table of names and values")
    kind = recipe.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadParameter("kind", f"must be one of {', '.join(KINDS)}")
    names = (_PLAIN.get(kind) or _NESTED[kind]).recipe_names()
    if set(recipe) != {"kind", *names}:
        raise BadParameter("recipe", f"of kind {kind} must have exactly kind, {', '.join(names)}")
    return kind, recipe


def _number(value: object, name: str) -> int:
    """Return a whole number of at most 2^62. JSON's true and 1.0 are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadParameter(name, "must be a whole number")
    if not 0 <= value <= MOST_RECIPE_NUMBER:
        raise BadParameter(name, "must lie in 0 .. 2^62")
    return value


def _plain(recipe: object) -> Randomizer:
    """Make a randomizer that has no others inside."""
    kind, parts = _parts(recipe)
    if kind not in _PLAIN:
        raise BadParameter("kind", "must be one without others inside here")
    return _PLAIN[kind](*(_number(parts[name], name) for name in _PLAIN[kind].recipe_names()))
