"""Pictures of attempts and of calibration show the numbers that they were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lapwing.plots.learn import (
    ShownAttempt,
    ShownBin,
    attempts_picture,
    calibration_picture,
)
from lapwing.plots.style import save

ATTEMPTS = [
    ShownAttempt(1, 4.6, 7.3, "retry", 1, 0.25),
    ShownAttempt(2, None, None, "crashed", 1, 0.5),
    ShownAttempt(3, 4.7, 6.2, "accept", 2, 1.0),
]


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
    shown = [*ATTEMPTS[:2], ShownAttempt(3, 3.0, None, last, 2, 1.0)]
    assert words in str(attempts_picture("a", shown, what="accuracy", target=0.8).get_label())


def test_a_rejection_shows_the_bound_that_decided() -> None:
    figure = attempts_picture("a", [ShownAttempt(1, 3.0, 1.6, "reject", 1, 0.5)], what="error", target=1.0)
    found = drawn(figure)
    assert (found["bound-1"][1], found["estimate-1"][1]) == ([1.6], [3.0])
    [label] = figure.axes[0].get_xticklabels()
    assert label.get_text() == "reject\n1 block\nε 0.5"
    said = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert "what every model of its class loses at least" in said


BINS = [
    ShownBin(0, 0.5, 0.3, 0.2, 0.4),
    ShownBin(0.5, 1, 0.2, 0.1, 0.3),
]
AXES: dict[str, Any] = {"predicted": "predicted probability", "compared": "how often", "confidence": 0.95}


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_means_stand_over_the_middle_of_their_bins_with_intervals(tmp_path: Path, suffix: str) -> None:
    figure = calibration_picture("late", BINS, **AXES)
    found = drawn(figure)
    assert found["mean-0"] == ([0.25], [0.3])
    assert found["interval-0.5"] == ([0.75, 0.75], [0.1, 0.3])
    assert "each with an interval that holds with probability 0.95" in " ".join(
        text.get_text().replace("\n", " ") for text in figure.texts
    )
    save(figure, tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("bins", "words"),
    [
        (BINS, "late is off in 1 of 2 bins"),
        (BINS[:1], "late agrees with what is so, as far as seen"),
        ([ShownBin(0, 1, None, 0, 1)], "late met too few units to be compared with what is so"),
    ],
)
def test_the_title_says_whether_it_is_calibrated(bins: list[ShownBin], words: str) -> None:
    assert str(calibration_picture("late", bins, **AXES).get_label()) == words
