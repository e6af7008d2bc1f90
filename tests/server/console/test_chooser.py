"""What the chooser says of a price is what a release at this price would have."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import exp
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.server.console import chooser
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from support.served import COUNT, write_data


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    folder: Path = tmp_path_factory.mktemp("data")
    with Dataset(Curator(load_policy(write_data(folder))), analyst="ann", closes=True) as opened:
        yield opened


def test_odds_are_those_of_the_logistic_function_rounded_up() -> None:
    for epsilon in (Fraction(1, 100), Fraction(1, 5), Fraction(3)):
        exact = exp(epsilon) / (1 + exp(epsilon))
        assert exact <= float(chooser.odds_after(epsilon)) * (1 + 1e-12)
        assert float(chooser.odds_after(epsilon)) == pytest.approx(exact, abs=1e-6)
    assert chooser.odds_after(Fraction(100)) <= 1
    assert chooser.odds_after(Fraction(1, 5), Fraction(1, 10)) > chooser.odds_after(Fraction(1, 5))


def test_the_epsilon_for_odds_keeps_them() -> None:
    for share in (Fraction(51, 100), Fraction(55, 100), Fraction(7, 10), Fraction(99, 100)):
        epsilon = chooser.epsilon_for_odds(share)
        assert chooser.odds_after(epsilon) <= share
        assert chooser.odds_after(epsilon * Fraction(1002, 1000)) > share
    for wrong in (Fraction(1, 2), Fraction(1), Fraction(0), Fraction(-1)):
        with pytest.raises(BadParameter):
            chooser.epsilon_for_odds(wrong)


def test_stops_are_round_and_end_just_beyond_what_is_left() -> None:
    stops = chooser.round_stops(Fraction(1, 100), Fraction(4, 5), Fraction(1, 5))
    assert stops[-1] == 1
    assert stops[-2] == Fraction(7, 10)
    assert Fraction(1, 5) in stops
    assert len(stops) <= chooser.MOST_STOPS
    assert all(stop >= Fraction(1, 100) for stop in stops)
    assert chooser.labelled_stops(Fraction(1, 100), Fraction(4, 5))[-1] == Fraction(1, 2)


def test_errors_at_other_prices_are_those_of_their_plans(dataset: Dataset) -> None:
    plan = dataset.plan(COUNT, epsilon="0.5")
    for epsilon in (Fraction(1, 10), Fraction(2)):
        there = dataset.plan(COUNT, epsilon=epsilon)
        assert chooser.error_at(plan, epsilon) == chooser.error_words(there)[0]
    assert chooser.error_at(plan, Fraction(1, 10**12)) == ""


def test_the_leading_field_keeps_its_text(dataset: Dataset) -> None:
    plan = dataset.plan(COUNT, within=50)
    found = chooser.chooser_of(plan, Fraction(10), Fraction(0), leads="within", typed="50.0")
    assert found.within == "50.0"
    assert Fraction(found.epsilon) >= plan.cost.epsilon
    assert found.slider is not None
    assert found.slider.beyond
    assert [tick.price for tick in found.slider.ticks]


def test_questions_without_a_width_say_what_they_can(dataset: Dataset) -> None:
    median = chooser.chooser_of(
        dataset.plan("SELECT MEDIAN(stay) AS m FROM visits", epsilon="0.5"),
        Fraction(1),
        Fraction(0),
        leads="epsilon",
    )
    assert not median.can_set_within
    assert median.within_shown.startswith("rank")
    mean = chooser.error_words(dataset.plan("SELECT AVG(stay) AS m FROM visits", epsilon="0.5"))
    assert "n" in mean[0]
