"""The pages of surveys, releases, models and audits tell what the files of the folder say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lapwing.examples import rides
from lapwing.examples.visits import example_text
from lapwing.server.console.work_page import WorkCard, work_card
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.data.work_files import WorkFiles, WorkKind
from support.served import ANN

CARD = {
    "pipeline": "durations",
    "run": 1,
    "verdict": "accepted",
    "words": "the loss is at most 5.8",
    "privacy": {"run_epsilon_at_most": 1.5, "run_delta_at_most": 3e-9},
    "attempts": [{}, {}],
    "charged": {"ledger": "elsewhere", "stream": "rides", "analyst": "ann"},
}


def _models_in(folder: Path) -> list[WorkCard]:
    works = WorkFiles(folder, ServedDataSets([]))
    return [work_card(work) for work in works.all_of(ANN, WorkKind.MODELS)]


def _run(folder: Path, number: int, card: Any) -> None:
    place = folder / "durations.runs" / f"run-{number}" / "card.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(card))


def test_models_have_their_runs_and_files_of_other_forms_are_left_out(tmp_path: Path) -> None:
    name = rides.PIPELINES[0]
    (tmp_path / name).write_text(example_text(name))
    assert [card.file for card in _models_in(tmp_path)] == [name]
    _run(tmp_path, 1, CARD)
    _run(tmp_path, 2, {**CARD, "run": 2, "verdict": "rejected"})
    for number, other in enumerate(({}, [], {**CARD, "privacy": {}}, {**CARD, "privacy": None}), 3):
        _run(tmp_path, number, other)
    _, first, second = _models_in(tmp_path)
    assert first.outcome is not None
    assert second.outcome is not None
    assert (first.outcome.words, first.outcome.kind) == ("accepted", "good")
    assert (second.outcome.words, second.outcome.kind) == ("rejected", "bad")
    assert [fact.value for fact in first.facts] == ["1", "ε 1.5, δ 3e-9", "2"]
    assert first.words == CARD["words"]
