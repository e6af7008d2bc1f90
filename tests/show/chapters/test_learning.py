"""The topics about learning, small and against facts that they do not compute from."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.plots.style import save
from lapwing.show.chapters.learning import CHAPTER
from lapwing.show.topic import Shown

TOPICS = {topic.name: topic for topic in CHAPTER.topics}
SMALL: dict[str, dict[str, Any]] = {
    "bad-models": {"runs": 5, "rows": 16_000},
    "data-needed": {"runs": 2, "rows": 64_000},
    "release-time": {"hours": 80},
}


@pytest.fixture(scope="module")
def computed() -> dict[str, Shown]:
    return {name: shown(name, **SMALL[name]) for name in TOPICS}


def shown(name: str, *, full: bool = False, **changed: Any) -> Shown:
    topic = TOPICS[name]
    values = {one.name: one.default for one in topic.parameters}
    values |= {key: Fraction(one) for key, one in changed.items()}
    return topic.compute(values, full, lambda _, __: None)


def rows(found: Shown) -> list[dict[str, Any]]:
    [table] = found.tables
    return [dict(zip(table.heads, row, strict=True)) for row in table.rows]


def test_bad_models_leave_only_where_noise_is_forgotten(computed: dict[str, Shown]) -> None:
    """80 runs with at most η = 5 % each: more than 16 bad ones with probability below 1e-5."""
    found = rows(computed["bad-models"])
    bad: dict[str, int] = {}
    for row in found:
        bad[row["judged by"]] = bad.get(row["judged by"], 0) + row["bad"]
        assert row["bad"] <= row["accepted"] <= row["runs"] == 20
    none, estimate, uncorrected, ours = bad.values()
    assert none >= estimate >= uncorrected >= ours
    assert none > 20, "at the smallest ε nearly every first model is bad"
    assert ours <= 16


def test_a_smaller_epsilon_and_a_tighter_target_need_more_rows(computed: dict[str, Shown]) -> None:
    found = {
        (row["target above the best"], row["ε of an attempt"]): row for row in rows(computed["data-needed"])
    }
    loose = [row for (target, _), row in found.items() if target == "40\u00a0%"]
    assert loose[0]["rows"] > loose[-1]["rows"], "from ε 0.05 to ε 1"
    at_one = [row for (_, epsilon), row in found.items() if epsilon == 1]
    reached = [row["rows"] for row in at_one if row["accepted runs"] == row["runs"]]
    assert reached == sorted(reached, reverse=True)
    assert reached
    assert all(500 <= count <= 64_000 for count in reached)


def test_one_epsilon_for_all_data_waits_longest(computed: dict[str, Shown]) -> None:
    found = rows(computed["release-time"])
    waits = [[row[way] for row in found] for way in found[0] if way != "pipelines an hour"]
    assert [sum(one) for one in waits] == sorted(sum(one) for one in waits)
    assert max(max(one) for one in waits) <= 80


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_each_topic_is_drawn(name: str, computed: dict[str, Shown], tmp_path: Path) -> None:
    found = computed[name]
    figure = found.picture()
    save(figure, tmp_path / "picture.svg")
    assert figure.get_label()
    assert 3 <= len(found.sentences) <= 6


def test_too_few_rows_say_what_to_do() -> None:
    found = shown("data-needed", runs=1, rows=4_000, epsilon="1/1000")
    assert "take more rows" in found.headline
    found.picture()
