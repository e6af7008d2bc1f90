"""The files of a run: a card with the guarantees and their limits, and a model only if it was accepted."""

from __future__ import annotations

import builtins
import json
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.pipelines.attempt import AttemptResult
from lapwing.learn.pipelines.model_card import card_text, list_blocks, model_card, worst_block
from lapwing.learn.pipelines.pipeline import load_pipeline
from lapwing.learn.pipelines.run_files import (
    attempts_to_plot,
    load_model,
    log_to_mlflow,
    model_file_text,
    write_outputs,
)
from lapwing.learn.pipelines.training import train
from lapwing.learn.stream import Stream
from lapwing.ledger import Receipt
from support.raised import named


def test_an_accepted_model_has_a_file_that_predicts(full: Stream, folder: Path) -> None:
    outcome = train(full, load_pipeline(folder / "durations.toml"), folder / "runs")
    files = write_outputs(outcome, full.policy, folder / "runs")
    assert set(files) == {"card", "card_text", "receipts", "model", "picture"}
    model = load_model(files["model"])
    near, far, nothing = model.predict({"distance": [2, 12, None]})
    assert 6 < near < 12
    assert 25 < far < 33
    assert near < nothing < 60
    assert model.predict({"distance": []}) == []
    receipts = json.loads(files["receipts"].read_text())
    assert [one["mechanism"] for one in receipts] == ["pipeline attempt"] * len(outcome.attempts)


def test_a_card_says_what_was_shown_and_what_was_not(full: Stream, folder: Path) -> None:
    outcome = train(full, load_pipeline(folder / "durations.toml"), folder / "runs")
    card = model_card(outcome, full.policy)
    assert json.loads(json.dumps(card)) == card
    assert card["verdict"] == "accepted"
    assert card["data"]["unit"] == "one person in one month, with all rows of that month"
    assert card["data"]["blocks"] == list(outcome.attempts[-1].blocks)
    last = card["attempts"][-1]
    assert last["bound"] <= card["validated"]["target"]
    assert last["holds_with_probability"] > 1 - 0.05
    text = card_text(card)
    for part in (
        "ACCEPTED",
        "Nothing is promised from k = ",
        "counts as that",
        "drawn anew",
        "ε 8",
        "2026-04",
    ):
        assert part in text


def test_a_rejected_model_has_no_file_and_its_card_says_what_was_rejected(
    full: Stream, folder: Path
) -> None:
    outcome = train(full, load_pipeline(folder / "hopeless.toml"), folder / "runs")
    files = write_outputs(outcome, full.policy, folder / "runs")
    assert "model" not in files
    assert not list(folder.glob("runs/run-*/model.json"))
    last = attempts_to_plot(model_card(outcome, full.policy))[-1]
    assert last.bound is not None
    assert last.bound > 1  # what decided is drawn
    assert "lines with weights within" in files["card_text"].read_text()
    with pytest.raises(BadParameter, match="not accepted"):
        model_file_text(outcome)


def test_where_each_person_has_one_block_the_card_says_that_this_is_all(folder: Path) -> None:
    policy = folder / "rides.toml"
    text = policy.read_text().replace('"person-period"', '"person"')
    text = text.replace('by = "row"\ncolumn = "day"\nevery = "month"', 'by = "unit"\ncohorts = 4')
    policy.write_text(text)
    with Stream.open(policy, analyst="trainer") as stream:
        stream.append()
        outcome = train(stream, load_pipeline(folder / "durations.toml"), folder / "runs")
        card = model_card(outcome, stream.policy)
    assert outcome.attempts[0].blocks == ("3",)
    assert outcome.attempts[-1].blocks == ("0", "1", "2", "3")
    assert card["data"]["unit"] == "one person, with all rows"
    assert "Each person is in one block for ever" in card_text(card)
    assert "Nothing is promised" not in card_text(card)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"form": "lapwing model 1"}', '{"form": "other"}'])
def test_what_is_no_model_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(BadParameter, check=named("model")):
        load_model(path)


@pytest.fixture
def line(full: Stream, folder: Path) -> dict[str, Any]:
    """A model file, as plain values."""
    outcome = train(full, load_pipeline(folder / "durations.toml"), folder / "runs")
    found: dict[str, Any] = json.loads(model_file_text(outcome))
    return found


def with_kind(file: dict[str, Any], kind: list[Any]) -> dict[str, Any]:
    [column] = file["features"]["columns"]
    return {**file, "features": {**file["features"], "columns": [{**column, "kind": kind}]}}


def test_a_model_file_that_was_meddled_with_is_refused_soon(line: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(line))
    assert len(load_model(path).predict({"distance": [1, None]})) == 2
    others: dict[str, list[Any]] = {
        "epsilon": ["1e20000000", "1/0", "abc", "-1", None, [], "9" * 5000],
        "model": [None, [], {}, "x", {"weights": [[10**400]]}],
        "settings": [[[]], {"radius": []}, {"steps": 3}, 7],
        "features": [None, [], {}, {**line["features"], "label": 7}],
        "form": ["lapwing model 2"],
        "trainer": ["mean", 7],
    }
    wrong = [
        *({**line, name: value} for name, values in others.items() for value in values),
        with_kind(line, ["number", "1e20000000", 0, 1]),
        with_kind(line, ["number", "0", 0, 1]),
        with_kind(line, ["number", "1/0", 0, 1]),
        with_kind(line, ["number", "1/10", -(10**400), 10**400]),
        with_kind(line, ["number", "1/10", 5, 1]),
        with_kind(line, ["period", 0, 1, 2]),
        with_kind(line, ["choice"]),
        with_kind(line, ["zzz"]),
    ]
    for one in wrong:
        path.write_text(json.dumps(one))
        with pytest.raises(BadParameter, check=named("model")):
            load_model(path)
    path.write_text("[" * 200_000)
    with pytest.raises(BadParameter, match="no model file"):
        load_model(path)


def test_texts_are_no_numbers_to_predict_from(line: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(line))
    model = load_model(path)
    texts: list[Any] = ["10", True, {}, date(2026, 1, 1)]
    for value in texts:
        with pytest.raises(BadParameter, match="of 'distance' must be numbers"):
            model.predict({"distance": [value]})
    for column in (5, "10", None):
        with pytest.raises(BadParameter, match="one column for each"):
            model.predict({"distance": column})  # type: ignore[dict-item]
    assert len(model.predict({"distance": [float("nan"), float("inf"), Fraction(1, 3)]})) == 3


def attempt(blocks: tuple[str, ...], epsilon: int) -> AttemptResult:
    receipt = Receipt("", 0, "", b"{}")
    return AttemptResult(1, blocks, Fraction(epsilon), Fraction(1, 10), None, None, receipt, False)


def test_the_worst_block_pays_for_all_attempts_that_reach_it() -> None:
    made = [attempt(("a",), 1), attempt(("a", "b"), 2), attempt(("b", "c"), 4)]
    assert worst_block(made) == (Fraction(6), Fraction(1, 5))
    assert worst_block([]) == (Fraction(0), Fraction(0))


def test_many_blocks_are_named_by_their_ends() -> None:
    assert list_blocks(["a", "b"]) == "a, b"
    assert list_blocks([str(n) for n in range(100)]) == "0 … 99 (100)"


def test_mlflow_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "mlflow":
            raise ImportError
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="mlflow"):
        log_to_mlflow({}, {}, "nowhere")
