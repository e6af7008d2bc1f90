"""Counts from a bundle: intervals where the noise is known, a mark where it is not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.errors import BadParameter
from lapwing.publish import PublishedBundle
from lapwing.publish.bundle.utility_report import best_interval
from support.published import town

SIGMAS = (Fraction(20), Fraction(5))


def test_counts_inside_a_measured_marginal_have_an_interval() -> None:
    rows = PublishedBundle(town() / "rows")
    everybody, women = rows.count(), rows.count({"sex": "f"})
    for found in (everybody, women, rows.count({"age": 33}), rows.count({"age": "30 to 34"})):
        assert found.source == "measured"
        assert found.low is not None
        assert found.high is not None
        assert found.low < found.value < found.high
    assert rows.count({"age": 33}) == rows.count({"age": "30 to 34"})
    assert everybody.low is not None
    assert everybody.high is not None
    assert everybody.low < 5193 + 100 < everybody.high + 200  # the town has 5,193 people


def test_other_counts_are_marked_and_have_none() -> None:
    rows = PublishedBundle(town() / "rows")
    found = rows.count({"sex": "f", "age": 70, "work": "retired", "commute": "none"})
    assert (found.source, found.low, found.high) == ("model", None, None)


def test_a_census_has_an_interval_for_every_number() -> None:
    census = PublishedBundle(town() / "census")
    whole, part = census.count(), census.count({"life": "old"}, level="district", area="district 2")
    assert whole.low is not None
    assert whole.high is not None
    assert whole.low < whole.value < whole.high
    # The interval misses once in twenty times; three times as wide (about 6 deviations) once in 10⁸.
    assert abs(whole.value - 5193) < 1.5 * (whole.high - whole.low)
    assert part.value < whole.value
    assert census.count({"sex": "f", "life": "old"}, level="block", area="101").source == "measured"


@pytest.mark.parametrize(
    ("bundle", "question", "words"),
    [
        ("rows", {"where": {"income": 1}}, "not a column"),
        ("rows", {"where": {"sex": "x"}}, "no such value"),
        ("rows", {"level": "block"}, "for a census"),
        ("census", {"level": "street"}, "must be one of"),
        ("census", {"level": "block"}, "must name one"),
        ("census", {"level": "block", "area": "nowhere"}, "no area"),
    ],
)
def test_what_is_not_there_is_told(bundle: str, question: dict[str, object], words: str) -> None:
    with pytest.raises(BadParameter, match=words):
        PublishedBundle(town() / bundle).count(**question)  # type: ignore[arg-type]


def test_the_interval_of_a_chosen_measurement_covers_also_if_its_noise_decided_the_choice() -> None:
    """An adversary measures again, with less noise, exactly if the first interval would cover."""
    draws = 4000
    first, second = (
        Gaussian(sigma, Fraction(1), draws).sample(np.zeros(draws, np.int64)) for sigma in SIGMAS
    )
    alone, wide = best_interval(SIGMAS[:1], [1], is_fixed=False)
    both, narrow = best_interval(SIGMAS, [1, 1], is_fixed=False)
    assert (alone, both) == (0, 1)
    again = np.abs(first) <= wide
    misses = np.where(again, np.abs(second) > narrow, np.abs(first) > wide).mean()
    assert misses <= 0.05 + 0.012  # 3.5 deviations of 4,000 draws


def test_a_single_planned_measurement_has_the_whole_probability() -> None:
    _, fixed = best_interval(SIGMAS[:1], [1], is_fixed=True)
    assert fixed == Gaussian(SIGMAS[0], Fraction(1), 1).spread(Fraction(95, 100))
    _, summed = best_interval(SIGMAS[:1], [4], is_fixed=True)
    assert summed == SummedGaussian(SIGMAS[0], contributors=4).spread(Fraction(95, 100))
