"""Spines are checked before anything is read."""

from __future__ import annotations

import pytest

from lapwing.errors import BadParameter
from lapwing.publish.census.least_squares import spine_of


def test_levels_nodes_and_ancestors() -> None:
    spine = spine_of({"state": ["s", "s", "s"], "county": ["x", "y", "x"], "block": ["3", "1", "2"]})
    assert spine.nodes == (("s",), ("x", "y"), ("1", "2", "3"))
    assert spine.parents[2].tolist() == [1, 0, 0]
    assert spine.ancestors(1).tolist() == [1, 0, 0]
    assert spine.ancestors(2).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "column"),
        ({"a": []}, "no nodes"),
        ({"a": ["x", "y"], "b": ["1", "1"]}, "two parents"),
        ({"a": ["x", "x"], "b": ["1", "1"]}, "two rows"),
        ({"a": ["x", ""]}, "no name"),
    ],
)
def test_a_bad_spine_is_refused(table: dict[str, list[str]], why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        spine_of(table)
