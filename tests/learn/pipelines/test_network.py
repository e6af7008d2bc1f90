"""Networks in pipelines: trained by DP-SGD under one charge, judged row by row, kept as numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Pure
from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.payer import PrepaidPayer, PublicData
from lapwing.learn.pipelines.components import TrainerSettings
from lapwing.learn.pipelines.model_card import card_text, model_card
from lapwing.learn.pipelines.network import ACTIVATIONS, Network, NetworkForward, NetworkSettings
from lapwing.learn.pipelines.pipeline import Pipeline, load_pipeline
from lapwing.learn.pipelines.run_files import load_model, write_outputs
from lapwing.learn.pipelines.training import RunState, train
from lapwing.learn.stream import Stream
from lapwing.learn.trainers.columns import ONE, Category, Real
from support.raised import named

SETTINGS: dict[str, Any] = {
    "layers": (6,), "activation": "tanh", "clip": 1, "rate": 0.5, "steps": 10, "learning_rate": 0.1,
    "optimizer": "adam",
}  # fmt: skip
COLUMNS = (Real(0, 20), Category(("a", "b")))


def network(*, classes: tuple[int, ...] | None = None, **other: Any) -> Network:
    given: dict[str, Any] = {
        "epsilon": Fraction(2),
        "delta": Fraction(1, 10**6),
        "columns": COLUMNS,
        "classes": classes,
        "target": Real(0, 60) if classes is None else None,
        "size": 3000,
        "payer": PublicData(),
        **other,
    }
    return Network(NetworkSettings.of(SETTINGS), **given)


def rides(count: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    far = draw.uniform(0, 20, count)
    table = np.column_stack([far, draw.choice(["a", "b"], count)]).astype(object)
    return table, 5 + 2 * far + draw.normal(0, 3, count)


def test_numbers_and_classes_are_learned() -> None:
    table, duration = rides(3000)
    near, far = network().fit(table, duration).predict(np.array([[2.0, "a"], [18.0, "a"]], dtype=object))
    assert 0 <= near < 25 < far <= 60
    late = network(classes=(0, 1)).fit(table, (duration > 25).astype(int))
    assert (late.predict(table) == (duration > 25)).mean() > 0.8
    assert np.allclose(late.predict_proba(table).sum(axis=1), 1)


def test_what_is_charged_are_all_steps_before_the_first() -> None:
    made = network()
    price = made.price(2)
    assert isinstance(price, FixedRun)
    assert price.steps[0][1] == 10
    assert price.pair[0] <= 2
    payer = PrepaidPayer(price)
    network(payer=payer).fit(*rides(50))
    assert set(json.loads(payer.result)) == {"numbers"}
    with pytest.raises(BadParameter, match="charged"):
        network(payer=PrepaidPayer(Pure(Fraction(2)))).fit(*rides(50))


def test_nobody_to_learn_from_is_no_reason_to_fail() -> None:
    table = np.zeros((0, 2))
    made = network().fit(table, np.zeros(0), np.zeros(0, np.int64))
    assert np.isfinite(made.predict(np.array([[2.0, "a"]], dtype=object))).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_row_is_judged_by_itself(activation: str) -> None:
    """Bit for bit: alone, among others, and wherever it stands. Widths at which BLAS changes its way."""
    draw = np.random.default_rng(2)
    widths = (37, 65, 33, 3)
    layers = [(draw.normal(0, 1, (out, into)), draw.normal(0, 1, out)) for into, out in pairwise(widths)]
    forward = NetworkForward(layers, activation)
    rows = draw.integers(-ONE, ONE + 1, (301, 37))
    whole = forward.outputs(rows)
    assert (forward.outputs(rows[1:]) == whole[1:]).all()
    assert (forward.outputs(rows[::-1])[::-1] == whole).all()
    assert all((forward.outputs(rows[[at]]) == whole[[at]]).all() for at in range(0, 301, 50))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_whole_numbers_say_what_floats_say(activation: str) -> None:
    draw = np.random.default_rng(3)
    layers = [
        (draw.normal(0, 0.7, (9, 4)), draw.normal(0, 1, 9)),
        (draw.normal(0, 0.7, (2, 9)), np.ones(2)),
    ]
    rows = draw.integers(-ONE, ONE + 1, (200, 4))
    function = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    }
    hidden = function[activation](rows / ONE @ layers[0][0].T + layers[0][1])  # type: ignore[operator]
    expected = hidden @ layers[1][0].T + layers[1][1]
    assert np.abs(NetworkForward(layers, activation).outputs(rows) - expected).max() < 1e-3


def test_numbers_that_noise_led_astray_are_no_error() -> None:
    lost = [(np.array([[np.nan, np.inf], [-np.inf, 1e38]]), np.array([np.nan, 1.0]))]
    assert np.isfinite(NetworkForward(lost, "relu").outputs(np.array([[ONE, -ONE]]))).all()


@pytest.mark.parametrize(
    "stored",
    [b"", b"[]", b"{}", b'{"numbers": 3}', b'{"numbers": "x"}', b'{"numbers": "AAAA"}', b"cos\nsystem\n"],
)
def test_what_is_stored_is_read_as_numbers_or_refused(stored: bytes) -> None:
    made = network()
    with pytest.raises(BadParameter, match="none of this network's form"):
        made.load(stored)


def test_before_it_has_learned_it_says_nothing() -> None:
    with pytest.raises(BadParameter, match="not fitted"):
        network().predict([[1.0, "a"]])


def test_without_torch_the_extra_is_named_and_prediction_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    payer = PrepaidPayer(network().price(2))
    trained = network(payer=payer).fit(*rides(50))
    for name in [one for one in sys.modules if one.startswith("lapwing.learn.sgd")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"lapwing\[learn\]"):
        network().price(2)
    rows = np.array([[2.0, "a"], [18.0, "b"]], dtype=object)
    assert (network().load(payer.result).predict(rows) == trained.predict(rows)).all()


@pytest.fixture
def late(folder: Path) -> Pipeline:
    """The example's network with few steps."""
    found = load_pipeline(folder / "late.toml")
    trainer = TrainerSettings("network", {**SETTINGS, "steps": 12})
    return replace(found, trainer=trainer, delta=Fraction(1, 10**8))


