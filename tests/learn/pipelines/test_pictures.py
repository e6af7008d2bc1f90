"""Pictures of attempts and of the evaluation show what they were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lapwing.plots.learn import (
    Shown,
    attempts_picture,
    needed_picture,
    release_picture,
    violations_picture,
)
from lapwing.plots.style import save

ATTEMPTS = [
    Shown(1, 4.6, 7.3, "retry", 1, 0.25),
    Shown(2, None, None, "crashed", 1, 0.5),
    Shown(3, 4.7, 6.2, "accept", 2, 1.0),
]
SERIES = {"one": [(0.1, 1.0), (1.0, 20.0)], "other": [(0.1, 2.0), (1.0, 30.0)]}


def drawn(figure: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {
        line.get_gid(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in figure.axes[0].lines
        if line.get_gid()
    }


def test_each_attempt_is_drawn_with_what_it_showed(tmp_path: Path) -> None:
    figure = attempts_picture("durations", ATTEMPTS, what="absolute error", target=6.4)
    found = drawn(figure)
    assert found["bound-3"] == ([3.0], [6.2])
    assert found["estimate-1"] == ([1.0], [4.6])
    assert "bound-2" not in found
    assert found["target"][1] == [6.4, 6.4]
    assert str(figure.get_label()) == "durations was accepted at attempt 3"
    save(figure, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("last", "words"), [("reject", "was rejected"), ("retry", "is not accepted yet"), ("crashed", "not")]
)
def test_the_title_says_how_it_stands(last: str, words: str) -> None:
    shown = [*ATTEMPTS[:2], Shown(3, 3.0, None, last, 2, 1.0)]
    assert words in str(attempts_picture("a", shown, what="accuracy", target=0.8).get_label())


@pytest.mark.parametrize("picture", [needed_picture, release_picture])
def test_series_are_drawn_as_they_are(picture: Any) -> None:
    found = drawn(picture(SERIES))
    assert found["one"] == ([0.1, 1.0], [1.0, 20.0])
    assert found["other"] == ([0.1, 1.0], [2.0, 30.0])


def test_eta_stands_beside_violations() -> None:
    found = drawn(violations_picture({"ours": [(0.1, 0.0), (1.0, 0.01)]}, eta=0.05))
    assert found["eta"][1] == [0.05, 0.05]
    assert found["ours"][1] == [0.0, 0.01]
