"""The settings of a network: good values are used, and wrong ones are reported with their line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.learn.pipelines.components import TrainerSettings
from lapwing.learn.pipelines.network import NetworkSettings
from lapwing.learn.pipelines.pipeline import load_pipeline
from support.raised import named

GOOD: dict[str, Any] = {
    "layers": [8, 4], "activation": "tanh", "clip": 0.1, "rate": 0.5, "steps": 10, "learning_rate": 0.05,
    "optimizer": "sgd", "momentum": 0.9,
}  # fmt: skip


def without(name: str, **other: Any) -> dict[str, Any]:
    return {**{key: value for key, value in GOOD.items() if key != name}, **other}


def test_all_settings_are_taken_as_they_are_written() -> None:
    layout = NetworkSettings.of(GOOD)
    assert layout.clip == Fraction(1, 10)
    assert layout.layers == (8, 4)
    assert layout.shapes(3, 2) == [(8, 3), (4, 8), (2, 4)]
    assert NetworkSettings.of({**GOOD, "layers": []}).shapes(3, 2) == [(2, 3)]


def test_rate_and_batch_follow_from_one_another_by_public_numbers() -> None:
    assert NetworkSettings.of(GOOD).sampled(1000) == (Fraction(1, 2), 500)
    assert NetworkSettings.of(GOOD).sampled(1) == (Fraction(1, 2), 1)
    assert NetworkSettings.of(without("rate", batch=250)).sampled(1000) == (Fraction(1, 4), 250)
    assert NetworkSettings.of(without("rate", batch=250)).sampled(100) == (Fraction(1), 250)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        *((without(name), f"{name}.*is missing") for name in GOOD if name not in ("rate", "momentum")),
        (without("rate"), "or batch must be there"),
        ({**GOOD, "batch": 3}, "and not both"),
        (without("optimizer", optimizer="adam"), "momentum.*belongs to"),
        (without("layers", layers=[2000, 2000]), "1,048,576 numbers"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        NetworkSettings.of(settings).shapes(10, 1)


def test_a_part_of_a_network_is_checked_at_birth() -> None:
    with pytest.raises(BadParameter, check=named("clip")):
        TrainerSettings("network", {**GOOD, "clip": 0})


def edited(folder: Path, old: str, new: str) -> Path:
    path = folder / "edited.toml"
    text = (folder / "late.toml").read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("layers = [8]", "layers = 8", "widths in brackets"),
        ("layers = [8]", "layers = [0]", "from 1 to 4,096"),
        ("layers = [8]", "layers = [1.5]", "from 1 to 4,096"),
        ("layers = [8]", f"layers = {[2] * 9}", "up to 8 widths"),
        ('activation = "relu"', 'activation = "gelu"', "relu, tanh or sigmoid"),
        ('activation = "relu"', "activation = 1", "must be a text"),
        ("clip = 1.0", "clip = 0", "between 1e-06 and 1e+06"),
        ("clip = 1.0", 'clip = "1"', "Remove the quotes"),
        ("batch = 400", "batch = 0", "at least 1"),
        ("batch = 400", "batch = 1.5", "whole"),
        ("batch = 400", "rate = 1.1", "between 1e-09 and 1"),
        ("batch = 400", "rate = 0", "between 1e-09 and 1"),
        ("steps = 60", "steps = 0", "at least 1"),
        ("steps = 60", "steps = 1e9", "at most 1,000,000"),
        ("learning_rate = 0.05", "learning_rate = -1", "between 1e-09 and 1000"),
        ('optimizer = "adam"', 'optimizer = "lbfgs"', "sgd or adam"),
        ('optimizer = "adam"', 'optimizer = "sgd"\nmomentum = 1', "between 0 and 0.999"),
        ('optimizer = "adam"', 'optimizer = "adam"\nunit_rows = 0', "at least 1"),
        ('optimizer = "adam"', 'optimizer = "adam"\nradius = 1', "is no setting of network"),
        ('optimizer = "adam"', 'optimizer = "adam"\ndepth = 1', "unknown key"),
        ("epsilon = 0.4", "epsilon = 0", "epsilon"),
        ("epsilon = 0.4", "epsilon = 1.5", "some of the least ε"),
        ("bins = 5", "bins = 1", "between 2 and 100"),
    ],
)
def test_mistakes_are_told_with_their_line(folder: Path, old: str, new: str, why: str) -> None:
    path = edited(folder, old, new)
    with pytest.raises(BadFile) as caught:
        load_pipeline(path)
    [only] = caught.value.mistakes
    assert why in only
    line = int(only.split(": ")[0].rsplit(":", 1)[1])
    wrong = new.splitlines()[-1].partition(" =")[0]
    assert path.read_text().splitlines()[line - 1].startswith(wrong)


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ("layers = [8]", "layers: is missing"),
        ("batch = 400", "or batch must be there"),
        ("units_per_block = 6000", "is needed by network"),
        ("epsilon = 0.4", "calibration.epsilon: is missing"),
        ("bins = 5", "calibration.bins: is missing"),
    ],
)
def test_what_is_not_there_is_said(folder: Path, old: str, why: str) -> None:
    path = edited(folder, old, "#")
    with pytest.raises(BadFile, match=why):
        load_pipeline(path)


def test_several_mistakes_of_a_network_are_told_at_once(folder: Path) -> None:
    path = edited(folder, "clip = 1.0", "clip = 0")
    path.write_text(path.read_text().replace("steps = 60", "steps = 0"))
    with pytest.raises(BadFile) as caught:
        load_pipeline(path)
    assert len(caught.value.mistakes) == 2
