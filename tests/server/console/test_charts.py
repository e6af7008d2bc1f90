"""Charts are well-formed pictures that need no style and no script."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from lapwing.server.console.charts import LOOKS, MOST_BARS, Bar, bar_chart

HOSTILE = '<script>alert("x")</script>&'


@pytest.mark.parametrize("look", LOOKS)
def test_names_become_text_and_nothing_else(look: str) -> None:
    bars = [
        Bar(HOSTILE, 5.0, 4.0, math.inf),
        Bar("b", -3.0, -5.0, -1.0),
        Bar("no number", math.nan, 0.0, 1.0),
    ]
    root = ElementTree.fromstring(bar_chart(bars, LOOKS[look], title=HOSTILE, is_made_up=look == "dark"))
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert kinds <= {"svg", "title", "line", "text", "rect", "path"}
    assert all("style" not in element.attrib for element in root.iter())
    assert root[0].text == HOSTILE
    assert len([element for element in root.iter() if element.tag.endswith("rect")]) == 2


def test_a_chart_without_bars_is_a_picture_all_the_same() -> None:
    assert ElementTree.fromstring(bar_chart([], LOOKS["light"], title="nothing")).tag.endswith("svg")


def test_a_chart_says_how_many_bars_it_leaves_out() -> None:
    bars = [Bar(str(k), float(k), k - 1.0, k + 1.0) for k in range(MOST_BARS + 3)]
    assert b"and 3 more: see the table" in bar_chart(bars, LOOKS["light"], title="t")
    assert b"more: see" not in bar_chart(bars[:MOST_BARS], LOOKS["light"], title="t")
