"""The code that devices run is enumerated: mistakes in its coins are found, and correct code passes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.device_coins import check_device, coin_mistake, law_of, leaves
from lapwing.audit.registry.randomizers import randomizer_cases
from lapwing.survey.randomize import ByteCoins, CoinSource
from lapwing.survey.randomizers import (
    ODDS,
    KaryResponse,
    ProjectiveResponse,
    SubsetSelection,
    from_recipe,
)
from support.cases import each
from support.coins import SMALL

PATHS = 10_000


@each("recipe", SMALL)
def test_correct_code_has_the_stated_law(recipe: dict[str, Any]) -> None:
    found = check_device(from_recipe(recipe), recipe["kind"], PATHS)
    assert found.witness is None
    assert found.answers >= 2
    assert found.paths > found.answers


def test_a_subset_that_always_has_the_truth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = SubsetSelection.draw

    class Certain:
        def __init__(self, source: CoinSource) -> None:
            self.below = source.below

        def odds(self, of: int) -> bool:
            del of
            return True

    monkeypatch.setattr(
        SubsetSelection, "draw", lambda self, answer, source: draw(self, answer, Certain(source))
    )
    found = check_device(SubsetSelection.for_epsilon(1, options=6), "subset", PATHS)
    assert found.witness is not None
    assert found.witness.at_least == float("inf")
    case = next(one for one in randomizer_cases() if one.name == "survey: subset")
    assert case.stages[Stage.EXACT](StageBudget(is_thorough=False)).witness is not None


def _one_option_less(self: KaryResponse, answer: int, source: CoinSource) -> int:
    if source.odds(self.favoured):
        return answer
    other = source.below(self.options - 2)
    return other + (other >= answer)


def _one_chance_more(self: KaryResponse, answer: int, source: CoinSource) -> int:
    if source.odds(self.favoured + 1):
        return answer
    other = source.below(self.options - 1)
    return other + (other >= answer)


def _fails_for_one(self: KaryResponse, answer: int, source: CoinSource) -> int:
    del source
    if answer == 2:
        raise ZeroDivisionError
    return answer


@pytest.mark.parametrize("broken", [_one_option_less, _one_chance_more, _fails_for_one])
def test_small_mistakes_are_found(monkeypatch: pytest.MonkeyPatch, broken: Callable[..., int]) -> None:
    monkeypatch.setattr(KaryResponse, "draw", broken)
    assert check_device(KaryResponse.for_epsilon(1, options=4), "one of four", PATHS).witness is not None


def test_a_second_round_that_is_not_like_the_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made, draw = ProjectiveResponse.for_epsilon(1, options=6), ProjectiveResponse.draw

    class Lazy:
        """Coins whose numbers after the first round are 1, whatever was drawn."""

        def __init__(self, source: CoinSource) -> None:
            self.odds, self._source, self._drawn = source.odds, source, 0

        def below(self, bound: int) -> int:
            self._drawn += 1
            return min(self._source.below(bound), 1 if self._drawn > made.dimension else bound)

    monkeypatch.setattr(
        ProjectiveResponse, "draw", lambda self, answer, source: draw(self, answer, Lazy(source))
    )
    found = check_device(made, "projective", PATHS)
    assert found.witness is not None
    assert "drawn again" in found.witness.event


def test_the_law_of_coins_is_exact() -> None:
    def play(source: CoinSource) -> bytes:
        return b"a" if source.odds(ODDS // 4) else bytes([source.below(3)])

    law = law_of(leaves(play, None))
    assert law == {b"a": Fraction(1, 4), **{bytes([n]): Fraction(1, 4) for n in range(3)}}


class _Modulo(ByteCoins):
    def below(self, bound: int) -> int:
        return int.from_bytes(self._take(-(-(bound - 1).bit_length() // 8)), "big") % bound


class _Often(ByteCoins):
    def odds(self, of: int) -> bool:
        return int.from_bytes(self._take(6), "big") <= of


class _Swapped(ByteCoins):
    def odds(self, of: int) -> bool:
        return int.from_bytes(self._take(6), "little") < of


def test_coins_are_compared_byte_by_byte() -> None:
    assert not coin_mistake(ByteCoins)
    assert "equally likely" in coin_mistake(_Modulo)
    assert "falls wrongly" in coin_mistake(_Often)
    assert "falls wrongly" in coin_mistake(_Swapped)


def test_too_many_ways_are_not_listed() -> None:
    assert check_device(KaryResponse.for_epsilon(1, options=100_000), "many", PATHS).answers == 0
