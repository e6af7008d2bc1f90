"""The picture of several parties: its data is read back from the drawing and computed again here."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lapwing.errors import BadParameter
from lapwing.plots import save
from lapwing.plots.accuracy import MeasuredErrors, parties
from support.doc_pictures import draw_pictures

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
BY_SIZE = {
    "curator": [(10, 0.13), (100, 0.014)],
    "shared": [(10, 0.16), (100, 0.017)],
    "alone": [(10, 0.43), (100, 0.043)],
    "everybody": [(10, 0.43)],
    "local": [(10, 0.30), (100, 0.096)],
}
BY_MEMBERS = {"shared": [(2, 0.0014), (10, 0.0018)], "alone": [(2, 0.0019), (10, 0.0043)]}


def measured() -> MeasuredErrors:
    return MeasuredErrors(Fraction(1), 1000, BY_SIZE, BY_MEMBERS)


def line(figure: Figure, name: str) -> Any:
    [found] = [thing for axes in figure.axes for thing in axes.get_children() if thing.get_gid() == name]
    return found


def test_points_are_those_that_were_measured() -> None:
    figure = parties(measured())
    for name, points in BY_SIZE.items():
        drawn = line(figure, f"{name}-measured")
        assert list(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True)) == [
            (n, pytest.approx(100 * error)) for n, error in points
        ]
    for name, points in BY_MEMBERS.items():
        assert list(line(figure, f"members-{name}-measured").get_xdata()) == [m for m, _ in points]


def test_lines_have_the_slopes_they_are_drawn_for() -> None:
    figure = parties(measured())
    for name, slope in (
        ("curator", -1.0),
        ("shared", -1.0),
        ("alone", -1.0),
        ("order-members", -1.0),
        ("everybody", -0.5),
        ("local", -0.5),
        ("order-local", -0.5),
    ):
        drawn = line(figure, name)
        x, y = np.log(drawn.get_xdata()), np.log(drawn.get_ydata())
        assert np.polyfit(x, y, 1)[0] == pytest.approx(slope, abs=0.01)
    assert (line(figure, "order-local").get_ydata() < np.array(line(figure, "local").get_ydata())).all()
    assert max(line(figure, "members-shared").get_ydata()) < math.sqrt(2) * 100 * 0.00135697


def test_numbers_survive_their_file(tmp_path: Path) -> None:
    again = MeasuredErrors.from_json(json.loads(json.dumps(measured().to_json())))
    assert again == measured()
    save(parties(again), tmp_path / "parties.svg")
    assert "1/√n" in (tmp_path / "parties.svg").read_text()


@pytest.mark.parametrize(
    "found", [{}, [], {"epsilon": "1", "people": 5, "by_size": {}, "by_members": {}}, None]
)
def test_other_files_are_refused(found: object) -> None:
    with pytest.raises(BadParameter):
        MeasuredErrors.from_json(found)


def test_the_docs_picture_is_drawn_where_its_numbers_lie(tmp_path: Path) -> None:
    assert draw_pictures.parties_pictures(tmp_path) == {}
    (tmp_path / "parties.json").write_text(json.dumps(measured().to_json()))
    assert set(draw_pictures.parties_pictures(tmp_path)) == {"parties"}


def test_the_documented_picture_is_of_real_runs_near_the_lines() -> None:
    """The file does not change by itself; a new one of 200 runs a point fails with a chance below 1e-6."""
    found = MeasuredErrors.from_json(json.loads((PICTURES / "parties.json").read_text()))
    figure = parties(found)
    for name in BY_SIZE:
        drawn, exact = line(figure, f"{name}-measured"), line(figure, name)
        lines = np.exp(
            np.interp(np.log(drawn.get_xdata()), np.log(exact.get_xdata()), np.log(exact.get_ydata()))
        )
        assert np.abs(np.array(drawn.get_ydata()) / lines - 1).max() < 0.4