def test_a_network_goes_the_way_of_all_trainers(stream: Stream, late: Pipeline, folder: Path) -> None:
    outcome = train(stream, late, folder / "runs")
    assert outcome.end is RunState.ACCEPTED
    [left] = [one.left for one in stream.status().blocks if one.label == "2026-01"]
    assert left == Fraction(13, 2)
    files = write_outputs(outcome, stream.policy, folder / "runs")
    assert load_model(files["model"]).predict({"distance": [1, 18]}) == [False, True]
    settings = json.loads(files["model"].read_text())["settings"]
    assert (settings["layers"], settings["steps"]) == ([6], 12)
    card = model_card(outcome, stream.policy)
    assert "layers [6], activation tanh" in card_text(card)
    assert {"calibration", "model"} <= set(files)
    assert len(card["calibration"]["bins"]) == 5


def test_what_cannot_be_paid_is_told_before_anything_is_written(stream: Stream, folder: Path) -> None:
    """So many steps at so little ε need more noise than there is."""
    found = load_pipeline(folder / "late.toml")
    tiny = replace(found.schedule, least=Fraction(1, 10**5), most=Fraction(1, 10**5))
    late = replace(
        found,
        trainer=TrainerSettings("network", {**SETTINGS, "rate": 1}),
        schedule=tiny,
        calibration=None,
    )
    with pytest.raises(BadParameter, check=named("epsilon")):
        train(stream, late, folder / "runs")
    assert not (folder / "runs").exists()
    assert stream.status().blocks[0].left == 8


def test_more_units_than_are_priced_are_refused_before_the_charge(late: Pipeline, stream: Stream) -> None:
    many = replace(late, units_per_block=10**8)
    with pytest.raises(BadParameter, match="4,194,304 units"):
        train(stream, many, late.stream.parent / "runs")
