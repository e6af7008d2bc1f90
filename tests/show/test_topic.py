"""Tables and cells as people and programs read them."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.show.topic import Cell, NumberTable, Parameter, Shown, Topic, cell_text, computed_in, to_json


def _topic() -> Topic:
    epsilon = Parameter("epsilon", Fraction(1), Fraction(1, 10), Fraction(3), "the loss")
    return Topic("x", "What?", (epsilon,), "laplace.md", computed_in("none", "none"))


def _shown(*cells: Cell) -> Shown:
    table = NumberTable("t", tuple(f"c{place}" for place in range(len(cells))), (cells,))
    return Shown("Head.", ("One.",), (table,), lambda: pytest.fail("nothing is drawn"))


def test_json_has_numbers_and_null_for_what_json_cannot_say() -> None:
    shown = _shown(np.int64(3), np.float64(0.5), 7, math.inf, math.nan, None, "text")  # type: ignore[arg-type]
    found = json.loads(json.dumps(to_json(_topic(), {"epsilon": Fraction(1, 2)}, shown), allow_nan=False))
    assert found["parameters"] == {"epsilon": 0.5}
    assert list(found["tables"][0]["rows"][0].values()) == [3, 0.5, 7, None, None, None, "text"]
    assert found["argument"] == "docs/arguments/laplace.md"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), ("text", "text"), (1234567, "1,234,567"), (0.5, "0.5"), (1e-6, "1e-6"), (0.0, "0"),
        (1234.5678, "1,235"), (2.718281828, "2.718"), (math.inf, "∞"), (math.nan, "–"), (1e20, "1e20"),
        (0.999999, "> 0.9999"), (1.0, "1"), (-3, "-3"),
    ],
)  # fmt: skip
def test_cells_are_short_and_a_chance_is_never_shown_as_certain(value: Cell, text: str) -> None:
    assert cell_text(value) == text


def test_bars_are_shares_of_the_greatest() -> None:
    table = NumberTable("t", ("name", "size"), (("a", 2), ("b", 4.0), ("c", None)), bars=1)
    assert table.shares() == [0.5, 1.0, 0.0]
    assert NumberTable("t", ("name", "size"), (("a", 0),), bars=1).shares() == [0.0]
    assert NumberTable("t", ("name",), (("a",),)).shares() == []
