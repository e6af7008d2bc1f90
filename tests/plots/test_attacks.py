"""Pictures of attacks: bars and lines where the numbers are."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.audit.attacks import AttackResult, attack_picture
from lapwing.audit.attacks.attack_result import SuccessAfter, SuccessCount
from lapwing.errors import BadParameter
from lapwing.plots import save
from lapwing.plots.attacks import attack_over_time, attack_success
from support.doc_pictures import draw_pictures


def _result() -> AttackResult:
    return AttackResult(
        "linkage", "a table", knows="Much.", guesses="A value.", without="all rows", through="one answer",
        unprotected=SuccessCount(50, 50), protected=SuccessCount(15, 50), epsilon=Fraction(1),
        delta=Fraction(0), chance=Fraction(1, 8), limit=Fraction(34, 100), formula="f",
    )  # fmt: skip


def test_bars_are_the_shares_of_right_guesses(tmp_path: Path) -> None:
    figure = attack_picture([_result(), _result()])
    widths = sorted({bar.get_width() for bar in figure.axes[0].patches if bar.get_height() == 0.56})  # type: ignore[attr-defined]
    assert widths == [30.0, 100.0]
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"limit 34 %", "blind guess 12.5 %", "15 of 50"} <= texts
    save(figure, tmp_path / "picture.svg")


def test_success_over_time_has_one_line_for_each_release() -> None:
    points = tuple(
        SuccessAfter(day, SuccessCount(right, 50), SuccessCount(15, 50))
        for day, right in ((1, 20), (9, 50))
    )
    figure = attack_picture([replace(_result(), attack="refill", over_time=points, steps="days")])
    lines = [np.asarray(line.get_ydata(), float).tolist() for line in figure.axes[0].lines]
    assert [40.0, 100.0] in lines
    assert [30.0, 30.0] in lines


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(BadParameter):
        attack_success("x", [])
    with pytest.raises(BadParameter):
        attack_over_time("x", _result())


def test_the_pictures_of_the_documentation_come_from_measured_numbers(tmp_path: Path) -> None:
    assert draw_pictures.attack_pictures(tmp_path) == {}
    over_time = [{"days": day, **_sides(_result())} for day in (1, 2)]
    measured = [_result().to_json(), {**_result().to_json(), "attack": "refill", "over_time": over_time}]
    (tmp_path / "attacks.json").write_text(json.dumps(measured))
    assert set(draw_pictures.attack_pictures(tmp_path)) == {"attacks", "attack-linkage", "attack-refill"}


def _sides(result: AttackResult) -> dict[str, object]:
    return {"unprotected": result.unprotected.to_json(), "protected": result.protected.to_json()}
