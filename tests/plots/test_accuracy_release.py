"""The picture of a release: lines that fall like one over the square root of ρ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.conversions import largest_rho
from lapwing.errors import BadParameter
from lapwing.plots.accuracy import release_error

DELTA = Fraction(1, 10**6)


def test_lines_go_through_the_planned_errors_and_fall_with_rho() -> None:
    rho = largest_rho(Fraction(1), DELTA)
    figure = release_error("x", [("state", 2.0), ("block", 8.0)], rho, DELTA, rho / 2)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]  # type: ignore[arg-type]
    assert len(lines) == 2
    for line, error in zip(lines, (2.0, 8.0), strict=True):
        at, values = (np.asarray(one, float) for one in (line.get_xdata(), line.get_ydata()))
        assert values[at == 1.0] == pytest.approx([error], rel=1e-6)
        smaller = largest_rho(Fraction(str(at[0])), DELTA)
        assert values[0] == pytest.approx(error * float(rho / smaller) ** 0.5, rel=1e-6)


def test_nothing_to_draw_is_told() -> None:
    with pytest.raises(BadParameter, match="no budget is left"):
        release_error("x", [], Fraction(1), DELTA, Fraction(0))
