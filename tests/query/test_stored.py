"""Stored answers are what was stored."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.query.answering.noising import Noisy
from lapwing.query.answering.shares import Wanted
from lapwing.query.answering.stored import Asked, from_bytes, to_bytes

ASKED = Asked("SELECT 'é' ", 3, Fraction(1, 3), Fraction(1, 10**9), "gaussian", 2, "how", "what")


def test_what_was_stored_comes_back() -> None:
    codes = {
        Wanted(0, "quantile", Fraction(1, 3)): np.array([1, -2]),
        Wanted(0, "max", None): np.array([2**52, 0]),
    }
    keys: list[tuple[Any, ...]] = [("é\n\"'\x00\u2028", 1), ("", -(2**62))]
    some = Noisy((np.array([2**63 - 1, -(2**63)]), np.array([0, 1])), codes, keys, 2)
    empty = Noisy((np.zeros(0, dtype=np.int64),), {}, [], 0)
    declared = Noisy((np.arange(5),), {}, None, 5)
    asked, found = from_bytes(to_bytes(ASKED, [some, empty, declared]))
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
    assert to_bytes(other, ()) != to_bytes(ASKED, ())
