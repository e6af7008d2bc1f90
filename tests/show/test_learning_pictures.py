"""Pictures of the simulations show the numbers that they were given."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from lapwing.show import learning_pictures as sage

SERIES = {"one": [(0.1, 1.0), (1.0, 20.0)], "other": [(0.1, 2.0), (1.0, 30.0)]}


def drawn(figure: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {
        line.get_gid(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in figure.axes[0].lines
        if line.get_gid()
    }


@pytest.mark.parametrize("picture", [sage.needed_picture, partial(sage.release_picture, within=200)])
def test_series_are_drawn_as_they_are(picture: Any) -> None:
    found = drawn(picture(SERIES))
    assert found["one"] == ([0.1, 1.0], [1.0, 20.0])
    assert found["other"] == ([0.1, 1.0], [2.0, 30.0])


def test_eta_stands_beside_violations() -> None:
    found = drawn(sage.violations_picture({"ours": [(0.1, 0.0), (1.0, 0.01)]}, eta=0.05))
    assert found["eta"][1] == [0.05, 0.05]
    assert found["ours"][1] == [0.0, 0.01]
