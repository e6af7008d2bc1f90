"""The topics about learning, small and against facts that they do not compute from."""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.chapters import topics
from support.shown import rows_of, shown, small


def test_bad_models_leave_only_where_noise_is_forgotten() -> None:
    """80 runs with at most η = 5 % each: more than 16 bad ones with probability below 1e-5."""
    found = rows_of(small("bad-models").shown)
    bad: dict[str, int] = {}
    for row in found:
        bad[row["judged by"]] = bad.get(row["judged by"], 0) + row["bad"]
        assert row["bad"] <= row["accepted"] <= row["runs"] == 20
    none, estimate, uncorrected, ours = bad.values()
    assert none >= estimate >= uncorrected >= ours
    assert none > 20, "at the smallest ε nearly every first model is bad"
    assert ours <= 16


def test_a_smaller_epsilon_and_a_tighter_target_need_more_rows() -> None:
    computed = rows_of(shown("data-needed", runs=5, rows=64_000, eta="0.5"))
    found = {(row["target above the best"], row["ε of an attempt"]): row for row in computed}
    loose = [row for (target, _), row in found.items() if target == "40\u00a0%"]
    assert loose[0]["rows"] > loose[-1]["rows"], "from ε 0.05 to ε 1"
    at_one = [row for (_, epsilon), row in found.items() if epsilon == 1]
    reached = [row["rows"] for row in at_one if row["accepted runs"] == row["runs"]]
    assert reached == sorted(reached, reverse=True)
    assert reached
    assert all(500 <= count <= 64_000 for count in reached)


def test_one_epsilon_for_all_data_releases_the_fewest() -> None:
    shown = small("release-time").shown
    found = rows_of(shown)
    left = [[row[way] for row in found] for way in found[0] if way != "pipelines an hour"]
    assert max(map(sum, left[:2])) < min(map(sum, left[2:]))
    assert sum(left[3]) == max(map(sum, left))
    assert all(0 <= share <= 1 for one in left for share in one)
    assert "are not released within 40 hours" in shown.headline
    medians = [cell for row in shown.tables[1].rows for cell in row[1:]]
    assert None in medians
    assert all(cell is None or 0 < float(cell) <= 40 for cell in medians)


def test_too_few_rows_say_what_to_do() -> None:
    topic = topics()["data-needed"]
    few = {"runs": "1", "rows": "4000", "epsilon": "1/1000", "eta": "1/20"}
    found = topic.compute({name: Fraction(one) for name, one in few.items()}, False, lambda _, __: None)
    assert "take more rows" in found.headline
    assert found.picture().axes
