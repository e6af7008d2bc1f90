"""Stored answers are what was stored."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.answering.stored_answers import answer_from_bytes, answer_to_bytes
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.question.bound_query import WantedCode

ASKED = QueryRequest("SELECT 'é' ", 3, Fraction(1, 3), Fraction(1, 10**9), "gaussian", 2, "how", "what")


def test_what_was_stored_comes_back() -> None:
    codes = {
        WantedCode(0, "quantile", Fraction(1, 3)): np.array([1, -2]),
        WantedCode(0, "max", None): np.array([2**52, 0]),
    }
    keys: list[tuple[Any, ...]] = [("é\n\"'\x00\u2028", 1), ("", -(2**62))]
    some = NoisyGrouping((np.array([2**63 - 1, -(2**63)]), np.array([0, 1])), codes, keys, 2)
    empty = NoisyGrouping((np.zeros(0, dtype=np.int64),), {}, [], 0)
    declared = NoisyGrouping((np.arange(5),), {}, None, 5)
    asked, found = answer_from_bytes(answer_to_bytes(ASKED, [some, empty, declared]))
    assert asked == ASKED
    for one, other in zip((some, empty, declared), found, strict=True):
        assert (one.keys, one.groups) == (other.keys, other.groups)
        assert [part.tolist() for part in one.parts] == [part.tolist() for part in other.parts]
        assert {w: c.tolist() for w, c in one.codes.items()} == {
            w: c.tolist() for w, c in other.codes.items()
        }


@pytest.mark.parametrize("change", [{"sql": "x"}, {"version": 4}, {"rows": None}, {"meaning": "other"}])
def test_another_question_has_another_shape(change: dict[str, Any]) -> None:
    assert replace(ASKED, **change).shape != ASKED.shape


@pytest.mark.parametrize(
    "change", [{"epsilon": Fraction(1)}, {"delta": Fraction(0)}, {"noise": "laplace"}, {"mechanisms": "x"}]
)
def test_another_price_has_the_same_shape_and_is_another_request(change: dict[str, Any]) -> None:
    other = replace(ASKED, **change)
    assert other.shape == ASKED.shape
    assert answer_to_bytes(other, ()) != answer_to_bytes(ASKED, ())
