"""Recipes come from the owner, who is the adversary: nothing but a sound one is taken."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.survey.randomizers import KINDS, ODDS, PrefixResponse, Randomizer, from_recipe
from support.cases import each
from support.randomizers import SMALL

GOOD: dict[str, dict[str, Any]] = {}
for _name in reversed(SMALL):
    GOOD[SMALL[_name].recipe()["kind"]] = SMALL[_name].recipe()
HALF = ODDS // 2

HOSTILE: list[object] = [
    None,
    [],
    "choice",
    {},
    {"kind": "none"},
    {"kind": ["choice"], "options": 2, "favoured": HALF + 1},
    {"kind": "choice", "options": 1, "favoured": HALF + 1},
    {"kind": "choice", "options": 2},
    {"kind": "choice", "options": 2, "favoured": HALF + 1, "epsilon": 0},
    {"kind": "choice", "options": 2, "favoured": HALF},
    {"kind": "choice", "options": 2, "favoured": ODDS},
    {"kind": "choice", "options": 2, "favoured": 0},
    {"kind": "choice", "options": 2, "favoured": -1},
    {"kind": "choice", "options": True, "favoured": HALF + 1},
    {"kind": "choice", "options": 2.0, "favoured": HALF + 1},
    {"kind": "choice", "options": "2", "favoured": HALF + 1},
    {"kind": "choice", "options": 1 << 40, "favoured": HALF},
    {"kind": "choice", "options": 10**400, "favoured": HALF},
    {"kind": "subset", "options": 5, "chosen": 0, "favoured": HALF},
    {"kind": "subset", "options": 5, "chosen": 5, "favoured": ODDS - 1},
    {"kind": "subset", "options": 5, "chosen": 6, "favoured": ODDS - 1},
    {"kind": "subset", "options": 5, "chosen": 2, "favoured": ODDS * 2 // 5},
    {"kind": "subset", "options": 1 << 20, "chosen": 2, "favoured": HALF},
    {"kind": "hadamard", "bits": 2, "options": 4, "favoured": HALF + 1},
    {"kind": "hadamard", "bits": 63, "options": 4, "favoured": HALF + 1},
    {"kind": "hadamard", "bits": 0, "options": 1, "favoured": HALF + 1},
    {"kind": "projective", "prime": 4, "dimension": 3, "options": 5, "favoured": HALF},
    {"kind": "projective", "prime": 561, "dimension": 2, "options": 5, "favoured": HALF},
    {"kind": "projective", "prime": 1, "dimension": 3, "options": 2, "favoured": HALF},
    {"kind": "projective", "prime": 3, "dimension": 1, "options": 2, "favoured": HALF},
    {"kind": "projective", "prime": 3, "dimension": 3, "options": 14, "favoured": HALF},
    {"kind": "projective", "prime": 3, "dimension": 60, "options": 14, "favoured": HALF},
    {"kind": "projective", "prime": 3, "dimension": 1 << 61, "options": 14, "favoured": HALF},
    {"kind": "projective", "prime": (1 << 61) - 1, "dimension": 2, "options": 14, "favoured": HALF},
    {"kind": "bits", "options": 0, "favoured": HALF + 1},
    {"kind": "bits", "options": 63, "favoured": HALF + 1},
    {"kind": "bits", "options": 3, "favoured": HALF},
    {"kind": "unary", "options": 3, "one": HALF, "zero": HALF},
    {"kind": "unary", "options": 3, "one": HALF, "zero": 0},
    {"kind": "unary", "options": 3, "one": ODDS, "zero": 5},
    {"kind": "unary", "options": 1 << 30, "one": HALF, "zero": 5},
    {"kind": "window", "steps": 0, "stride": 1, "width": 1, "none": 0, "favoured": HALF},
    {"kind": "window", "steps": 5, "stride": 0, "width": 1, "none": 0, "favoured": HALF},
    {"kind": "window", "steps": 5, "stride": 1, "width": 0, "none": 0, "favoured": HALF},
    {"kind": "window", "steps": 5, "stride": 1, "width": 1, "none": 2, "favoured": HALF},
    {"kind": "window", "steps": 5, "stride": 1, "width": 1, "none": False, "favoured": HALF},
    {"kind": "window", "steps": 1 << 39, "stride": 1 << 39, "width": 1, "none": 0, "favoured": HALF},
    {"kind": "window", "steps": 5, "stride": 1, "width": 5, "none": 0, "favoured": HALF},
    {"kind": "duchi", "steps": 5, "none": 1, "favoured": ODDS // 3},
    {"kind": "duchi", "steps": 1 << 41, "none": 0, "favoured": HALF + 1},
    {**GOOD["hybrid"], "odds": ODDS + 1},
    {**GOOD["hybrid"], "odds": -1},
    {**GOOD["hybrid"], "window": GOOD["hybrid"]},
    {**GOOD["hybrid"], "window": GOOD["hybrid"]["duchi"]},
    {**GOOD["hybrid"], "duchi": {**GOOD["hybrid"]["duchi"], "steps": 99}},
    {**GOOD["prefixes"], "letters": 13},
    {**GOOD["prefixes"], "letters": 0},
    {**GOOD["prefixes"], "levels": []},
    {**GOOD["prefixes"], "levels": 1},
    {**GOOD["prefixes"], "levels": [2]},
    {**GOOD["prefixes"], "levels": [1, 1], "inner": GOOD["prefixes"]["inner"] * 2},
    {**GOOD["prefixes"], "levels": [0]},
    {**GOOD["prefixes"], "levels": [True]},
    {**GOOD["prefixes"], "inner": []},
    {**GOOD["prefixes"], "inner": [GOOD["prefixes"]]},
    {**GOOD["prefixes"], "inner": [GOOD["choice"]]},
    {**GOOD["prefixes"], "inner": [None]},
    {**GOOD["prefixes"], "levels": [1] * 1000, "inner": GOOD["prefixes"]["inner"] * 1000},
]


@each("recipe", HOSTILE)
def test_hostile_recipes_are_refused(recipe: object) -> None:
    with pytest.raises(BadParameter):
        from_recipe(recipe)


def test_every_kind_has_a_good_recipe_that_survives_json() -> None:
    assert set(GOOD) == set(KINDS)
    for recipe in GOOD.values():
        assert from_recipe(json.loads(json.dumps(recipe))).recipe() == recipe


numbers = st.one_of(
    st.integers(-2, 70), st.sampled_from([HALF, HALF + 1, ODDS - 1, ODDS, 1 << 62]), st.integers(0, ODDS)
)
wild = st.one_of(numbers, st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.lists(numbers))


@settings(deadline=None)
@given(st.data())
def test_any_recipe_is_refused_or_makes_a_private_randomizer(data: st.DataObject) -> None:
    recipe = dict(data.draw(st.sampled_from(list(GOOD.values()))))
    for name in data.draw(st.sets(st.sampled_from(sorted(recipe)), max_size=3)):
        recipe[name] = data.draw(wild)
    try:
        made = from_recipe(recipe)
    except BadParameter:
        return
    assert isinstance(made, Randomizer)
    assert 0 < made.loss.epsilon < 62 * 64
    assert made.inputs >= 1
    assert made.recipe() == recipe


def test_the_loss_is_that_of_the_coins_whatever_is_stated() -> None:
    """An owner who sends almost certain coins cannot hide it."""
    made = from_recipe({"kind": "choice", "options": 2, "favoured": ODDS - 1})
    assert made.loss.epsilon > 33


def test_the_loss_of_words_is_that_of_the_worst_level() -> None:
    good = PrefixResponse.for_epsilon(1, letters=4, levels=(1, 2)).recipe()
    good["inner"][1]["favoured"] = ODDS - 1
    assert from_recipe(good).loss.epsilon > Fraction(30)


@pytest.mark.parametrize("levels", [[], [0, 1], [2, 1], [1, 1], [5], ["1"], [1.5]])
def test_bad_levels_are_refused(levels: list[Any]) -> None:
    with pytest.raises(BadParameter):
        PrefixResponse.for_epsilon(1, letters=4, levels=levels)


def test_levels_end_with_the_whole_word() -> None:
    assert PrefixResponse.for_epsilon(1, letters=1).levels == (1,)
    assert PrefixResponse.for_epsilon(1, letters=6).levels == (2, 4, 6)
    assert PrefixResponse.for_epsilon(2, letters=7).levels == (2, 4, 6, 7)
