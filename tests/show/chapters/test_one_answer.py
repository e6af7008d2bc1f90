"""The numbers of the chapter "One answer", beside facts that are computed in another way."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import chain, combinations

import pytest

from lapwing.show.chapters.one_answer import DRAWS, cell_chances, expected_size
from lapwing.show.chapters.two_worlds import all_events, ratio_of_count
from support.shown import column, numbers, shown


@pytest.mark.parametrize("scale", [Fraction(1, 10), Fraction(1), Fraction(10), Fraction(100, 3)])
def test_the_cells_of_the_laplace_law_are_sums_of_its_formula(scale: Fraction) -> None:
    width = 2 * math.floor(scale / 4) + 1
    q = math.exp(-1 / scale)
    inner = [
        sum(
            q ** abs(k) * (1 - q) / (1 + q)
            for k in range(j * width - width // 2, (j + 1) * width - width // 2)
        )
        for j in range(-5, 6)
    ]
    cells = cell_chances(scale, width)
    assert cells[1:-1] == pytest.approx(inner)
    assert sum(cells) == pytest.approx(1)
    assert cells == pytest.approx(cells[::-1])


@pytest.mark.parametrize(("epsilon", "distance"), [("0.01", 1), ("1", 5), ("10", 1)])
def test_draws_of_the_laplace_topic_follow_its_law(epsilon: str, distance: int) -> None:
    """A cell is off by more than 6 deviations with probability below 1e-8, 13 cells below 3e-8."""
    one = shown("laplace", epsilon=epsilon, sensitivity=distance)
    chances, drawn = column(one, "probability"), column(one, f"share of {DRAWS:,} draws")
    for chance, share in zip(chances, drawn, strict=True):
        assert abs(share - chance) <= 6 * math.sqrt(chance * (1 - chance) / DRAWS) + 2e-4
    for e, written in zip(column(one, "ε", 1), column(one, "scale", 1), strict=True):
        assert written == pytest.approx(distance / e)


@pytest.mark.parametrize(("epsilon", "distance"), [("0.01", 1), ("0.3", 3), ("1", 100), ("10", 1)])
def test_the_greatest_ratio_is_exactly_e_to_epsilon(epsilon: str, distance: int) -> None:
    one = shown("ratio", epsilon=epsilon, sensitivity=distance)
    bound = math.exp(float(epsilon))
    ratios = column(one, "with / without")
    assert max(ratios) == pytest.approx(bound, rel=1e-12)
    assert min(ratios) == pytest.approx(1 / bound, rel=1e-12)
    assert f"is {float(epsilon):.10f}" in " ".join(one.sentences)


def test_the_belief_after_an_answer_is_rounded_up() -> None:
    assert "at most 73.2 %" in " ".join(shown("ratio", epsilon=1).sentences)


def test_all_events_are_all_sets_of_answers() -> None:
    cells = [(Decimal(k), Decimal(10**k)) for k in range(4)]
    sets = chain.from_iterable(combinations(cells, size) for size in range(5))
    expected = {(sum(p for p, _ in one), sum(q for _, q in one)) for one in sets}
    assert set(all_events(cells)) == expected
    assert len(all_events(cells)) == 16


@pytest.mark.parametrize(("epsilon", "k"), [("0.01", 2), ("1", 9), ("10", 8)])
def test_no_event_is_worse_than_the_worst_answer(epsilon: str, k: int) -> None:
    one = shown("pointwise", epsilon=epsilon, k=k)
    assert sum(column(one, "events")) == 2**k - 1
    assert column(one, "events") == [math.comb(k, size) for size in range(1, k + 1)]
    greatest, least = column(one, "greatest ratio"), column(one, "least ratio")
    assert max(greatest) == greatest[0]
    assert min(least) == least[0]
    assert greatest[0] <= math.exp(float(epsilon)) * (1 + 1e-12)
    assert greatest[-1] == least[-1] == pytest.approx(1)  # all answers together are certain
    if k > 6:  # else all answers lie between the two counts
        assert greatest[0] == pytest.approx(math.exp(float(epsilon)))


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "5"])
def test_the_ratio_of_a_count_is_e_to_epsilon(epsilon: str) -> None:
    assert ratio_of_count(Fraction(epsilon)) == pytest.approx(math.exp(float(epsilon)), rel=1e-14)
    one = shown("small-epsilon", epsilon=epsilon)
    for true, near in zip(column(one, "greatest ratio: e^ε"), column(one, "1 + ε"), strict=True):
        assert true > near
    for before, low, high in (numbers(*row) for row in one.tables[1].rows):
        assert 0 < low < before < high < 100
        # These are the laws of randomized response, which reaches both bounds for some event.
        assert high / before <= math.exp(float(epsilon)) * (1 + 1e-12)
        assert (100 - low) / (100 - before) <= math.exp(float(epsilon)) * (1 + 1e-12)


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(20)])
def test_the_mean_size_is_that_of_the_law(scale: Fraction) -> None:
    q = math.exp(-1 / scale)
    sizes = sum(abs(k) * q ** abs(k) * (1 - q) / (1 + q) for k in range(-1500, 1501))
    assert float(expected_size(scale)) == pytest.approx(sizes)


def test_the_drawn_mean_size_is_near_the_exact_one_and_the_grid_reaches_the_scale() -> None:
    """Each mean is off by more than 6 deviations with probability below 1e-8; there are 8."""
    one = shown("mean-noise", epsilon="0.1", n=10_000)
    exact, drawn = column(one, "mean size, exactly"), column(one, "mean size of 10,000 draws")
    for e, true, seen in zip(column(one, "ε"), exact, drawn, strict=True):
        q = math.exp(-e)
        deviation = math.sqrt(2 * q / (1 - q) ** 2 - true**2)
        assert abs(seen - true) < 6 * deviation / 100
    assert column(one, "mean size / scale", 1)[-1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("n", [2, 5, 100])
def test_no_data_move_a_statistic_further_than_its_sensitivity_and_the_worst_reach_it(n: int) -> None:
    one = shown("sensitivity", n=n, rows=5)
    found = dict(zip(column(one, "statistic"), one.tables[0].rows, strict=True))
    assert found["people who complained"][1:3] == (1, 1)
    assert found["complaints, at most 5 each"][1:3] == (5, 5)
    assert found["mean of values from 0 to 1"][1] == pytest.approx(1 / n)
    assert found["standard deviation of them"][1] == pytest.approx(math.sqrt(n - 1) / n)
    for most, change in (numbers(*row[1:3]) for row in one.tables[0].rows):
        assert change == pytest.approx(most)
        assert change <= most * (1 + 1e-12)
