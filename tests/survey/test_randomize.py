"""The Python client's coins: their law, exactly, and the vectors that it shares with the page."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadValue
from lapwing.survey.offered import offered_question
from lapwing.survey.randomize import ByteCoins
from lapwing.survey.randomizers import ODDS, from_recipe
from support.cases import each
from support.coins import SMALL, law_of, leaves, most_coins, weight
from survey import make_vectors

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
kinds = pytest.mark.parametrize("recipe", SMALL, ids=lambda recipe: f"{recipe['kind']}")


def answers_of(recipe: dict[str, Any]) -> list[int]:
    """All of them, or some of many."""
    every = from_recipe(recipe).inputs
    return list(range(every)) if every <= 32 else [0, 1, 33, every // 2, every - 1]


class Given:
    """Random bytes that were fixed before."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def take(self, size: int) -> bytes:
        piece, self.left = self.left[:size], self.left[size:]
        assert len(piece) == size
        return piece


@kinds
def test_every_branch_together_is_exactly_the_stated_law(recipe: dict[str, Any]) -> None:
    randomizer = from_recipe(recipe)
    for answer in answers_of(recipe):
        law = law_of(leaves(partial(from_recipe(recipe).randomize, answer), most_coins(recipe)))
        assert sum(law.values()) == 1
        assert law == {message: randomizer.probability(answer, message) for message in law}


@kinds
def test_every_message_is_of_the_stated_size_and_can_be_decoded(recipe: dict[str, Any]) -> None:
    randomizer = from_recipe(recipe)
    for _, message in leaves(partial(from_recipe(recipe).randomize, 0), most_coins(recipe)):
        assert message is None or len(message) == randomizer.size


def test_rounds_that_are_thrown_again_are_alike() -> None:
    # So the share of a message among accepted first rounds is its share among all.
    recipe = next(each for each in SMALL if each["kind"] == "projective" and each["prime"] == 3)
    dimension = recipe["dimension"]
    firsts, seconds = Counter[tuple[int, bytes]](), Counter[tuple[int, bytes]]()
    for path, message in leaves(partial(from_recipe(recipe).randomize, 4), most_coins(recipe, rounds=2)):
        if message is not None:
            found = firsts if len(path) == 1 + dimension else seconds
            found[path[0][2], message] += 1
    for told in (0, 1):
        alike = {Fraction(seconds[key], firsts[key]) for key in firsts if key[0] == told}
        assert len(alike) == 1
    assert firsts.keys() == seconds.keys()


def test_the_weights_of_all_branches_add_up_to_one() -> None:
    for recipe in SMALL:
        found = leaves(partial(from_recipe(recipe).randomize, 0), most_coins(recipe))
        assert sum(weight(path) for path, _ in found) == 1


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 8, 100, 200, 255, 256])
def test_below_is_uniform_over_all_bytes(bound: int) -> None:
    # Every first byte, followed by zeros where it is thrown again: the first tries alone must be even.
    bits = (bound - 1).bit_length()
    firsts = Counter[int]()
    for byte in range(256):
        source = Given(bytes([byte, 0]))
        fell = ByteCoins(source.take).below(bound)
        if bound == 1 or len(source.left) == 1:
            firsts[fell] += 1
    assert set(firsts) == set(range(bound))
    assert set(firsts.values()) == {256 if bound == 1 else 1 << (8 - bits)}


def test_below_a_large_number_keeps_the_low_bits() -> None:
    source = Given(bytes.fromhex("fffffe01"))
    assert ByteCoins(source.take).below(300) == 0x1FF & 0xFE01 == 1
    assert source.left == b""


@pytest.mark.parametrize(("drawn", "told"), [(0, True), (776, True), (777, False), (ODDS - 1, False)])
def test_odds_compare_six_bytes(drawn: int, told: bool) -> None:
    assert ByteCoins(lambda count: drawn.to_bytes(count, "big")).odds(777) is told


@pytest.mark.parametrize("answer", [-1, 5, True, "1"])
def test_an_answer_that_does_not_exist_is_refused(answer: Any) -> None:
    with pytest.raises(BadValue, match="that this question knows"):
        from_recipe({"kind": "choice", "options": 5, "favoured": ODDS // 2}).randomize(answer, ByteCoins())


@each("place", range(len(VECTORS["questions"])))
def test_the_vectors_hold(place: int) -> None:
    found = VECTORS["questions"][place]
    randomizer = from_recipe(found["question"]["recipe"])
    for thrown in found["throws"]:
        source = Given(bytes.fromhex(thrown["coins"]))
        message = randomizer.randomize(int(thrown["answer"]), ByteCoins(source.take))
        assert message.hex() == thrown["message"]
        assert source.left == b""
        assert randomizer.probability(int(thrown["answer"]), message) > 0


def test_the_vectors_are_what_their_script_makes() -> None:
    assert make_vectors.PLACE.read_text() == make_vectors.text()


def test_the_vectors_have_every_kind_of_recipe_and_of_question() -> None:
    questions = [found["question"] for found in VECTORS["questions"]]
    recipes = {question["recipe"]["kind"] for question in questions}
    assert recipes == {recipe["kind"] for recipe in SMALL}
    asked = {"yes_no", "choice", "several", "rating", "ranking", "number", "date", "word"}
    assert {question["kind"] for question in questions} == asked
    assert {offered_question({"name": "q", "text": "", **question}).kind for question in questions} == asked
