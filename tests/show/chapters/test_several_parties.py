"""The topics about several parties, against facts that they do not compute from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from lapwing.errors import BadParameter
from support.shown import column, shown


@pytest.mark.parametrize(
    "changed", [{}, {"protocol": 1, "coalition": 13}, {"protocol": 2, "members": 4, "coalition": 24}]
)
def test_a_coalition_has_inputs_coins_messages_and_broadcasts(changed: Mapping[str, Any]) -> None:
    found = shown("coalition-view", **changed)
    kinds = column(found, "kind", 0)
    assert {"input", "coin", "broadcast"} <= set(kinds)
    assert ("received" in kinds) == (changed.get("protocol", 3) != 1), "own noise is only broadcast"
    assert kinds.count("input") == len(str(changed.get("coalition", 1)))
    for table_column in (1, 2):
        assert sum(row[table_column] for row in found.tables[1].rows) == pytest.approx(1)  # type: ignore[misc]
    assert max(column(found, "ratio", 1)) <= math.e


def test_the_worst_ratio_is_that_of_wrapped_laplace_noise() -> None:
    """One honest member with a whole noise: P[k] is (q^k + q^(5-k)) / (1 + q + ... + q^4), by hand."""
    found = shown("coalition-view", protocol=1, coalition=12)
    q = math.exp(-1)
    law = [(1 - q) / (1 + q) * (q**k + q ** (5 - k)) / (1 - q**5) for k in range(5)]
    assert sorted(column(found, "member 3 counts 3", 1)) == pytest.approx(sorted(law))


@pytest.mark.parametrize("coalition", [11, 4, 123, 5])
def test_a_wrong_coalition_says_what_to_write(coalition: int) -> None:
    with pytest.raises(BadParameter, match="such as 13 for the members 1 and 3"):
        shown("coalition-view", coalition=coalition)


def test_the_promise_holds_up_to_the_planned_coalition_and_not_beyond() -> None:
    found = shown("coalition-size", members=4, planned=2)
    rows = {str(row[0])[0]: row[1:] for row in found.tables[0].rows}
    assert set(rows) == set("ABD"), "Shamir shares need a minority"
    assert rows["A"] == (1.0, 1.0, 1.0)
    for letter in "BD":
        assert rows[letter][:2] == (1.0, 1.0)
        assert float(str(rows[letter][2])) > 1
    assert "Not possible with this t: C." in found.sentences


def test_the_planned_errors_are_those_of_shared_noise() -> None:
    """A sum of m shares, of which m - t are one whole noise: √(2 q m / (m - t)) / (1 - q)."""
    found = shown("coalition-size", members=5, epsilon="1/2")
    q = math.exp(-0.5)
    deviations = [math.sqrt(2 * q * 5 / (5 - t)) / (1 - q) for t in range(1, 5)]
    assert column(found, "standard deviation of a count", 1) == pytest.approx(deviations)


def test_a_coalition_of_everybody_is_refused() -> None:
    with pytest.raises(BadParameter, match="one must be honest"):
        shown("coalition-size", members=3, planned=3)


def test_measured_errors_are_the_exact_ones() -> None:
    """Laplace noise has a kurtosis of 6: five standard errors of each point, a false alarm in 1e5 runs."""
    found = shown("parties-error", repetitions=400, people=300)
    near = 5 * math.sqrt(5 / 4 / 400)
    for exact, measured in (
        ("fewer than half collude: exact", "fewer than half: measured"),
        ("all but one: exact", "all but one: measured"),
    ):
        pairs = zip(column(found, exact, 0), column(found, measured, 0), strict=True)
        for expected, seen in pairs:
            assert expected is seen is None or seen == pytest.approx(expected, rel=near)
    q = math.exp(-1)
    assert column(found, "one curator: exact", 1) == pytest.approx(
        [100 * math.sqrt(2 * q) / (1 - q) / n for n in (10, 100, 1000)]
    )


@pytest.mark.slow
def test_the_full_comparison_has_more_points() -> None:
    found = shown("parties-error", full=True)
    assert [row[0] for row in found.tables[0].rows] == [2, 3, 5, 10, 30, 100]
    assert len(found.tables[1].rows) == 7


def test_the_picture_has_a_bar_for_each_coalition() -> None:
    figure = shown("coalition-size").picture()
    heights = [bar.get_height() for bar in figure.axes[0].containers[0]]
    assert heights == [1.0, 1.0, 1.0]


def test_masks_hold_only_against_bounded_power_and_the_text_says_so() -> None:
    assert "bounded computing power" in shown("coalition-view", protocol=4).sentences[-1]
    assert "bounded computing power" not in " ".join(shown("coalition-view").sentences)
